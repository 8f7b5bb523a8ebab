"""Solving maps of all sizes as scipy does, with the solver and the alpha that suit them.

What the numbers mean is in test_solve_figures.py; where the answer is known without scipy, in
test_solve_known_answers.py.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from foveapool.pooling import grid
from foveapool.pooling.accumulate import compute_scatter
from foveapool.pooling.solve import solve_pooling
from foveapool.pooling.solvers import krylov

from .scatters import (
    Shape,
    open_gaps,
    scatter_of,
    smooth,
    smooth_scatter,
    solvers,
    top_pairs,
    up_to_sign,
)

# Sizes.


@st.composite
def sizes(draw: st.DrawFn) -> tuple[Shape, Shape]:
    """Half of them too large for the iterative solver to leave them to LAPACK."""
    axes, large = draw(st.integers(1, 3)), draw(st.booleans())
    least, most = {1: (100, 160), 2: (10, 14), 3: (5, 6)}[axes]
    shape = tuple(draw(st.integers(least if large else 2, most)) for _ in range(axes))
    out_shape = tuple(draw(st.integers(1, min(size, 4))) for size in shape)
    return shape, out_shape


@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    sizes=sizes(),
    center=st.sampled_from(grid.CENTERS),
    alpha=st.sampled_from([0.1, 1.0, 10.0]),
    seed=st.integers(0, 100),
)
def test_all_sizes_are_solved_as_by_scipy(sizes, center, alpha, seed):
    (shape, out_shape), components = sizes, 2
    generator = torch.Generator().manual_seed(seed)
    means, noise = smooth(1, 60, shape, generator)[0], smooth(1, 300, shape, generator)[0]
    between, within = (rows.flatten(1).mT @ rows.flatten(1) for rows in (means, noise))
    unit = float(within.diagonal().mean())
    diagonal = alpha * unit * grid.penalty(shape, out_shape, center)
    values, vectors = top_pairs(between, within, diagonal, components)
    scatter = scatter_of(between, within, shape)
    for solver in ("krylov", "dense", "auto"):
        operator = solve_pooling(
            scatter,
            out_shape,
            alpha=alpha,
            alpha_unit="trace",
            components=components,
            center=center,
            solver=solver,
        )
        assert ((operator.eigenvalues - values[:components]) / values[0]).abs().max() <= 1e-9
        assert operator.residuals.max() <= 1e-8
        exact = -values.diff(dim=0) / values[0]
        apart = (exact > 1e-3) & (torch.cat((exact[:1] * 0 + 2, exact[:-1])) > 1e-3)
        if apart.any():
            assert up_to_sign(operator.weight, vectors, apart) <= 1e-6


@solvers
@pytest.mark.parametrize(
    ("shape", "out_shape"),
    [
        ((200,), (23,)),
        ((1, 200), (1, 9)),
        ((200, 1), (9, 1)),
        ((13, 9), (4, 4)),
        ((6, 5, 7), (3, 2, 3)),
        ((1, 12, 12), (1, 4, 4)),
    ],
)
def test_any_number_of_axes_and_any_scale(solver, shape, out_shape):
    scatter, alpha = smooth_scatter(shape), 25.0
    operator = solve_pooling(scatter, out_shape, alpha=alpha, solver=solver)
    values, vectors = top_pairs(
        scatter.between, scatter.within, alpha * grid.penalty(shape, out_shape), 2
    )
    assert ((operator.eigenvalues - values[:2]) / values[0]).abs().max() <= 1e-9
    assert up_to_sign(operator.weight, vectors, open_gaps(operator)) <= 1e-6
    assert operator.weight.shape == (2, torch.Size(out_shape).numel(), torch.Size(shape).numel())


def test_small_maps_go_to_lapack_and_large_ones_do_not():
    small = solve_pooling(smooth_scatter((9, 9)), (4, 4))
    large = solve_pooling(smooth_scatter((12, 12)), (4, 4))
    assert (small.settings.solver, large.settings.solver) == ("dense", "krylov")
    assert solve_pooling(smooth_scatter((12, 12)), (4, 4), window=1).settings.solver == "dense"


@solvers
def test_few_classes_and_channels_are_enough(solver):
    # A has rank (classes - 1) * channels: what a search can find is soon exhausted.
    shape, out_shape = (16, 16), (4, 4)
    for classes, channels, alpha in [(2, 2, 400.0), (2, 2, 5000.0), (2, 4, 5000.0), (10, 1, 400.0)]:
        scatter = smooth_scatter(shape, classes, channels)
        operator = solve_pooling(scatter, out_shape, alpha=alpha, solver=solver)
        penalty = alpha * grid.penalty(shape, out_shape)
        values, _ = top_pairs(scatter.between, scatter.within, penalty, 2)
        assert ((operator.eigenvalues - values[:2]) / values[0]).abs().max() <= 1e-9
        assert operator.residuals.max() <= 1e-8


def test_a_between_scatter_of_low_rank_needs_no_dense_solver(monkeypatch):
    noise = torch.randn(48, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    maps = functional.avg_pool2d(noise, 3, 1, 1)
    scatter = compute_scatter(maps, torch.arange(48) % 3)
    assert scatter.rank_bound == 6
    monkeypatch.setattr(krylov, "solve_dense", None)
    operator = solve_pooling(scatter, (8, 8), components=3)
    assert float(operator.residuals.max()) <= 1e-8


# Alpha.


@pytest.mark.parametrize("unit", ["absolute", "trace"])
def test_alpha_of_its_own_choice_is_half_of_the_mean_within_class_scatter(unit):
    scatter = smooth_scatter((8, 8))
    mean = float(scatter.within.trace()) / 64
    chosen = solve_pooling(scatter, (4, 4), alpha_unit=unit)
    given = solve_pooling(scatter, (4, 4), alpha=mean / 2)
    torch.testing.assert_close(chosen.weight, given.weight, atol=1e-9, rtol=0)
    assert chosen.settings.alpha == pytest.approx(mean / 2 if unit == "absolute" else 0.5)


def test_alpha_of_its_own_choice_does_not_depend_on_the_units_of_the_maps():
    scatter = smooth_scatter((8, 8))
    scaled = replace(scatter, between=9 * scatter.between, within=9 * scatter.within)
    one, other = (solve_pooling(each, (4, 4)).weight for each in (scatter, scaled))
    torch.testing.assert_close(one, other, atol=1e-9, rtol=0)
