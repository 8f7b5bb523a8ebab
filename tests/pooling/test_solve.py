"""Solving: the limits that are known, norms, units and sizes."""

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
    smooth_maps,
    smooth_scatter,
    solvers,
    top_pairs,
    up_to_sign,
    white,
)

# Limits that are known.


@solvers
@pytest.mark.parametrize("alpha", [1e-2, 1.0, 100.0])
def test_average_pooling_is_recovered_when_noise_is_white(solver, alpha):
    # The signal is constant on each block: A is the sum of v v^T over the blocks' indicators v. The
    # four pixels of a 2 x 2 block are equally far from its middle, so the penalty does not tilt the
    # weights, and of all blocks it favours the own one: the answer is exact for every alpha.
    shape, out_shape = (12, 14), (6, 7)
    blocks = (grid.average_weights(shape, out_shape) > 0).double()
    scatter = scatter_of(blocks.mT @ blocks, white(shape), shape)
    operator = solve_pooling(
        scatter, out_shape, alpha=alpha, components=1, norm="l1", centre="aligned", solver=solver
    )
    expected = torch.zeros(12 * 14, 1, 12, 14)
    expected.view(12 * 14, -1).fill_diagonal_(1.0)
    expected = functional.avg_pool2d(expected, 2).flatten(1).mT
    assert (operator.weight[0] - expected).abs().max() <= 1e-6
    if alpha == 1:
        # A p = mu (1 + 1/2) p with A p = 4 p.
        assert torch.allclose(operator.eigenvalues, torch.full((1, 42), 8 / 3).double())


@solvers
def test_a_signal_in_one_block_is_averaged_by_every_place_when_alpha_is_tiny(solver):
    # p is (I + alpha C)^-1 v: with alpha C below 1e-7 the penalty tilts it by no more than that.
    shape, out_shape = (12, 12), (4, 4)
    block = torch.zeros(shape, dtype=torch.float64)
    block[3:6, 6:9] = 1
    scatter = scatter_of(torch.outer(block.flatten(), block.flatten()), white(shape), shape)
    operator = solve_pooling(
        scatter, out_shape, alpha=1e-10, components=1, norm="l1", solver=solver
    )
    assert (operator.weight[0] - block.flatten() / 9).abs().max() <= 1e-6


