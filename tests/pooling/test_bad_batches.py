"""A batch of a wrong form or without sense: refused with what was got and what to do.

And a batch that is refused leaves the sums as they were.
"""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor

from foveapool.pooling.accumulate import ScatterAccumulator, compute_scatter
from foveapool.pooling.moments import ChannelMoments

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


@pytest.mark.parametrize("labels", [None, "0", ["a"] * 30], ids=["none", "text", "texts"])
def test_labels_that_are_no_numbers_are_refused(some_pass, labels):
    message = r"labels: got .*, wanted 30 whole numbers, one a sample"
    assert_refused(some_pass, message, good_batch()[0], labels)


@pytest.mark.parametrize("make", [Tensor.numpy, Tensor.tolist])
def test_features_that_are_no_tensor_are_refused(some_pass, make):
    maps, labels = good_batch()
    assert_refused(some_pass, "features: got .*, wanted a torch.Tensor", make(maps), labels)


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


def test_numbers_whose_squares_overflow_are_refused_by_the_second_pass_too():
    maps, labels = good_batch()
    moments = ChannelMoments(num_classes=3)
    moments.update(maps, labels)
    accumulator = ScatterAccumulator(moments.compute())
    wild = maps.clone()
    wild[5] = 1e30
    assert_refused(accumulator, "squares overflow torch.float32.*scale", wild, labels)
    accumulator.update(maps[:0], labels[:0])
    accumulator.update(maps, labels)
    assert accumulator.compute().within.isfinite().all()


def test_large_numbers_near_their_level_are_welcome_in_both_passes():
    maps, labels = good_batch()
    far = maps / maps.abs().max() * 1e15 + 3e19
    assert compute_scatter(far, labels).within.isfinite().all()


def test_a_pass_does_not_take_itself_in(some_pass):
    before = snapshot(some_pass)
    with pytest.raises(ValueError, match="got itself to merge, wanted another shard"):
        some_pass.merge(some_pass)
    assert snapshot(some_pass).keys() == before.keys()
    assert some_pass.seen == len(good_batch()[0])
