"""Motion blur as ImageMagick 6 does it: a tail to one side, whole-pixel steps, 16-bit levels."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def motion_weights(radius: float, sigma: float) -> list[float]:
    """The weights of the pixel itself and of those ever further along the tail."""
    half = [math.exp(-0.5 * i * i / (sigma * sigma)) for i in range(2 * math.ceil(radius) + 1)]
    total = sum(half)
    return [weight / total for weight in half]


def motion_blur(images: Tensor, radius: float, sigma: float, angles: Tensor) -> Tensor:
    """uint8 (N, H, W) or (N, H, W, C) blurred along `angles`, N degrees: one for each image.

    Zero degrees draws from the right, 90 from below; outside the picture its edge is repeated.
    Levels are cut down, so about half of them are one lower than rounding would leave them.
    """
    height, width = images.shape[1:3]
    weights = motion_weights(radius, sigma)
    direction = torch.deg2rad(angles.to(images.device, torch.float64))[:, None]
    steps = torch.arange(len(weights), device=images.device)
    # The nearest whole pixel, halves down.
    down = torch.ceil(steps * direction.sin() - 0.5).long()
    right = torch.ceil(steps * direction.cos() - 0.5).long()
    y = torch.arange(height, device=images.device)
    x = torch.arange(width, device=images.device)
    image = torch.arange(len(images), device=images.device)[:, None, None]
    total = torch.zeros(images.shape, dtype=torch.float64, device=images.device)
    for i, weight in enumerate(weights):
        rows = (y + down[:, i, None]).clamp(0, height - 1)
        columns = (x + right[:, i, None]).clamp(0, width - 1)
        moved = images[image, rows[:, :, None], columns[:, None, :]]
        total.add_(moved.double(), alpha=weight)
    quanta = (total * 257 + 0.5).long()
    return (quanta // 257).to(torch.uint8)
