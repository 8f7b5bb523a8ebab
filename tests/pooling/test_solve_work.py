"""What solving reports, shares between alphas, takes of memory and threads, and refuses."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from foveapool.pooling.accumulate import compute_scatter
from foveapool.pooling.blocks import block_size, map_blocks, one_thread
from foveapool.pooling.grid import penalty
from foveapool.pooling.solve import solve_pooling, sweep_pooling
from foveapool.pooling.solvers import SOLVERS

from .scatters import (
    Array,
    open_gaps,
    scatter_of,
    smooth_maps,
    smooth_scatter,
    solvers,
    white,
)

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


@pytest.mark.parametrize("rank", [3, 400])
@pytest.mark.parametrize("shape", [(4, 100), (300,), (501,)])
def test_a_signal_far_from_every_centre_is_found_alone_and_in_a_sweep(shape, rank):
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


@pytest.mark.parametrize("solver", ["dense", "krylov"])
@pytest.mark.parametrize("strengths", [(9.0, 1.0, 4.0), (0.0, 1.0, 0.0)])
def test_no_component_is_found_twice_where_few_pixels_have_a_signal(strengths, solver):
    # The second eigenvalue is next to nothing, or nothing; classes and channels promise more.
    shape, outputs = (2, 3, 60), (1, 1, 2)
    signal = torch.zeros(360, dtype=torch.float64)
    signal[[0, 180, 359]] = torch.tensor(strengths, dtype=torch.float64)
    scatter = scatter_of(signal.diag(), white(shape), shape, rank=360)
    operator = solve_pooling(scatter, outputs, alpha=1.0, components=2, solver=solver)
    ratio = (signal / (1 + penalty(shape, outputs))).sort(1, descending=True).values
    assert torch.allclose(operator.eigenvalues.mT, ratio[:, :2], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("alpha", [1.0, 100.0])
@pytest.mark.parametrize("shape", [(12, 12), (4, 100), (300,)])
def test_two_pixels_with_a_signal_do_not_take_each_others_place(shape, alpha):
    # All other directions that a search asks A for are rounding errors.
    signal, outputs = torch.zeros(torch.Size(shape).numel()).double(), (1,) * len(shape)
    signal[[0, -1]] = 5.0
    scatter = scatter_of(signal.diag(), white(shape), shape, rank=400)
    operator = solve_pooling(scatter, outputs, alpha=alpha, components=1, solver="krylov")
    best = (signal / (1 + alpha * penalty(shape, outputs))).amax(1)
    assert torch.allclose(operator.eigenvalues[0], best, rtol=1e-9)


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


@pytest.mark.parametrize(
    ("shape", "out_shape", "window", "enough"),
    [((20, 64), (4, 16), 1, 2), ((9, 9, 9), (3, 3, 3), 0, 1), ((130,), (5,), 1, 13)],
)
def test_a_band_narrower_than_the_blocks_of_average_pooling_is_told_how_wide_to_be(
    shape, out_shape, window, enough
):
    maps = torch.randn(12, 2, *shape, generator=torch.Generator().manual_seed(0))
    narrow, wide = (compute_scatter(maps, torch.arange(12) % 3, window=w) for w in (window, enough))
    settings: dict[str, Any] = {"components": 1, "window": window}
    with pytest.raises(ValueError, match=rf"^window: .* window {window}, wanted {enough}: average"):
        solve_pooling(narrow, out_shape, **settings)
    solve_pooling(wide, out_shape, **settings)


def test_classes_without_variance_are_refused():
    scatter = scatter_of(white((6, 6)), 0 * white((6, 6)), (6, 6))
    with pytest.raises(ValueError, match=r"^within: got a mean diagonal of 0"):
        solve_pooling(scatter, (3, 3))


def test_a_sweep_is_checked_whole_before_anything_is_solved():
    sweep = sweep_pooling(smooth_scatter((6, 6)), (3, 3), [1.0, float("nan")])
    with pytest.raises(ValueError, match=r"^alpha: got nan"):
        next(sweep)
