"""What a shrinking layer does to sizes, and the same layer at stride 1.

A strided layer is its stride-1 form of which one place in each block is kept. `Unstrided` is that
form, with its map made up to whole blocks, so that a learned pooling can do the keeping instead.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from foveapool._eval_mode import eval_mode

Pair = tuple[int, int]
POOLINGS = (
    nn.MaxPool2d,
    nn.AvgPool2d,
    nn.LPPool2d,
    nn.FractionalMaxPool2d,
    nn.AdaptiveAvgPool2d,
    nn.AdaptiveMaxPool2d,
)
TORCHS_OWN = (nn.Conv2d, *POOLINGS)


def may_shrink(module: nn.Module) -> bool:
    """Whether it is one layer, whose place a pooling could take.

    A convolution, a pooling, or another's code that holds no layers with weights, as a BlurPool's.
    """
    if isinstance(module, TORCHS_OWN):
        return True
    if type(module).__module__.startswith("torch."):
        return False
    return not any(inner.state_dict() for inner in module.children())


def keeps_channels(layer: nn.Module) -> bool:
    """Whether the layer gives as many channels as it reads, whichever number that is."""
    return not isinstance(layer, nn.Conv2d) and count_channels(layer) is None


def count_channels(layer: Any) -> Pair | None:
    """The channels that a layer reads and gives, where it says so."""
    counts = [getattr(layer, name, None) for name in ("in_channels", "out_channels")]
    first, second = counts
    return (first, second) if isinstance(first, int) and isinstance(second, int) else None


def as_pair(value: Any) -> Pair:
    """(height, width) of an argument that may be one number for both."""
    first, second = value if isinstance(value, (tuple, list)) else (value, value)
    return first, second


def get_stride(layer: Any) -> Pair | None:
    """The steps that a layer takes; None for poolings that are told their output size instead."""
    if not hasattr(layer, "stride"):
        return None
    # LPPool2d keeps a None where others write down the size of their window.
    return as_pair(layer.stride or layer.kernel_size)


def takes_steps(layer: nn.Module) -> bool:
    """Whether the layer shrinks maps by steps, rather than losing edges for want of padding."""
    steps = get_stride(layer)
    return steps is None or max(steps) > 1


def halves_maps(pool: nn.Module) -> bool:
    """Whether a pooling that is to stand in makes maps half as high or wide, or less, if it says.

    >>> halves_maps(nn.AvgPool2d(2)), halves_maps(nn.AvgPool2d(3, 1)), halves_maps(nn.Identity())
    (True, False, False)
    """
    if isinstance(pool, (nn.Conv2d, *POOLINGS)):
        return max(get_stride(pool) or (1, 1)) > 1
    shapes = [getattr(pool, name, None) for name in ("in_shape", "out_shape")]
    if not all(isinstance(shape, tuple) and len(shape) == 2 for shape in shapes):
        return False
    sizes = zip(*shapes, strict=True)
    return any(after < before and after <= -(-before // 2) for before, after in sizes)


def measure_out_shape(layer: nn.Module, in_shape: Pair, channels: int) -> Pair:
    """The map size that a layer makes of `in_shape`, seen by running it: it may pad as it likes."""
    own = find_reference_tensor(layer)
    with torch.no_grad():
        height, width = layer.forward(own.new_zeros(1, channels, *in_shape)).shape[2:]
    return height, width


def find_reference_tensor(*modules: nn.Module) -> Tensor:
    """A tensor of the type and on the device of the modules, of the first that has any."""
    own = (t for module in modules for t in (*module.parameters(), *module.buffers()))
    return next((t for t in own if t.is_floating_point()), torch.empty(0))


def find_offset(name: str, layer: Any, in_shape: Pair, channels: int, around: nn.Module) -> Pair:
    """Where in each block of its map at stride 1 the layer's own output lies, found by trying.

    At the first place for torch's own. Layers that compute their padding from their stride have it
    elsewhere, or nowhere: then a ValueError is raised, since mode `after` needs it. A layer without
    numbers works on those of the network `around` it.
    """
    steps = get_stride(layer)
    if _as_torch_wrote_it(layer):
        return 0, 0
    noise = torch.rand(1, channels, *in_shape, generator=torch.Generator().manual_seed(0))
    offset = steps and try_offsets(layer, noise.to(find_reference_tensor(layer, around)), steps)
    if offset is None:
        why = (
            "has no stride that could be 1"
            if steps is None
            else "at stride 1 does not make its own output and the places between (tried on maps "
            f"of {in_shape[0]} x {in_shape[1]})"
        )
        raise ValueError(
            f"{name}: got a {type(layer).__name__} which {why}, wanted one that does for mode "
            "'after'; use mode 'replace', or tell `replace` by in_shapes if its maps have another "
            "size"
        )
    return offset


def try_offsets(layer: Any, maps: Tensor, steps: Pair, overhangs: bool = False) -> Pair | None:
    """The place in each block of the layer's map at stride 1 where its own output lies, if any.

    Where the layer `overhangs`, its last row and column may be missing at stride 1.
    """
    stride = layer.stride
    with torch.no_grad(), eval_mode(layer):
        # Without hooks, which are its owner's business.
        wanted = layer.forward(maps)
        layer.stride = ones_for(stride)
        try:
            everywhere = layer.forward(maps)
        except RuntimeError:  # its own code may count on the stride
            return None
        finally:
            layer.stride = stride
    for offset in itertools.product(*map(range, steps)):
        found = everywhere[:, :, offset[0] :: steps[0], offset[1] :: steps[1]]
        shared = found[:, :, : wanted.shape[2], : wanted.shape[3]].shape
        missing = max(all_ - some for all_, some in zip(wanted.shape, shared, strict=True))
        if found.shape != shared or missing > int(overhangs):
            continue
        # Half precision adds up differently at another stride; another place is another number.
        apart = found - wanted[:, :, : shared[2], : shared[3]]
        if apart.abs().max() <= 0.05 * wanted.abs().max():
            return offset[0], offset[1]
    return None


def _as_torch_wrote_it(layer: nn.Module) -> bool:
    kind: Any = type(layer)
    if "forward" in vars(layer):
        return False
    if isinstance(layer, nn.Conv2d) and kind._conv_forward is not nn.Conv2d._conv_forward:
        return False
    return any(kind.forward is known.forward for known in TORCHS_OWN)


def ones_for(stride: Any) -> Any:
    """Stride 1 in the form that the layer's own has: its code may count on it."""
    return type(stride)([1] * len(stride)) if isinstance(stride, (tuple, list)) else 1


