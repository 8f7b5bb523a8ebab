"""Where the places of an input map and of an output map lie, and how far they are apart.

Grids have one, two or three axes, any input and output size, and are numbered in raster order
(the last axis runs fastest). Coordinates are 1-based, as in the paper, because its centres
`s * coord(m)` depend on that. Nothing here knows about features, classes or eigenvectors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Literal

import torch
from torch import Tensor

Centre = Literal["paper", "aligned", "first"]
CENTRES: tuple[Centre, ...] = ("paper", "aligned", "first")
# How much of a pixel and of a block lies before the centre's coordinate.
_BEFORE = {"paper": 0.0, "aligned": 0.5, "first": 1.0}


def is_whole(value: object) -> bool:
    """Whether it is a whole number, NumPy's or another's."""
    return isinstance(value, Integral)


def is_number(value: object) -> bool:
    """Whether it is a real number, NumPy's or another's."""
    return isinstance(value, Real)


def as_shape(shape: Sequence[int], name: str = "in_shape") -> tuple[int, ...]:
    """The spatial shape as a tuple of one to three positive integers, or a ValueError."""
    try:
        sizes = tuple(int(size) for size in shape)
        if sizes != tuple(shape):
            sizes = ()
    except (TypeError, ValueError, OverflowError):
        sizes = ()
    if not 1 <= len(sizes) <= 3 or any(size < 1 for size in sizes):
        raise ValueError(
            f"{name}: got {shape!r}, wanted one to three positive sizes such as (32, 32); "
            "give the spatial sizes only, without batch and channels"
        )
    return sizes


def as_radius(window: int) -> int:
    """The radius of a neighbourhood as a whole number of pixels, or a ValueError."""
    try:
        radius = int(window)
    except (TypeError, ValueError, OverflowError):
        radius = -1
    if radius != window or radius < 0:
        raise ValueError(f"window: got {window!r}, wanted a whole number of pixels, 0 or more")
    return radius


def check_shapes(
    in_shape: Sequence[int], out_shape: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Both shapes, checked: as many axes in the output, none larger than in the input."""
    source, target = as_shape(in_shape, "in_shape"), as_shape(out_shape, "out_shape")
    if len(source) != len(target) or any(o > i for i, o in zip(source, target, strict=False)):
        raise ValueError(
            f"out_shape: got {target} for in_shape {source}, wanted {len(source)} sizes, "
            "each at most as large as the input's; a pooling does not enlarge a map"
        )
    return source, target


def coordinates(shape: Sequence[int]) -> Tensor:
    """1-based coordinates of all places in raster order, float64 (N, axes).

    >>> coordinates((2, 2)).tolist()
    [[1.0, 1.0], [1.0, 2.0], [2.0, 1.0], [2.0, 2.0]]
    """
    axes = [torch.arange(1, size + 1, dtype=torch.float64) for size in as_shape(shape)]
    return torch.cartesian_prod(*axes).reshape(-1, len(axes))


def centres(in_shape: Sequence[int], out_shape: Sequence[int], centre: Centre = "paper") -> Tensor:
    """The place of the input map on which each output place is centred, float64 (M, axes).

    `paper` is `s * coord(m)`: for s = 2 the lower right pixel of each 2 x 2 block.
    `aligned` is the middle of the block, which may lie between pixels. `first` is its first
    pixel: where a strided layer's own output is found in the map that it makes at stride 1.

    >>> [centres((4,), (2,), centre).flatten().tolist() for centre in CENTRES]
    [[2.0, 4.0], [1.5, 3.5], [1.0, 3.0]]
    """
    source, target = check_shapes(in_shape, out_shape)
    if centre not in CENTRES:
        raise ValueError(f"centre: got {centre!r}, wanted one of {CENTRES}")
    before = _BEFORE[centre]
    # Multiplied before it is divided: a centre half-way between two pixels is then exactly there.
    return (coordinates(target) - before) * torch.tensor(source) / torch.tensor(target) + before


def offsets(
    in_shape: Sequence[int],
    out_shape: Sequence[int],
    centre: Centre = "paper",
    rows: slice = slice(None),
) -> Tensor:
    """From the centre of each output place to each input place, (M, N, axes), or some `rows`."""
    return coordinates(in_shape)[None] - centres(in_shape, out_shape, centre)[rows][:, None]


def penalty(
    in_shape: Sequence[int],
    out_shape: Sequence[int],
    centre: Centre = "paper",
    rows: slice = slice(None),
) -> Tensor:
    """The diagonals of C_m: squared distance of each input place from the centre of m.

    Returns (M, N), or only the given `rows` of it, so that callers can go through the output in
    blocks; the paper's M x N x N never exists.

    >>> penalty((4,), (2,)).tolist()
    [[1.0, 0.0, 1.0, 4.0], [9.0, 4.0, 1.0, 0.0]]
    """
    return offsets(in_shape, out_shape, centre, rows).square().sum(-1)


def windows(
    in_shape: Sequence[int], out_shape: Sequence[int], radius: int, centre: Centre = "paper"
) -> Tensor:
    """The input places in the (2 radius + 1)-wide neighbourhood of each output place, int64 (M, n).

    At the border the neighbourhood is moved inwards, not cut, so that every output place has the
    same number of weights; an axis shorter than the neighbourhood is taken whole.

    >>> windows((5,), (2,), 1).tolist()
    [[0, 1, 2], [2, 3, 4]]
    """
    source, _ = check_shapes(in_shape, out_shape)
    radius = as_radius(radius)
    index = torch.zeros(1, 1, dtype=torch.int64)
    for axis, middle in enumerate(centres(in_shape, out_shape, centre).unbind(-1)):
        size = source[axis]
        width = min(2 * radius + 1, size)
        # A centre between two pixels belongs to the lower one, on every machine.
        nearest = (middle - 0.5).ceil().long() - 1
        first = (nearest - radius).clamp(0, size - width)
        along = first[:, None] + torch.arange(width)
        index = (index[:, :, None] * size + along[:, None, :]).flatten(1)
    return index


def average_weights(in_shape: Sequence[int], out_shape: Sequence[int]) -> Tensor:
    """Average pooling as a linear operator, float64 (M, N): each output place its block's mean.

    Blocks are those of adaptive average pooling, so any pair of sizes has one.

    >>> average_weights((4,), (2,)).tolist()
    [[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5]]
    """
    source, target = check_shapes(in_shape, out_shape)
    weight = torch.ones(1, 1, dtype=torch.float64)
    for size, outputs in zip(source, target, strict=True):
        place = torch.arange(size)
        along = torch.zeros(outputs, size, dtype=torch.float64)
        for m in range(outputs):
            first, last = m * size // outputs, math.ceil((m + 1) * size / outputs)
            along[m] = ((place >= first) & (place < last)).double() / (last - first)
        weight = torch.einsum("mn,ab->manb", weight, along).flatten(0, 1).flatten(1)
    return weight
