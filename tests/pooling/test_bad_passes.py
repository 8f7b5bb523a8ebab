"""Passes that come to nothing: unusable classes, passes unlike each other, settings, memory.

Each is refused with a ValueError that says what was got and what to do.
"""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor

from foveapool.pooling.accumulate import ScatterAccumulator, compute_scatter
from foveapool.pooling.moments import ChannelMoments

from .oracles import class_maps


def good_batch() -> tuple[Tensor, Tensor]:
    return class_maps((12, 8, 10), dtype=torch.float32)


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
    # By this seed the smallest part of the class with two or more has eleven.
    with pytest.raises(ValueError, match=r"class_cap: got 5 for 3000 samples of class 0") as told:
        compute_scatter(maps, labels, class_cap=5, seed=5)
    least = int(re.search(r"wanted (\d+) or more", str(told.value))[1])
    with pytest.raises(ValueError, match=f"got {least - 1} for 3000"):
        compute_scatter(maps, labels, class_cap=least - 1, seed=5)
    assert int(compute_scatter(maps, labels, class_cap=least, seed=5).counts[0]) == least


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
        ({"num_classes": 2.5}, r"num_classes: got 2\.5, wanted 2 or more"),
        ({"num_classes": 3, "class_cap": "9"}, "class_cap: got '9', wanted 2 or more"),
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


# --- memory


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


def test_memory_for_class_sums_is_counted_too(monkeypatch):
    megabyte = {"SC_PAGE_SIZE": 1000, "SC_PHYS_PAGES": 1000}
    monkeypatch.setattr("os.sysconf", megabyte.__getitem__)
    maps, labels = class_maps((2,) * 40, (8, 8), channels=64, dtype=torch.float32)
    with pytest.raises(ValueError, match=r"in 3 matrices and class sums \(0\.0 GB\); cpu has"):
        compute_scatter(maps, labels)
    assert compute_scatter(maps[:, :16], labels).in_shape == (8, 8)
