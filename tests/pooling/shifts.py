"""Poolings that pick one place each: what a convolution's kernel is made of."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from foveapool import ChannelMixing, LinearPool2d, MixingPool


def shifts(layer: nn.Conv2d, size: tuple[int, int]) -> LinearPool2d:
    """One component for each weight of the layer's kernel: the place that it looks at."""
    (high, wide), (down, right) = layer.kernel_size, layer.dilation
    kernels = torch.zeros(high * wide, (high - 1) * down + 1, (wide - 1) * right + 1)
    for row in range(high):
        for column in range(wide):
            kernels[row * wide + column, row * down, column * right] = 1
    return LinearPool2d.from_kernel(kernels, size, layer.stride, layer.padding)


def mixing_of(layer: nn.Conv2d) -> ChannelMixing:
    """The layer's own numbers as a mixing."""
    components = layer.kernel_size[0] * layer.kernel_size[1]
    biased = layer.bias is not None
    mixing = ChannelMixing(
        layer.in_channels, layer.out_channels, components, layer.groups, biased
    ).to(layer.weight)
    with torch.no_grad():
        mixing.weight.copy_(as_mixing(layer.weight))
        if biased:
            mixing.bias.copy_(layer.bias)
    return mixing


def as_mixing(kernel: Tensor) -> Tensor:
    """A convolution's weights (O, C, h, w) as a mixing's (O, h w, C)."""
    return kernel.flatten(2).transpose(1, 2)


def twin_of(layer: nn.Conv2d, size: tuple[int, int]) -> MixingPool:
    """The pooling and the mixing that are the convolution."""
    return MixingPool(shifts(layer, size).to(layer.weight), mixing_of(layer))


LAYERS = {
    "3x3": lambda: nn.Conv2d(4, 8, 3, 2, 1),
    "fewer channels": lambda: nn.Conv2d(8, 4, 3, 2, 1),
    "without a bias": lambda: nn.Conv2d(4, 8, 3, 2, 1, bias=False),
    "grouped": lambda: nn.Conv2d(4, 8, 3, 2, 1, groups=2),
    "grouped, fewer channels": lambda: nn.Conv2d(8, 4, 3, 2, 1, groups=2),
    "depthwise": lambda: nn.Conv2d(6, 6, 3, 2, 1, groups=6),
    "depthwise, more channels": lambda: nn.Conv2d(4, 8, 3, 2, 1, groups=4, bias=False),
    "5x5": lambda: nn.Conv2d(4, 6, 5, 2, 2),
    "stride 3": lambda: nn.Conv2d(4, 6, 3, 3),
    "dilated": lambda: nn.Conv2d(4, 6, 3, 2, 2, dilation=2),
    "oblong": lambda: nn.Conv2d(4, 6, (2, 3), (2, 1), (0, 1)),
    "1x1": lambda: nn.Conv2d(4, 8, 1, 2),
}
