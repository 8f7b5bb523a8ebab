"""Layers and blocks of other makes that shrink their maps, written as their libraries have them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class BlurPool(nn.Module):
    """As timm has it: a buffer, its padding computed when it is made."""

    def __init__(self, channels: int, stride: int = 2) -> None:
        super().__init__()
        self.channels, self.stride, self.padding = channels, stride, [1, 1, 1, 1]
        row = torch.tensor([0.25, 0.5, 0.25])
        self.register_buffer("filt", (row[:, None] * row).expand(channels, 1, 3, 3), False)

    def forward(self, x: Tensor) -> Tensor:
        x = F.pad(x, self.padding, "reflect")
        return F.conv2d(x, self.filt, stride=self.stride, groups=self.channels)


class PaddedBlurPool(nn.Module):
    """As antialiased-cnns has it: with a module that pads, and a shortcut for a filter of one."""

    def __init__(self, channels: int, stride: int = 2, filt_size: int = 4) -> None:
        super().__init__()
        self.stride, self.filt_size = stride, filt_size
        self.pad = nn.ReflectionPad2d([1, 2, 1, 2])
        row = torch.tensor([1.0, 3.0, 3.0, 1.0]) / 8
        self.register_buffer("filt", (row[:, None] * row).repeat(channels, 1, 1, 1))

    def forward(self, inp: Tensor) -> Tensor:
        return F.conv2d(self.pad(inp), self.filt, stride=self.stride, groups=inp.shape[1])


class OwnConv(nn.Module):
    """A convolution that is none of torch's, and says how many channels it has."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.in_channels, self.out_channels, self.stride = in_channels, out_channels, 2
        self.weight = nn.Parameter(torch.randn(out_channels, in_channels, 3, 3) / 5)

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.weight, stride=self.stride, padding=1)


class Subsample(nn.Module):
    """No stride that could be another."""

    def forward(self, x: Tensor) -> Tensor:
        return x[:, :, ::2, ::2]


class PooledBlock(nn.Module):
    """A block that pools by a function."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return F.max_pool2d(self.conv(x).relu(), 2)


class PatchMerging(nn.Module):
    """As Swin has it: tokens, of which four neighbors become one."""

    def __init__(self, channels: int, side: int) -> None:
        super().__init__()
        self.side, self.reduction = side, nn.Linear(4 * channels, 2 * channels)

    def forward(self, tokens: Tensor) -> Tensor:
        maps = tokens.unflatten(1, (self.side, self.side))
        parts = [maps[:, i::2, j::2, :] for j in (0, 1) for i in (0, 1)]
        return self.reduction(torch.cat(parts, -1).flatten(1, 2))


class RearrangedMerging(PatchMerging):
    """The same by reshaping alone."""

    def forward(self, tokens: Tensor) -> Tensor:
        half = self.side // 2
        maps = tokens.unflatten(1, (half, 2, half, 2)).transpose(2, 3)
        return self.reduction(
            maps.flatten(3).flatten(1, 2).unflatten(2, (-1,)).reshape(len(tokens), half * half, -1)
        )


class PooledHeads(nn.Module):
    """Attention of pooled keys as MViT has it: heads folded into the batch."""

    def __init__(self, channels: int, heads: int, sample_first: bool = True) -> None:
        super().__init__()
        self.heads, self.sample_first = heads, sample_first
        size = channels // heads
        self.pool = nn.Conv2d(size, size, 3, 2, 1, groups=size)

    def forward(self, x: Tensor) -> Tensor:
        parts = x.unflatten(1, (self.heads, -1))
        parts = parts if self.sample_first else parts.transpose(0, 1)
        maps = self.pool(parts.flatten(0, 1)).unflatten(0, parts.shape[:2])
        maps = maps if self.sample_first else maps.transpose(0, 1)
        return maps.flatten(1, 2)


class ChannelsLast(nn.Module):
    """A pooling of (B, H, W, C) maps."""

    def forward(self, x: Tensor) -> Tensor:
        return (x[:, ::2, ::2] + x[:, 1::2, 1::2]) / 2


class Permute(nn.Module):
    def __init__(self, *order: int) -> None:
        super().__init__()
        self.order = order

    def forward(self, x: Tensor) -> Tensor:
        return x.permute(self.order)


class EveryOther(nn.Module):
    """A block of a line of numbers that keeps every other one of them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x)[:, :, ::2].relu()


class Rotary(nn.Module):
    """Tokens (B, L, C) of which every other channel is taken."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.line = nn.Linear(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        x = self.line(x)
        return x[..., ::2] + x[..., 1::2]
