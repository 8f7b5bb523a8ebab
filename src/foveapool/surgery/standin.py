"""StandIn: the module that takes a layer's place in a network and remembers whose place it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from torch import Tensor, nn

from foveapool.pooling.module import LinearPool2d, linear_pool2d
from foveapool.pooling.resample import scaled_out_shape
from foveapool.surgery.geometry import Pair, Unstrided, out_shape_of
from foveapool.surgery.optimiser import Slot

Mode = Literal["replace", "after"]
OnResize = Literal["error", "interpolate"]
MODES = ("replace", "after")
ON_RESIZE = ("error", "interpolate")


class StandIn(nn.Module):
    """Pools in the place of `original`, which is kept aside for `restore`.

    Mode `replace`: the pooling instead of the layer. Mode `after`: the layer at stride 1, then the
    pooling. A 1x1 convolution `project` follows where the channels would not agree otherwise.
    The original's plain attributes (stride, kernel_size, ...) can be read here as they were:
    networks look at them when they pad.
    """

    original: nn.Module
    pool: Any
    turn: int  # how many calls of `replace` the network had seen
    slots: tuple[Slot, ...]  # what left the optimiser in that call

    def __init__(
        self,
        original: nn.Module,
        pool: nn.Module,
        mode: Mode = "replace",
        project: nn.Module | None = None,
        in_shape: Pair | None = None,
        on_resize: OnResize = "error",
    ) -> None:
        super().__init__()
        for name, value in _plain_attributes(original).items():
            setattr(self, name, value)
        # Past nn.Module, which would list its weights among the network's.
        object.__setattr__(self, "original", original)
        self.turn, self.slots = 0, ()
        self.mode, self.on_resize, self.read_shape = mode, on_resize, in_shape
        self.stage: Unstrided | None = None
        if mode == "after":
            shape: Any = pool
            self.stage = Unstrided(original, in_shape or shape.in_shape, shape.out_shape)
        self.pool, self.project = pool, project
        self._carried: dict[tuple[Any, ...], LinearPool2d] = {}
        self.train(original.training)

    @property
    def weight(self) -> Tensor:
        """The layer's own weights, or the pooling's: networks look at their dtype and device."""
        return self.pool.weight if self.stage is None else self.stage.layer.weight

    def release(self) -> nn.Module:
        """The original as it was, on the device and of the type that its place has now."""
        original = self.original
        if self.stage is not None:
            return self.stage.release()
        now = next((t for t in self.state_dict().values() if t.is_floating_point()), None)
        kept = next(original.parameters(), None)
        if now is not None and kept is not None:
            original.to(now)
        return original.train(self.training)

    def forward(self, x: Tensor) -> Tensor:
        """What the network wanted from the original, pooled."""
        if self.stage is not None:
            x = self.stage(x)
        pool = self.pool
        if self.on_resize == "interpolate" and isinstance(pool, LinearPool2d):
            shape = (x.shape[2], x.shape[3])
            x = pool(x) if shape == pool.in_shape else self._interpolated(x, shape)
        else:
            x = pool(x)
        return x if self.project is None else self.project(x)

    def _interpolated(self, x: Tensor, shape: Pair) -> Tensor:
        pool = self.pool
        assert isinstance(pool, LinearPool2d)
        target = self._target(shape)
        if pool.weight.requires_grad:
            # Gradients have to reach the operator, so nothing can be kept from call to call.
            weight = pool.resized_weight(shape, target)
            return linear_pool2d(x, weight, target, pool.mean)
        version = (shape, pool.weight._version, pool.weight.dtype, pool.weight.device)
        if version not in self._carried:
            stale = [key for key in self._carried if key[1:] != version[1:]]
            for key in stale:
                del self._carried[key]
            self._carried[version] = pool.resized(shape, target)
        return self._carried[version](x)

    def _target(self, shape: Pair) -> Pair:
        """The output size: what the original would give, or the same share of the input."""
        pool = self.pool
        assert isinstance(pool, LinearPool2d)
        target = None
        if self.stage is None:
            target = out_shape_of(self.original, shape)
        elif self.stage.own_stride is not None:
            target = (shape[0] // self.stage.steps[0], shape[1] // self.stage.steps[1])
        height, width = target or scaled_out_shape(pool.in_shape, pool.out_shape, shape)
        return height, width

    def __getstate__(self) -> Mapping[str, Any]:
        """All but what can be computed again."""
        return {**self.__dict__, "_carried": {}}

    def extra_repr(self) -> str:
        """What `print(model)` shows."""
        return f"{self.mode} {type(self.original).__name__}"


def _plain_attributes(module: nn.Module) -> dict[str, Any]:
    taken = {*vars(nn.Module()), "training"}
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_")
        and name not in taken
        and isinstance(value, (bool, int, float, str, tuple, type(None)))
    }
