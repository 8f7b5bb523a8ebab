"""What solving refuses: each mistake by name, with what was got and what is to be done."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import pytest
import torch

from foveapool.pooling.accumulate import compute_scatter
from foveapool.pooling.solve import solve_pooling, sweep_pooling

from .oracles import class_maps
from .scatters import scatter_of, smooth_maps, smooth_scatter, white


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("alpha", 0.0),
        ("alpha", -1.0),
        ("alpha", float("nan")),
        ("alpha", float("inf")),
        ("norm", "l3"),
        ("center", "middle"),
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
    with pytest.raises(ValueError, match=r"^window: got a neighborhood wider"):
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


@pytest.mark.parametrize("solver", ["dense", "krylov"])
def test_an_alpha_too_small_for_so_few_samples_is_told_in_words(solver):
    maps, labels = class_maps((4, 4), (16, 16) if solver == "krylov" else (8, 8), channels=1)
    scatter = compute_scatter(maps.float(), labels)
    with pytest.raises(ValueError, match=r"alpha: got .*e-.* singular to rounding; raise alpha"):
        solve_pooling(scatter, (4, 4), alpha=1e-8, components=1, solver=solver)


def test_a_sweep_is_checked_whole_before_anything_is_solved():
    sweep = sweep_pooling(smooth_scatter((6, 6)), (3, 3), [1.0, float("nan")])
    with pytest.raises(ValueError, match=r"^alpha: got nan"):
        next(sweep)


@pytest.mark.parametrize("solver", ["krylov", "dense"])
@pytest.mark.parametrize("matrix", ["between", "within"])
def test_scatter_that_is_not_finite_is_refused_and_never_waited_for(solver, matrix):
    scatter = smooth_scatter((16, 16))
    broken = getattr(scatter, matrix).clone()
    broken[3, 40] = broken[40, 3] = torch.nan
    with pytest.raises(ValueError, match="scatter: got NaN or infinity in A or B"):
        solve_pooling(replace(scatter, **{matrix: broken}), (8, 8), solver=solver)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"alpha": None}, "alpha: got None, wanted a positive number"),
        ({"alpha": [1.0]}, r"alpha: got \[1.0\], wanted a positive number"),
        ({"components": 2.0}, "components: got 2.0, wanted 1 to"),
        ({"components": "2"}, "components: got '2', wanted 1 to"),
        ({"components": None}, "components: got None, wanted 1 to"),
        ({"memory": "1GB"}, "memory: got '1GB', wanted a positive number of bytes"),
        ({"window": float("inf")}, "window: got inf, wanted a whole number"),
        ({"window": float("nan")}, "window: got nan, wanted a whole number"),
        ({"window": "3"}, "window: got '3', wanted a whole number"),
    ],
)
def test_settings_of_another_kind_are_refused_in_words(settings, message):
    with pytest.raises(ValueError, match=message):
        solve_pooling(smooth_scatter((16, 16)), (8, 8), **settings)


@pytest.mark.parametrize("out_shape", [(4.5, 4), ("4", "4"), (float("inf"), 4)])
def test_sizes_are_whole_numbers(out_shape):
    with pytest.raises(ValueError, match=r"out_shape: got .* wanted one to three positive sizes"):
        solve_pooling(smooth_scatter((16, 16)), out_shape)


def test_alphas_may_come_from_an_iterator():
    swept = list(sweep_pooling(smooth_scatter((4, 4)), (2, 2), (a for a in (5.0, 25.0))))
    assert [operator.settings.alpha for operator in swept] == [5.0, 25.0]


@pytest.mark.parametrize("solver", ["krylov", "dense"])
def test_components_that_nothing_is_left_for_are_told(solver):
    maps, labels = smooth_maps((12, 12), classes=2, channels=1)
    scatter = compute_scatter(maps.expand(-1, 4, -1, -1), labels)
    # Four channels that are one: A has rank 1, and 4 by the count of channels.
    with pytest.warns(UserWarning, match="components: got 2, and at 36 of 36 output places fewer"):
        solve_pooling(scatter, (6, 6), components=2, solver=solver)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        solve_pooling(scatter, (6, 6), components=1, solver=solver)
