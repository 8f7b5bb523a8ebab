"""What a shrinking layer does to sizes, and the same layer at stride 1.

A strided layer is its stride-1 form of which one place in each block is kept. `Unstrided` is that
form, with its map made up to whole blocks, so that a learned pooling can do the keeping instead.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Pair = tuple[int, int]
POOLINGS = (
    nn.MaxPool2d,
    nn.AvgPool2d,
    nn.LPPool2d,
    nn.FractionalMaxPool2d,
    nn.AdaptiveAvgPool2d,
    nn.AdaptiveMaxPool2d,
)


def pair(value: Any) -> Pair:
    """(height, width) of an argument that may be one number for both."""
    first, second = value if isinstance(value, (tuple, list)) else (value, value)
    return first, second


def stride_of(layer: Any) -> Pair | None:
    """The steps that a layer takes; None for poolings that are told their output size instead."""
    if not hasattr(layer, "stride"):
        return None
    # LPPool2d keeps a None where others write down the size of their window.
    return pair(layer.stride or layer.kernel_size)


def out_shape_of(layer: nn.Module, in_shape: Pair, channels: int) -> Pair:
    """The map size that a layer makes of `in_shape`, seen by running it: it may pad as it likes."""
    own = next(layer.parameters(), torch.empty(0))
    with torch.no_grad():
        height, width = layer.forward(own.new_zeros(1, channels, *in_shape)).shape[2:]
    return height, width


@torch.fx.wrap  # one node of a symbolic trace, which cannot look at sizes
def _whole_blocks(maps: Tensor, steps: Pair) -> Tensor:
    """Maps (B, C, H, W) made up to whole blocks of that size."""
    for axis, step in zip((2, 3), steps, strict=True):
        # Repeated edges: what is drawn there is as likely as what stands beside it. (F.pad can
        # replicate too, but the gradient of channels-last maps does not compile.)
        missing = -maps.shape[axis] % step
        if missing:
            maps = torch.cat([maps] + [maps.narrow(axis, -1, 1)] * missing, axis)
    return maps


class Unstrided(nn.Module):
    """The very `layer` at stride 1, its map made up to whole blocks; `release` undoes it.

    The old output of a convolution, a max or an average pooling is found at the first place of
    each block. `in_shape` and `out_shape` are the sizes that the layer was seen to work on:
    poolings without a stride get theirs from these.
    """

    layer: Any

    def __init__(self, layer: nn.Module, in_shape: Pair, out_shape: Pair) -> None:
        super().__init__()
        self.layer = layer
        height, width = (math.ceil(n / m) for n, m in zip(in_shape, out_shape, strict=True))
        own = stride_of(layer)
        self.steps = own or (height, width)
        self.strided = own is not None
        if self.strided:
            self.own_stride = self.layer.stride
            self.layer.stride = (1, 1) if isinstance(layer, nn.Conv2d) else 1
        self.train(layer.training)

    def release(self) -> nn.Module:
        """The layer with its own stride again."""
        if self.strided:
            self.layer.stride = self.own_stride
        return self.layer

    def forward(self, x: Tensor) -> Tensor:
        """The stride-1 map of `x` (B, C, H, W)."""
        return _whole_blocks(self._everywhere(x), self.steps)

    def _everywhere(self, x: Tensor) -> Tensor:
        layer = self.layer
        if isinstance(layer, nn.AdaptiveAvgPool2d):
            return F.avg_pool2d(x, self.steps, 1)
        if isinstance(layer, nn.AdaptiveMaxPool2d):
            return F.max_pool2d(x, self.steps, 1)
        if isinstance(layer, nn.FractionalMaxPool2d):
            return F.max_pool2d(x, layer.kernel_size, 1)
        if type(layer) in (nn.MaxPool2d, nn.AvgPool2d) and layer.ceil_mode:
            over = self._overhang((x.shape[2], x.shape[3]))
            if over != (0, 0):
                return self._overhanging(x, over)
        return layer(x)

    def _overhang(self, in_shape: Pair) -> Pair:
        """How far `ceil_mode` lets the last window begin behind the last that fits."""
        layer, over = self.layer, []
        for axis, (size, step) in enumerate(zip(in_shape, self.steps, strict=True)):
            padding, dilation = pair(layer.padding)[axis], pair(getattr(layer, "dilation", 1))[axis]
            room = size + 2 * padding - dilation * (pair(layer.kernel_size)[axis] - 1) - 1
            last = -(-room // step) * step
            # The last window has to begin inside of the map, or in the padding before it.
            last -= step if last >= size + padding else 0
            over.append(max(0, last - room))
        return over[0], over[1]

    def _overhanging(self, x: Tensor, over: Pair) -> Tensor:
        layer: Any = self.layer
        high, wide = pair(layer.padding)
        edges = (wide, wide + over[1], high, high + over[0])
        kernel = layer.kernel_size
        if isinstance(layer, nn.MaxPool2d):
            x = F.pad(x, edges, value=-math.inf)
            return F.max_pool2d(x, kernel, 1, dilation=layer.dilation)
        total = F.avg_pool2d(F.pad(x, edges), kernel, 1, divisor_override=1)
        if layer.divisor_override:
            return total / layer.divisor_override
        # A window is divided by the places it has, and padding counts where the layer says so.
        counted = torch.ones_like(x[:1, :1])
        counted = F.pad(counted, (wide, wide, high, high), value=float(layer.count_include_pad))
        counted = F.pad(counted, (0, over[1], 0, over[0]))
        return total / F.avg_pool2d(counted, kernel, 1, divisor_override=1)
