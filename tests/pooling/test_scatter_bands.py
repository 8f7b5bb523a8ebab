"""A and B kept as a band: the blocks of the whole, on grids of one to three axes, in less room."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from foveapool.pooling.accumulate import compute_scatter
from foveapool.pooling.grid import CENTERS, windows

from .oracles import algorithm_1, class_maps
from .scatters import assert_equal

UNBALANCED = (25, 4, 11)
BANDS = [
    ((24, 8), (12, 4), 1),
    ((24, 8), (8, 8), 2),
    ((9, 23), (4, 11), 1),
    ((20, 20), (10, 10), 0),
    ((20, 20), (10, 10), 3),
    ((300,), (150,), 3),
    ((301,), (43,), 40),
    ((14, 5, 6), (7, 2, 3), 1),
    ((40, 2, 3), (20, 2, 3), 2),
    ((4, 4), (2, 2), 1),
    ((6, 90), (3, 45), 0),
]


@pytest.mark.parametrize(("in_shape", "out_shape", "window"), BANDS)
@pytest.mark.parametrize("weighting", ["balanced", "frequency"])
def test_a_band_holds_the_blocks_of_the_whole(in_shape, out_shape, window, weighting):
    maps, labels = class_maps((9, 6), in_shape, channels=2)
    whole, band = (
        compute_scatter(maps, labels, weighting=weighting, window=width) for width in (None, window)
    )
    scale = float(whole.within.diagonal().max())
    torch.testing.assert_close(
        band.within_diagonal(), whole.within_diagonal(), rtol=1e-12, atol=1e-13 * scale
    )
    assert whole.within_diagonal().equal(whole.within.diag())
    for center in CENTERS:
        for radius in {window, window // 2, 0}:
            index = windows(in_shape, out_shape, radius, center)
            rows, columns = index[:, :, None], index[:, None, :]
            for got, wanted, matrix in zip(
                band.blocks(index), whole.blocks(index), (whole.between, whole.within), strict=True
            ):
                assert wanted.equal(matrix[rows, columns])
                torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-13 * scale)


def test_blocks_take_places_in_any_order():
    maps, labels = class_maps((9, 6), (24, 8), channels=2)
    whole, band = (compute_scatter(maps, labels, window=width) for width in (None, 2))
    index = windows((24, 8), (12, 4), 2)
    index = index[:, torch.randperm(index.shape[1], generator=torch.Generator().manual_seed(0))]
    for got, wanted in zip(band.blocks(index), whole.blocks(index), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("in_shape", "window"), [((24, 8), 1), ((9, 23), 1), ((300,), 3), ((14, 5, 6), 1)]
)
def test_a_band_is_smaller_than_the_whole(in_shape, window):
    maps, labels = class_maps((2, 2), in_shape)
    scatter = compute_scatter(maps, labels, window=window)
    assert not scatter.panels.whole
    assert scatter.within.numel() < math.prod(in_shape) ** 2


@pytest.mark.parametrize(
    ("in_shape", "out_shape", "window"),
    [
        ((24, 8), (12, 4), 1),
        ((20, 20), (10, 10), 0),
        ((300,), (150,), 3),
        ((14, 5, 6), (7, 2, 3), 1),
    ],
)
def test_a_window_wider_than_accumulated_is_refused(in_shape, out_shape, window):
    maps, labels = class_maps((2, 2), in_shape)
    scatter = compute_scatter(maps, labels, window=window)
    scatter.blocks(windows(in_shape, out_shape, window))
    for wider in range(window + 1, window + 4):
        with pytest.raises(ValueError, match="window: got a neighborhood wider than"):
            scatter.blocks(windows(in_shape, out_shape, wider))


def test_a_window_as_wide_as_the_map_holds_everything():
    maps, labels = class_maps(UNBALANCED, (12, 11))
    band = compute_scatter(maps, labels, window=12)
    every = torch.arange(132)[None]
    A, B = band.blocks(every)
    assert_equal(replace(band, between=A[0], within=B[0]), algorithm_1(maps, labels))
