"""PooledLayer: the module that takes a layer's place in a network and remembers whose place it is.

Whether a pooling can stand there, and in which mode, is checked before anything changes.
"""

from __future__ import annotations

import dataclasses
import warnings
import weakref
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from foveapool.pooling.functional import linear_pool
from foveapool.pooling.layer import Layer
from foveapool.pooling.mixing import ChannelMixing, MixingPool, pool_and_mix
from foveapool.pooling.module import LinearPool
from foveapool.surgery.forward import get_version
from foveapool.surgery.geometry import (
    CONVOLUTIONS,
    Sizes,
    Unstrided,
    count_axes,
    count_channels,
    find_offset,
    find_reference_tensor,
    keeps_channels,
    measure_out_shape,
)

Mode = Literal["replace", "mix", "after"]
OnResize = Literal["error", "interpolate"]
MODES = ("replace", "mix", "after")
ON_RESIZE = ("error", "interpolate")


def check_mode(mode: str) -> None:
    """Raises a ValueError unless there is such a mode."""
    if mode not in MODES:
        raise ValueError(f"mode: got {mode!r}, wanted one of {MODES}")


@dataclass(frozen=True)
class Slot:
    """Where a parameter stood in an optimizer, and what the optimizer remembered of it."""

    group: int
    index: int
    parameter: nn.Parameter
    state: dict[str, Any] | None
    name: str | None  # for optimizers that were given named parameters


@dataclass
class Role:
    """How a stand-in works, and what `restore` has to know of it."""

    mode: Mode
    on_resize: OnResize
    read_shape: Sizes | None  # of the maps that the original was seen to read, if known
    turn: int = 0  # how many calls of `replace` the network had seen
    slots: tuple[Slot, ...] = ()  # what left the optimizer in that call
    optimizer: weakref.ref[Optimizer] | None = None  # the one that followed it


REFUSAL = (
    "PooledLayer: got asked for {}, as by code that folds a convolution into what follows it or "
    "starts its weights anew; a pooling stands in that convolution's place, and would be lost. "
    "Wanted dtype and device at most; fold first and then replace, or call restore(model) before"
)


def _refuse(what: str) -> Any:
    raise ValueError(REFUSAL.format(what))


class TypeAndDevice:
    """Stands where a layer's weights were: they had a type and a device, which this has too.

    `maps.to(layer.weight)` and `layer.weight.dtype` go on working; anything else is refused.
    """

    def __init__(self, like: Tensor) -> None:
        self._like = like

    @property
    def dtype(self) -> torch.dtype:
        """Of the numbers that work here."""
        return self._like.dtype

    @property
    def device(self) -> torch.device:
        """Where they are."""
        return self._like.device

    @property
    def data(self) -> TypeAndDevice:
        """The same: `weight.data.dtype` is asked for as often as `weight.dtype`."""
        return self

    def __getattr__(self, name: str) -> Any:
        if name in _HARMLESS:
            return getattr(self._like, name)
        if name.startswith("_"):  # protocols are looked for by asking
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return _refuse(f"`weight.{name}`")

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") not in ("to", "type_as") or isinstance(args[0], cls):
            _refuse(f"the numbers of `weight`, by {getattr(func, '__name__', func)}")
        own = [each._like if isinstance(each, cls) else each for each in args]
        return func(*own, **(kwargs or {}))


# What says of which type weights are and where, and nothing about their numbers.
_HARMLESS = (
    *("layout", "itemsize", "requires_grad", "is_cuda", "is_cpu", "is_mps", "is_xpu", "is_meta"),
    *("is_quantized", "is_sparse", "is_floating_point", "is_complex", "element_size", "get_device"),
)
# Operators are looked for in the class, past `__getattr__`.
_OPERATORS = ("getitem", "len", "iter", "neg", "mul", "add", "sub", "truediv", "pow", "matmul")
for _name in _OPERATORS:
    setattr(TypeAndDevice, f"__{_name}__", lambda *_: _refuse("the numbers of `weight`"))


