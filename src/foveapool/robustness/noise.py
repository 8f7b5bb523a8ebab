"""The four noises: Gaussian, shot, impulse and speckle, each channel value for itself."""

from __future__ import annotations

import torch
from torch import Tensor

from foveapool.robustness.draws import Draws
from foveapool.robustness.levels import divided, to_levels, to_unit


def gaussian_noise(images: Tensor, draws: Draws, deviation: float) -> Tensor:
    """Normal noise of that deviation on the unit scale."""
    return to_levels(to_unit(images) + deviation * draws.normal(*images.shape))


def shot_noise(images: Tensor, draws: Draws, photons: float) -> Tensor:
    """Counts of so many photons in a white pixel on average: the fewer, the noisier."""
    return to_levels(divided(draws.poisson(to_unit(images) * photons), photons))


def impulse_noise(images: Tensor, draws: Draws, share: float) -> Tensor:
    """That share of the values replaced, one half by 0 and one half by 255."""
    hit = draws.uniform(*images.shape) < share
    salt = draws.uniform(*images.shape) < 0.5
    return torch.where(hit, 255 * salt.to(torch.uint8), images)


def speckle_noise(images: Tensor, draws: Draws, deviation: float) -> Tensor:
    """Normal noise in proportion to the value it is added to."""
    values = to_unit(images)
    return to_levels(values + values * (deviation * draws.normal(*images.shape)))
