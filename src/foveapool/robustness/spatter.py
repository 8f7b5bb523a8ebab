"""Spatter: drops of water with a relief, or spots of mud, thrown at random over a picture."""

from __future__ import annotations

import torch
from torch import Tensor

from foveapool.robustness.draws import Draws
from foveapool.robustness.edges import canny, distance_to, equalise
from foveapool.robustness.filters import correlate, gaussian
from foveapool.robustness.levels import to_levels, to_unit
from foveapool.robustness.resample import layer_shape, resize

# Red, green and blue.
_WATER = (175, 238, 238)
_MUD = (63, 42, 20)

_LIGHT = ((-2.0, -1.0, 0.0), (-1.0, 1.0, 1.0), (0.0, 1.0, 2.0))


def wet_places(values: Tensor, sigma: float, threshold: float) -> Tensor:
    """(N, rows, columns) random numbers smoothed, and 0 where they stay below the threshold."""
    layer = gaussian(values, sigma)
    return torch.where(layer < threshold, 0.0, layer)


def _relief(levels: Tensor) -> Tensor:
    """How strongly drops with these uint8 levels catch the light, as whole levels in float32."""
    box = torch.full((3, 3), 1 / 9, dtype=torch.float64)
    distance = distance_to(canny(levels, 50, 150), cap=20)
    heights = equalise(correlate(distance.double(), box).float().to(torch.uint8))
    lit = correlate(heights.double(), torch.tensor(_LIGHT)).clamp(0, 255)
    return correlate(lit, box).round().float()


def lay_water(images: Tensor, layer: Tensor, strength: float, reproduce: bool = False) -> Tensor:
    """uint8 images under drops; layer: (N, *layer_shape(images)), 0 where no water is.

    Where no drop catches light the authors divide 0 by 0 and the picture turns black: so it does
    here with `reproduce`, and stays as it is without.
    """
    # Above 1 the authors' bytes wrap round.
    levels = (layer * 255).long().remainder(256).to(torch.uint8)
    water = levels.float() * _relief(levels)
    brightest = water.amax((1, 2), keepdim=True)
    dry = brightest == 0
    water = torch.where(dry, 0.0, water / brightest * strength)
    water = resize(water, *images.shape[1:3])[..., None]
    colour = (torch.tensor(_WATER) / 255).to(images.device)
    result = to_levels(to_unit(images, torch.float32) + water * colour)
    return torch.where(dry[..., None], 0, result) if reproduce else result


def lay_mud(images: Tensor, layer: Tensor, threshold: float, sigma: float) -> Tensor:
    """uint8 images under mud where the layer (N, *layer_shape(images)) exceeds the threshold."""
    spots = gaussian((layer > threshold).double(), sigma).float()
    spots = torch.where(spots < 0.8, 0.0, spots)
    spots = resize(spots, *images.shape[1:3])[..., None]
    colour = (torch.tensor(_MUD) / 255).to(images.device)
    return to_levels(to_unit(images, torch.float32) * (1 - spots) + colour * spots)


def spatter(
    images: Tensor,
    draws: Draws,
    mean: float,
    deviation: float,
    sigma: float,
    threshold: float,
    strength: float,
    kind: str,
) -> Tensor:
    """Drops of "water" of that strength, or of "mud" whose rims are `strength` pixels soft."""
    values = mean + deviation * draws.normal(len(images), *layer_shape(images))
    layer = wet_places(values, sigma, threshold)
    if kind == "water":
        return lay_water(images, layer, strength)
    return lay_mud(images, layer, threshold, strength)