class PooledLayer(Layer):
    """Pools in the place of `original`, which is kept aside for `restore`.

    Mode `replace`: the pooling instead of the layer; a 1x1 convolution `project` follows where the
    channels would not agree otherwise. Mode `mix`: the pooling and the 1x1 convolution `mixing`.
    Mode `after`: the layer at stride 1, then the pooling.
    The original's plain attributes (stride, kernel_size, ...) can be read here as they were:
    networks look at them when they pad.
    """

    original: nn.Module
    pool: Any

    def __init__(
        self,
        original: nn.Module,
        pool: nn.Module,
        mode: Mode = "replace",
        project: nn.Module | None = None,
        in_shape: Sizes | None = None,
        on_resize: OnResize = "error",
        mixing: ChannelMixing | None = None,
        offset: Sizes = (),
    ) -> None:
        super().__init__()
        for name, value in _plain_attributes(original).items():
            setattr(self, name, value)
        # Past nn.Module, which would list its weights among the network's.
        object.__setattr__(self, "original", original)
        self.role = Role(mode, on_resize, in_shape)
        self.stage: Unstrided | None = None
        if mode == "after":
            shape: Any = pool
            shapes = (in_shape or shape.in_shape, shape.out_shape)
            self.stage = Unstrided(original, *shapes, offset)
        self.pool, self.project, self.mixing = pool, project, mixing
        self._carried: dict[tuple[Sizes, Sizes], Tensor] = {}  # the operator for other sizes
        self._out_shapes: dict[Sizes, Sizes] = {}  # the original's, for other sizes
        # The weights, when that was, and their numbers if they train.
        self._carried_from: tuple[Any, Any, Any] = (None, None, None)
        self.train(original.training)
        _tell_fusers()

    @property
    def weight(self) -> TypeAndDevice:
        """The type and the device of what works here, for networks that look at them.

        No numbers: code that folds a convolution would take them for its kernel, and leave the
        pooling out.
        """
        if not hasattr(self.original, "weight"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute 'weight'")
        layer = None if self.stage is None else self.stage.layer
        parts = (layer, self.mixing, self.pool, self.original)
        return TypeAndDevice(find_reference_tensor(*(each for each in parts if each is not None)))

    @weight.setter
    def weight(self, value: Any) -> None:
        raise ValueError(REFUSAL.format("a new `weight`"))

    def register_parameter(self, name: str, param: nn.Parameter | None) -> None:
        if name in ("weight", "bias"):
            raise ValueError(REFUSAL.format(f"a new `{name}`"))
        super().register_parameter(name, param)

    @property
    def bias(self) -> Tensor | None:
        """What is added to each channel, as far as a layer of its own does that."""
        adding = self._follower if self.stage is None else self.stage.layer
        return getattr(adding, "bias", None)

    @property
    def _follower(self) -> nn.Module | None:
        """The 1x1 convolution behind the pooling, if there is one."""
        return self.project if self.mixing is None else self.mixing

    def release(self) -> nn.Module:
        """The original as it was, in the mode that its place has now."""
        if self.stage is not None:
            self.stage.release()
        return self.original.train(self.training)

    def forward(self, input: Tensor) -> Tensor:
        """What the network wanted from the original, pooled; `input` is torch's name for it."""
        maps = input if self.stage is None else self.stage(input)
        pool, follower = self.pool, self._follower
        resizes = self.role.on_resize == "interpolate" and isinstance(pool, LinearPool)
        if resizes and tuple(maps.shape[2:]) != pool.in_shape:
            maps = self._interpolated(maps, self._target(input))
        elif self.mixing is not None:
            return pool_and_mix(maps, pool, self.mixing)
        else:
            maps = pool(maps)
        return maps if follower is None else follower(maps)

    def _interpolated(self, x: Tensor, target: Sizes) -> Tensor:
        pool, shape = self.pool, tuple(x.shape[2:])
        learns = pool.weight.requires_grad and torch.is_grad_enabled()
        if learns or _is_recorded(pool.weight):
            # Gradients have to reach the operator, and a recorded graph cannot ask whether the
            # weights changed: nothing can be kept from call to call.
            weight = pool.resized_weight(shape, target)
        else:
            weight = self._carried_to(shape, target)
        return linear_pool(x, weight, target, pool.mean)

    def _carried_to(self, shape: Sizes, target: Sizes) -> Tensor:
        """The operator for that size, computed once until the pooling's own weights change."""
        own, (source, then, copy) = self.pool.weight, self._carried_from
        now = (get_version(own), own.dtype, own.device, own.requires_grad)
        # Fused optimizers leave the version as it was: where weights train, numbers are compared.
        if own is not source or now != then or (copy is not None and not torch.equal(own, copy)):
            copy = own.detach().clone() if own.requires_grad else None
            self._carried, self._carried_from = {}, (own, now, copy)
        if (shape, target) not in self._carried:
            # A tensor made in inference mode could not be used for training later.
            with torch.inference_mode(False), torch.no_grad():
                self._carried[shape, target] = self.pool.resized_weight(shape, target)
        return self._carried[shape, target]

    def _target(self, x: Tensor) -> Sizes:
        """The size of what the original would make of `x`."""
        shape = tuple(x.shape[2:])
        if torch.compiler.is_compiling():
            return self._seen(shape, x.shape[1])
        if shape not in self._out_shapes:
            self._out_shapes[shape] = self._seen(shape, x.shape[1])
        return self._out_shapes[shape]

    def _seen(self, shape: Sizes, channels: int) -> Sizes:
        if self.stage is not None:
            return self.stage.out_shape(shape, channels)
        return measure_out_shape(self.original, shape, channels)

    def __getstate__(self) -> Mapping[str, Any]:
        """All but what can be computed again, and what an optimizer had, which knows no copies."""
        empty = {"_carried": {}, "_carried_from": (None, None, None), "_out_shapes": {}}
        role = dataclasses.replace(self.role, optimizer=None, slots=())
        return {**self.__dict__, **empty, "role": role}

    def extra_repr(self) -> str:
        """What `print(model)` shows."""
        return f"{self.role.mode} {type(self.original).__name__}"


def _tell_fusers() -> None:
    """Has torch.ao's `fuse_modules` refuse a `PooledLayer` in words, not for want of an entry."""
    with suppress(ImportError):
        from torch.ao.quantization import fuser_method_mappings

        known = getattr(fuser_method_mappings, "_DEFAULT_OP_LIST_TO_FUSER_METHOD", {})
        for norm in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d):
            for behind in ((norm,), (norm, nn.ReLU), (nn.ReLU,)):
                known.setdefault(
                    (PooledLayer, *behind), lambda *_: _refuse("being fused with what follows it")
                )


