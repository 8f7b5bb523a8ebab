"""What the numbers of a solved operator mean: norms, units, eigenvalues and separability."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from foveapool.pooling import grid
from foveapool.pooling.solve import solve_pooling

from .scatters import (
    Array,
    open_gaps,
    smooth_maps,
    smooth_scatter,
    solvers,
    top_pairs,
    up_to_sign,
)

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


@solvers
def test_a_penalty_without_bounds_leaves_the_digits_of_the_separability(solver):
    # Rows of a second component pay 1e12 times as much for locality as they have within classes.
    scatter = smooth_scatter((12, 12))
    operator = solve_pooling(scatter, (3, 3), alpha=1e12, components=3, solver=solver)
    rows = operator.weight
    between, within = ((rows @ m * rows).sum(-1) for m in (scatter.between, scatter.within))
    assert torch.allclose(operator.separability, between / within, rtol=1e-9)


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
