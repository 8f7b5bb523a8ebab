"""The five blurs of corruptions, and the zoom that one of them and a perturbation are made of."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from foveapool.robustness.filters import correlate, gaussian, opencv_gaussian
from foveapool.robustness.filters import motion_blur as move
from foveapool.robustness.images import Draws, divide, get_scale, to_levels, to_unit


def make_defocus_kernel(radius: float, sigma: float, scale: float = 1.0) -> Tensor:
    """A disk with softened rim, float32; below radius 1 it is one pixel, only softened.

    The authors' kernel cut to what is not 0. For larger images a disk that spreads the light
    `scale` times as far: theirs is too coarse to be enlarged.
    """
    position = torch.arange(-8, 9)
    disk = (position[:, None] ** 2 + position**2 <= radius**2).float()
    disk = opencv_gaussian(disk / disk.sum(), sigma)
    if scale > 1:
        variance = float((disk.sum(0) * position**2).sum())
        # A quarter of its squared radius is the variance of a disk along an axis.
        radius = 2 * scale * variance**0.5
        position = torch.arange(-math.ceil(radius), math.ceil(radius) + 1)
        distance = torch.hypot(position[:, None].float(), position.float())
        disk = (radius + 0.5 - distance).clamp(0, 1)
        disk = disk / disk.sum()
    used = int(disk.any(0).nonzero().amin())
    return disk[used : len(disk) - used, used : len(disk) - used]


def defocus_blur(images: Tensor, draws: Draws, radius: float, sigma: float) -> Tensor:
    """Out of focus: every point a disk of that radius, its rim softened by sigma."""
    kernel = make_defocus_kernel(radius, sigma, get_scale(images))
    return to_levels(correlate(to_unit(images), kernel))


def glass_blur(images: Tensor, draws: Draws, sigma: float, shift: float, passes: int) -> Tensor:
    """Frosted glass: smoothed, pixels replaced by near ones `passes` times, smoothed again.

    The authors' exchange of two pixels is in truth a copy of the one above or left, which their
    order of going through the image reads before it changes: one gather a pass. The first rows
    and columns keep their pixels.
    """
    scale = get_scale(images)
    reach = max(1, round(shift * scale))
    glass = to_levels(gaussian(to_unit(images), sigma * scale))
    count, height, width = images.shape[:3]
    image = torch.arange(count, device=images.device)[:, None, None]
    row = torch.arange(reach + 1, height, device=images.device)[:, None]
    column = torch.arange(reach + 1, width, device=images.device)
    for _ in range(passes):
        shifts = draws.uniform(count, 2, height - reach - 1, width - reach - 1)
        left, up = ((shifts * (reach + 1)).long() - reach).unbind(1)
        moved = glass[image, row + up, column + left]
        glass = glass.clone()
        glass[:, reach + 1 :, reach + 1 :] = moved
    return to_levels(gaussian(to_unit(glass), sigma * scale))


def motion_blur(images: Tensor, draws: Draws, radius: float, sigma: float) -> Tensor:
    """The camera moved, in a direction of each image's own within 45 degrees of the horizontal."""
    scale = get_scale(images)
    angles = 90 * draws.uniform(len(images)) - 45
    return move(images, scale * radius, scale * sigma, angles)


def zoom_blur(images: Tensor, draws: Draws, factors: int) -> Tensor:
    """The mean of the image and its enlargements by 1.00, 1.01 and so on, so many of them."""
    values = to_unit(images, torch.float32)
    total = torch.zeros_like(values)
    # The sum that numpy.arange makes of a step of 0.01; its error decides the last size.
    step = 1.01 - 1
    for i in range(factors):
        total += zoom_and_clip(values, 1 + i * step)
    return to_levels(divide(values + total, factors + 1))


def gaussian_blur(images: Tensor, draws: Draws, sigma: float) -> Tensor:
    """Smoothed by a Gaussian."""
    return to_levels(gaussian(to_unit(images), sigma * get_scale(images)))


class ZoomGeometry(NamedTuple):
    """One axis: `crop` pixels from `start` become `resized`, of which those from `trim` stay."""

    crop: int
    start: int
    resized: int
    trim: int


def plan_zoom(size: int, factor: float) -> ZoomGeometry:
    """What is cut out, enlarged and trimmed on an axis of `size` pixels; factor 1 or more."""
    crop = math.ceil(size / factor)
    resized = round(crop * factor)
    return ZoomGeometry(crop, (size - crop) // 2, resized, (resized - size) // 2)


def make_zoom_matrix(size: int, factor: float) -> Tensor:
    """One axis of the zoom as weights, (size of the new axis, size of the old one)."""
    crop, start, resized, trim = plan_zoom(size, factor)
    position = torch.arange(trim, trim + size, dtype=torch.float64) * (crop - 1) / (resized - 1)
    low = position.floor().long().clamp(max=crop - 1)
    high = (low + 1).clamp(max=crop - 1)
    share = position - low
    weights = torch.zeros(size, size, dtype=torch.float64)
    weights.scatter_add_(1, (start + low)[:, None], (1 - share)[:, None])
    weights.scatter_add_(1, (start + high)[:, None], share[:, None])
    return weights


def zoom_and_clip(images: Tensor, factor: float) -> Tensor:
    """The middle of (N, H, W) or (N, H, W, C) enlarged `factor` times, 1 or more, linearly.

    Works in float64 and returns the dtype of the images.
    """
    if factor < 1:
        raise ValueError(f"factor: got {factor}, wanted 1 or more; this zoom only enlarges")
    values = images.double()
    rows = make_zoom_matrix(images.shape[1], factor).to(values)
    columns = make_zoom_matrix(images.shape[2], factor).to(values)
    values = torch.tensordot(values, rows, dims=([1], [1])).movedim(-1, 1)
    values = torch.tensordot(values, columns, dims=([2], [1])).movedim(-1, 2)
    return values.to(images.dtype)
