"""Street-like scenes of seven-segment digits, drawn on the fly: for demonstrations and timings.

A digit in the middle, pieces of its neighbours at the sides, random colours, slant, size, shading
and noise. Fully determined by the seed; needs nothing but torch.
"""

from __future__ import annotations

import torch
from torch import Tensor

# Ends of the seven segments (x0, y0, x1, y1) in a box of half width 0.5 and half height 1.
_SEGMENTS = torch.tensor(
    [
        [-0.5, -1.0, 0.5, -1.0],
        [-0.5, 0.0, 0.5, 0.0],
        [-0.5, 1.0, 0.5, 1.0],
        [-0.5, -1.0, -0.5, 0.0],
        [0.5, -1.0, 0.5, 0.0],
        [-0.5, 0.0, -0.5, 1.0],
        [0.5, 0.0, 0.5, 1.0],
    ]
)
# Which of them a digit lights: top, middle, bottom, upper left and right, lower left and right.
_LIT = torch.tensor(
    [
        [1, 0, 1, 1, 1, 1, 1],
        [0, 0, 0, 0, 1, 0, 1],
        [1, 1, 1, 0, 1, 1, 0],
        [1, 1, 1, 0, 1, 0, 1],
        [0, 1, 0, 1, 1, 0, 1],
        [1, 1, 1, 1, 0, 0, 1],
        [1, 1, 1, 1, 0, 1, 1],
        [1, 0, 0, 0, 1, 0, 1],
        [1, 1, 1, 1, 1, 1, 1],
        [1, 1, 1, 1, 1, 0, 1],
    ],
    dtype=torch.bool,
)


def segment_digits(count: int, seed: int = 0, size: int = 32) -> tuple[Tensor, Tensor]:
    """`count` images (count, 3, size, size), each of mean 0 and deviation 1, and their labels.

    >>> images, labels = segment_digits(4, seed=1)
    >>> images.shape, labels.dtype
    (torch.Size([4, 3, 32, 32]), torch.int64)
    """
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, (count,), generator=generator)
    if not count:
        return torch.zeros(0, 3, size, size), labels
    return torch.cat([_scenes(part, size, generator) for part in labels.split(256)]), labels


def _scenes(labels: Tensor, size: int, generator: torch.Generator) -> Tensor:
    count = len(labels)

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return torch.rand(count, *shape, generator=generator) * (high - low) + low

    axis = torch.linspace(-1, 1, size)
    y, x = (part.reshape(1, -1) for part in torch.meshgrid(axis, axis, indexing="ij"))
    scale, angle, slant = uniform(0.5, 0.75, 1), uniform(-0.2, 0.2, 1), uniform(-0.25, 0.25, 1)
    x, y = x - uniform(-0.12, 0.12, 1), y - uniform(-0.12, 0.12, 1)
    x, y = x * angle.cos() + y * angle.sin(), y * angle.cos() - x * angle.sin()
    x, y = (x + slant * y) / scale, y / scale
    ink = torch.zeros(count, size * size)
    for step in (-1, 0, 1):
        digits = labels if step == 0 else torch.randint(10, (count,), generator=generator)
        ink = torch.maximum(ink, _ink(x - 1.7 * step, y, digits, uniform(0.12, 0.22, 1)))
    ground, colour = uniform(0, 1, 3, 1), uniform(0, 1, 3, 1)
    slope = uniform(-0.3, 0.3, 2, 1)
    shade = slope[:, :1] * x[:, None] + slope[:, 1:] * y[:, None]
    images = ground + (colour - ground) * ink[:, None] + shade
    images = images + 0.04 * torch.randn(images.shape, generator=generator)
    images = images - images.mean((1, 2), keepdim=True)
    return (images / images.std((1, 2), keepdim=True)).unflatten(2, (size, size))


def _ink(x: Tensor, y: Tensor, digits: Tensor, width: Tensor) -> Tensor:
    """How much of each pixel (B, N) the strokes of the digits cover."""
    x0, y0, x1, y1 = _SEGMENTS.unbind(1)
    along_x, along_y = x1 - x0, y1 - y0
    from_x, from_y = x[:, :, None] - x0, y[:, :, None] - y0
    share = ((from_x * along_x + from_y * along_y) / (along_x**2 + along_y**2)).clamp(0, 1)
    distance = (from_x - share * along_x).hypot(from_y - share * along_y)
    nearest = distance.masked_fill(~_LIT[digits][:, None, :], torch.inf).amin(-1)
    return ((width - nearest) / 0.08 + 0.5).clamp(0, 1)
