"""Solving with windows, and where maps do not vary."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from foveapool.pooling import grid
from foveapool.pooling.accumulate import compute_scatter
from foveapool.pooling.scatter import Scatter
from foveapool.pooling.solve import apply_signs, solve_pooling

from .scatters import (
    open_gaps,
    smooth_maps,
    smooth_scatter,
    solvers,
    up_to_sign,
)

# Windows.


@pytest.mark.parametrize("window", [11, 40])
def test_a_window_over_the_whole_map_is_no_window(window):
    scatter = smooth_scatter((12, 12))
    free, held = (solve_pooling(scatter, (6, 6), window=r) for r in (None, window))
    assert up_to_sign(free.weight, held.weight, open_gaps(free)) <= 1e-6
    assert torch.allclose(free.eigenvalues, held.eigenvalues, rtol=1e-9)
    assert torch.allclose(free.average_separability, held.average_separability, rtol=1e-9)


@solvers
@pytest.mark.parametrize("center", grid.CENTERS)
@pytest.mark.parametrize(("window", "shape"), [(2, (12, 12)), (6, (14, 20))])
def test_rows_are_eigenvectors_of_the_window_and_zero_outside(solver, center, window, shape):
    scatter, out_shape, alpha = smooth_scatter(shape), (4, 5), 25.0
    operator = solve_pooling(
        scatter, out_shape, alpha=alpha, window=window, center=center, solver=solver
    )
    A, B = scatter.between.numpy(), scatter.within.numpy()
    penalty = grid.penalty(shape, out_shape, center).numpy()
    for m, places in enumerate(grid.windows(shape, out_shape, window, center).tolist()):
        inside = np.ix_(places, places)
        metric = B[inside] + alpha * np.diag(penalty[m, places])
        values = scipy.linalg.eigh(A[inside], metric, eigvals_only=True)[::-1]
        for i in range(2):
            row = operator.weight[i, m].numpy()
            assert np.count_nonzero(row) == np.count_nonzero(row[places])
            p, mu = row[places], float(operator.eigenvalues[i, m])
            image = A[inside] @ p
            error = np.linalg.norm(image - mu * (metric @ p)) / np.linalg.norm(image)
            assert error <= 1e-8
            assert mu == pytest.approx(values[i], rel=1e-9)


@pytest.mark.parametrize(
    ("shape", "out_shape", "window"),
    [
        ((16, 16), (8, 8), 1),
        ((16, 16), (8, 8), 6),
        ((20, 9), (9, 4), 2),
        ((16, 16), (4, 4), 2),
        ((200,), (100,), 3),
        ((8, 8, 8), (4, 4, 4), 1),
    ],
)
def test_a_band_of_the_scatter_is_enough_for_its_window(shape, out_shape, window):
    maps, labels = smooth_maps(shape)
    band = compute_scatter(maps, labels, window=window)
    assert band.within.shape[1] <= torch.Size(shape).numel()
    one = solve_pooling(smooth_scatter(shape), out_shape, window=window)
    other = solve_pooling(band, out_shape, window=window)
    assert up_to_sign(one.weight, other.weight, open_gaps(one)) <= 1e-6
    assert torch.allclose(one.separability, other.separability, rtol=1e-6)
    assert torch.allclose(one.average_separability, other.average_separability, rtol=1e-9)


def test_a_band_is_enough_for_a_smaller_window():
    maps, labels = smooth_maps((16, 16))
    band = compute_scatter(maps, labels, window=3)
    one, other = (solve_pooling(s, (8, 8), window=2) for s in (smooth_scatter((16, 16)), band))
    assert up_to_sign(one.weight, other.weight, open_gaps(one)) <= 1e-6


# Places without variance.


@cache
def dead_scatter() -> Scatter:
    """Maps whose last line never changes, as padding leaves it; the paper's centers lie on it."""
    maps, labels = smooth_maps((12, 12))
    maps = maps.clone()
    maps[:, :, -1] = 0
    return compute_scatter(maps, labels)


@solvers
@pytest.mark.parametrize("window", [None, 2])
def test_constant_places_are_solved_with_a_ridge_that_is_reported(solver, window):
    scatter = dead_scatter()
    operator = solve_pooling(scatter, (6, 6), alpha=25.0, solver=solver, window=window)
    assert operator.weight.isfinite().all() and operator.separability.isfinite().all()
    assert operator.settings.ridge == pytest.approx(1e-8 * float(scatter.within.trace()) / 144)
    # The equation holds with the ridge in it; a place that says nothing has no weight.
    diagonal = 25 * grid.penalty((12, 12), (6, 6)) + operator.settings.ridge
    rows = operator.weight
    image = rows @ scatter.between
    right = operator.eigenvalues[..., None] * (rows @ scatter.within + rows * diagonal)
    if window is None:
        assert ((image - right).norm(dim=-1) / image.norm(dim=-1)).max() <= 1e-8
    assert operator.residuals.max() <= 1e-8
    assert rows.unflatten(-1, (12, 12))[:, :, -1].abs().max() <= 1e-6


def test_maps_that_vary_everywhere_need_no_ridge():
    assert solve_pooling(smooth_scatter((12, 12)), (6, 6)).settings.ridge == 0
    assert solve_pooling(smooth_scatter((12, 12)), (6, 6), window=2).settings.ridge == 0


def test_fewer_samples_than_places_need_no_ridge():
    # B alone is singular, B + alpha C_m is not: C_m is zero at one pixel, and B is not zero there.
    maps, labels = smooth_maps((12, 12), classes=2, channels=1)
    scatter = compute_scatter(maps, labels)
    assert torch.linalg.matrix_rank(scatter.within) < 144
    operator = solve_pooling(scatter, (6, 6), components=1)
    assert operator.settings.ridge == 0
    assert operator.residuals.max() <= 1e-8


# Windows without the whole matrix.


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=3),
    window=st.integers(0, 4),
    center=st.sampled_from(grid.CENTERS),
    seed=st.integers(0, 99),
)
def test_rows_inside_windows_get_the_signs_of_whole_rows(sizes, window, center, seed):
    shape = tuple(max(pair) for pair in sizes)
    out_shape = tuple(min(pair) for pair in sizes)
    index = grid.windows(shape, out_shape, window, center)
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(2, *index.shape, generator=generator, dtype=torch.float64)
    places = torch.Size(shape).numel()
    inside = apply_signs(rows, shape, out_shape, center, "neighbor", window)
    whole = apply_signs(grid.write_out(rows, index, places), shape, out_shape, center)
    assert torch.equal(grid.write_out(inside, index, places), whole)


def test_an_operator_keeps_the_weights_of_its_window_alone():
    operator = solve_pooling(smooth_scatter((16, 16)), (8, 8), window=2)
    assert operator.rows.shape == (2, 64, 25)
    index = grid.windows((16, 16), (8, 8), 2)
    assert torch.equal(operator.weight.gather(2, index.expand(2, -1, -1)), operator.rows)
    assert operator.weight.count_nonzero() == operator.rows.count_nonzero()
    whole = replace(
        operator, rows=operator.weight, settings=replace(operator.settings, window=None)
    )
    torch.testing.assert_close(operator.radius(), whole.radius())
