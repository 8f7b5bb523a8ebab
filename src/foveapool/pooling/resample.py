"""Carries a pooling matrix from one map size to another.

Each row is a small picture around its centre. A row of the new size is a blend of the old rows
nearest to the same relative place, each moved so that the centres meet; the distance between two
pixels stays one pixel. So average pooling stays average pooling and a strided kernel stays that
kernel, while weights that depend on the place in the image follow that place.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from foveapool.pooling.grid import average_weights, check_shapes


def scaled_out_shape(
    in_shape: Sequence[int], out_shape: Sequence[int], new_in_shape: Sequence[int]
) -> tuple[int, ...]:
    """The output size that shrinks `new_in_shape` by the same factor, rounded up.

    >>> scaled_out_shape((32, 32), (16, 16), (40, 27))
    (20, 14)
    """
    source, target = check_shapes(in_shape, out_shape)
    new_source, _ = check_shapes(new_in_shape, new_in_shape)
    if len(new_source) != len(source):
        raise ValueError(f"new_in_shape: got {new_source}, wanted {len(source)} sizes as {source}")
    return tuple(
        -(-new * out // size) for new, size, out in zip(new_source, source, target, strict=True)
    )


def _axis_map(size: int, outputs: int, new_size: int, new_outputs: int) -> Tensor:
    """One axis: (new_outputs * new_size, outputs * size), new weights from old ones."""
    scale, new_scale = size / outputs, new_size / new_outputs
    place = torch.arange(new_outputs, dtype=torch.float64)
    relative = (place + 0.5) * outputs / new_outputs - 0.5
    outside = (relative <= 0) | (relative >= outputs - 1)
    relative = relative.clamp(0, outputs - 1)
    low = relative.floor().long().clamp(max=max(outputs - 2, 0))
    high = (low + 1).clamp(max=outputs - 1)
    new_centre = (place + 0.5) * new_scale
    result = torch.zeros(new_outputs, new_size, outputs, size, dtype=torch.float64)
    spare = torch.zeros_like(result)
    for corner, share in ((low, 1 - (relative - low)), (high, relative - low)):
        centre = (corner.double() + 0.5) * scale
        position = torch.arange(new_size) + (centre - new_centre)[:, None]
        # Rounding removes the noise of the divisions above, which would make neighbours of exact
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
    # Where a neighbour's picture ends at the map's edge it has no say: the other speaks for it,
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
        step = _axis_map(source[axis], target[axis], new_source[axis], new_target[axis])
        moved = picture.movedim((1 + axis, 1 + axes + axis), (-2, -1))
        moved = moved.flatten(-2) @ step.mT
        moved = moved.unflatten(-1, (new_target[axis], new_source[axis]))
        picture = moved.movedim((-2, -1), (1 + axis, 1 + axes + axis))
    flat = picture.flatten(1 + axes).flatten(1, axes)
    return flat.to(weight)
