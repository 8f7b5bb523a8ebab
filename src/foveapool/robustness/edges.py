"""OpenCV's edges, distances and histogram equalisation of grey uint8 layers (N, H, W), batched.

`spatter` makes its relief of drops with them.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from foveapool.robustness.filters import pad

# tan(22.5 degrees) in 15 bits, by which OpenCV tells the four directions of a gradient.
_TAN = 13573
# What a step costs in the 5x5 chamfer distance: straight, diagonal, a knight's move.
_STEPS = {(0, 1): 1.0, (1, 1): 1.4, (1, 2): 2.1969}


def _shifted(padded: Tensor, reach: int, down: int, right: int) -> Tensor:
    """What lies `down` and `right` of each pixel; padded: with `reach` pixels all round."""
    rows, columns = padded.shape[1] - 2 * reach, padded.shape[2] - 2 * reach
    return padded[:, reach + down :, reach + right :][:, :rows, :columns]


def _surrounded(layers: Tensor, reach: int, value: float) -> Tensor:
    return functional.pad(layers, (reach,) * 4, value=value)


def canny(levels: Tensor, low: int, high: int) -> Tensor:
    """Edges as booleans: ridges of the gradient above `low` that hang on a place above `high`."""
    padded = pad(levels.int(), 1, 1, "nearest")
    corner = {(y, x): _shifted(padded, 1, y, x) for y in (-1, 0, 1) for x in (-1, 0, 1)}
    right = corner[-1, 1] + 2 * corner[0, 1] + corner[1, 1]
    left = corner[-1, -1] + 2 * corner[0, -1] + corner[1, -1]
    below = corner[1, -1] + 2 * corner[1, 0] + corner[1, 1]
    above = corner[-1, -1] + 2 * corner[-1, 0] + corner[-1, 1]
    across, along = right - left, below - above
    size = across.abs() + along.abs()

    around = _surrounded(size, 1, 0)
    flat, steep = across.abs() * _TAN, along.abs() << 15
    horizontal = steep < flat
    vertical = steep > flat + (across.abs() << 16)
    falling = (across ^ along) < 0
    # Of two equal neighbours along a row or a column only the first is a ridge; along a diagonal
    # neither is. So OpenCV compares.
    ridge = torch.where(
        horizontal,
        (size > _shifted(around, 1, 0, -1)) & (size >= _shifted(around, 1, 0, 1)),
        torch.where(
            vertical,
            (size > _shifted(around, 1, -1, 0)) & (size >= _shifted(around, 1, 1, 0)),
            torch.where(
                falling,
                (size > _shifted(around, 1, -1, 1)) & (size > _shifted(around, 1, 1, -1)),
                (size > _shifted(around, 1, -1, -1)) & (size > _shifted(around, 1, 1, 1)),
            ),
        ),
    )
    ridge &= size > low
    edges = ridge & (size > high)
    while True:
        near = functional.max_pool2d(edges.float()[:, None], 3, 1, 1)[:, 0] > 0
        grown = near & ridge
        if torch.equal(grown, edges):
            return edges
        edges = grown


def distance_to(edges: Tensor, cap: int) -> Tensor:
    """Chamfer distance to the nearest edge in float32, `cap` where none is as near as that."""
    distance = torch.where(edges, 0.0, float(cap))
    signs = ((1, 1), (1, -1), (-1, 1), (-1, -1))
    moves = {
        (sign_y * y, sign_x * x): cost
        for (a, b), cost in _STEPS.items()
        for y, x in ((a, b), (b, a))
        for sign_y, sign_x in signs
    }
    while True:
        padded = _surrounded(distance, 2, cap)
        nearer = distance
        for (y, x), cost in moves.items():
            nearer = torch.minimum(nearer, _shifted(padded, 2, y, x) + cost)
        if torch.equal(nearer, distance):
            return distance
        distance = nearer


def equalise(levels: Tensor) -> Tensor:
    """Levels spread so that their histogram is even; a layer of one level stays as it is."""
    flat = levels.flatten(1).long()
    pixels = flat.shape[1]
    histogram = torch.zeros(len(flat), 256, dtype=torch.long, device=levels.device)
    histogram.scatter_add_(1, flat, torch.ones_like(flat))
    lowest = (histogram > 0).int().argmax(1, keepdim=True)
    below = histogram.gather(1, lowest)
    above = histogram.cumsum(1) - below
    room = (pixels - below).clamp(min=1).float()
    # A true division: 255 / room would multiply by the reciprocal, and halves would round down.
    even = (above.float() * (torch.full_like(room, 255) / room)).round()
    table = torch.where(below == pixels, lowest, even.clamp(0, 255).long())
    return table.gather(1, flat).reshape(levels.shape).to(torch.uint8)
