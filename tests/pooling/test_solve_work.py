"""How solving works: shared between alphas, within bounds of memory, on all threads."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from foveapool.pooling.eigenproblem import limit_threads, map_blocks, plan_blocks
from foveapool.pooling.grid import penalty
from foveapool.pooling.solve import solve_pooling, sweep_pooling
from foveapool.pooling.solvers import SOLVERS

from .scatters import open_gaps, scatter_of, smooth_scatter, solvers, white

# Sweeps.


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


@pytest.mark.parametrize("rank", [3, 400])
@pytest.mark.parametrize("shape", [(4, 100), (300,), (501,)])
def test_a_signal_far_from_every_center_is_found_alone_and_in_a_sweep(shape, rank):
    # Pixels that know nothing of each other, the best of them at the ends of a long map.
    signal = torch.zeros(torch.Size(shape).numel(), dtype=torch.float64)
    signal[[0, len(signal) // 2, -1]] = torch.tensor([9.0, 1.0, 4.0], dtype=torch.float64)
    scatter = scatter_of(signal.diag(), white(shape), shape, rank)
    outputs, values = tuple(min(size, 2) for size in shape), [100.0, 1e-6, 100.0]
    settings: dict[str, Any] = {"components": 1, "solver": "krylov"}
    swept = sweep_pooling(scatter, outputs, values, **settings)
    for alpha, operator in zip(values, swept, strict=True):
        alone = solve_pooling(scatter, outputs, alpha=alpha, **settings)
        best = (signal / (1 + alpha * penalty(shape, outputs))).amax(1)
        for found in (operator, alone):
            assert torch.allclose(found.eigenvalues[0], best, rtol=1e-9)


# Memory and threads.


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


def test_blocks_and_threads_shrink_with_the_memory_to_a_single_place(two_threads):
    def shared(memory: int | None, own: bool = False, whole: bool = False) -> tuple[int, int]:
        return plan_blocks(64, 1024, own, torch.device("cpu"), memory, whole)

    assert shared(1) == (1, 1)
    found = [step * threads for step, threads in map(shared, [2**n for n in range(20, 34)])]
    assert found == sorted(found) and found[-1] > found[0]
    # Beside copies of A and B there is room for one place and a half: the second thread has none.
    copies, place = 24 * 1024**2, 12 * 1024**2 + 1024 * 8 * 3 * 64
    assert shared(copies + place * 3 // 2) == (1, 1)
    assert shared(copies + place * 2) == (1, 2)
    # The matrices of a windowed problem take memory too.
    assert shared(2**28, own=True) < shared(2**28)
    # And so does LAPACK.
    step, threads = shared(2**28, whole=True)
    assert step * threads <= 2**28 / (128 * 1024**2)
    # Nobody who names no bound loses a thread to it.
    assert plan_blocks(64, 10_000, False, torch.device("cpu"), None, whole=True) == (1, 2)


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
    with pytest.raises(KeyError), limit_threads(256):
        assert torch.get_num_threads() == 1
        raise KeyError
    with limit_threads(4096):
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
    found = map_blocks(lambda block, workspace: block, 10, 3, threads=2)
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