@torch.fx.wrap  # one node of a symbolic trace, which cannot look at sizes
def _whole_blocks(maps: Tensor, steps: Pair, offset: Pair) -> Tensor:
    """Maps (B, C, H, W) from that place on, made up to whole blocks of that size."""
    if offset != (0, 0):
        maps = maps[:, :, offset[0] :, offset[1] :]
    for axis, step in zip((2, 3), steps, strict=True):
        # Repeated edges: what is drawn there is as likely as what stands beside it. (F.pad can
        # replicate too, but the gradient of channels-last maps does not compile.)
        missing = -maps.shape[axis] % step
        if missing:
            maps = torch.cat([maps] + [maps.narrow(axis, -1, 1)] * missing, axis)
    return maps


class Unstrided(nn.Module):
    """The very `layer` at stride 1, its map made up to whole blocks; `release` undoes it.

    The old output is found at the first place of each block. At stride 1 that of torch's
    convolutions and poolings is there; for a layer of another make `find_offset` says where it is,
    and the map begins with that place. `in_shape` and `out_shape` are the sizes that the layer was
    seen to work on: poolings without a stride get theirs from these.
    """

    layer: Any

    def __init__(
        self, layer: nn.Module, in_shape: Pair, out_shape: Pair, offset: Pair = (0, 0)
    ) -> None:
        super().__init__()
        self.layer = layer
        # For maps of another size it is found when they come.
        self.offsets: dict[tuple[int, ...], Pair] | None = None
        if not _as_torch_wrote_it(layer):
            self.offsets = {tuple(in_shape): offset}
        height, width = (math.ceil(n / m) for n, m in zip(in_shape, out_shape, strict=True))
        own = get_stride(layer)
        self.steps = own or (height, width)
        self.strided = own is not None
        if self.strided:
            self.own_stride = self.layer.stride
            self.layer.stride = ones_for(self.own_stride)
        plain = (nn.MaxPool2d.forward, nn.AvgPool2d.forward, nn.LPPool2d.forward)
        self.overhangs = getattr(layer, "ceil_mode", False) and type(layer).forward in plain
        self.train(layer.training)

    def release(self) -> nn.Module:
        """The layer with its own stride again."""
        if self.strided:
            self.layer.stride = self.own_stride
        return self.layer

    def out_shape(self, in_shape: Pair, channels: int) -> Pair:
        """The map size that the layer makes of `in_shape` with its own stride."""
        self.release()
        try:
            return measure_out_shape(self.layer, in_shape, channels)
        finally:
            if self.strided:
                self.layer.stride = ones_for(self.own_stride)

    def forward(self, x: Tensor) -> Tensor:
        """The stride-1 map of `x` (B, C, H, W)."""
        return _whole_blocks(self._everywhere(x), self.steps, self._offset(x))

    def _offset(self, x: Tensor) -> Pair:
        if self.offsets is None:
            return 0, 0
        shape = (x.shape[2], x.shape[3])
        if shape not in self.offsets:
            noise = torch.rand(1, *x.shape[1:], generator=torch.Generator().manual_seed(0))
            self.release()
            found = try_offsets(self.layer, noise.to(x), self.steps, overhangs=True)
            self.layer.stride = ones_for(self.own_stride)
            if found is None:
                raise ValueError(
                    f"{type(self.layer).__name__}: got maps of {shape[0]} x {shape[1]}, of which "
                    "it makes, at stride 1, other numbers than its own, wanted the size that it "
                    "was replaced for"
                )
            self.offsets[shape] = found
        return self.offsets[shape]

    def _everywhere(self, x: Tensor) -> Tensor:
        layer = self.layer
        if isinstance(layer, nn.AdaptiveAvgPool2d):
            return F.avg_pool2d(x, self.steps, 1)
        if isinstance(layer, nn.AdaptiveMaxPool2d):
            return F.max_pool2d(x, self.steps, 1)
        if isinstance(layer, nn.FractionalMaxPool2d):
            return F.max_pool2d(x, layer.kernel_size, 1)
        if self.overhangs:
            over = self._overhang((x.shape[2], x.shape[3]))
            if over != (0, 0):
                return self._overhanging(x, over)
        return layer(x)

    def _overhang(self, in_shape: Pair) -> Pair:
        """How far `ceil_mode` lets the last window begin behind the last that fits."""
        layer, over = self.layer, []
        paddings, dilations = (
            as_pair(getattr(layer, name, default))
            for name, default in (("padding", 0), ("dilation", 1))
        )
        for axis, (size, step) in enumerate(zip(in_shape, self.steps, strict=True)):
            reach = dilations[axis] * (as_pair(layer.kernel_size)[axis] - 1)
            room = size + 2 * paddings[axis] - reach - 1
            last = -(-room // step) * step
            # The last window has to begin inside of the map, or in the padding before it.
            last -= step if last >= size + paddings[axis] else 0
            over.append(max(0, last - room))
        return over[0], over[1]

    def _overhanging(self, x: Tensor, over: Pair) -> Tensor:
        layer: Any = self.layer
        if isinstance(layer, nn.MaxPool2d):
            high, wide = as_pair(layer.padding)
            edges = (wide, wide + over[1], high, high + over[0])
            x = F.pad(x, edges, value=-math.inf)
            return F.max_pool2d(x, layer.kernel_size, 1, dilation=layer.dilation)
        if isinstance(layer, nn.LPPool2d):
            high, wide = as_pair(layer.kernel_size)
            mean = self._overhanging_average(x.pow(layer.norm_type), over, (0, 0))
            return (mean.sign() * mean.abs() * (high * wide)).pow(1 / layer.norm_type)
        return self._overhanging_average(
            x, over, as_pair(layer.padding), layer.count_include_pad, layer.divisor_override
        )

    def _overhanging_average(
        self,
        x: Tensor,
        over: Pair,
        padding: Pair,
        counts_padding: bool = False,
        divisor: int | None = None,
    ) -> Tensor:
        (high, wide), kernel = padding, self.layer.kernel_size
        edges = (wide, wide + over[1], high, high + over[0])
        total = F.avg_pool2d(F.pad(x, edges), kernel, 1, divisor_override=1)
        if divisor:
            return total / divisor
        # A window is divided by the places it has, and padding counts where the layer says so.
        counted = torch.ones_like(x[:1, :1])
        counted = F.pad(counted, (wide, wide, high, high), value=float(counts_padding))
        counted = F.pad(counted, (0, over[1], 0, over[0]))
        return total / F.avg_pool2d(counted, kernel, 1, divisor_override=1)
