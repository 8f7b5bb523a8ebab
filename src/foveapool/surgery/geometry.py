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

Sizes = tuple[int, ...]
# Each kind for one, two and three axes; torch has some for fewer.
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
MAX_POOLS = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)
AVERAGE_POOLS = (nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)
LP_POOLS = (nn.LPPool1d, nn.LPPool2d, nn.LPPool3d)
FRACTIONAL_POOLS = (nn.FractionalMaxPool2d, nn.FractionalMaxPool3d)
ADAPTIVE_AVERAGES = (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)
ADAPTIVE_MAXIMA = (nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d)
POOLINGS = (
    *(*MAX_POOLS, *AVERAGE_POOLS, *LP_POOLS),
    *(*FRACTIONAL_POOLS, *ADAPTIVE_AVERAGES, *ADAPTIVE_MAXIMA),
)
TORCHS_OWN = (*CONVOLUTIONS, *POOLINGS)


def may_shrink(module: nn.Module) -> bool:
    """Whether it is one layer, whose place a pooling could take.

    A convolution, a pooling, or another's code that holds no layers with weights, as a BlurPool's.
    """
    if isinstance(module, TORCHS_OWN):
        return True
    if type(module).__module__.startswith("torch."):
        return False
    return not any(inner.state_dict() for inner in module.children())


def count_axes(layer: nn.Module) -> int | None:
    """The spatial axes of the maps that one of torch's own layers takes; None for another's."""
    if not isinstance(layer, TORCHS_OWN):
        return None
    kinds = (kind for kind in type(layer).__mro__ if kind in TORCHS_OWN)
    return int(next(kinds).__name__[-2])


def find_axes(*layers: nn.Module) -> int:
    """The spatial axes of the maps of the first layer that tells; two where none does."""
    shapes = ((count_axes(layer), getattr(layer, "in_shape", None)) for layer in layers)
    told = (axes or len(shape or ()) for axes, shape in shapes)
    return next(filter(None, told), 2)


def keeps_channels(layer: nn.Module) -> bool:
    """Whether the layer gives as many channels as it reads, whichever number that is."""
    return not isinstance(layer, CONVOLUTIONS) and count_channels(layer) is None


def count_channels(layer: Any) -> tuple[int, int] | None:
    """The channels that a layer reads and gives, where it says so."""
    counts = [getattr(layer, name, None) for name in ("in_channels", "out_channels")]
    first, second = counts
    return (first, second) if isinstance(first, int) and isinstance(second, int) else None


def as_sizes(value: Any, axes: int) -> Sizes:
    """A number for each axis, of an argument that may be one number for all."""
    return tuple(value) if isinstance(value, (tuple, list)) else (value,) * axes


def get_stride(layer: Any, axes: int | None = None) -> Sizes | None:
    """The steps that a layer takes; None for poolings that are told their output size instead.

    `axes` has to be told for a layer of another make, unless it has the steps for each axis.
    """
    if not hasattr(layer, "stride"):
        return None
    # LPPool2d keeps a None where others write down the size of their window.
    return as_sizes(layer.stride or layer.kernel_size, axes or count_axes(layer) or 1)


def takes_steps(layer: nn.Module) -> bool:
    """Whether the layer shrinks maps by steps, rather than losing edges for want of padding."""
    steps = get_stride(layer)
    return steps is None or max(steps) > 1


