"""One suite for all solvers: A p = mu (B + alpha C_m) p against scipy, numpy and known answers.

Maps have more places than the iterative solver hands to LAPACK at once, so that it does the work.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
import scipy.linalg
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from foveapool.pooling import grid
from foveapool.pooling.accumulate import compute_scatter
from foveapool.pooling.scatter import Scatter
from foveapool.pooling.solvers import SOLVERS, Eigenpairs, Matrices, Pencil, Solver, krylov

Array = NDArray[np.float64]
Shape = tuple[int, ...]


def krylov_of_large_maps(
    pencil: Pencil, components: int, tolerance: float = 1e-8, start: Tensor | None = None
) -> Eigenpairs:
    """The default solver without its own way with small maps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(krylov, "SMALL", 0)
        return krylov.solve(pencil, components, tolerance, start)


ROUTES: dict[str, Solver] = {**SOLVERS, "krylov of large maps": krylov_of_large_maps}
NAMES = sorted(ROUTES)
iterative = pytest.mark.parametrize("route", ["krylov", "krylov of large maps"])
# In shape, out shape, window: shared matrices twice, matrices of its own for each place once.
CASES: dict[str, tuple[Shape, Shape, int | None]] = {
    "square": ((12, 12), (4, 3), None),
    "oblong": ((20, 10), (4, 3), None),
    "windowed": ((20, 10), (5, 2), 6),
}
ALPHAS = (1.0, 25.0, 400.0, 5000.0)
COMPONENTS = (1, 2, 4)

solvers = pytest.mark.parametrize("solver", NAMES)
cases = pytest.mark.parametrize("case", list(CASES))
alphas = pytest.mark.parametrize("alpha", ALPHAS)
counts = pytest.mark.parametrize("components", COMPONENTS)


def smooth(count: int, channels: int, shape: Shape, generator: torch.Generator) -> Tensor:
    """White noise, blurred: neighbouring pixels agree, as in feature maps."""
    maps = torch.randn(count, channels, *shape, generator=generator, dtype=torch.float64)
    for _ in range(2):
        maps = functional.avg_pool2d(maps, 3, stride=1, padding=1)
    return maps / maps.std()


@cache
def smooth_scatter(shape: Shape, classes: int = 10, channels: int = 8) -> Scatter:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(20 * classes) % classes
    means = smooth(classes, channels, shape, generator)
    maps = smooth(len(labels), channels, shape, generator)
    return compute_scatter(maps + 0.5 * means[labels], labels)


@dataclass(frozen=True)
class Case:
    """A block of eigenproblems, and what scipy says of them, largest eigenvalue first."""

    pencil: Pencil
    between: list[Array]
    metric: list[Array]
    values: Array
    vectors: Array  # (b, n, n), one vector a row


def posed(between: Tensor, within: Tensor, diagonal: Tensor) -> Case:
    """The problems with A and B, (n, n) or (b, n, n), and the diagonals D (b, n)."""
    A = [one.numpy() for one in between.expand(len(diagonal), *between.shape[-2:])]
    B = [one.numpy() for one in within.expand(len(diagonal), *within.shape[-2:])]
    metric = [b + np.diag(d) for b, d in zip(B, diagonal.numpy(), strict=True)]
    exact = [scipy.linalg.eigh(a, b) for a, b in zip(A, metric, strict=True)]
    values = np.stack([w[::-1] for w, _ in exact])
    vectors = np.stack([v.T[::-1] for _, v in exact])
    return Case(Pencil(Matrices(between, within), diagonal), A, metric, values, vectors)


@cache
def realistic(case: str, alpha: float) -> Case:
    in_shape, out_shape, window = CASES[case]
    scatter = smooth_scatter(in_shape)
    penalty = grid.penalty(in_shape, out_shape)
    if window is None:
        return posed(scatter.between, scatter.within, alpha * penalty)
    index = grid.windows(in_shape, out_shape, window)
    return posed(*scatter.blocks(index), alpha * penalty.gather(1, index))


@cache
def answer(solver: str, case: str, alpha: float, components: int) -> tuple[Array, Array]:
    """Eigenvalues (b, k + 1) and rows (b, k, n)."""
    pairs = ROUTES[solver](realistic(case, alpha).pencil, components, 1e-8, None)
    return pairs.values.numpy(), pairs.vectors.numpy()


