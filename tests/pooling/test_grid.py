"""Coordinates, centers, the locality penalty, neighborhoods and average pooling on any grid."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d

from foveapool.pooling import grid
from foveapool.pooling.grid import CENTERS

Shape = tuple[int, ...]

in_short = settings(deadline=None, max_examples=60)
center_names = st.sampled_from(CENTERS)


@st.composite
def shape_pairs(draw: st.DrawFn) -> tuple[Shape, Shape]:
    """An input shape of one to three axes, and an output shape that is nowhere larger."""
    axes = draw(st.integers(1, 3))
    largest = (60, 9, 5)[axes - 1]
    source = tuple(draw(st.integers(1, largest)) for _ in range(axes))
    return source, tuple(draw(st.integers(1, size)) for size in source)


def counted(shape: Shape) -> list[Shape]:
    """The paper's coordinates, from 1 on, in raster order."""
    return list(itertools.product(*(range(1, size + 1) for size in shape)))


def exact_center(m: Shape, source: Shape, target: Shape, center: str) -> list[Fraction]:
    """s * coord(m), the middle of the block, or its first place, without rounding."""
    at = Fraction(CENTERS.index(center), 2)
    return [Fraction(i, o) * (x - at) + at for x, i, o in zip(m, source, target, strict=True)]


def nearest_place(middle: list[Fraction], source: Shape) -> int:
    """The number of the pixel nearest to a center, the lower one of two that are as near."""
    number = 0
    for x, size in zip(middle, source, strict=True):
        number = number * size + min(range(1, size + 1), key=lambda i, x=x: (abs(i - x), i)) - 1
    return number


@in_short
@given(shape_pairs())
def test_penalty_is_the_papers_squared_distance(shapes):
    source, target = shapes
    scale = [i / o for i, o in zip(source, target, strict=True)]
    wanted = []
    for m in counted(target):
        row = []
        for n in counted(source):
            row.append(sum((x - s * y) ** 2 for x, s, y in zip(n, scale, m, strict=True)))
        wanted.append(row)
    wanted = torch.tensor(wanted, dtype=torch.float64)
    torch.testing.assert_close(grid.penalty(source, target), wanted, rtol=1e-12, atol=1e-12)


def test_penalty_is_zero_at_the_lower_right_pixel_of_each_block():
    penalty = grid.penalty((6, 4), (3, 2))
    assert (penalty == 0).sum(1).tolist() == [1] * 6
    assert penalty.argmin(1).tolist() == [5, 7, 13, 15, 21, 23]


@in_short
@given(shape_pairs(), center_names, st.integers(1, 7))
def test_rows_in_blocks_are_the_rows_of_the_whole(shapes, center, step):
    whole = grid.penalty(*shapes, center)
    starts = range(0, len(whole), step)
    parts = [grid.penalty(*shapes, center, slice(first, first + step)) for first in starts]
    assert torch.cat(parts).equal(whole)


@in_short
@given(shape_pairs(), center_names)
def test_centers_are_correct_to_the_last_digits(shapes, center):
    wanted = [exact_center(m, *shapes, center) for m in counted(shapes[1])]
    wanted = torch.tensor([[float(x) for x in row] for row in wanted], dtype=torch.float64)
    torch.testing.assert_close(grid.centers(*shapes, center), wanted, rtol=1e-15, atol=0)


def test_first_centers_are_where_a_strided_layer_takes_its_output():
    places = torch.arange(12 * 9).view(12, 9)
    for steps in ((2, 3), (4, 1), (3, 9)):
        kept = places[:: steps[0], :: steps[1]]
        centers = grid.centers(places.shape, kept.shape, "first").long() - 1
        assert torch.equal(places[centers[:, 0], centers[:, 1]], kept.flatten())


@in_short
@given(shape_pairs())
def test_aligned_centers_are_symmetric_under_reflection(shapes):
    source, target = shapes
    centers = grid.centers(source, target, "aligned")
    # Raster order backwards reflects every axis at once.
    reflected = torch.tensor(source) + 1 - centers.flip(0)
    torch.testing.assert_close(centers, reflected, rtol=1e-14, atol=0)


