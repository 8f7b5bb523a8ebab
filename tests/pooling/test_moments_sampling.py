"""Drawing by seed: fair, the same for everyone, at most the cap and nearly that."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from foveapool.pooling.moments import ChannelMoments
from foveapool.pooling.validation import BINS, EQUAL, HALVINGS, count_kept_bins, draw_bins

from .oracles import class_maps

whole_numbers = st.integers(-(2**63), 2**63 - 2)


def bin_by_splitmix64(number: int, seed: int) -> int:
    """By Steele, Lea and Flood's generator in whole numbers of any size."""
    z = (number + 1) * 0x9E3779B97F4A7C15 + seed * 0xD1342543DE82EF95
    z %= 2**64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return bin_of(z ^ (z >> 31))


def bin_of(number: int) -> int:
    """By the top five bits of 64, and if these are all zero by the ten behind them."""
    if number >> 59:
        return HALVINGS + (number >> 59)
    return (number >> 49).bit_length()


def test_seed_0_gives_the_published_splitmix64_numbers():
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC]
    assert draw_bins(torch.arange(4), seed=0).tolist() == [bin_of(x) for x in published]


@settings(deadline=None)
@given(st.lists(whole_numbers, min_size=1, max_size=20), st.integers(-(2**70), 2**70))
def test_any_id_and_any_seed_have_a_bin(ids, seed):
    got = draw_bins(torch.tensor(ids), seed).tolist()
    assert got == [bin_by_splitmix64(number, seed) for number in ids]


@pytest.mark.parametrize("seed", [0, 1, 2, 12345])
@pytest.mark.parametrize("stride", [1, 10, 1024])
def test_bins_are_equally_full_whatever_the_ids_have_in_common(seed, stride):
    found = draw_bins(torch.arange(32_000) * stride, seed).bincount(minlength=BINS)
    first, others = found[: HALVINGS + 1], found[HALVINGS + 1 :]
    equal = torch.cat((first.sum()[None], others))
    assert len(equal) == EQUAL
    # Chi-squared with 31 degrees of freedom exceeds 80 about three times in a million.
    assert float(((equal - 1000.0) ** 2 / 1000).sum()) < 80
    # With five degrees, 35 about twice in a million.
    halves = torch.stack((*first[-5:].flip(0), first[:-5].sum()))
    wanted = 1000 * torch.tensor([1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 32])
    wanted *= float(first.sum()) / 1000
    assert float(((halves - wanted) ** 2 / wanted).sum()) < 35


def test_two_seeds_agree_as_often_as_chance_has_it():
    ids = torch.arange(32_000)
    agreements = int((draw_bins(ids, 0) == draw_bins(ids, 1)).sum())
    assert 850 < agreements < 1150


@settings(deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 9), min_size=4, max_size=4), min_size=1, max_size=5),
    st.integers(1, 40),
)
def test_a_class_keeps_as_many_leading_bins_as_fit_under_the_cap(counts, cap):
    for found, bins in zip(
        count_kept_bins(torch.tensor(counts), cap).tolist(), counts, strict=True
    ):
        assert sum(bins[:found]) <= cap
        assert found == len(bins) or sum(bins[: found + 1]) > cap


def test_without_a_cap_every_bin_is_kept():
    assert count_kept_bins(torch.full((2, 3), 10**9), None).tolist() == [3, 3]


@pytest.mark.parametrize("seed", range(5))
def test_classes_keep_at_most_the_cap_and_nearly_that(seed):
    maps, labels = class_maps((1200, 500, 150, 60), (1,), channels=1)
    moments = ChannelMoments(num_classes=4, class_cap=150, seed=seed)
    moments.update(maps, labels)
    counts = moments.compute().counts.tolist()
    assert 100 < counts[0] <= 150
    assert 125 < counts[1] <= 150
    assert counts[2:] == [150, 60]


@pytest.mark.parametrize("cap", [20, 300, 5000])
def test_a_huge_class_keeps_half_of_the_cap_or_about_that(cap):
    moments = ChannelMoments(num_classes=2, class_cap=cap)
    moments.update(torch.randn(400_000, 1, 1), torch.arange(400_000) // 399_900)
    counts = moments.compute().counts.tolist()
    assert 0.3 * cap < counts[0] <= cap
    assert counts[1] <= min(cap, 100)


def test_a_cap_is_not_needed():
    maps, labels = class_maps((700, 30), (1,), channels=1)
    moments = ChannelMoments(num_classes=2, class_cap=None)
    moments.update(maps, labels)
    assert moments.compute().counts.tolist() == [700, 30]


def test_ids_decide_and_order_does_not():
    maps, labels = class_maps((400, 300), (2, 2))
    ids = torch.randperm(10_000, generator=torch.Generator().manual_seed(0))[:700]
    found = []
    for order in (torch.arange(700), torch.arange(700).flip(0)):
        moments = ChannelMoments(num_classes=2, class_cap=100)
        for part in order.split(64):
            moments.update(maps[part], labels[part], ids[part])
        found.append(moments.compute())
    assert found[0].counts.equal(found[1].counts) and found[0].bins.equal(found[1].bins)
    torch.testing.assert_close(found[0].mean, found[1].mean, rtol=1e-12, atol=0)
    torch.testing.assert_close(found[0].std, found[1].std, rtol=1e-12, atol=0)
