"""Images turned, moved, tilted and bent: affine and elastic maps."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from foveapool.robustness.filters import fold_index, gaussian
from foveapool.robustness.images import Draws, get_scale, to_levels, to_unit


class Sampling(NamedTuple):
    """The four neighbors that each of the P = H * W pixels of a frame lies between.

    places: (4, P) in the flattened picture, upper left and right, lower left and right. inside:
    (4, P, 1), false where a neighbor counts as black. right, down: (P, 1), the shares of the right
    and of the lower neighbors.
    """

    places: Tensor
    inside: Tensor
    right: Tensor
    down: Tensor


class Move(NamedTuple):
    """The content turned clockwise and sheared, both in degrees, enlarged, and shifted right."""

    angle: float = 0.0
    shear: float = 0.0
    scale: float = 1.0
    shift: float = 0.0


def make_affine_sampling(move: Move, height: int, width: int, device: torch.device) -> Sampling:
    """What each pixel reads where a picture is moved; black where that lies outside.

    The center lies half a pixel right of and below the middle, and a shear of s also compresses
    the rows by cos s: torchvision 0.2 did so, later ones do not.
    """
    a, b, c, d, e, f = _invert(move, (width * 0.5 + 0.5, height * 0.5 + 0.5))
    y, x = _make_grid(height, width, 0.5, device)
    # In Pillow's order of operations: a last bit decides on which side of an edge a pixel falls.
    column, row = a * x + b * y + c, d * x + e * y + f
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    return _make_sampling(column - 0.5, row - 0.5, inside.expand(4, -1, -1))


def _invert(move: Move, middle: tuple[float, float]) -> tuple[float, ...]:
    """The map from a place (x, y) of the frame to (a x + b y + c, d x + e y + f) of the picture."""
    angle, shear = math.radians(move.angle), math.radians(move.shear)
    determinant = math.cos(angle + shear) * math.cos(angle)
    determinant += math.sin(angle + shear) * math.sin(angle)
    factor = 1.0 / move.scale / determinant
    a, b = factor * math.cos(angle + shear), factor * math.sin(angle + shear)
    d, e = factor * -math.sin(angle), factor * math.cos(angle)
    x, y = -middle[0] - move.shift, -middle[1]
    return a, b, a * x + b * y + middle[0], d, e, d * x + e * y + middle[1]


def make_tilt_sampling(
    degrees: float, depth: float, height: int, width: int, device: torch.device
) -> Sampling:
    """What each pixel reads where a picture is tilted about both axes and seen in perspective.

    The picture lies `depth` pixels behind the axes it turns about, and the eye as far before them
    as its diagonal is long. Neighbors outside count as black.
    """
    inverse = torch.linalg.inv(_make_tilt_matrix(degrees, depth, height, width)).tolist()
    y, x = _make_grid(height, width, 0.0, device)
    column, row, divisor = (a * x + b * y + c for a, b, c in inverse)
    # OpenCV rounds where it reads from to 1/32 of a pixel.
    column, row = ((32 / divisor * place).round() / 32 for place in (column, row))
    left, top = column.floor(), row.floor()
    inside = [
        (top + i >= 0) & (top + i < height) & (left + j >= 0) & (left + j < width)
        for i in (0, 1)
        for j in (0, 1)
    ]
    return _make_sampling(column, row, torch.stack(inside))


def _make_tilt_matrix(degrees: float, depth: float, height: int, width: int) -> Tensor:
    """The 3 x 3 matrix that takes places of the picture to places of the frame."""
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    distance = math.hypot(width, height)

    def matrix(*rows: list[float]) -> Tensor:
        return torch.tensor(rows, dtype=torch.float64)

    lift = matrix([1, 0, -width / 2], [0, 1, -height / 2], [0, 0, depth])
    about_vertical = matrix([cos, 0, -sin], [0, 1, 0], [sin, 0, cos])
    about_horizontal = matrix([1, 0, 0], [0, cos, -sin], [0, sin, cos])
    step_back = matrix([0, 0, 0], [0, 0, 0], [0, 0, distance])
    project = matrix([distance, 0, width / 2], [0, distance, height / 2], [0, 0, 1])
    return project @ (about_horizontal @ about_vertical @ lift + step_back)


def _make_grid(
    height: int, width: int, offset: float, device: torch.device
) -> tuple[Tensor, Tensor]:
    """The places of the pixels, y (H, 1) and x (W,)."""
    y, x = (torch.arange(n, dtype=torch.float64, device=device) + offset for n in (height, width))
    return y[:, None], x


def _make_sampling(column: Tensor, row: Tensor, inside: Tensor) -> Sampling:
    """A sampling at these places (H, W), with a mask (4, H, W)."""
    height, width = column.shape
    left, top = column.floor(), row.floor()
    places = [
        (top + i).clamp(0, height - 1) * width + (left + j).clamp(0, width - 1)
        for i in (0, 1)
        for j in (0, 1)
    ]
    return Sampling(
        torch.stack(places).long().flatten(1),
        inside.flatten(1)[:, :, None],
        (column - left).reshape(-1, 1),
        (row - top).reshape(-1, 1),
    )


def pixel_rows(images: Tensor) -> Tensor:
    """(N, H, W, C) as (H * W, N * C): one row a pixel, as `sample` reads them fastest."""
    return images.flatten(1, 2).transpose(0, 1).flatten(1)


def sample(pixels: Tensor, sampling: Sampling) -> Tensor:
    """One frame, float64 (P, ...), of pictures given as `pixel_rows`; not yet cut to levels."""
    upper_left, upper_right, lower_left, lower_right = (
        pixels.index_select(0, places).double().mul_(inside)
        for places, inside in zip(sampling.places, sampling.inside, strict=True)
    )
    # a + (b - a) * share, as Pillow has it; with OpenCV's shares of 1/32 every order is exact.
    upper = upper_right.sub_(upper_left).mul_(sampling.right).add_(upper_left)
    lower = lower_right.sub_(lower_left).mul_(sampling.right).add_(lower_left)
    return lower.sub_(upper).mul_(sampling.down).add_(upper)


def _blend(values: Tensor, rows: Tensor, columns: Tensor, down: Tensor, right: Tensor) -> Tensor:
    """(N, H, W, C) read at whole rows and columns plus the shares `down` and `right` of the next.

    All positions are (N, H, W); pixels beyond the edge are mirrored, the edge not repeated.
    """
    image = torch.arange(len(values), device=values.device)[:, None, None]
    height, width = values.shape[1:3]
    result = torch.zeros((), dtype=values.dtype, device=values.device)
    for y, row_share in ((rows, 1 - down), (rows + 1, down)):
        for x, share in ((columns, 1 - right), (columns + 1, right)):
            pixel = values[image, fold_index(y, height, "mirror"), fold_index(x, width, "mirror")]
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


def displace(values: Tensor, down: Tensor, right: Tensor) -> Tensor:
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
    scale = get_scale(images)
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
    return to_levels(displace(values, down.float().double(), right.float().double()))