def _is_recorded(weight: Tensor) -> bool:
    """Whether what is computed now is run again later, maybe with other weights."""
    captured = weight.is_cuda and torch.cuda.is_current_stream_capturing()
    return torch.compiler.is_compiling() or (captured and weight.requires_grad)


def _plain_attributes(module: nn.Module) -> dict[str, Any]:
    # `weight` and `bias` can be read in a way of their own.
    taken = {*vars(nn.Module()), "training", "weight", "bias"}
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_") and name not in taken and _is_plain(value)
    }


def _is_plain(value: Any) -> bool:
    if isinstance(value, (tuple, list)):  # a kernel's size may be written as either
        return all(map(_is_plain, value))
    return isinstance(value, (bool, int, float, str, type(None)))


def mark_fitted(
    pool: LinearPool,
    mode: Mode,
    read_shape: Sizes,
    mixing: ChannelMixing | None = None,
    origin: str = "",
) -> LinearPool | MixingPool:
    """The pooling, with its mixing if it has one, told how it was fitted: `replace` reads that."""
    pool.fitted_for, pool.read_shape = mode, read_shape
    if mixing is None:
        return pool
    mixed = MixingPool(pool, mixing.to(pool.weight.device))
    mixed.fitted_for, mixed.read_shape, mixed.origin = mode, read_shape, origin
    return mixed


def choose_mode(name: str, pool: nn.Module, mode: Mode | None) -> Mode:
    """The mode asked for, or the one that the pooling was fitted for, which must not differ."""
    fitted: Mode | None = getattr(pool, "fitted_for", None)
    if mode and fitted and mode != fitted:
        raise ValueError(
            f"mode: got {mode!r} for {name}, wanted {fitted!r}, which its pooling was fitted for; "
            "leave mode out, or fit in the other mode"
        )
    return mode or fitted or ("mix" if isinstance(pool, MixingPool) else "replace")


def split_mixing(pool: nn.Module) -> tuple[nn.Module, ChannelMixing | None]:
    """The pooling, and the mixing that was handed over with it, if one was."""
    return (pool.pool, pool.mixing) if isinstance(pool, MixingPool) else (pool, None)


def check_can_mix(name: str, layer: nn.Module) -> None:
    """Raises a ValueError unless mode `mix` can do the layer's work."""
    if not isinstance(layer, CONVOLUTIONS):
        raise ValueError(
            f"{name}: got a {type(layer).__name__} for mode 'mix', wanted a convolution: mixing "
            "makes a convolution's channels, and a pooling keeps those it reads; use mode "
            "'replace' or 'after'"
        )


