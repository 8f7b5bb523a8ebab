"""Snow: a layer of random flakes, blown along a direction, over a whitened picture."""

from __future__ import annotations

import torch
from torch import Tensor

from foveapool.robustness.draws import Draws
from foveapool.robustness.levels import scale_of, to_levels, to_unit
from foveapool.robustness.motion import motion_blur
from foveapool.robustness.resample import layer_shape, resize
from foveapool.robustness.zoom import clipped_zoom


def snow_flakes(images: Tensor, values: Tensor, zoom: float, threshold: float) -> Tensor:
    """Grey uint8 flakes (N, H, W) for the images: `values` enlarged, kept where they reach far.

    values: (N, *layer_shape(images)) random numbers, one drawn layer an image.
    """
    flakes = clipped_zoom(values, zoom)
    flakes = torch.where(flakes < threshold, 0.0, flakes).clamp(0, 1)
    return to_levels(resize(flakes, *images.shape[1:3]))


def lay_snow(images: Tensor, flakes: Tensor, blend: float) -> Tensor:
    """uint8 images under snow: whitened by the share 1 - blend, flakes added in both directions.

    flakes: uint8 (N, H, W), after the wind; they fall a second time, turned by 180 degrees.
    """
    values = to_unit(images, torch.float32)
    red, green, blue = values.unbind(-1)
    grey = (0.299 * red + 0.587 * green + 0.114 * blue)[..., None]
    white = torch.maximum(values, grey * 1.5 + 0.5)
    whitened = blend * values + (1 - blend) * white
    layer = to_unit(flakes)[..., None]
    return to_levels(whitened + layer + layer.flip(1, 2))


def snow(
    images: Tensor,
    draws: Draws,
    mean: float,
    deviation: float,
    zoom: float,
    threshold: float,
    radius: float,
    sigma: float,
    blend: float,
) -> Tensor:
    """Snow blown from above, 45 degrees to either side; streaks grow with the images."""
    values = mean + deviation * draws.normal(len(images), *layer_shape(images))
    angles = 90 * draws.uniform(len(images)) - 135
    scale = scale_of(images)
    flakes = snow_flakes(images, values, zoom, threshold)
    blown = motion_blur(flakes, scale * radius, scale * sigma, angles)
    return lay_snow(images, blown, blend)
