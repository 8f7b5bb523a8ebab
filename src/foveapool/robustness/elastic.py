"""Elastic transform: a random affine map, then a random displacement of each pixel.

OpenCV's and scipy's ways of reading between pixels are kept, those of the versions that the
authors used: they decide what is seen at the rim.
"""

from __future__ import annotations

import torch
from torch import Tensor

from foveapool.robustness.draws import Draws
from foveapool.robustness.filters import fold, gaussian
from foveapool.robustness.levels import scale_of, to_levels, to_unit


def _blend(values: Tensor, rows: Tensor, columns: Tensor, down: Tensor, right: Tensor) -> Tensor:
    """(N, H, W, C) read at whole rows and columns plus the shares `down` and `right` of the next.

    All positions are (N, H, W); pixels beyond the edge are mirrored, the edge not repeated.
    """
    image = torch.arange(len(values), device=values.device)[:, None, None]
    height, width = values.shape[1:3]
    result = torch.zeros((), dtype=values.dtype, device=values.device)
    for y, row_share in ((rows, 1 - down), (rows + 1, down)):
        for x, share in ((columns, 1 - right), (columns + 1, right)):
            pixel = values[image, fold(y, height, "mirror"), fold(x, width, "mirror")]
            result = result + pixel * (row_share * share)[..., None]
    return result


def affine(values: Tensor, points: Tensor, moved: Tensor) -> Tensor:
    """Float images warped so that three points (x, y), (3, 2), come to lie at `moved` (N, 3, 2).

    Positions are whole 32nds of a pixel, reached through 1024ths, as OpenCV had them before 5.
    """
    height, width = values.shape[1:3]
    corners = torch.cat([moved, torch.ones_like(moved[..., :1])], 2)
    # From where each new position is read: corners @ back = points.
    back = torch.linalg.solve(corners, points.expand_as(moved))
    x = torch.arange(width, dtype=torch.float64, device=values.device)
    y = torch.arange(height, dtype=torch.float64, device=values.device)

    def position(axis: int) -> tuple[Tensor, Tensor]:
        across = (back[:, 0, axis, None] * x * 1024).round()
        along = ((back[:, 1, axis, None] * y + back[:, 2, axis, None]) * 1024).round()
        place = (along[:, :, None] + across[:, None, :] + 16).long() >> 5
        return place >> 5, (place & 31).to(values.dtype) / 32

    (columns, right), (rows, down) = position(0), position(1)
    return _blend(values, rows, columns, down, right)


def displaced(values: Tensor, down: Tensor, right: Tensor) -> Tensor:
    """Float images where each pixel is read `down` and `right` of itself, both (N, H, W).

    The edge repeats itself beyond, but within one pixel of it scipy before 1.6 read a blend of
    the edge and the next pixel inside, and so does this.
    """

    def position(offset: Tensor, axis: int) -> tuple[Tensor, Tensor]:
        size = values.shape[axis]
        shape = [-1 if other == axis else 1 for other in range(3)]
        start = torch.arange(size, device=values.device).reshape(shape)
        place = start + offset
        place = torch.where(place < 0, -place - 1, place).fmod(2 * size)
        place = torch.where(place >= size, 2 * size - 1 - place, place)
        whole = place.floor()
        return whole.long(), place - whole

    (rows, lower), (columns, further) = position(down, 1), position(right, 2)
    return _blend(values.double(), rows, columns, lower, further).to(values.dtype)


def elastic_transform(
    images: Tensor, draws: Draws, alpha: float, sigma: float, jitter: float
) -> Tensor:
    """Warped: three points move by up to `jitter`, pixels by a field of range alpha, grain sigma.

    All in pixels of a 32-pixel image. Smoothing takes the more from the field the wider it is, so
    alpha grows with the square of the side for displacements to grow with the side.
    """
    count, height, width = images.shape[:3]
    scale = scale_of(images)
    middle, third = (width // 2, height // 2), min(height, width) // 3
    signs = torch.tensor([[1, 1], [1, -1], [-1, -1]], device=images.device)
    points = (torch.tensor(middle, device=images.device) + third * signs).double()
    shifts = (2 * draws.uniform(count, 3, 2) - 1) * jitter * scale
    # The authors' points are float32.
    moved = (points + shifts.float()).double()
    values = affine(to_unit(images, torch.float32), points, moved)
    fields = 2 * draws.uniform(count, 2, height, width) - 1
    right, down = (
        gaussian(field, sigma * scale, truncate=3.0, border="reflect") * (alpha * scale**2)
        for field in fields.unbind(1)
    )
    return to_levels(displaced(values, down.float().double(), right.float().double()))
