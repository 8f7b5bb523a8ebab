"""A user's mistakes: each is refused with a ValueError that says what was got and what to do.

And a batch that is refused leaves the sums as they were.
"""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor

from foveapool.pooling.accumulate import ScatterAccumulator, compute_scatter
from foveapool.pooling.moments import ChannelMoments
from foveapool.pooling.solve import solve_pooling

from .oracles import algorithm_1, class_maps, distance

Pass = ChannelMoments | ScatterAccumulator


def good_batch() -> tuple[Tensor, Tensor]:
    return class_maps((12, 8, 10), dtype=torch.float32)


@pytest.fixture(params=["first", "second"])
def some_pass(request) -> Pass:
    """Either pass, with one good batch taken in."""
    maps, labels = good_batch()
    moments = ChannelMoments(num_classes=3, class_cap=9)
    moments.update(maps, labels)
    if request.param == "first":
        return moments
    accumulator = ScatterAccumulator(moments.compute())
    accumulator.update(maps, labels)
    return accumulator


def snapshot(holder: Pass) -> dict[str, object]:
    state = holder.state_dict()
    return {
        **{name: tensor.tolist() for name, tensor in state["tensors"].items()},
        **state["facts"],
    }


def assert_refused(holder: Pass, message: str, *batch: object) -> None:
    """An error with these words, and nothing taken in."""
    before = snapshot(holder)
    with pytest.raises(ValueError, match=message):
        holder.update(*batch)
    assert snapshot(holder) == before


# --- shapes and labels


@pytest.mark.parametrize(
    "features",
    [
        torch.zeros(4, 3),
        torch.zeros(4, 3, 2, 2, 2, 2),
        torch.zeros(4, 3, 5, 4, dtype=torch.int64),
        torch.zeros(4, 3, 5, 4, dtype=torch.complex64),
        torch.zeros(4, 0, 5, 4),
        torch.zeros(4, 3, 0, 4),
    ],
    ids=["no places", "four axes", "integers", "complex", "no channels", "empty maps"],
)
def test_features_of_a_wrong_form_are_refused_with_the_form_wanted(some_pass, features):
    shape = re.escape(str(tuple(features.shape)))
    message = f"features: got shape {shape} of {features.dtype}, wanted .*batch, channels, height"
    assert_refused(some_pass, message, features, torch.zeros(4, dtype=torch.int64))


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ((4, 3, 4, 5), r"got 3 channels of \(4, 5\), wanted 3 of \(5, 4\)"),
        ((4, 2, 5, 4), r"got 2 channels of \(5, 4\), wanted 3 of \(5, 4\)"),
        ((4, 3, 20), r"got 3 channels of \(20,\), wanted 3 of \(5, 4\)"),
    ],
)
def test_another_map_size_in_a_later_batch_is_refused(some_pass, shape, said):
    message = f"features: {said} as in the batches before"
    assert_refused(some_pass, message, torch.zeros(shape), torch.zeros(4, dtype=torch.int64))


@pytest.mark.parametrize(
    "labels",
    [
        torch.zeros(29, dtype=torch.int64),
        torch.zeros(30, 1, dtype=torch.int64),
        torch.zeros(30),
        torch.full((30,), torch.nan),
        torch.tensor(0),
        [0.0] * 30,
    ],
    ids=["too few", "a column", "floats", "NaN", "one number", "a list of floats"],
)
def test_labels_are_one_whole_number_a_sample(some_pass, labels):
    message = r"labels: got shape \(.*\) of torch\..*, wanted 30 whole numbers, one a sample"
    assert_refused(some_pass, message, good_batch()[0], labels)


@pytest.mark.parametrize("wrong", [-1, 3, 1000])
def test_labels_outside_the_classes_are_named(some_pass, wrong):
    maps, labels = good_batch()
    labels[7] = wrong
    message = rf"labels: got \[{wrong}\], wanted 0 to 2; .*num_classes"
    assert_refused(some_pass, message, maps, labels)


@pytest.mark.parametrize("ids", [torch.arange(29), torch.arange(30)[None], torch.rand(30)])
def test_ids_are_one_whole_number_a_sample(some_pass, ids):
    message = r"ids: got shape \(.*\) of torch\..*, wanted 30 whole numbers"
    assert_refused(some_pass, message, *good_batch(), ids)


