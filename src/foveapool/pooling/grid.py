"""Places of an input map and of an output map, and linear maps between them that need no data.

Grids have one, two or three axes, any input and output size, and are numbered in raster order
(the last axis runs fastest). Coordinates are 1-based, as in the paper, because its centers
`s * coord(m)` depend on that. Average pooling, a strided convolution with one kernel and a pooling
carried to another map size are matrices here. Nothing knows about features, classes or
eigenvectors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from foveapool._memory import check_fits_memory

Center = Literal["paper", "aligned", "first"]
CENTERS: tuple[Center, ...] = ("paper", "aligned", "first")
# How much of a pixel and of a block lies before the center's coordinate.
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
    # More places than float64 can number overflow in many ways.
    if not 1 <= len(sizes) <= 3 or min(sizes) < 1 or math.prod(sizes) > 2**53:
        raise ValueError(
            f"{name}: got {shape!r}, wanted one to three positive sizes such as (32, 32); "
            "give the spatial sizes only, without batch and channels"
        )
    return sizes


def name_sizes(axes: int) -> str:
    """What the sizes of a map with so many axes are called.

    >>> name_sizes(1), name_sizes(3)
    ('(L,)', '(D, H, W)')
    """
    return ("(L,)", "(H, W)", "(D, H, W)")[axes - 1]


def as_radius(window: int) -> int:
    """The radius of a neighborhood as a whole number of pixels, or a ValueError."""
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


def centers(in_shape: Sequence[int], out_shape: Sequence[int], center: Center = "paper") -> Tensor:
    """The place of the input map on which each output place is centered, float64 (M, axes).

    `paper` is `s * coord(m)`: for s = 2 the lower right pixel of each 2 x 2 block.
    `aligned` is the middle of the block, which may lie between pixels. `first` is its first
    pixel: where a strided layer's own output is found in the map that it makes at stride 1.

    >>> [centers((4,), (2,), center).flatten().tolist() for center in CENTERS]
    [[2.0, 4.0], [1.5, 3.5], [1.0, 3.0]]
    """
    source, target = check_shapes(in_shape, out_shape)
    if center not in CENTERS:
        raise ValueError(f"center: got {center!r}, wanted one of {CENTERS}")
    before = _BEFORE[center]
    # Multiplied before it is divided: a center half-way between two pixels is then exactly there.
    return (coordinates(target) - before) * torch.tensor(source) / torch.tensor(target) + before


def offsets(
    in_shape: Sequence[int],
    out_shape: Sequence[int],
    center: Center = "paper",
    rows: slice = slice(None),
    index: Tensor | None = None,
) -> Tensor:
    """From the center of each output place to each input place, (M, N, axes), or some `rows`.

    With an `index` (M, n), such as that of `windows`, only to these places, (M, n, axes).
    """
    places, middles = coordinates(in_shape), centers(in_shape, out_shape, center)[rows]
    return (places[None] if index is None else places[index[rows]]) - middles[:, None]


def penalty(
    in_shape: Sequence[int],
    out_shape: Sequence[int],
    center: Center = "paper",
    rows: slice = slice(None),
    index: Tensor | None = None,
) -> Tensor:
    """The diagonals of C_m: squared distance of each input place from the center of m.

    Returns (M, N), or only the given `rows` of it, so that callers can go through the output in
    blocks; the paper's M x N x N never exists. With an `index` (M, n), only its places.

    >>> penalty((4,), (2,)).tolist()
    [[1.0, 0.0, 1.0, 4.0], [9.0, 4.0, 1.0, 0.0]]
    """
    return offsets(in_shape, out_shape, center, rows, index).square().sum(-1)


def window_axes(
    in_shape: Sequence[int], out_shape: Sequence[int], radius: int, center: Center = "paper"
) -> list[Tensor]:
    """For each axis the places in the window of each output place, int64 (outputs, width).

    >>> [along.tolist() for along in window_axes((5, 1), (2, 1), 1)]
    [[[0, 1, 2], [2, 3, 4]], [[0]]]
    """
    source, target = check_shapes(in_shape, out_shape)
    radius = as_radius(radius)
    found = []
    for size, outputs in zip(source, target, strict=True):
        middle = centers((size,), (outputs,), center)[:, 0]
        width = min(2 * radius + 1, size)
        # A center between two pixels belongs to the lower one, on every machine.
        nearest = (middle - 0.5).ceil().long() - 1
        first = (nearest - radius).clamp(0, size - width)
        found.append(first[:, None] + torch.arange(width))
    return found


def windows(
    in_shape: Sequence[int], out_shape: Sequence[int], radius: int, center: Center = "paper"
) -> Tensor:
    """The input places in the (2 radius + 1)-wide neighborhood of each output place, int64 (M, n).

    At the border the neighborhood is moved inwards, not cut, so that every output place has the
    same number of weights; an axis shorter than the neighborhood is taken whole.

    >>> windows((5,), (2,), 1).tolist()
    [[0, 1, 2], [2, 3, 4]]
    """
    return _combine(in_shape, window_axes(in_shape, out_shape, radius, center))


def _combine(in_shape: Sequence[int], axes: Sequence[Tensor]) -> Tensor:
    """Places along each axis, (outputs, width), as places in raster order, (M, n)."""
    index = torch.zeros(1, 1, dtype=torch.int64)
    for size, along in zip(in_shape, axes, strict=True):
        index = index[:, None, :, None] * size + along[None, :, None, :]
        index = index.flatten(2).flatten(0, 1)
    return index


def write_out(rows: Tensor, index: Tensor, places: int) -> Tensor:
    """Rows (k, M, n) with weights at the places `index` (M, n) as (k, M, places), zero elsewhere.

    >>> write_out(torch.ones(1, 1, 2), torch.tensor([[0, 2]]), 3).tolist()
    [[[1.0, 0.0, 1.0]]]
    """
    whole = rows.new_zeros(*rows.shape[:2], places)
    return whole.scatter(2, index.to(rows.device).expand(len(rows), -1, -1), rows)


# A matrix that is smaller than that is written out without a look at the memory.
_SMALL = 2**28


def write_out_checked(rows: Tensor, index: Tensor, places: int) -> Tensor:
    """`write_out`, or a ValueError where the memory has no room for the matrix."""
    need = rows.shape[0] * rows.shape[1] * places * rows.element_size()
    if need > _SMALL:
        try:
            inside = "the weights inside the window are there without it: `rows` of an operator, "
            check_fits_memory(need, inside + "`weight` of a layer", rows.device)
        except ValueError as error:
            whole = (*rows.shape[:2], places)
            raise ValueError(f"weight: the whole matrix, {whole}, {error}") from error
    return write_out(rows, index, places)


def average_blocks(in_shape: Sequence[int], out_shape: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Average pooling by its blocks: weights, float64 (M, n), and the places they belong to.

    Blocks are those of adaptive average pooling, so any pair of sizes has one. Where a block has
    fewer places than the largest one, its first place stands for the missing, with weight zero.

    >>> weight, index = average_blocks((3,), (2,))
    >>> weight.tolist(), index.tolist()
    ([[0.5, 0.5], [0.5, 0.5]], [[0, 1], [1, 2]])
    """
    source, target = check_shapes(in_shape, out_shape)
    weight, axes = torch.ones(1, 1, dtype=torch.float64), []
    for size, outputs in zip(source, target, strict=True):
        m = torch.arange(outputs)
        first, last = m * size // outputs, -(-(m + 1) * size // outputs)
        along = first[:, None] + torch.arange(int((last - first).max()))
        inside = along < last[:, None]
        axes.append(torch.where(inside, along, first[:, None]))
        share = inside / (last - first)[:, None].double()
        weight = torch.einsum("mn,ab->manb", weight, share).flatten(2).flatten(0, 1)
    return weight, _combine(source, axes)


