"""From scatter to operator: limits and symmetries of the answer, its units, and what is refused.

That eigenvectors are right for their own sake is `test_solvers.py`'s business.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from foveapool.pooling import grid
from foveapool.pooling.accumulate import compute_scatter
from foveapool.pooling.blocks import block_size, map_blocks, one_thread
from foveapool.pooling.operator import PoolingOperator
from foveapool.pooling.scatter import Scatter
from foveapool.pooling.solve import solve_pooling, sweep_pooling
from foveapool.pooling.solvers import SOLVERS, krylov

Array = NDArray[np.float64]
Shape = tuple[int, ...]
Maps = tuple[Tensor, Tensor]

NAMES = sorted(SOLVERS)
solvers = pytest.mark.parametrize("solver", NAMES)


def smooth(count: int, channels: int, shape: Shape, generator: torch.Generator) -> Tensor:
    """White noise, blurred: neighbouring pixels agree, as in feature maps."""
    maps = torch.randn(count, channels, *shape, generator=generator, dtype=torch.float64)
    for axis in [*range(2, 2 + len(shape))] * 2:
        maps = maps + 0.3 * (maps.roll(-1, axis) + maps.roll(1, axis))
    return maps / maps.std()


@cache
def smooth_maps(shape: Shape, classes: int = 10, channels: int = 8, seed: int = 0) -> Maps:
    """Maps around a mean for each class, classes of unequal size, channels of unequal scale."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.cat([torch.full((14 + 2 * q,), q) for q in range(classes)])
    means = smooth(classes, channels, shape, generator)
    maps = smooth(len(labels), channels, shape, generator) + 0.5 * means[labels]
    scale = torch.arange(1, channels + 1).reshape(-1, *[1] * len(shape))
    return maps * scale + 3 * scale, labels


@cache
def smooth_scatter(shape: Shape, classes: int = 10, channels: int = 8) -> Scatter:
    return compute_scatter(*smooth_maps(shape, classes, channels))


def scatter_of(between: Tensor, within: Tensor, shape: Shape, rank: int = 16) -> Scatter:
    """A scatter from A and B alone."""
    blank = torch.zeros(rank, dtype=torch.float64)
    return Scatter(between.double(), within.double(), blank, blank + 1, torch.tensor([9, 9]), shape)


def white(shape: Shape) -> Tensor:
    return torch.eye(torch.Size(shape).numel(), dtype=torch.float64)


def up_to_sign(one: Tensor, other: Tensor, chosen: Tensor | None = None) -> float:
    """The largest difference between rows of which only the direction means something."""
    one, other = (rows / rows.norm(dim=-1, keepdim=True) for rows in (one, other))
    error = torch.minimum((one - other).abs().amax(-1), (one + other).abs().amax(-1))
    return float((error if chosen is None else error[chosen]).max())


def open_gaps(operator: PoolingOperator) -> Tensor:
    """Which rows, (k, M), are eigenvectors that nothing near can be mistaken for."""
    gaps = operator.gaps
    before = torch.cat((torch.full_like(gaps[:1], 2.0), gaps[:-1]))
    return (gaps > 1e-3) & (before > 1e-3)


def top_pairs(
    between: Tensor, within: Tensor, diagonal: Tensor, components: int
) -> tuple[Tensor, Tensor]:
    """scipy's largest eigenvalues (k + 1, M), falling, and eigenvectors (k, M, N)."""
    A, B, count = between.numpy(), within.numpy(), min(components + 1, len(between))
    values = np.zeros((components + 1, len(diagonal)))
    vectors = np.zeros((components, *diagonal.shape))
    for m, own in enumerate(diagonal.numpy()):
        found, columns = scipy.linalg.eigh(A, B + np.diag(own))
        values[:count, m] = found[::-1][:count]
        vectors[:, m] = columns.T[::-1][:components]
    return torch.from_numpy(values), torch.from_numpy(vectors)


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


# Windows.


@pytest.mark.parametrize("window", [11, 40])
def test_a_window_over_the_whole_map_is_no_window(window):
    scatter = smooth_scatter((12, 12))
    free, held = (solve_pooling(scatter, (6, 6), window=r) for r in (None, window))
    assert up_to_sign(free.weight, held.weight, open_gaps(free)) <= 1e-6
    assert torch.allclose(free.eigenvalues, held.eigenvalues, rtol=1e-9)
    assert torch.allclose(free.average_separability, held.average_separability, rtol=1e-9)


@solvers
@pytest.mark.parametrize("centre", grid.CENTRES)
@pytest.mark.parametrize(("window", "shape"), [(2, (12, 12)), (6, (14, 20))])
def test_rows_are_eigenvectors_of_the_window_and_zero_outside(solver, centre, window, shape):
    scatter, out_shape, alpha = smooth_scatter(shape), (4, 5), 25.0
    operator = solve_pooling(
        scatter, out_shape, alpha=alpha, window=window, centre=centre, solver=solver
    )
    A, B = scatter.between.numpy(), scatter.within.numpy()
    penalty = grid.penalty(shape, out_shape, centre).numpy()
    for m, places in enumerate(grid.windows(shape, out_shape, window, centre).tolist()):
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
    """Maps whose last line never changes, as padding leaves it; the paper's centres lie on it."""
    maps, labels = smooth_maps((12, 12))
    maps = maps.clone()
    maps[:, :, -1] = 0
    return compute_scatter(maps, labels)