def test_features_and_labels_of_unequal_number_are_refused():
    maps, labels = good_batch()
    with pytest.raises(ValueError, match="labels: got 29, wanted 30, one a feature map"):
        compute_scatter(maps, labels[1:])


# --- numbers that are none


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_a_number_that_is_not_finite_is_found_and_nothing_is_taken_in(some_pass, value, dtype):
    maps, labels = good_batch()
    maps = maps.to(dtype)
    maps[11, 2, 1, 3] = value
    maps[12, 0, 0, 0] = torch.nan
    message = (
        f"features: got {value} in sample 11 of the batch, channel 2, place 7, wanted finite "
        "numbers; nothing of this batch was taken in"
    )
    assert_refused(some_pass, message, maps, labels)


def test_infinities_that_cancel_are_found_too(some_pass):
    maps, labels = good_batch()
    maps[3, 1, 0, 0], maps[3, 1, 0, 1] = torch.inf, -torch.inf
    assert_refused(some_pass, "got inf in sample 3 of the batch, channel 1", maps, labels)


@pytest.mark.parametrize("sample", [0, 5])
def test_a_first_batch_that_is_not_finite_leaves_a_fresh_start(sample):
    maps, labels = good_batch()
    moments = ChannelMoments(num_classes=3)
    bad = maps.clone()
    bad[sample, 0, 0, 0] = torch.nan
    assert_refused(moments, f"got nan in sample {sample} ", bad, labels)
    moments.update(maps, labels)
    assert moments.compute().mean.isfinite().all()


def test_finite_numbers_whose_squares_are_not_are_refused_as_such():
    maps, labels = good_batch()
    moments = ChannelMoments(num_classes=3)
    assert_refused(moments, "squares overflow torch.float32.*scale", maps * 1e20, labels)
    moments.update(maps.double() * 1e20, labels)
    assert moments.compute().std.isfinite().all()


def test_very_large_finite_numbers_are_welcome():
    maps, labels = good_batch()
    maps = maps / maps.abs().max() * 1e18
    scatter = compute_scatter(maps, labels)
    assert distance(scatter.within, algorithm_1(maps, labels)[1]) < 1e-6


# --- classes and channels that cannot be used


def test_classes_with_no_or_one_sample_are_named():
    maps, labels = good_batch()
    labels[labels == 1] = 0
    labels[4] = 3
    with pytest.raises(ValueError, match=r"fewer than two samples .*\{1: 0, 3: 1\}, wanted two or"):
        compute_scatter(maps, labels, num_classes=4)


@pytest.mark.parametrize(
    ("sizes", "advice"),
    [
        ((0, 3, 3), "number the classes from 0 without gaps"),
        ((3, 0, 3), "number the classes from 0 without gaps"),
        ((3, 3, 0), "give samples of these, or lower num_classes if it was given"),
        ((3, 1, 3), "give more samples of these classes or leave them out"),
    ],
)
def test_what_to_do_about_a_small_class_depends_on_what_is_missing(sizes, advice):
    labels = torch.arange(3).repeat_interleave(torch.tensor(sizes))
    maps = torch.randn(len(labels), 3, 5, 4, generator=torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match=f"{advice}$"):
        compute_scatter(maps, labels, num_classes=3)


def test_no_samples_at_all_are_refused():
    moments = ChannelMoments(num_classes=3)
    moments.update(torch.zeros(0, 3, 5, 4), torch.zeros(0, dtype=torch.int64))
    with pytest.raises(ValueError, match="got no samples, wanted at least two of each class"):
        moments.compute()


def test_a_cap_too_small_for_a_huge_class_is_named_as_the_reason():
    maps, labels = class_maps((3000, 20), (1,), channels=1)
    with pytest.raises(ValueError, match=r"class_cap: got 20 for 3000 samples of class 0") as told:
        compute_scatter(maps, labels, class_cap=20)
    least = int(re.search(r"wanted (\d+) or more", str(told.value))[1])
    with pytest.raises(ValueError, match=f"got {least - 1} for 3000"):
        compute_scatter(maps, labels, class_cap=least - 1)
    assert int(compute_scatter(maps, labels, class_cap=least).counts[0]) == least


