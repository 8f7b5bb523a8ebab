"""The shapes of digits in many fonts, and rows of them drawn at any place, size and slant.

The atlas holds distances to the outline instead of pictures, so one cell gives thin and thick
strokes and sharp edges at every size. What scenes are made of these shapes is told in `scenes.py`;
how the atlas was made, in `scripts/make_glyph_atlas.py`.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor
from torch.nn import functional

ATLAS = Path(__file__).parent / "assets" / "glyphs.safetensors"


@dataclass(frozen=True, eq=False)
class Atlas:
    """The digits 0 to 9 of every font.

    depths: (fonts, 10, H, W), how deep a point lies inside a stroke, negative outside, in heights
    of the digit and cut off at `reach`. widths: (fonts, 10), in heights of the digit. height: how
    many rows of its cell a digit fills; it stands in the middle.
    """

    depths: Tensor
    widths: Tensor
    reach: float
    height: int


@functools.cache
def atlas() -> Atlas:
    """The atlas of the package, read once."""
    with safe_open(ATLAS, framework="pt") as file:
        facts = json.loads(file.metadata()["foveapool"])
        depths = (file.get_tensor("cells").float() / 127.5 - 1) * facts["reach"]
        return Atlas(depths, file.get_tensor("widths"), facts["reach"], facts["height"])


def row_depths(
    fonts: Tensor, digits: Tensor, places: Tensor, shown: Tensor, u: Tensor, v: Tensor
) -> Tensor:
    """How deep each point (n, H, W) lies inside the strokes of its scene's row of digits.

    fonts (n,), one a scene; digits, where along the row their middles are, and which of them are
    shown, all (n, k). u and v (n, H, W) are the points' coordinates along and across the row.
    All lengths are in heights of the digit.
    """
    shapes = atlas()
    rows, columns = shapes.depths.shape[2:]
    deepest = torch.full_like(u, -shapes.reach)
    for k in range(digits.shape[1]):
        at = shown[:, k].nonzero()[:, 0]
        x = (u[at] - places[at, k, None, None]) * (2 * shapes.height / columns)
        points = torch.stack((x, v[at] * (2 * shapes.height / rows)), 3)
        cells = shapes.depths[fonts[at], digits[at, k]][:, None]
        found = functional.grid_sample(cells, points, padding_mode="border", align_corners=False)
        deepest[at] = torch.maximum(deepest[at], found[:, 0])
    return deepest
