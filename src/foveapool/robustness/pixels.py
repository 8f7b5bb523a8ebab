"""Corruptions that work pixel by pixel: noises, colors, pixelation and JPEG."""

from __future__ import annotations

import io

import numpy as np
import torch
from torch import Tensor

from foveapool._suggest import how_to_install
from foveapool.robustness.filters import layer_shape, repeat_pixels, shrink_by_boxes
from foveapool.robustness.images import Draws, divide, to_levels, to_unit


def gaussian_noise(images: Tensor, draws: Draws, deviation: float) -> Tensor:
    """Normal noise of that deviation on the unit scale."""
    return to_levels(to_unit(images) + deviation * draws.normal(*images.shape))


def shot_noise(images: Tensor, draws: Draws, photons: float) -> Tensor:
    """Counts of so many photons in a white pixel on average: the fewer, the noisier."""
    return to_levels(divide(draws.poisson(to_unit(images) * photons), photons))


def impulse_noise(images: Tensor, draws: Draws, share: float) -> Tensor:
    """That share of the values replaced, one half by 0 and one half by 255."""
    hit = draws.uniform(*images.shape) < share
    salt = draws.uniform(*images.shape) < 0.5
    return torch.where(hit, 255 * salt.to(torch.uint8), images)


def speckle_noise(images: Tensor, draws: Draws, deviation: float) -> Tensor:
    """Normal noise in proportion to the value it is added to."""
    values = to_unit(images)
    return to_levels(values + values * (deviation * draws.normal(*images.shape)))


def pixelate(images: Tensor, draws: Draws, share: float) -> Tensor:
    """Shrunk to that share of 32 pixels, of the image if it is smaller, and enlarged in blocks."""
    rows, columns = (int(side * share) for side in layer_shape(images))
    return repeat_pixels(shrink_by_boxes(images, rows, columns), *images.shape[1:3])


def jpeg_compression(images: Tensor, draws: Draws, quality: int) -> Tensor:
    """Encoded and decoded by Pillow at that quality, colors at half the resolution."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(
            f"jpeg_compression encodes with Pillow: {how_to_install('data')}"
        ) from error
    pixels = images.cpu().numpy()
    result = np.empty_like(pixels)
    # One after the other: Pillow holds Python's lock, and threads only wait for each other.
    for target, image in zip(result, pixels, strict=True):
        with io.BytesIO() as file:
            Image.fromarray(image).save(file, "JPEG", quality=quality)
            with Image.open(file) as decoded:
                target[:] = np.asarray(decoded)
    return torch.from_numpy(result).to(images.device)


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
    hue = torch.where(spread == 0, 0.0, divide(hue, 6).remainder(1))
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
    mean = divide(total, images.shape[1] * images.shape[2])
    return to_levels((values - mean) * share + mean)


def saturate(images: Tensor, draws: Draws, factor: float, offset: float) -> Tensor:
    """Saturation times a factor plus an offset: below 1 colors wash out, above they glow."""
    hue, saturation, value = rgb_to_hsv(to_unit(images))
    return to_levels(hsv_to_rgb(hue, (saturation * factor + offset).clamp(0, 1), value))