def residuals(case: Case, pairs: Eigenpairs) -> Array:
    """||A p - mu (B + D) p|| / ||A p||, written out."""
    found = np.zeros(pairs.vectors.shape[:2])
    for (m, i), _ in np.ndenumerate(found):
        p, mu = pairs.vectors[m, i].numpy(), float(pairs.values[m, i])
        image = case.between[m] @ p
        found[m, i] = np.linalg.norm(image - mu * (case.metric[m] @ p)) / np.linalg.norm(image)
    return found


def up_to_sign(one: Array, other: Array) -> float:
    """The largest difference between two vectors that have neither sign nor length."""
    one, other = one / np.linalg.norm(one), other / np.linalg.norm(other)
    return float(min(np.abs(one - other).max(), np.abs(one + other).max()))


@solvers
@cases
@alphas
@counts
def test_the_eigenvector_equation_holds(solver, case, alpha, components):
    values, rows = answer(solver, case, alpha, components)
    pairs = Eigenpairs(torch.from_numpy(values), torch.from_numpy(rows))
    assert residuals(realistic(case, alpha), pairs).max() <= 1e-8


@solvers
@cases
@alphas
@counts
def test_eigenvalues_are_the_largest_of_all(solver, case, alpha, components):
    values, rows = answer(solver, case, alpha, components)
    exact = realistic(case, alpha).values
    assert values.shape == (len(exact), components + 1)
    assert rows.shape == (len(exact), components, exact.shape[1])
    error = np.abs(values[:, :-1] - exact[:, :components]) / exact[:, :1]
    assert error.max() <= 1e-9


@solvers
@cases
@alphas
@counts
def test_eigenvectors_are_those_of_lapack_where_the_gap_is_open(solver, case, alpha, components):
    _, rows = answer(solver, case, alpha, components)
    exact = realistic(case, alpha)
    steps = -np.diff(exact.values[:, : components + 1], axis=1) / exact.values[:, :1]
    compared = 0
    for (m, i), _ in np.ndenumerate(rows[..., 0]):
        # Eigenvectors on both sides of a closed gap turn into each other at no cost.
        if min(steps[m, max(i - 1, 0) : i + 1]) > 1e-3:
            assert up_to_sign(rows[m, i], exact.vectors[m, i]) <= 1e-6
            compared += 1
    assert compared > rows.shape[0] * components / 2


@solvers
@cases
@alphas
@counts
def test_gaps_between_the_components_are_those_of_lapack(solver, case, alpha, components):
    values, _ = answer(solver, case, alpha, components)
    exact = realistic(case, alpha).values[:, : components + 1]
    error = np.abs(np.diff(values, axis=1) - np.diff(exact, axis=1)) / exact[:, :1]
    assert error[:, :-1].max(initial=0) <= 1e-9
    # The eigenvalue behind the last component is approached from below.
    assert (exact[:, -1] - values[:, -1] >= -1e-9 * exact[:, 0]).all()


@solvers
def test_the_gap_behind_the_last_component_is_right_to_a_hundredth(solver):
    for case, alpha, components in itertools.product(CASES, ALPHAS, COMPONENTS):
        values, _ = answer(solver, case, alpha, components)
        exact = realistic(case, alpha).values
        error = np.abs(values[:, -1] - exact[:, components]) / exact[:, 0]
        assert error.max() <= 1e-2, (case, alpha, components)


@solvers
@alphas
def test_the_first_row_is_the_top_eigenvector_of_the_papers_matrix(solver, alpha):
    case = realistic("square", alpha)
    values, rows = answer(solver, "square", alpha, 1)
    for m, (A, metric) in enumerate(zip(case.between, case.metric, strict=True)):
        found, columns = np.linalg.eig(np.linalg.inv(metric) @ A)
        top = found.real.argmax()
        assert values[m, 0] == pytest.approx(found[top].real, rel=1e-9)
        assert up_to_sign(rows[m, 0], columns[:, top].real) <= 1e-6


@solvers
@alphas
def test_components_are_uncorrelated_within_classes(solver, alpha):
    # p_i^T (B + D) p_j = 0 for i != j: eigenvectors of a symmetric pencil.
    case = realistic("oblong", alpha)
    _, rows = answer(solver, "oblong", alpha, 4)
    for m, metric in enumerate(case.metric):
        gram = rows[m] @ metric @ rows[m].T
        length = np.sqrt(np.diag(gram))
        gram = gram / np.outer(length, length)
        assert np.abs(gram - np.eye(4)).max() <= 1e-5


