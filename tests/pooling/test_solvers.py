"""One suite for all solvers: on scatter as maps have it, against scipy, numpy and their own terms.

Problems with a twist are in test_solvers_hard_problems.py.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
import pytest
import torch

from foveapool._suggest import how_to_install
from foveapool.pooling.solvers import SOLVERS, Eigenpairs, Matrices, Pencil, krylov
from foveapool.pooling.solvers.pencil import inverse_factor, multiply_linear

from .eigenproblems import (
    ALPHAS,
    CASES,
    ROUTES,
    Array,
    Case,
    alphas,
    cases,
    iterative,
    realistic,
    residuals,
    solvers,
    zeros,
)

COMPONENTS = (1, 2, 4)


@cache
def answer(solver: str, case: str, alpha: float, components: int) -> tuple[Array, Array]:
    """Eigenvalues (b, k + 1) and rows (b, k, n)."""
    pairs = ROUTES[solver](realistic(case, alpha).pencil, components, 1e-8, None)
    return pairs.values.numpy(), pairs.vectors.numpy()


def answers(solver: str, case: str) -> Iterator[tuple[Array, Array, Case, str]]:
    """Eigenvalues and rows for every alpha and number of components, the problem, and its name."""
    for alpha, components in itertools.product(ALPHAS, COMPONENTS):
        name = f"alpha {alpha:g}, {components} components"
        yield *answer(solver, case, alpha, components), realistic(case, alpha), name


def up_to_sign(one: Array, other: Array) -> float:
    """The largest difference between two vectors that have neither sign nor length."""
    one, other = one / np.linalg.norm(one), other / np.linalg.norm(other)
    return float(min(np.abs(one - other).max(), np.abs(one + other).max()))


@solvers
@cases
def test_the_eigenvector_equation_holds(solver, case):
    for values, rows, exact, name in answers(solver, case):
        pairs = Eigenpairs(torch.from_numpy(values), torch.from_numpy(rows))
        assert residuals(exact, pairs).max() <= 1e-8, name


@solvers
@cases
def test_eigenvalues_are_the_largest_of_all(solver, case):
    for values, rows, problem, name in answers(solver, case):
        exact, components = problem.values, rows.shape[1]
        assert values.shape == (len(exact), components + 1), name
        assert rows.shape == (len(exact), components, exact.shape[1]), name
        error = np.abs(values[:, :-1] - exact[:, :components]) / exact[:, :1]
        assert error.max() <= 1e-9, name


@solvers
@cases
def test_eigenvectors_are_those_of_lapack_where_the_gap_is_open(solver, case):
    for _, rows, exact, name in answers(solver, case):
        components = rows.shape[1]
        steps = -np.diff(exact.values[:, : components + 1], axis=1) / exact.values[:, :1]
        compared = 0
        for (m, i), _ in np.ndenumerate(rows[..., 0]):
            # Eigenvectors on both sides of a closed gap turn into each other at no cost.
            if min(steps[m, max(i - 1, 0) : i + 1]) > 1e-3:
                assert up_to_sign(rows[m, i], exact.vectors[m, i]) <= 1e-6, name
                compared += 1
        assert compared > rows.shape[0] * components / 2, name


@solvers
@cases
def test_gaps_between_the_components_are_those_of_lapack(solver, case):
    for values, rows, problem, name in answers(solver, case):
        exact = problem.values[:, : rows.shape[1] + 1]
        error = np.abs(np.diff(values, axis=1) - np.diff(exact, axis=1)) / exact[:, :1]
        assert error[:, :-1].max(initial=0) <= 1e-9, name
        # The eigenvalue behind the last component is approached from below.
        assert (exact[:, -1] - values[:, -1] >= -1e-9 * exact[:, 0]).all(), name


@solvers
@cases
def test_the_gap_behind_the_last_component_is_right_to_a_hundredth(solver, case):
    for values, rows, exact, name in answers(solver, case):
        error = np.abs(values[:, -1] - exact.values[:, rows.shape[1]]) / exact.values[:, 0]
        assert error.max() <= 1e-2, name


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

    monkeypatch.setattr(krylov, "solve_dense", refuse)
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


@pytest.mark.parametrize(("told", "used"), [(10, True), (9, False), (None, False), (14, False)])
def test_products_with_a_of_low_rank_are_right_also_where_its_rank_was_told_wrong(told, used):
    # Of rank 10; 9 would lose some of it, and a third of 40 or more would spare nothing.
    draw = torch.Generator().manual_seed(0)
    half = torch.randn(10, 40, generator=draw, dtype=torch.float64)
    matrices = Matrices(half.mT @ half, torch.eye(40, dtype=torch.float64), told)
    assert (matrices.root is not None) == used
    rows = torch.randn(3, 2, 40, generator=draw, dtype=torch.float64)
    wanted = rows @ matrices.between
    for dtype, rounding in ((torch.float64, 1e-13), (torch.float32, 1e-5)):
        found = matrices.times_between_by_root(rows.to(dtype))
        assert found.dtype == dtype
        assert (found - wanted).norm() <= rounding * wanted.norm()


@pytest.mark.parametrize("onednn", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_that_are_not_contiguous_are_multiplied_as_others(dtype, onednn, monkeypatch):
    has = torch.backends.mkldnn.is_available()
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: has and onednn)
    draw = torch.Generator().manual_seed(0)
    rows = torch.randn(4, 30, 6, generator=draw, dtype=dtype).mT[:, ::2]
    matrix = torch.randn(20, 30, generator=draw, dtype=dtype)
    found = multiply_linear(rows, matrix)
    assert found.shape == (4, 3, 20)
    wanted = torch.einsum("bjn,mn->bjm", rows.double(), matrix.double())
    assert (found - wanted).abs().max() <= 100 * torch.finfo(dtype).eps


def test_the_inverse_that_a_gpu_multiplies_by_is_lapacks():
    # Too large for one piece, and of an odd size.
    generator = torch.Generator().manual_seed(0)
    below = torch.randn(2, 531, 531, generator=generator, dtype=torch.float64).tril() / 30
    factor = below + 2 * torch.eye(531, dtype=torch.float64)
    wanted = torch.from_numpy(np.linalg.inv(factor.numpy()))
    torch.testing.assert_close(inverse_factor(factor), wanted, rtol=0, atol=1e-9)


def refused(call: Callable[[], object], name: str) -> str:
    with pytest.raises(ValueError, match=f"^{name}: got") as caught:
        call()
    return str(caught.value)


def test_arpack_refuses_more_components_than_it_can_find():
    eye = torch.eye(5, dtype=torch.float64)
    pencil = Pencil(Matrices(eye, eye), zeros(1, 5))
    message = refused(lambda: SOLVERS["arpack"](pencil, 3, 1e-8, None), "solver")
    assert "dense" in message


def test_arpack_without_scipy_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.sparse.linalg", None)
    pencil = realistic("square", 25.0).pencil
    message = refused(lambda: SOLVERS["arpack"](pencil, 1, 1e-8, None), "solver")
    assert f"{how_to_install('arpack')}, or take" in message
