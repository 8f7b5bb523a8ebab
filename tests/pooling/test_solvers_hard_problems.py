"""All solvers where a search could go astray: poor starts, equal eigenvalues, low rank, bad scales.

What the answer has to be is known, or said by scipy.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from foveapool.pooling import grid
from foveapool.pooling.solvers import SOLVERS, Matrices, Pencil, multilevel

from .eigenproblems import (
    ROUTES,
    iterative,
    posed,
    realistic,
    residuals,
    smooth_scatter,
    solvers,
    zeros,
)


@solvers
@pytest.mark.parametrize("kind", ["noise", "answer", "one row", "more rows than components"])
def test_the_answer_does_not_depend_on_the_start(solver, kind):
    case = realistic("oblong", 25.0)
    batch, size = case.values.shape
    noise = torch.randn(
        batch, 9, size, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    )
    start = {
        "noise": noise[:, :4],
        "answer": torch.from_numpy(case.vectors[:, :2].copy()),
        "one row": noise[:, :1],
        "more rows than components": noise,
    }[kind]
    pairs = ROUTES[solver](case.pencil, 2, 1e-8, start)
    error = np.abs(pairs.values[:, :2].numpy() - case.values[:, :2]) / case.values[:, :1]
    assert error.max() <= 1e-9
    assert residuals(case, pairs).max() <= 1e-8


@solvers
@pytest.mark.parametrize("alpha", [1e-3, 1.0, 1e4])
def test_independent_pixels_give_indicators(solver, alpha):
    # With diagonal A and B every pixel is an eigenvector, of A_ii / (B_ii + alpha C_ii).
    generator = torch.Generator().manual_seed(2)
    signal, noise = torch.rand(2, 144, generator=generator, dtype=torch.float64) + 0.1
    diagonal = alpha * grid.penalty((12, 12), (4, 4))
    case = posed(signal.diag(), noise.diag(), diagonal)
    ratio, order = (signal / (noise + diagonal)).sort(1, descending=True)
    pairs = ROUTES[solver](case.pencil, 2, 1e-8, None)
    rows = pairs.vectors / pairs.vectors.norm(dim=-1, keepdim=True)
    assert torch.allclose(pairs.values[:, :2], ratio[:, :2], rtol=1e-9, atol=0)
    expected = functional.one_hot(order[:, :2], 144).double()
    # Two pixels with nearly the same ratio may mix.
    apart = (ratio[:, 1:3] < (1 - 1e-3) * ratio[:, :2]).all(1)
    assert apart.sum() > 12
    assert (rows.abs() - expected)[apart].abs().max() <= 1e-6


@pytest.mark.parametrize("strength", [0.02, 0.5])
def test_large_maps_of_independent_pixels_have_no_smooth_answer_and_find_theirs(strength):
    # Blocks of pixels, as large maps are searched with first, know of none of these eigenvectors.
    generator = torch.Generator().manual_seed(0)
    signal, noise = torch.rand(2, 1024, generator=generator, dtype=torch.float64) + 0.1
    diagonal = strength * grid.penalty((32, 32), (16, 16))[::37]
    matrices = Matrices(signal.diag(), noise.diag(), shape=(32, 32))
    pencil = Pencil(matrices, diagonal)
    assert multilevel.suits(pencil, 2)
    pairs = SOLVERS["krylov"](pencil, 2, 1e-8, None)
    ratio = (signal / (noise + diagonal)).sort(1, descending=True).values
    assert torch.allclose(pairs.values[:, :2], ratio[:, :2], rtol=1e-9, atol=0)
    assert bool((pairs.values[:, 2] <= ratio[:, 2]).all())


@solvers
def test_eigenvalues_that_are_equal_are_all_found(solver):
    # White signal and noise: the four pixels around a center between pixels are equally good.
    eye = torch.eye(144, dtype=torch.float64)
    diagonal = grid.penalty((12, 12), (6, 6), "aligned")
    case = posed(eye, eye, diagonal)
    pairs = ROUTES[solver](case.pencil, 4, 1e-8, None)
    assert torch.allclose(pairs.values[:, :4], zeros(36, 4) + 2 / 3, rtol=1e-9)
    assert residuals(case, pairs).max() <= 1e-8


@solvers
def test_the_scale_of_the_matrices_does_not_matter(solver):
    case = realistic("square", 25.0)
    between, within = case.pencil.matrices.between, case.pencil.matrices.within
    for factor in (1e-12, 1e12):
        matrices = Matrices(factor * between, factor * within)
        scaled = Pencil(matrices, factor * case.pencil.diagonal)
        pairs = ROUTES[solver](scaled, 2, 1e-8, None)
        error = np.abs(pairs.values[:, :2].numpy() - case.values[:, :2]) / case.values[:, :1]
        assert error.max() <= 1e-9
        # Without the factor, which both sides have.
        assert residuals(case, pairs).max() <= 1e-8


@solvers
@pytest.mark.parametrize(("classes", "channels"), [(2, 1), (2, 2), (2, 4), (10, 1)])
def test_few_classes_and_channels_are_enough(solver, classes, channels):
    # A has rank (classes - 1) * channels: what the search can find is soon exhausted.
    scatter = smooth_scatter((16, 16), classes, channels)
    components = min(2, scatter.rank_bound)
    for alpha in (25.0, 5000.0):
        case = posed(scatter.between, scatter.within, alpha * grid.penalty((16, 16), (4, 2)))
        pairs = ROUTES[solver](case.pencil, components, 1e-8, None)
        error = np.abs(pairs.values.numpy() - case.values[:, : components + 1]) / case.values[:, :1]
        assert error[:, :-1].max() <= 1e-9, alpha
        assert residuals(case, pairs).max() <= 1e-8, alpha


@iterative
def test_eigenvectors_to_start_from_do_not_hide_larger_ones(route):
    # Three pixels that know nothing of each other; the start is the answer but for the best one.
    signal = zeros(144)
    signal[[0, 70, 143]] = torch.tensor([9.0, 1.0, 4.0], dtype=torch.float64)
    case = posed(signal.diag(), torch.eye(144).double(), 1e-3 * grid.penalty((12, 12), (2, 2)))
    start = functional.one_hot(torch.tensor([143, 70, 71, 72]), 144).double().expand(4, -1, -1)
    pairs = ROUTES[route](case.pencil, 2, 1e-8, start)
    error = np.abs(pairs.values[:, :2].numpy() - case.values[:, :2]) / case.values[:, :1]
    assert error.max() <= 1e-9


@iterative
def test_a_metric_that_float32_takes_for_singular_is_none_in_float64(route):
    # Twenty patterns and next to nothing besides: the smallest eigenvalue is 1e-9 of the largest.
    generator = torch.Generator().manual_seed(4)
    patterns = torch.randn(144, 20, generator=generator, dtype=torch.float64)
    within = patterns @ patterns.mT + 1e-7 * torch.eye(144, dtype=torch.float64)
    between = smooth_scatter((12, 12)).between
    case = posed(between, within, 1e-7 * grid.penalty((12, 12), (2, 2)))
    pairs = ROUTES[route](case.pencil, 2, 1e-8, None)
    error = np.abs(pairs.values[:, :2].numpy() - case.values[:, :2]) / case.values[:, :1]
    assert error.max() <= 1e-6
    assert residuals(case, pairs).max() <= 1e-6


def test_a_problem_without_a_further_eigenvalue_has_a_zero_there():
    case = posed(torch.diag(torch.tensor([3.0, 1.0])).double(), torch.eye(2).double(), zeros(1, 2))
    pairs = SOLVERS["dense"](case.pencil, 2, 1e-8, None)
    assert pairs.values.tolist() == [[pytest.approx(3.0), pytest.approx(1.0), 0.0]]


@solvers
def test_equal_eigenvalues_have_vectors_of_their_own(solver):
    eye = torch.eye(144, dtype=torch.float64)
    case = posed(eye, eye, grid.penalty((12, 12), (4, 6)))
    rows = ROUTES[solver](case.pencil, 3, 1e-8, None).vectors
    products = rows @ case.pencil.metric() @ rows.mT
    lengths = products.diagonal(dim1=-2, dim2=-1).sqrt()
    cosines = products / (lengths[:, :, None] * lengths[:, None])
    assert (cosines - torch.eye(3, dtype=torch.float64)).abs().max() < 1e-6