def test_paper_centers_are_not_symmetric():
    assert grid.centers((4,), (2,), "paper").flatten().tolist() == [2, 4]


@in_short
@given(shape_pairs(), center_names)
def test_a_center_between_two_pixels_belongs_to_the_lower_one(shapes, center):
    source, target = shapes
    wanted = [nearest_place(exact_center(m, *shapes, center), source) for m in counted(target)]
    assert grid.windows(source, target, 0, center).flatten().tolist() == wanted


def test_rounding_moves_no_center_to_the_upper_pixel():
    # 29 / 14 * 7 is a little above 14.5 if the division comes first.
    assert grid.windows((29,), (14,), 0)[6].tolist() == [13]
    assert grid.windows((28,), (25,), 0, "aligned")[12].tolist() == [13]


@in_short
@given(shape_pairs(), center_names, st.integers(0, 6))
def test_windows_are_full_neighborhoods_inside_the_grid(shapes, center, radius):
    source, target = shapes
    index = grid.windows(source, target, radius, center)
    assert index.shape == (math.prod(target), math.prod(min(2 * radius + 1, i) for i in source))
    assert index.dtype == torch.int64
    assert int(index.min()) >= 0 and int(index.max()) < math.prod(source)
    for m, row in zip(counted(target), index.tolist(), strict=True):
        assert row == sorted(set(row))
        assert nearest_place(exact_center(m, *shapes, center), source) in row
        for axis, size in enumerate(source):
            along = {counted(source)[n][axis] for n in row}
            assert max(along) - min(along) + 1 == len(along) == min(2 * radius + 1, size)


@in_short
@given(st.integers(20, 60), st.integers(1, 8), st.integers(0, 4))
def test_away_from_the_border_a_window_lies_evenly_around_its_center(size, outputs, radius):
    for middle, row in zip(
        grid.centers((size,), (outputs,)).flatten().tolist(),
        grid.windows((size,), (outputs,), radius).add(1).tolist(),
        strict=True,
    ):
        if radius + 1 <= middle <= size - radius:
            assert abs(sum(row) / len(row) - middle) <= 0.5


def of_the_identity(source: Shape, target: Shape) -> Tensor:
    """torch's adaptive average pooling of one map for each input place, as a matrix (M, N)."""
    pool = (adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d)[len(source) - 1]
    size = math.prod(source)
    maps = torch.eye(size, dtype=torch.float64).reshape(size, 1, *source)
    return pool(maps, target).flatten(1).T


@in_short
@given(shape_pairs())
def test_average_weights_are_torchs_adaptive_average_pooling(shapes):
    wanted = of_the_identity(*shapes)
    torch.testing.assert_close(grid.average_weights(*shapes), wanted, rtol=1e-14, atol=0)


@pytest.mark.parametrize(
    "shape", [(), (4, 0), (-1,), (2, 2, 2, 2), ("a", 3), 7, None, (10**400,), (2**31,) * 2]
)
def test_a_shape_that_is_none_is_refused(shape):
    with pytest.raises(ValueError, match=r"in_shape: got .* wanted one to three positive sizes"):
        grid.as_shape(shape)


@pytest.mark.parametrize("target", [(5, 4), (4, 5), (2,), (2, 2, 2)])
def test_a_pooling_that_enlarges_or_changes_axes_is_refused(target):
    with pytest.raises(ValueError, match=r"out_shape: got .* does not enlarge"):
        grid.check_shapes((4, 4), target)


@pytest.mark.parametrize("radius", [-1, 0.5])
def test_half_a_pixel_is_no_window(radius):
    with pytest.raises(ValueError, match=r"window: got .* whole number of pixels"):
        grid.windows((4, 4), (2, 2), radius)


def test_an_unknown_center_is_refused():
    with pytest.raises(ValueError, match=r"center: got 'middle', wanted one of .*aligned"):
        grid.centers((4, 4), (2, 2), "middle")