@solvers
@pytest.mark.parametrize("window", [None, 2])
def test_constant_places_are_solved_with_a_ridge_that_is_reported(solver, window):
    scatter = dead_scatter()
    operator = solve_pooling(scatter, (6, 6), solver=solver, window=window)
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


# Separability.


def pooled_separability(maps: Tensor, labels: Tensor, weight: Tensor) -> Array:
    """S_b / S_w of the paper, of features pooled by `weight` (M, N), per output place."""
    X = maps.flatten(2).numpy()
    X = (X - X.mean((0, 2), keepdims=True)) / X.std((0, 2), keepdims=True)
    Z = X @ weight.numpy().T
    of = labels.numpy()
    means = np.stack([Z[of == q].mean(0) for q in np.unique(of)])
    between = ((means - means.mean(0)) ** 2).sum(1).mean(0)
    within = [((Z[of == q] - mean) ** 2).sum(1).mean(0) for q, mean in enumerate(means)]
    return between / np.mean(within, axis=0)


@pytest.mark.parametrize("window", [None, 2])
@pytest.mark.parametrize(("shape", "out_shape"), [((12, 12), (6, 6)), ((11, 9), (4, 4))])
def test_separability_is_that_of_the_pooled_features(shape, out_shape, window):
    maps, labels = smooth_maps(shape)
    operator = solve_pooling(smooth_scatter(shape), out_shape, components=3, window=window)
    for i in range(3):
        expected = pooled_separability(maps, labels, operator.weight[i])
        assert operator.separability[i].numpy() == pytest.approx(expected, rel=1e-6)
    units = torch.eye(torch.Size(shape).numel(), dtype=torch.float64).reshape(-1, 1, *shape)
    average = functional.adaptive_avg_pool2d(units, out_shape).flatten(1).mT
    expected = pooled_separability(maps, labels, average)
    assert operator.average_separability.numpy() == pytest.approx(expected, rel=1e-6)


def test_without_locality_no_pooling_separates_better():
    # For alpha -> 0 the first row maximises S_b / S_w over all rows: average pooling is one.
    scatter = smooth_scatter((12, 12))
    operator = solve_pooling(scatter, (6, 6), alpha=1e-6, alpha_unit="trace", components=2)
    assert (operator.separability[0] > 1.2 * operator.average_separability).all()
    assert (operator.separability[0] >= operator.separability[1]).all()


@pytest.mark.parametrize("alpha", [1.0, 25.0, 400.0])
def test_the_penalty_costs_eigenvalue(alpha):
    # mu = p^T A p / (p^T B p + alpha p^T C p) <= S_b / S_w.
    operator = solve_pooling(smooth_scatter((12, 12)), (6, 6), alpha=alpha, components=3)
    assert (operator.eigenvalues <= operator.separability * (1 + 1e-9)).all()


# Sweeps, memory, threads.


@pytest.mark.parametrize("window", [None, 6])
def test_a_sweep_is_the_same_as_solving_one_by_one(window):
    scatter, values = smooth_scatter((16, 16)), [400.0, 1.0, 25.0, 25.0, 5000.0]
    swept = list(sweep_pooling(scatter, (4, 4), values, window=window, solver="krylov"))
    assert [operator.settings.alpha for operator in swept] == values
    for alpha, operator in zip(values, swept, strict=True):
        alone = solve_pooling(scatter, (4, 4), alpha=alpha, window=window, solver="krylov")
        assert (operator.weight - alone.weight)[open_gaps(alone)].abs().max() <= 1e-6
        assert torch.allclose(operator.eigenvalues, alone.eigenvalues, rtol=1e-9)
        assert torch.allclose(operator.separability, alone.separability, rtol=1e-6)


@solvers
@pytest.mark.parametrize("window", [None, 6])
def test_a_tight_memory_bound_gives_the_same_operator(solver, window):
    scatter = smooth_scatter((16, 16))
    wide, tight = (
        solve_pooling(scatter, (4, 4), solver=solver, window=window, memory=memory)
        for memory in (None, 1)
    )
    assert (wide.weight - tight.weight)[open_gaps(wide)].abs().max() <= 1e-6
    assert torch.allclose(wide.eigenvalues, tight.eigenvalues, rtol=1e-9)


def test_blocks_shrink_with_the_memory_to_a_single_place():
    def block(memory: int | None) -> int:
        return block_size(64, 1024, False, torch.device("cpu"), memory)

    assert block(1) == 1
    found = [block(2**power) for power in range(20, 34)]
    assert found == sorted(found) and found[-1] > found[0]
    # The matrices of a windowed problem take memory too.
    assert block_size(64, 1024, True, torch.device("cpu"), 2**28) < block(2**28)


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def thread_counts() -> tuple[int, int]:
    """How many threads torch would use here, and in a thread that is started now."""
    with ThreadPoolExecutor(1) as pool:
        return torch.get_num_threads(), pool.submit(torch.get_num_threads).result()