@pytest.mark.parametrize("solver", ["dense", "krylov"])
def test_an_alpha_too_small_for_so_few_samples_is_told_in_words(solver):
    maps, labels = class_maps((4, 4), (16, 16) if solver == "krylov" else (8, 8), channels=1)
    scatter = compute_scatter(maps.float(), labels)
    with pytest.raises(ValueError, match=r"alpha: got .*e-.* singular to rounding; raise alpha"):
        solve_pooling(scatter, (4, 4), alpha=1e-8, components=1, solver=solver)


def test_dead_channels_are_named_and_the_way_out_too():
    maps, labels = good_batch()
    maps[:, 0], maps[:, 2] = 0, 0.3
    with pytest.raises(ValueError, match=r"2 dead channels .*\[0, 2\].*dead_channels='ignore'"):
        compute_scatter(maps, labels)


# --- two passes that do not fit together


def test_a_second_pass_with_missing_samples_is_refused():
    maps, labels = good_batch()
    moments = ChannelMoments(num_classes=3)
    moments.update(maps, labels)
    accumulator = ScatterAccumulator(moments.compute())
    accumulator.update(maps[labels != 1], labels[labels != 1])
    accumulator.update(maps[labels == 1][:5], labels[labels == 1][:5])
    with pytest.raises(ValueError, match="got 5 samples of class 1, wanted 8 as in the first pass"):
        accumulator.compute()


def test_a_second_pass_over_more_samples_is_refused():
    maps, labels = good_batch()
    moments = ChannelMoments(num_classes=3)
    moments.update(maps, labels)
    accumulator = ScatterAccumulator(moments.compute())
    accumulator.update(maps, labels)
    accumulator.update(maps[:1], labels[:1])
    with pytest.raises(ValueError, match=r"samples of class .* the same samples"):
        accumulator.compute()


def test_a_capped_second_pass_in_another_order_without_ids_is_refused():
    maps, labels = class_maps((200, 200))
    moments = ChannelMoments(num_classes=2, class_cap=50)
    moments.update(maps, labels)
    accumulator = ScatterAccumulator(moments.compute())
    accumulator.update(maps.flip(0), labels.flip(0))
    with pytest.raises(ValueError, match="in the same order, or pass ids"):
        accumulator.compute()


# --- settings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_classes": 1}, "num_classes: got 1, wanted 2 or more"),
        ({"num_classes": 3, "class_cap": 1}, "class_cap: got 1, wanted 2 or more, or None"),
        ({"num_classes": 3, "dead_channels": "drop"}, "dead_channels: got 'drop', wanted 'error'"),
    ],
)
def test_settings_of_the_first_pass_are_checked(settings, message):
    with pytest.raises(ValueError, match=message):
        ChannelMoments(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"weighting": "equal"}, "weighting: got 'equal', wanted one of .*balanced"),
        ({"precision": "fp8"}, "precision: got 'fp8' on cpu, wanted 'ieee'"),
        ({"precision": "bf16"}, "precision: got 'bf16' on cpu, .*GPU"),
        ({"window": -1}, "window: got -1, wanted a whole number of pixels"),
        ({"window": 1.5}, "window: got 1.5, wanted a whole number of pixels"),
    ],
)
def test_settings_of_the_second_pass_are_checked(settings, message):
    with pytest.raises(ValueError, match=message):
        compute_scatter(*good_batch(), **settings)


def test_maps_too_large_for_the_memory_are_refused_with_gigabytes_and_a_way_out():
    maps, labels = class_maps((2, 2), (1024, 1024), channels=1, dtype=torch.float32)
    message = r"in_shape: got maps of 1048576 places.* needs ([\d.]+) GB .*window=r"
    with pytest.raises(ValueError, match=message) as error:
        compute_scatter(maps, labels)
    needed = float(re.search(message, str(error.value))[1])
    assert needed >= 2 * 8 * 1024**4 / 1e9


def test_a_window_makes_large_maps_fit(monkeypatch):
    ten_megabytes = {"SC_PAGE_SIZE": 1000, "SC_PHYS_PAGES": 10_000}
    monkeypatch.setattr("os.sysconf", ten_megabytes.__getitem__)
    maps, labels = class_maps((2, 2), (64, 16), channels=1, dtype=torch.float32)
    with pytest.raises(ValueError, match=r"cpu has 0\.0 GB.*window"):
        compute_scatter(maps, labels)
    assert compute_scatter(maps, labels, window=1).in_shape == (64, 16)
