"""The five blurs: defocus, glass, motion, zoom and Gaussian.

Lengths are pixels of a 32-pixel image and grow with the images.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from foveapool.robustness.draws import Draws
from foveapool.robustness.filters import correlate, gaussian, opencv_gaussian
from foveapool.robustness.levels import divided, scale_of, to_levels, to_unit
from foveapool.robustness.motion import motion_blur as move
from foveapool.robustness.zoom import clipped_zoom


def defocus_kernel(radius: float, sigma: float, scale: float = 1.0) -> Tensor:
    """A disk with softened rim, float32; below radius 1 it is one pixel, only softened.

    The authors' kernel cut to what is not 0. For larger images a disk that spreads the light
    `scale` times as far: theirs is too coarse to be enlarged.
    """
    place = torch.arange(-8, 9)
    disk = (place[:, None] ** 2 + place**2 <= radius**2).float()
    disk = opencv_gaussian(disk / disk.sum(), sigma)
    if scale > 1:
        variance = float((disk.sum(0) * place**2).sum())
        # A quarter of its squared radius is the variance of a disk along an axis.
        radius = 2 * scale * variance**0.5
        place = torch.arange(-math.ceil(radius), math.ceil(radius) + 1)
        distance = torch.hypot(place[:, None].float(), place.float())
        disk = (radius + 0.5 - distance).clamp(0, 1)
        disk = disk / disk.sum()
    used = int(disk.any(0).nonzero().amin())
    return disk[used : len(disk) - used, used : len(disk) - used]


def defocus_blur(images: Tensor, draws: Draws, radius: float, sigma: float) -> Tensor:
    """Out of focus: every point a disk of that radius, its rim softened by sigma."""
    kernel = defocus_kernel(radius, sigma, scale_of(images))
    return to_levels(correlate(to_unit(images), kernel))


def glass_blur(images: Tensor, draws: Draws, sigma: float, shift: float, passes: int) -> Tensor:
    """Frosted glass: smoothed, pixels replaced by near ones `passes` times, smoothed again.

    The authors' exchange of two pixels is in truth a copy of the one above or left, which their
    order of going through the image reads before it changes: one gather a pass. The first rows
    and columns keep their pixels.
    """
    scale = scale_of(images)
    reach = max(1, round(shift * scale))
    glass = to_levels(gaussian(to_unit(images), sigma * scale))
    count, height, width = images.shape[:3]
    image = torch.arange(count, device=images.device)[:, None, None]
    row = torch.arange(reach + 1, height, device=images.device)[:, None]
    column = torch.arange(reach + 1, width, device=images.device)
    for _ in range(passes):
        places = draws.uniform(count, 2, height - reach - 1, width - reach - 1)
        left, up = ((places * (reach + 1)).long() - reach).unbind(1)
        moved = glass[image, row + up, column + left]
        glass = glass.clone()
        glass[:, reach + 1 :, reach + 1 :] = moved
    return to_levels(gaussian(to_unit(glass), sigma * scale))


def motion_blur(images: Tensor, draws: Draws, radius: float, sigma: float) -> Tensor:
    """The camera moved, in a direction of each image's own within 45 degrees of the horizontal."""
    scale = scale_of(images)
    angles = 90 * draws.uniform(len(images)) - 45
    return move(images, scale * radius, scale * sigma, angles)


def zoom_blur(images: Tensor, draws: Draws, factors: int) -> Tensor:
    """The mean of the image and its enlargements by 1.00, 1.01 and so on, so many of them."""
    values = to_unit(images, torch.float32)
    total = torch.zeros_like(values)
    # The sum that numpy.arange makes of a step of 0.01; its error decides the last size.
    step = 1.01 - 1
    for i in range(factors):
        total += clipped_zoom(values, 1 + i * step)
    return to_levels(divided(values + total, factors + 1))


def gaussian_blur(images: Tensor, draws: Draws, sigma: float) -> Tensor:
    """Smoothed by a Gaussian."""
    return to_levels(gaussian(to_unit(images), sigma * scale_of(images)))