def test_small_products_take_one_thread_and_large_ones_all(two_threads):
    with pytest.raises(KeyError), one_thread(256):
        assert torch.get_num_threads() == 1
        raise KeyError
    with one_thread(4096):
        assert torch.get_num_threads() == 2
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("solver", ["krylov", "dense"])
def test_threads_do_not_change_the_answer_nor_their_number(solver, two_threads):
    scatter = smooth_scatter((12, 12))
    several = solve_pooling(scatter, (6, 6), solver=solver)
    assert thread_counts() == (2, 2)
    torch.set_num_threads(1)
    single = solve_pooling(scatter, (6, 6), solver=solver)
    assert (several.weight - single.weight)[open_gaps(single)].abs().max() <= 1e-6
    assert torch.allclose(several.eigenvalues, single.eigenvalues, rtol=1e-9)


def test_blocks_come_back_in_order_from_all_threads(two_threads):
    found = map_blocks(lambda block, workspace: block, 10, 3, parallel=True)
    assert found == [slice(0, 3), slice(3, 6), slice(6, 9), slice(9, 10)]


def test_an_error_in_a_worker_reaches_the_caller_and_leaves_the_threads(two_threads, monkeypatch):
    def fail(*arguments: object) -> None:
        raise RuntimeError("lost a worker")

    monkeypatch.setitem(SOLVERS, "dense", fail)
    with pytest.raises(RuntimeError, match="lost a worker"):
        solve_pooling(smooth_scatter((12, 12)), (6, 6), solver="dense")
    assert thread_counts() == (2, 2)


def test_the_users_precision_switch_is_put_back_and_does_not_matter():
    scatter = smooth_scatter((12, 12))
    expected = solve_pooling(scatter, (6, 6))
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        operator = solve_pooling(scatter, (6, 6))
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    assert torch.equal(operator.weight, expected.weight)


# What is refused.


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("alpha", 0.0),
        ("alpha", -1.0),
        ("alpha", float("nan")),
        ("alpha", float("inf")),
        ("norm", "l3"),
        ("centre", "middle"),
        ("sign", "random"),
        ("solver", "lapack"),
        ("alpha_unit", "percent"),
        ("components", 0),
        ("components", -1),
        ("components", 31),
        ("window", -1),
        ("window", 1.5),
        ("memory", 0),
        ("memory", -5),
    ],
)
def test_a_wrong_argument_is_named(name, value):
    scatter = smooth_scatter((6, 6), classes=4, channels=10)
    arguments: dict[str, Any] = {name: value}
    with pytest.raises(ValueError, match=f"^{name}: got {value!r}"):
        solve_pooling(scatter, (3, 3), **arguments)


@pytest.mark.parametrize("out_shape", [(7, 3), (3, 7), (3,), (3, 3, 3), (0, 3), ()])
def test_an_output_that_is_no_pooling_is_refused(out_shape):
    with pytest.raises(ValueError, match=r"^out_shape: got"):
        solve_pooling(smooth_scatter((6, 6)), out_shape)


def test_components_are_bound_by_the_rank_and_by_the_places():
    scatter = smooth_scatter((6, 6), classes=4, channels=10)
    assert solve_pooling(scatter, (3, 3), components=30).components == 30
    few = smooth_scatter((6, 6), classes=2, channels=1)
    with pytest.raises(ValueError, match=r"^components: got 2, wanted 1 to 1.*rank 1 at most"):
        solve_pooling(few, (3, 3), components=2)
    with pytest.raises(ValueError, match=r"^components: got 10, wanted 1 to 9: 9 places"):
        solve_pooling(scatter, (3, 3), components=10, window=1)


def test_a_band_needs_a_window_no_wider_than_its_own():
    band = compute_scatter(*smooth_maps((16, 16)), window=2)
    with pytest.raises(ValueError, match=r"^window: got None for a scatter .* window 2"):
        solve_pooling(band, (8, 8))
    with pytest.raises(ValueError, match=r"^window: got a neighbourhood wider"):
        solve_pooling(band, (8, 8), window=6)


def test_classes_without_variance_are_refused():
    scatter = scatter_of(white((6, 6)), 0 * white((6, 6)), (6, 6))
    with pytest.raises(ValueError, match=r"^within: got a mean diagonal of 0"):
        solve_pooling(scatter, (3, 3))


def test_a_sweep_is_checked_whole_before_anything_is_solved():
    sweep = sweep_pooling(smooth_scatter((6, 6)), (3, 3), [1.0, float("nan")])
    with pytest.raises(ValueError, match=r"^alpha: got nan"):
        next(sweep)


def test_a_between_scatter_of_low_rank_needs_no_dense_solver(monkeypatch):
    noise = torch.randn(48, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    maps = functional.avg_pool2d(noise, 3, 1, 1)
    scatter = compute_scatter(maps, torch.arange(48) % 3)
    assert scatter.rank_bound == 6
    monkeypatch.setattr(krylov.dense, "solve", None)
    operator = solve_pooling(scatter, (8, 8), components=3)
    assert float(operator.residuals.max()) <= 1e-8