def _check_mixing(name: str, layer: nn.Module, pool: nn.Module, mixing: ChannelMixing) -> None:
    own = count_channels(layer) or (0, 0)
    if (mixing.in_channels, mixing.out_channels) != own:
        raise ValueError(
            f"{name}: got a mixing of {mixing.in_channels} to {mixing.out_channels} channels, "
            f"wanted {own[0]} to {own[1]}; was it fitted on another layer?"
        )
    components = getattr(pool, "components", 1)
    if mixing.components != components:
        raise ValueError(
            f"{name}: got a mixing for {mixing.components} components, wanted {components}, as "
            "many as its pooling has"
        )


def check_pool(name: str, layer: nn.Module, pool: nn.Module, mode: Mode) -> None:
    """Raises a ValueError unless `pool` can stand in for `layer`."""
    if isinstance(layer, PooledLayer):
        raise ValueError(f"{name}: is replaced already; call restore(model) first")
    pool, mixing = split_mixing(pool)
    if mode == "mix":
        check_can_mix(name, layer)
    if mixing is not None:
        if mode != "mix":
            raise ValueError(
                f"{name}: got a MixingPool for mode {mode!r}, wanted mode 'mix', or its `pool` "
                "alone"
            )
        _check_mixing(name, layer, pool, mixing)
    if mode == "after" and not isinstance(pool, LinearPool):
        raise ValueError(
            f"{name}: got a {type(pool).__name__} for mode 'after', wanted a "
            f"LinearPool{count_axes(layer) or 2}d"
        )
    if not isinstance(pool, LinearPool):
        return
    if count_axes(layer) not in (None, pool.axes):
        raise ValueError(
            f"{name}: got a {type(pool).__name__} for a {type(layer).__name__}, wanted a "
            f"LinearPool{count_axes(layer)}d, for maps with as many axes"
        )
    if pool.components > 1 and (mode == "after" or keeps_channels(layer)):
        raise ValueError(
            f"{name}: got a pooling with {pool.components} components, wanted 1: "
            + (
                "in mode 'after' the convolution before it makes the channels"
                if mode == "after"
                else f"a {type(layer).__name__} keeps the number of channels"
            )
        )
    if pool.mean is not None and (channels := count_channels(layer)):
        wanted = channels[mode == "after"]
        if len(pool.mean) != wanted:
            raise ValueError(
                f"{name}: got a pooling for {len(pool.mean)} channels, wanted {wanted} in mode "
                f"{mode!r}; was it fitted on another layer or in another mode?"
            )


def check_stage(
    model: nn.Module, name: str, layer: nn.Module, pool: Any, in_shape: Sizes | None
) -> Sizes:
    """Where the layer's own output lies at stride 1, tried on maps as near to its own as is known.

    Raises if it cannot work at stride 1.
    """
    known = count_channels(layer) or (1 if pool.mean is None else len(pool.mean),)
    return find_offset(name, layer, in_shape or pool.in_shape, known[0], model)


def leave_inference(pool: nn.Module) -> None:
    """Gives a pooling that was made in inference mode tensors that can be trained."""
    for module in pool.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None and parameter.is_inference():
                new = nn.Parameter(parameter.detach().clone(), parameter.requires_grad)
                module._parameters[name] = new
        for name, buffer in module._buffers.items():
            if buffer is not None and buffer.is_inference():
                module._buffers[name] = buffer.clone()


def warn_of_other_references(model: nn.Module, layers: Collection[nn.Module]) -> None:
    """Warns of layers that a module keeps in a plain list too, and may call from there."""
    for name, module in model.named_modules():
        for attribute, value in vars(module).items():
            if attribute == "_modules" or not isinstance(value, (list, tuple, Mapping)):
                continue
            if any(each in layers for each in _modules_in(value)):
                warnings.warn(
                    f"{name or 'model'}: got a layer to replace that stands in its "
                    f"`{attribute}`, a {type(value).__name__}, too; called from there it stays the "
                    "old one: make that an nn.ModuleList or nn.ModuleDict",
                    stacklevel=3,
                )


def _modules_in(value: Any, depth: int = 4) -> Iterator[nn.Module]:
    """The modules in containers in containers; not for ever, since one may hold itself."""
    if isinstance(value, nn.Module):
        yield value
    elif isinstance(value, (list, tuple, Mapping)) and depth:
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _modules_in(each, depth - 1)