@iterative
@alphas
def test_the_iterative_solver_needs_no_help_from_lapack(route, alpha, monkeypatch):
    def refuse(*arguments: object) -> Eigenpairs:
        raise AssertionError("handed to the dense solver")

    monkeypatch.setattr(krylov.dense, "solve", refuse)
    for case in CASES:
        exact = realistic(case, alpha)
        pairs = ROUTES[route](exact.pencil, 2, 1e-8, None)
        assert residuals(exact, pairs).max() <= 1e-8


@iterative
def test_a_tolerance_out_of_reach_still_ends_in_the_right_answer(route):
    exact = realistic("square", 25.0)
    pairs = ROUTES[route](exact.pencil, 2, 0.0, None)
    assert residuals(exact, pairs).max() <= 1e-12
    error = np.abs(pairs.values.numpy() - exact.values[:, :3]) / exact.values[:, :1]
    assert error.max() <= 1e-12


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


@solvers
def test_eigenvalues_that_are_equal_are_all_found(solver):
    # White signal and noise: the four pixels around a centre between pixels are equally good.
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
@pytest.mark.parametrize("alpha", [25.0, 5000.0])
@pytest.mark.parametrize(("classes", "channels"), [(2, 1), (2, 2), (2, 4), (10, 1)])
def test_few_classes_and_channels_are_enough(solver, alpha, classes, channels):
    # A has rank (classes - 1) * channels: what the search can find is soon exhausted.
    scatter = smooth_scatter((16, 16), classes, channels)
    case = posed(scatter.between, scatter.within, alpha * grid.penalty((16, 16), (4, 2)))
    components = min(2, scatter.rank_bound)
    pairs = ROUTES[solver](case.pencil, components, 1e-8, None)
    error = np.abs(pairs.values.numpy() - case.values[:, : components + 1]) / case.values[:, :1]
    assert error[:, :-1].max() <= 1e-9
    assert residuals(case, pairs).max() <= 1e-8


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


def zeros(*shape: int) -> Tensor:
    return torch.zeros(*shape, dtype=torch.float64)


def test_the_residual_of_an_exact_pair_is_nothing_and_of_another_vector_is_not():
    case = realistic("square", 25.0)
    exact = Eigenpairs(
        torch.from_numpy(case.values[:, :3].copy()), torch.from_numpy(case.vectors[:, :2].copy())
    )
    image, metric = (
        case.pencil.times_between(exact.vectors),
        case.pencil.times_metric(exact.vectors),
    )
    assert exact.residuals(image, metric).max() <= 1e-12
    other = Eigenpairs(exact.values, exact.vectors.flip(1))
    found = other.residuals(image.flip(1), metric.flip(1)).numpy()
    assert found == pytest.approx(residuals(case, other), rel=1e-9)
    assert found.min() > 1e-3


@pytest.mark.parametrize("window", [None, 6])
def test_a_part_of_a_block_is_the_same_problems(window):
    case = realistic("square" if window is None else "windowed", 25.0)
    chosen = torch.tensor([7, 2])
    part = case.pencil.part(chosen)
    rows = torch.from_numpy(case.vectors[[7, 2], :3].copy())
    expected = torch.from_numpy(case.values[[7, 2], :3].copy())[..., None] * part.times_metric(rows)
    assert torch.allclose(part.times_between(rows), expected, rtol=0, atol=1e-9)


def refused(call: Callable[[], object], name: str) -> str:
    with pytest.raises(ValueError, match=f"^{name}: got") as caught:
        call()
    return str(caught.value)


def test_arpack_refuses_more_components_than_it_can_find():
    eye = torch.eye(5, dtype=torch.float64)
    pencil = Pencil(Matrices(eye, eye), zeros(1, 5))
    message = refused(lambda: SOLVERS["arpack"](pencil, 3, 1e-8, None), "components")
    assert "dense" in message


def test_arpack_without_scipy_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.sparse.linalg", None)
    pencil = realistic("square", 25.0).pencil
    message = refused(lambda: SOLVERS["arpack"](pencil, 1, 1e-8, None), "solver")
    assert "foveapool[arpack]" in message