@solvers
@pytest.mark.parametrize("alpha", [0.1, 10.0])
def test_weights_fall_with_distance_as_white_noise_says(solver, alpha):
    # A = v v^T has one eigenvector, and with B = I it is v / (1 + alpha C) to the last digit.
    shape, out_shape = (12, 12), (4, 4)
    pattern = torch.randn(144, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    scatter = scatter_of(torch.outer(pattern, pattern), white(shape), shape)
    operator = solve_pooling(scatter, out_shape, alpha=alpha, components=1, solver=solver)
    metric = 1 + alpha * grid.penalty(shape, out_shape)
    assert up_to_sign(operator.weight[0], pattern / metric) <= 1e-6
    assert torch.allclose(operator.eigenvalues[0], (pattern**2 / metric).sum(1), rtol=1e-9)
    # Rank one: there is no second eigenvalue.
    assert torch.allclose(operator.gaps, torch.ones_like(operator.gaps), atol=1e-6)


@solvers
@pytest.mark.parametrize("centre", grid.CENTRES)
def test_independent_pixels_give_the_indicator_of_the_best(solver, centre):
    shape, out_shape, alpha = (12, 12), (4, 4), 0.05
    generator = torch.Generator().manual_seed(4)
    signal, noise = torch.rand(2, 144, generator=generator, dtype=torch.float64) + 0.1
    scatter = scatter_of(signal.diag(), noise.diag(), shape)
    operator = solve_pooling(
        scatter, out_shape, alpha=alpha, components=1, centre=centre, solver=solver
    )
    best = (signal / (noise + alpha * grid.penalty(shape, out_shape, centre))).argmax(1)
    assert (operator.weight[0] - functional.one_hot(best, 144)).abs().max() <= 1e-6


@solvers
@pytest.mark.parametrize(
    ("out_shape", "centre"), [((6, 6), "paper"), ((4, 3), "paper"), ((4, 4), "aligned")]
)
def test_boundless_alpha_leaves_only_the_pixel_on_the_centre(solver, out_shape, centre):
    # C_m is zero there and nowhere else.
    operator = solve_pooling(
        smooth_scatter((12, 12)),
        out_shape,
        alpha=1e9,
        alpha_unit="trace",
        components=1,
        centre=centre,
        solver=solver,
    )
    nearest = grid.penalty((12, 12), out_shape, centre).argmin(1)
    assert (operator.weight[0] - functional.one_hot(nearest, 144)).abs().max() <= 1e-6
    assert operator.radius().max() <= 1e-6


@solvers
def test_boundless_alpha_forgets_the_noise_where_no_pixel_is_on_the_centre(solver):
    # Between pixels C_m is regular, and alpha C_m alone is left of B + alpha C_m.
    scatter, shape, out_shape = smooth_scatter((12, 12)), (12, 12), (6, 6)
    operator = solve_pooling(
        scatter,
        out_shape,
        alpha=1e9,
        alpha_unit="trace",
        components=1,
        centre="aligned",
        solver=solver,
    )
    penalty = grid.penalty(shape, out_shape, "aligned")
    _, vectors = top_pairs(scatter.between, 0 * scatter.within, penalty, 1)
    assert up_to_sign(operator.weight, vectors, open_gaps(operator)) <= 1e-6


@pytest.mark.parametrize("solver", ["krylov", "dense"])
@pytest.mark.parametrize("axis", [0, 1])
def test_mirrored_maps_give_the_mirrored_operator(solver, axis):
    shape, out_shape = (16, 12), (8, 4)
    scatter = smooth_scatter(shape)
    places = torch.arange(192).reshape(shape).flip(axis).flatten()
    outputs = torch.arange(32).reshape(out_shape).flip(axis).flatten()
    mirrored = replace(
        scatter,
        between=scatter.between[places][:, places],
        within=scatter.within[places][:, places],
    )
    one, other = (
        solve_pooling(each, out_shape, centre="aligned", sign="sum", solver=solver)
        for each in (scatter, mirrored)
    )
    back = other.weight[:, outputs][:, :, places]
    assert up_to_sign(one.weight, back, open_gaps(one)) <= 1e-6
    certain = open_gaps(one) & (one.weight.sum(-1) > 0.1)
    assert certain.sum() > 32
    assert (one.weight - back)[certain].abs().max() <= 1e-6


def test_exchanged_axes_give_the_exchanged_operator():
    shape, out_shape = (16, 12), (8, 4)
    scatter = smooth_scatter(shape)
    places = torch.arange(192).reshape(shape).T.flatten()
    outputs = torch.arange(32).reshape(out_shape).T.flatten()
    turned = replace(
        scatter,
        between=scatter.between[places][:, places],
        within=scatter.within[places][:, places],
        in_shape=(12, 16),
    )
    one, other = solve_pooling(scatter, out_shape), solve_pooling(turned, (4, 8))
    expected = one.weight[:, outputs][:, :, places]
    assert up_to_sign(other.weight, expected, open_gaps(other)) <= 1e-6


def test_a_constant_added_to_a_channel_and_its_scale_change_nothing():
    maps, labels = smooth_maps((12, 12))
    one = solve_pooling(compute_scatter(maps, labels), (6, 6))
    other = solve_pooling(compute_scatter(0.25 * maps - 40, labels), (6, 6))
    assert (one.weight - other.weight).abs().max() <= 1e-6


# Norms and units.


@pytest.mark.parametrize("window", [None, 2])
def test_rows_have_unit_norm_and_norms_agree_in_direction(window):
    scatter = smooth_scatter((12, 12))
    one, two = (
        solve_pooling(scatter, (6, 6), norm=norm, components=3, window=window)
        for norm in ("l1", "l2")
    )
    unit = torch.ones(3, 36, dtype=torch.float64)
    assert torch.allclose(one.weight.abs().sum(-1), unit)
    assert torch.allclose(two.weight.square().sum(-1), unit)
    assert (functional.normalize(one.weight, dim=-1) - two.weight).abs().max() <= 1e-12
    assert torch.equal(one.eigenvalues, two.eigenvalues)


def test_alpha_in_units_of_the_trace_is_alpha_times_the_mean_of_the_diagonal():
    scatter = smooth_scatter((12, 12))
    unit = float(scatter.within.trace()) / 144
    relative = solve_pooling(scatter, (6, 6), alpha=1.5, alpha_unit="trace")
    absolute = solve_pooling(scatter, (6, 6), alpha=1.5 * unit)
    assert (relative.weight - absolute.weight).abs().max() <= 1e-9
    assert torch.allclose(relative.eigenvalues, absolute.eigenvalues, rtol=1e-12)
    assert unit > 10  # or the units could not be told apart


@solvers
@pytest.mark.parametrize("factor", [1e-12, 1e12])
def test_the_unit_of_the_features_does_not_matter(solver, factor):
    scatter = smooth_scatter((12, 12))
    scaled = replace(scatter, between=factor * scatter.between, within=factor * scatter.within)
    one, other = (
        solve_pooling(each, (4, 4), alpha=2.0, alpha_unit="trace", solver=solver)
        for each in (scatter, scaled)
    )
    assert (one.weight - other.weight).abs().max() <= 1e-6
    assert torch.allclose(one.eigenvalues, other.eigenvalues, rtol=1e-9)
    assert torch.allclose(one.separability, other.separability, rtol=1e-6)


def test_eigenvalues_are_of_the_matrices_as_given():
    scatter, alpha = smooth_scatter((12, 12)), 25.0
    operator = solve_pooling(scatter, (4, 4), alpha=alpha)
    values, vectors = top_pairs(
        scatter.between, scatter.within, alpha * grid.penalty((12, 12), (4, 4)), 2
    )
    assert torch.allclose(operator.eigenvalues, values[:2], rtol=1e-9)
    assert up_to_sign(operator.weight, vectors, open_gaps(operator)) <= 1e-6


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
    centre=st.sampled_from(grid.CENTRES),
    alpha=st.sampled_from([0.1, 1.0, 10.0]),
    seed=st.integers(0, 100),
)
def test_all_sizes_are_solved_as_by_scipy(sizes, centre, alpha, seed):
    (shape, out_shape), components = sizes, 2
    generator = torch.Generator().manual_seed(seed)
    means, noise = smooth(1, 60, shape, generator)[0], smooth(1, 300, shape, generator)[0]
    between, within = (rows.flatten(1).mT @ rows.flatten(1) for rows in (means, noise))
    unit = float(within.diagonal().mean())
    diagonal = alpha * unit * grid.penalty(shape, out_shape, centre)
    values, vectors = top_pairs(between, within, diagonal, components)
    scatter = scatter_of(between, within, shape)
    for solver in ("krylov", "dense", "auto"):
        operator = solve_pooling(
            scatter,
            out_shape,
            alpha=alpha,
            alpha_unit="trace",
            components=components,
            centre=centre,
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
    monkeypatch.setattr(krylov.dense, "solve", None)
    operator = solve_pooling(scatter, (8, 8), components=3)
    assert float(operator.residuals.max()) <= 1e-8


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