def halves_maps(pool: nn.Module) -> bool:
    """Whether a pooling that is to stand in makes maps half as high or wide, or less, if it says.

    >>> halves_maps(nn.AvgPool2d(2)), halves_maps(nn.AvgPool2d(3, 1)), halves_maps(nn.Identity())
    (True, False, False)
    """
    if isinstance(pool, TORCHS_OWN):
        return max(get_stride(pool) or (1,)) > 1
    shapes = [getattr(pool, name, None) for name in ("in_shape", "out_shape")]
    if not all(isinstance(shape, tuple) for shape in shapes):
        return False
    sizes = zip(*shapes, strict=True)
    return any(after < before and after <= -(-before // 2) for before, after in sizes)


def measure_out_shape(layer: nn.Module, in_shape: Sizes, channels: int) -> Sizes:
    """The map size that a layer makes of `in_shape`, seen by running it: it may pad as it likes."""
    own = find_reference_tensor(layer)
    with torch.no_grad():
        return tuple(layer.forward(own.new_zeros(1, channels, *in_shape)).shape[2:])


def find_reference_tensor(*modules: nn.Module) -> Tensor:
    """A tensor of the type and on the device of the modules, of the first that has any."""
    own = (t for module in modules for t in (*module.parameters(), *module.buffers()))
    return next((t for t in own if t.is_floating_point()), torch.empty(0))


def find_offset(name: str, layer: Any, in_shape: Sizes, channels: int, around: nn.Module) -> Sizes:
    """Where in each block of its map at stride 1 the layer's own output lies, found by trying.

    At the first place for torch's own. Layers that compute their padding from their stride have it
    elsewhere, or nowhere: then a ValueError is raised, since mode `after` needs it. A layer without
    numbers works on those of the network `around` it.
    """
    steps = get_stride(layer, len(in_shape))
    if _as_torch_wrote_it(layer):
        return (0,) * len(in_shape)
    noise = torch.rand(1, channels, *in_shape, generator=torch.Generator().manual_seed(0))
    offset = steps and try_offsets(layer, noise.to(find_reference_tensor(layer, around)), steps)
    if offset is None:
        why = (
            "has no stride that could be 1"
            if steps is None
            else "at stride 1 does not make its own output and the places between (tried on maps "
            f"of {' x '.join(map(str, in_shape))})"
        )
        raise ValueError(
            f"{name}: got a {type(layer).__name__} which {why}, wanted one that does for mode "
            "'after'; use mode 'replace', or tell `replace` by in_shapes if its maps have another "
            "size"
        )
    return offset


def try_offsets(layer: Any, maps: Tensor, steps: Sizes, overhangs: bool = False) -> Sizes | None:
    """The place in each block of the layer's map at stride 1 where its own output lies, if any.

    Where the layer `overhangs`, the last place along an axis may be missing at stride 1.
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
        found = everywhere[_begin_at(offset, steps)]
        kept = wanted[(..., *map(slice, found.shape[2:]))]
        missing = max(all_ - some for all_, some in zip(wanted.shape, kept.shape, strict=True))
        if found.shape != kept.shape or missing > int(overhangs):
            continue
        # Half precision adds up differently at another stride; another place is another number.
        if (found - kept).abs().max() <= 0.05 * wanted.abs().max():
            return offset
    return None


def _as_torch_wrote_it(layer: nn.Module) -> bool:
    kind: Any = type(layer)
    if "forward" in vars(layer):
        return False
    for known in CONVOLUTIONS:
        if isinstance(layer, known) and kind._conv_forward is not known._conv_forward:
            return False
    return any(kind.forward is known.forward for known in TORCHS_OWN)


def ones_for(stride: Any) -> Any:
    """Stride 1 in the form that the layer's own has: its code may count on it."""
    return type(stride)([1] * len(stride)) if isinstance(stride, (tuple, list)) else 1


def _begin_at(offset: Sizes, steps: Sizes | None = None) -> tuple[Any, ...]:
    """The index of the places of maps from `offset` on, or every so many of them."""
    return (..., *map(slice, offset, itertools.repeat(None), steps or itertools.repeat(None)))


@torch.fx.wrap  # one node of a symbolic trace, which cannot look at sizes
def _whole_blocks(maps: Tensor, steps: Sizes, offset: Sizes) -> Tensor:
    """Maps (B, C, H, W) from that place on, made up to whole blocks of that size."""
    if any(offset):
        maps = maps[_begin_at(offset)]
    for axis, step in enumerate(steps, 2):
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
        self, layer: nn.Module, in_shape: Sizes, out_shape: Sizes, offset: Sizes = ()
    ) -> None:
        super().__init__()
        self.layer = layer
        # For maps of another size it is found when they come.
        self.offsets: dict[Sizes, Sizes] | None = None
        self.axes = len(in_shape)
        if not _as_torch_wrote_it(layer):
            self.offsets = {tuple(in_shape): offset or (0,) * self.axes}
        own = get_stride(layer, self.axes)
        shapes = zip(in_shape, out_shape, strict=True)
        self.steps = own or tuple(math.ceil(before / after) for before, after in shapes)
        self.strided = own is not None
        if self.strided:
            self.own_stride = self.layer.stride
            self.layer.stride = ones_for(self.own_stride)
        plain = [kind.forward for kind in (*MAX_POOLS, *AVERAGE_POOLS, *LP_POOLS)]
        self.overhangs = getattr(layer, "ceil_mode", False) and type(layer).forward in plain
        self.train(layer.training)

    def release(self) -> nn.Module:
        """The layer with its own stride again."""
        if self.strided:
            self.layer.stride = self.own_stride
        return self.layer

    def out_shape(self, in_shape: Sizes, channels: int) -> Sizes:
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

    def _offset(self, x: Tensor) -> Sizes:
        if self.offsets is None:
            return (0,) * self.axes
        shape = tuple(x.shape[2:])
        if shape not in self.offsets:
            noise = torch.rand(1, *x.shape[1:], generator=torch.Generator().manual_seed(0))
            self.release()
            found = try_offsets(self.layer, noise.to(x), self.steps, overhangs=True)
            self.layer.stride = ones_for(self.own_stride)
            if found is None:
                raise ValueError(
                    f"{type(self.layer).__name__}: got maps of {' x '.join(map(str, shape))}, "
                    "of which it makes, at stride 1, other numbers than its own, wanted the size "
                    "that it was replaced for"
                )
            self.offsets[shape] = found
        return self.offsets[shape]

    def _everywhere(self, x: Tensor) -> Tensor:
        layer = self.layer
        if isinstance(layer, ADAPTIVE_AVERAGES):
            return self._average(x, self.steps)
        if isinstance(layer, (*ADAPTIVE_MAXIMA, *FRACTIONAL_POOLS)):
            return self._maximum(x, getattr(layer, "kernel_size", self.steps))
        if self.overhangs and any(over := self._overhang(tuple(x.shape[2:]))):
            return self._overhanging(x, over)
        return layer(x)

    def _average(self, x: Tensor, kernel: Any) -> Tensor:
        return _of_axes(self.axes, F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)(x, kernel, 1)

    def _maximum(self, x: Tensor, kernel: Any, dilation: Any = 1) -> Tensor:
        pool = _of_axes(self.axes, F.max_pool1d, F.max_pool2d, F.max_pool3d)
        return pool(x, kernel, 1, dilation=dilation)

    def _own(self, name: str, default: int) -> Sizes:
        """An argument of the layer, along each axis."""
        return as_sizes(getattr(self.layer, name, default), self.axes)

    def _overhang(self, in_shape: Sizes) -> Sizes:
        """How far `ceil_mode` lets the last window begin behind the last that fits."""
        over = []
        arguments = (self._own("kernel_size", 1), self._own("padding", 0), self._own("dilation", 1))
        for size, step, kernel, padding, dilation in zip(
            in_shape, self.steps, *arguments, strict=True
        ):
            room = size + 2 * padding - dilation * (kernel - 1) - 1
            last = -(-room // step) * step
            # The last window has to begin inside of the map, or in the padding before it.
            last -= step if last >= size + padding else 0
            over.append(max(0, last - room))
        return tuple(over)

    def _overhanging(self, x: Tensor, over: Sizes) -> Tensor:
        layer: Any = self.layer
        if isinstance(layer, MAX_POOLS):
            x = _pad(x, self._own("padding", 0), over, -math.inf)
            return self._maximum(x, layer.kernel_size, layer.dilation)
        if isinstance(layer, LP_POOLS):
            mean = self._overhanging_average(x.pow(layer.norm_type), over)
            size = math.prod(self._own("kernel_size", 1))
            return (mean.sign() * mean.abs() * size).pow(1 / layer.norm_type)
        return self._overhanging_average(x, over)

    def _overhanging_average(self, x: Tensor, over: Sizes) -> Tensor:
        layer, padding = self.layer, self._own("padding", 0)
        average = self._average(_pad(x, padding, over), layer.kernel_size)
        if divisor := getattr(layer, "divisor_override", None):
            return average * (math.prod(self._own("kernel_size", 1)) / divisor)
        # A window is divided by the places it has, and padding counts where the layer says so.
        counted = torch.ones_like(x[:1, :1])
        counts_padding = float(getattr(layer, "count_include_pad", False))
        counted = _pad(counted, padding, (0,) * self.axes, counts_padding)
        counted = _pad(counted, (0,) * self.axes, over)
        return average / self._average(counted, layer.kernel_size)


def _of_axes(axes: int, *functions: Any) -> Any:
    return functions[axes - 1]


def _pad(x: Tensor, margins: Sizes, behind: Sizes, value: float = 0.0) -> Tensor:
    """Maps with a margin on both sides of each axis, and more of it behind."""
    sides = ((margin, margin + more) for margin, more in zip(margins, behind, strict=True))
    # torch wants the last axis first.
    return F.pad(x, [side for pair in reversed(list(sides)) for side in pair], value=value)