def count_window(in_shape: Sequence[int], radius: int) -> int:
    """How many input places `windows` gives each output place, without making them.

    >>> count_window((5, 2), 1)
    6
    """
    width = 2 * as_radius(radius) + 1
    return math.prod(min(width, size) for size in as_shape(in_shape))


def get_largest_step(in_shape: Sequence[int], out_shape: Sequence[int]) -> int:
    """The stride that takes one size to the other, rounded up, along the axis where it is largest.

    >>> get_largest_step((9, 16), (5, 4))
    4
    """
    source, target = check_shapes(in_shape, out_shape)
    return max(-(-size // outputs) for size, outputs in zip(source, target, strict=True))


def widen_to_blocks(radius: int, in_shape: Sequence[int], out_shape: Sequence[int]) -> int:
    """The least radius, `radius` or more, whose windows share all pairs of a block's places.

    >>> widen_to_blocks(1, (10,), (5,)), widen_to_blocks(1, (25,), (5,))
    (1, 2)
    """
    source, target = check_shapes(in_shape, out_shape)
    for size, outputs in zip(source, target, strict=True):
        m = torch.arange(outputs)
        width = int((-(-(m + 1) * size // outputs) - m * size // outputs).max())
        radius = max(radius, width // 2)
    return radius


def average_weights(in_shape: Sequence[int], out_shape: Sequence[int]) -> Tensor:
    """Average pooling as a linear operator, float64 (M, N): each output place its block's mean.

    >>> average_weights((4,), (2,)).tolist()
    [[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5]]
    """
    weight, index = average_blocks(in_shape, out_shape)
    whole = weight.new_zeros(len(weight), torch.Size(in_shape).numel())
    return whole.scatter_add_(1, index, weight)


def kernel_weights(
    kernel: Tensor,
    in_shape: Sequence[int],
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
) -> tuple[Tensor, tuple[int, ...]]:
    """The convolution with a kernel, float64 (k, M, N), and the size of its output.

    `kernel` has as many axes as the map, or one more, of k kernels, before them.

    >>> weight, out_shape = kernel_weights(torch.ones(1, 2), (1, 4), stride=2)
    >>> weight.tolist(), out_shape
    ([[[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]]], (1, 2))
    """
    source = as_shape(in_shape)
    axes, named = len(source), name_sizes(len(source)).lower()
    if kernel.dim() not in (axes, axes + 1) or not kernel.numel():
        raise ValueError(
            f"kernel: got shape {tuple(kernel.shape)}, wanted {named} or (k, {named[1:-1]}), "
            f"each 1 or more, for maps of {source}"
        )
    steps = _as_sizes("stride", stride, axes, 1)
    margins = _as_sizes("padding", padding, axes, 0)
    room = tuple(size + 2 * margin for size, margin in zip(source, margins, strict=True))
    if any(size > most for size, most in zip(kernel.shape[-axes:], room, strict=True)):
        raise ValueError(
            f"kernel: got shape {tuple(kernel.shape)}, wanted at most {room} along the axes, "
            f"the map {source} with its padding; give a smaller kernel or more padding"
        )
    kernels = kernel.detach().double().cpu()
    kernels = kernels[None, None] if kernel.dim() == axes else kernels[:, None]
    convolve: Any = (functional.conv1d, functional.conv2d, functional.conv3d)[axes - 1]
    # The matrix of a linear map is its answer to the unit vectors.
    units = torch.eye(math.prod(source), dtype=torch.float64).reshape(-1, 1, *source)
    answer = convolve(units, kernels, stride=steps, padding=margins)
    return answer.flatten(2).permute(1, 2, 0), tuple(answer.shape[2:])


def _as_sizes(name: str, value: int | Sequence[int], axes: int, least: int) -> tuple[int, ...]:
    """The numbers for all axes, or a ValueError."""
    sizes = tuple(value) if isinstance(value, Sequence) else (value,) * axes
    if len(sizes) != axes or any(int(each) != each or each < least for each in sizes):
        raise ValueError(
            f"{name}: got {value!r}, wanted a whole number, {least} or more, or {axes} of them"
        )
    return tuple(int(each) for each in sizes)


def scale_out_shape(
    in_shape: Sequence[int], out_shape: Sequence[int], new_in_shape: Sequence[int]
) -> tuple[int, ...]:
    """The output size that shrinks `new_in_shape` by the same factor, rounded up.

    >>> scale_out_shape((32, 32), (16, 16), (40, 27))
    (20, 14)
    """
    source, target = check_shapes(in_shape, out_shape)
    new_source, _ = check_shapes(new_in_shape, new_in_shape)
    if len(new_source) != len(source):
        raise ValueError(f"new_in_shape: got {new_source}, wanted {len(source)} sizes as {source}")
    return tuple(
        -(-new * out // size) for new, size, out in zip(new_source, source, target, strict=True)
    )


def _make_axis_map(size: int, outputs: int, new_size: int, new_outputs: int) -> Tensor:
    """One axis: (new_outputs * new_size, outputs * size), new weights from old ones."""
    scale, new_scale = size / outputs, new_size / new_outputs
    place = torch.arange(new_outputs, dtype=torch.float64)
    relative = (place + 0.5) * outputs / new_outputs - 0.5
    outside = (relative <= 0) | (relative >= outputs - 1)
    relative = relative.clamp(0, outputs - 1)
    low = relative.floor().long().clamp(max=max(outputs - 2, 0))
    high = (low + 1).clamp(max=outputs - 1)
    new_center = (place + 0.5) * new_scale
    result = torch.zeros(new_outputs, new_size, outputs, size, dtype=torch.float64)
    spare = torch.zeros_like(result)
    for corner, share in ((low, 1 - (relative - low)), (high, relative - low)):
        center = (corner.double() + 0.5) * scale
        position = torch.arange(new_size) + (center - new_center)[:, None]
        # Rounding removes the noise of the divisions above, which would make neighbors of exact
        # hits contribute 1e-16 shares.
        position = (position * 2**20).round() / 2**20
        old = torch.arange(size, dtype=torch.float64)
        # A pixel reaches half a step to either side of its middle, the outermost ones too.
        inside = (position >= -0.5) & (position <= size - 0.5)
        hat = (1 - (position.clamp(0, size - 1)[:, :, None] - old).abs()).clamp(min=0)
        hat = (hat * inside[:, :, None])[:, :, None, :]
        rows = corner[:, None, None, None].expand(-1, new_size, 1, size)
        spare.scatter_add_(2, rows, hat * outside[:, None, None, None])
        result.scatter_add_(2, rows, hat * share[:, None, None, None])
    # Where a neighbor's picture ends at the map's edge it has no say: the other speaks for it,
    # and beyond the outermost ones the next, which has no share otherwise.
    result = torch.where(result.sum((2, 3), keepdim=True) > 0, result, spare)
    result = result / result.sum((2, 3), keepdim=True).clamp(min=1e-12)
    result = result.reshape(new_outputs, new_size, outputs * size)
    # Steps that are no whole pixels mix pictures cut at different places. What that does to the
    # sum of an average's row is undone in every row; whole steps leave nothing to undo.
    average = average_weights((size,), (outputs,)).flatten()
    level = (result @ average).sum(1).round(decimals=12)
    return (result / level[:, None, None]).flatten(0, 1)


def resample_weights(
    weight: Tensor,
    in_shape: Sequence[int],
    out_shape: Sequence[int],
    new_in_shape: Sequence[int],
    new_out_shape: Sequence[int],
) -> Tensor:
    """`weight` (k, M, N) of one pair of sizes as (k, M', N') of another, in the same dtype.

    A linear map of the weights: gradients pass through it.
    """
    source, target = check_shapes(in_shape, out_shape)
    new_source, new_target = check_shapes(new_in_shape, new_out_shape)
    axes = len(source)
    if len(new_source) != axes:
        raise ValueError(f"new_in_shape: got {new_source}, wanted {axes} sizes as {source}")
    picture = weight.double().cpu().reshape(-1, *target, *source)
    for axis in range(axes):
        step = _make_axis_map(source[axis], target[axis], new_source[axis], new_target[axis])
        moved = picture.movedim((1 + axis, 1 + axes + axis), (-2, -1))
        moved = moved.flatten(-2) @ step.mT
        moved = moved.unflatten(-1, (new_target[axis], new_source[axis]))
        picture = moved.movedim((-2, -1), (1 + axis, 1 + axes + axis))
    flat = picture.flatten(1 + axes).flatten(1, axes)
    return flat.to(weight)
