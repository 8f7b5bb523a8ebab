"""Solving where the answer is known: white noise, limits of alpha, symmetry, few bright pixels."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from foveapool.pooling import grid
from foveapool.pooling.accumulate import compute_scatter
from foveapool.pooling.solve import solve_pooling

from .scatters import (
    open_gaps,
    scatter_of,
    smooth_maps,
    smooth_scatter,
    solvers,
    top_pairs,
    up_to_sign,
    white,
)

# White noise and limits of alpha.


@solvers
@pytest.mark.parametrize("alpha", [1e-2, 1.0, 100.0])
def test_average_pooling_is_recovered_when_noise_is_white(solver, alpha):
    # The signal is constant on each block: A is the sum of v v^T over the blocks' indicators v. The
    # four pixels of a 2 x 2 block are equally far from its middle, so the penalty does not tilt the
    # weights, and of all blocks it favors the own one: the answer is exact for every alpha.
    shape, out_shape = (12, 14), (6, 7)
    blocks = (grid.average_weights(shape, out_shape) > 0).double()
    scatter = scatter_of(blocks.mT @ blocks, white(shape), shape)
    operator = solve_pooling(
        scatter, out_shape, alpha=alpha, components=1, norm="l1", center="aligned", solver=solver
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
@pytest.mark.parametrize("center", grid.CENTERS)
def test_independent_pixels_give_the_indicator_of_the_best(solver, center):
    shape, out_shape, alpha = (12, 12), (4, 4), 0.05
    generator = torch.Generator().manual_seed(4)
    signal, noise = torch.rand(2, 144, generator=generator, dtype=torch.float64) + 0.1
    scatter = scatter_of(signal.diag(), noise.diag(), shape)
    operator = solve_pooling(
        scatter, out_shape, alpha=alpha, components=1, center=center, solver=solver
    )
    best = (signal / (noise + alpha * grid.penalty(shape, out_shape, center))).argmax(1)
    assert (operator.weight[0] - functional.one_hot(best, 144)).abs().max() <= 1e-6


@solvers
@pytest.mark.parametrize(
    ("out_shape", "center"), [((6, 6), "paper"), ((4, 3), "paper"), ((4, 4), "aligned")]
)
def test_boundless_alpha_leaves_only_the_pixel_on_the_center(solver, out_shape, center):
    # C_m is zero there and nowhere else.
    operator = solve_pooling(
        smooth_scatter((12, 12)),
        out_shape,
        alpha=1e9,
        alpha_unit="trace",
        components=1,
        center=center,
        solver=solver,
    )
    nearest = grid.penalty((12, 12), out_shape, center).argmin(1)
    assert (operator.weight[0] - functional.one_hot(nearest, 144)).abs().max() <= 1e-6
    assert operator.radius().max() <= 1e-6


@solvers
def test_boundless_alpha_forgets_the_noise_where_no_pixel_is_on_the_center(solver):
    # Between pixels C_m is regular, and alpha C_m alone is left of B + alpha C_m.
    scatter, shape, out_shape = smooth_scatter((12, 12)), (12, 12), (6, 6)
    operator = solve_pooling(
        scatter,
        out_shape,
        alpha=1e9,
        alpha_unit="trace",
        components=1,
        center="aligned",
        solver=solver,
    )
    penalty = grid.penalty(shape, out_shape, "aligned")
    _, vectors = top_pairs(scatter.between, 0 * scatter.within, penalty, 1)
    assert up_to_sign(operator.weight, vectors, open_gaps(operator)) <= 1e-6


# Symmetries.


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
        solve_pooling(each, out_shape, center="aligned", sign="sum", solver=solver)
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


# Few bright pixels.


@pytest.mark.parametrize("solver", ["dense", "krylov"])
@pytest.mark.parametrize("strengths", [(9.0, 1.0, 4.0), (0.0, 1.0, 0.0)])
def test_no_component_is_found_twice_where_few_pixels_have_a_signal(strengths, solver):
    # The second eigenvalue is next to nothing, or nothing; classes and channels promise more.
    shape, outputs = (2, 3, 60), (1, 1, 2)
    signal = torch.zeros(360, dtype=torch.float64)
    signal[[0, 180, 359]] = torch.tensor(strengths, dtype=torch.float64)
    scatter = scatter_of(signal.diag(), white(shape), shape, rank=360)
    operator = solve_pooling(scatter, outputs, alpha=1.0, components=2, solver=solver)
    ratio = (signal / (1 + grid.penalty(shape, outputs))).sort(1, descending=True).values
    assert torch.allclose(operator.eigenvalues.mT, ratio[:, :2], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("alpha", [1.0, 100.0])
@pytest.mark.parametrize("shape", [(12, 12), (4, 100), (300,)])
def test_two_pixels_with_a_signal_do_not_take_each_others_place(shape, alpha):
    # All other directions that a search asks A for are rounding errors.
    signal, outputs = torch.zeros(torch.Size(shape).numel()).double(), (1,) * len(shape)
    signal[[0, -1]] = 5.0
    scatter = scatter_of(signal.diag(), white(shape), shape, rank=400)
    operator = solve_pooling(scatter, outputs, alpha=alpha, components=1, solver="krylov")
    best = (signal / (1 + alpha * grid.penalty(shape, outputs))).amax(1)
    assert torch.allclose(operator.eigenvalues[0], best, rtol=1e-9)
