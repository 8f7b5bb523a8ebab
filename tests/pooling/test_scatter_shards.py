"""Passes over shards, merged: however the samples are divided, the answer is one."""

from __future__ import annotations

import itertools

import pytest
import torch

from foveapool.pooling.accumulate import compute_scatter
from foveapool.pooling.scatter import Scatter

from .oracles import algorithm_1, class_maps, distance
from .shards import (
    Shard,
    assert_same,
    cut,
    first_pass,
    in_a_single_pass,
    second_pass,
    three_classes,
)


@pytest.fixture(scope="module")
def data() -> Shard:
    return three_classes()


@pytest.fixture(scope="module")
def wanted() -> Scatter:
    return in_a_single_pass()


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_shards_merged_in_any_order_give_the_single_pass_answer(data, wanted, order):
    shards = cut(data, 20, 150)
    parts = [first_pass([shard]) for shard in shards]
    moments = parts[order[0]]
    for i in order[1:]:
        moments.merge(parts[i])
    found = moments.compute()
    sums = [second_pass([shard], found) for shard in shards]
    total = sums[order[-1]]
    for i in order[-2::-1]:
        total.merge(sums[i])
    assert_same(total.compute(), wanted)
    assert moments.seen == total.seen == len(data[0])


def test_the_two_passes_may_be_cut_differently(data, wanted):
    moments = first_pass(cut(data, 1, 2, 3, 100))
    assert_same(second_pass(cut(data, 80, 81, 214), moments.compute()).compute(), wanted)


def test_shards_far_apart_lose_no_digits_when_merged():
    maps, labels = class_maps((40, 40, 40), (6, 5))
    far = maps.float()
    far[60:] += 1e4
    ids = torch.arange(120)
    shards = cut((far, labels, ids), 60)
    moments = first_pass(shards[:1], class_cap=None)
    moments.merge(first_pass(shards[1:], class_cap=None))
    found = moments.compute()
    scatter = second_pass(shards, found).compute()
    A, B = algorithm_1(far, labels)
    assert distance(scatter.between, A) < 1e-6 and distance(scatter.within, B) < 1e-6


def test_an_empty_shard_adds_nothing_from_either_side(data, wanted):
    none, all_of_it = first_pass([]), first_pass([data])
    all_of_it.merge(first_pass([]))
    none.merge(all_of_it)
    none.merge(first_pass(cut(data, 0)[:1]))
    for moments in (none, all_of_it):
        assert_same(second_pass([data], moments.compute()).compute(), wanted)


def test_merging_leaves_the_other_shard_as_it_was(data):
    one, two = (first_pass([shard]) for shard in cut(data, 120))
    empty = first_pass([])
    before = two.compute()
    empty.merge(two)
    one.merge(two)
    empty.update(*data)
    after = two.compute()
    assert after.counts.equal(before.counts) and after.mean.equal(before.mean)
    assert after.std.equal(before.std)


def test_bands_merge_too(data):
    maps, labels = class_maps((20, 15, 9), (24, 8))
    shards = cut((maps, labels, torch.arange(44)), 11)
    moments = first_pass(shards).compute()
    one, two = (second_pass([shard], moments, window=1) for shard in shards)
    one.merge(two)
    single = compute_scatter(maps, labels, window=1)
    assert_same(one.compute(), single)


# --- what does not merge


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        ("class_cap", {"class_cap": 50}, {"class_cap": 60}),
        ("class_cap", {"class_cap": 50}, {"class_cap": None}),
        ("class_cap", {"class_cap": None}, {"class_cap": 50}),
        ("seed", {"seed": 1}, {"seed": 2}),
        ("dead_channels", {}, {"dead_channels": "ignore"}),
    ],
)
def test_first_passes_set_up_differently_do_not_merge(data, name, one, other):
    mine = first_pass([data], **one)
    before = mine.compute()
    with pytest.raises(ValueError, match=f"ChannelMoments: got shards with {name} "):
        mine.merge(first_pass([data], **other))
    assert mine.compute().counts.equal(before.counts)


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        ("window", {}, {"window": 2}),
        ("window", {"window": 2}, {}),
        ("weighting", {}, {"weighting": "frequency"}),
        ("normalize", {}, {"normalize": False}),
        ("precision", {}, {"precision": "tf32"}),
    ],
)
def test_second_passes_set_up_differently_do_not_merge(data, name, one, other):
    moments = first_pass([data]).compute()
    with pytest.raises(ValueError, match=f"ScatterAccumulator: got shards with {name} "):
        second_pass([data], moments, **one).merge(second_pass([data], moments, **other))


def test_shards_of_another_map_size_do_not_merge(data):
    for name, shape, channels in (("in_shape", (5, 6), 3), ("channels", (6, 5), 2)):
        maps, labels = class_maps((9, 8, 7), shape, channels)
        theirs = first_pass([(maps, labels, torch.arange(24))])
        with pytest.raises(ValueError, match=f"got shards with {name} .* wanted the same in all"):
            first_pass([data]).merge(theirs)


def test_sums_over_other_moments_do_not_merge_and_nothing_is_added():
    shards = [(*class_maps((9, 8, 7), (6, 5), channels), torch.arange(24)) for channels in (3, 2)]
    mine, theirs = (second_pass([shard], first_pass([shard]).compute()) for shard in shards)
    before = mine.compute()
    with pytest.raises(ValueError, match="got shards with channels 3 and 2"):
        mine.merge(theirs)
    assert mine.compute().within.equal(before.within)


def test_sums_over_moments_merged_in_another_order_do_not_merge(data):
    # The moments are the same, but each has the level of its own first batch.
    shards = cut(data, 100)
    moments = []
    for order in (shards, shards[::-1]):
        mine, theirs = (first_pass([shard]) for shard in order)
        mine.merge(theirs)
        moments.append(mine.compute())
    assert moments[0].counts.equal(moments[1].counts)
    mine, theirs = (second_pass([s], m) for s, m in zip(shards, moments, strict=True))
    with pytest.raises(ValueError, match=r"got shards with level .* wanted the same in all"):
        mine.merge(theirs)
    with pytest.raises(ValueError, match="got shards with level"):
        mine.load_state_dict(theirs.state_dict())
