"""What the rivals have in common: which sizes fit, the blocks of a map, and the repetition.

A rival that keeps its channels says how it pools (B, C, H, W) to (B, C, H', W'). The rivals
themselves are in `rivals`, `spectral`, `polyphase` and `convolving`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn


def block_shape(in_shape: Sequence[int], out_shape: Sequence[int]) -> tuple[int, int]:
    """The block's height and width, ceil(in / out), where every block holds a real pixel."""
    sizes = (*in_shape, *out_shape)
    if len(in_shape) != 2 or len(out_shape) != 2 or min(sizes) < 1:
        raise ValueError(
            f"in_shape, out_shape: got {tuple(in_shape)} and {tuple(out_shape)}, wanted two "
            "positive sizes each, such as (32, 32) and (16, 16); give the spatial sizes only"
        )
    height, width = (math.ceil(i / o) for i, o in zip(in_shape, out_shape, strict=True))
    wanted = (math.ceil(in_shape[0] / height), math.ceil(in_shape[1] / width))
    if wanted != tuple(out_shape):
        raise ValueError(
            f"out_shape: got {tuple(out_shape)} for in_shape {tuple(in_shape)}, wanted blocks of "
            f"{height} x {width} that each hold a pixel; {wanted} is possible with these blocks"
        )
    return height, width


def check_counts(channels: int, components: int) -> None:
    """Raises a ValueError unless there is one of each at least."""
    for name, count in (("channels", channels), ("components", components)):
        if count < 1:
            raise ValueError(f"{name}: got {count}, wanted 1 or more")


def split_blocks(maps: Tensor, strides: tuple[int, int]) -> Tensor:
    """The values of each block, (..., H', W', n), of maps (..., H, W) that are whole blocks."""
    height, width = strides
    split = maps.unflatten(-1, (-1, width)).unflatten(-3, (-1, height))
    return split.transpose(-3, -2).flatten(-2)


class Rival(nn.Module):
    """Checks sizes, pools by `pool`, and gives the pooled channels `components` times.

    `strides` are the height and width of the block of input pixels behind one output pixel.
    """

    def __init__(
        self, channels: int, in_shape: Sequence[int], out_shape: Sequence[int], components: int = 1
    ) -> None:
        super().__init__()
        check_counts(channels, components)
        self.strides = block_shape(in_shape, out_shape)
        self.channels = channels
        self.in_shape = (in_shape[0], in_shape[1])
        self.out_shape = (out_shape[0], out_shape[1])
        self.components = components

    def pool(self, maps: Tensor) -> Tensor:
        """Pools (B, C, H, W) to (B, C, H', W')."""
        raise NotImplementedError

    def check_maps(self, maps: Tensor) -> None:
        """Raises a ValueError unless the maps are those that this pooling was built for."""
        wanted = (self.channels, *self.in_shape)
        if maps.dim() != 4 or tuple(maps.shape[1:]) != wanted:
            raise ValueError(
                f"maps: got shape {tuple(maps.shape)}, wanted (batch, {', '.join(map(str, wanted))}"
                "); build the pooling for the maps of this layer"
            )

    def repeat_channels(self, pooled: Tensor) -> Tensor:
        """The pooled channels (B, C, H', W') `components` times, (B, components * C, H', W')."""
        return pooled if self.components == 1 else torch.cat([pooled] * self.components, dim=1)

    def forward(self, maps: Tensor) -> Tensor:
        self.check_maps(maps)
        return self.repeat_channels(self.pool(maps))

    def extra_repr(self) -> str:
        return f"{self.channels}, {self.in_shape}, {self.out_shape}, components={self.components}"
