"""Fog: a random cloud over the picture, made by the diamond-square method on a torus."""

from __future__ import annotations

import torch
from torch import Tensor

from foveapool.robustness.draws import Draws
from foveapool.robustness.levels import to_levels, to_unit


def fog_maps(draws: Draws, count: int, size: int, decay: float) -> Tensor:
    """Clouds (count, size, size) from 0 to 1; size: a power of two.

    From step to step the noise falls by the square of `decay`: the authors draw it between minus
    and plus an amplitude, and multiply by that amplitude once more.
    """
    maps = torch.zeros(count, size, size, dtype=torch.float64, device=draws.device)

    def wibbled(total: Tensor) -> Tensor:
        noise = amplitude * (2 * draws.uniform(*total.shape) - 1)
        return total / 4 + amplitude * noise

    step, amplitude = size, 100.0
    while step >= 2:
        half = step // 2
        corners = maps[:, ::step, ::step]
        square = corners + corners.roll(-1, 1)
        square = square + square.roll(-1, 2)
        maps[:, half::step, half::step] = wibbled(square)
        centres = maps[:, half::step, half::step]
        above = centres + centres.roll(1, 1)
        maps[:, ::step, half::step] = wibbled(above + (corners + corners.roll(-1, 2)))
        beside = centres + centres.roll(1, 2)
        maps[:, half::step, ::step] = wibbled(beside + (corners + corners.roll(-1, 1)))
        step, amplitude = half, amplitude / decay
    maps = maps - maps.amin((1, 2), keepdim=True)
    return maps / maps.amax((1, 2), keepdim=True)


def fog(images: Tensor, draws: Draws, strength: float, decay: float) -> Tensor:
    """A cloud added, and the whole darkened so that the brightest value of the image can stay.

    The map is as large as the next power of two and cut to the image.
    """
    count, height, width = images.shape[:3]
    size = 1 << (max(height, width) - 1).bit_length()
    maps = fog_maps(draws, count, size, decay)[:, :height, :width, None]
    values = to_unit(images)
    brightest = values.amax((1, 2, 3), keepdim=True)
    return to_levels((values + strength * maps) * brightest / (brightest + strength))
