"""Brightness, contrast and saturation, through the HSV hexcone where the authors go through it."""

from __future__ import annotations

import torch
from torch import Tensor

from foveapool.robustness.draws import Draws
from foveapool.robustness.levels import divided, to_levels, to_unit

# Which of (value, falling, low, rising) red, green and blue are in each sixth of the hues.
_SIXTHS = ((0, 3, 2), (1, 0, 2), (2, 0, 3), (2, 1, 0), (3, 2, 0), (0, 2, 1))


def rgb_to_hsv(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Hue, saturation and value, each (...) from 0 to 1, of (..., 3) on the unit scale."""
    red, green, blue = values.unbind(-1)
    value = values.amax(-1)
    spread = value - values.amin(-1)
    divisor = torch.where(spread == 0, 1.0, spread)
    # Where channels tie for the largest the last of them counts, as in scikit-image.
    hue = (red - green) / divisor + 4
    hue = torch.where(blue == value, hue, (blue - red) / divisor + 2)
    hue = torch.where((blue == value) | (green == value), hue, (green - blue) / divisor)
    hue = torch.where(spread == 0, 0.0, divided(hue, 6).remainder(1))
    saturation = torch.where(spread == 0, 0.0, spread / torch.where(value == 0, 1.0, value))
    return hue, saturation, value


def hsv_to_rgb(hue: Tensor, saturation: Tensor, value: Tensor) -> Tensor:
    """The way back, (..., 3)."""
    sixth = (hue * 6).floor()
    rest = hue * 6 - sixth
    low = value * (1 - saturation)
    falling = value * (1 - rest * saturation)
    rising = value * (1 - (1 - rest) * saturation)
    courses = torch.stack([value, falling, low, rising], -1)
    chosen = torch.tensor(_SIXTHS, device=hue.device)[sixth.long().remainder(6)]
    return courses.gather(-1, chosen)


def brightness(images: Tensor, draws: Draws, offset: float) -> Tensor:
    """The value of HSV raised by that much of the whole range."""
    hue, saturation, value = rgb_to_hsv(to_unit(images))
    return to_levels(hsv_to_rgb(hue, saturation, (value + offset).clamp(0, 1)))


def contrast(images: Tensor, draws: Draws, share: float) -> Tensor:
    """Nearer to the mean of each channel: that share of the distance stays."""
    values = to_unit(images)
    # Added one by one, as numpy does: levels hang on the last bit of the mean.
    total = values.flatten(1, 2).cumsum(1)[:, -1, None, None]
    mean = divided(total, images.shape[1] * images.shape[2])
    return to_levels((values - mean) * share + mean)


def saturate(images: Tensor, draws: Draws, factor: float, offset: float) -> Tensor:
    """Saturation times a factor plus an offset: below 1 colours wash out, above they glow."""
    hue, saturation, value = rgb_to_hsv(to_unit(images))
    return to_levels(hsv_to_rgb(hue, (saturation * factor + offset).clamp(0, 1), value))
