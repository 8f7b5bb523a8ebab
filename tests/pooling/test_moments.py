"""The first pass against numpy's mean and deviation, whatever the offset and the batches."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from foveapool.pooling.moments import ChannelMoments, Moments
from foveapool.pooling.validation import draw_bins

from .oracles import class_maps


def of_parts(parts: list[tuple[Tensor, Tensor]], **settings: object) -> ChannelMoments:
    moments = ChannelMoments(num_classes=3, **settings)
    for maps, labels in parts:
        moments.update(maps, labels)
    return moments


def assert_equal_to_numpy(moments: Moments, maps: Tensor, tolerance: float = 1e-12) -> None:
    """Mean and biased deviation of each channel over all samples and places, in float64."""
    values = np.moveaxis(maps.double().numpy(), 1, -1).reshape(-1, maps.shape[1])
    std = torch.tensor(values.std(0))
    torch.testing.assert_close(moments.std, std, rtol=tolerance, atol=0)
    assert ((moments.mean - torch.tensor(values.mean(0))).abs() <= tolerance * std).all()


@pytest.mark.parametrize("in_shape", [(7,), (4, 5), (2, 3, 4)])
def test_moments_are_the_mean_and_biased_deviation_of_each_channel(in_shape):
    maps, labels = class_maps((9, 14, 5), in_shape)
    moments = of_parts([(maps, labels)]).compute()
    assert_equal_to_numpy(moments, maps)
    assert moments.counts.tolist() == [9, 14, 5]
    assert moments.in_shape == in_shape
    assert moments.mean.dtype == moments.std.dtype == torch.float64


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_sums_of_short_floats_are_long(dtype):
    maps, labels = class_maps((60, 50, 40), (8, 8), dtype=dtype)
    assert_equal_to_numpy(of_parts([(maps, labels)]).compute(), maps, 1e-6)


def test_an_offset_of_ten_thousand_deviations_does_not_cancel():
    maps, labels = class_maps((40, 30, 20), (6, 6))
    scale = maps.std((0, 2, 3), keepdim=True)
    maps = (maps / scale + 1e4).float()
    assert_equal_to_numpy(of_parts([(maps, labels)]).compute(), maps, 1e-6)


def test_a_first_sample_unlike_all_others_does_no_harm():
    maps, labels = class_maps((40, 30, 20), (6, 6), dtype=torch.float32)
    maps[0] += 1e3
    assert_equal_to_numpy(of_parts([(maps, labels)]).compute(), maps, 1e-6)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, 27), max_size=6))
def test_batches_of_any_size_give_the_same_moments(cuts):
    maps, labels = class_maps((9, 14, 5))
    edges = [0, *sorted(cuts), len(maps)]
    parts = [(maps[a:b], labels[a:b]) for a, b in itertools.pairwise(edges)]
    moments = of_parts(parts)
    assert moments.seen == len(maps)
    assert_equal_to_numpy(moments.compute(), maps)


def test_only_the_drawn_samples_count():
    maps, labels = class_maps((200, 150, 20))
    moments = of_parts([(maps, labels)], class_cap=60, seed=3).compute()
    drawn = draw_bins(torch.arange(len(maps)), seed=3) < moments.bins[labels]
    assert labels[drawn].bincount().tolist() == moments.counts.tolist()
    assert int(moments.counts[2]) == 20 and int(moments.counts.max()) <= 60
    assert_equal_to_numpy(moments, maps[drawn])


def test_moments_do_not_hold_on_to_the_features():
    maps, labels = class_maps((9, 14, 5))
    maps.requires_grad_()
    moments = of_parts([(maps, labels)])
    before = moments.compute()
    maps.detach().zero_()
    after = moments.compute()
    assert after.mean.equal(before.mean) and after.std.equal(before.std)
    assert not after.mean.requires_grad


def test_labels_may_be_a_list_an_array_or_small_integers():
    maps, labels = class_maps((9, 14, 5))
    for same in (labels.tolist(), labels.numpy(), labels.to(torch.uint8)):
        assert of_parts([(maps, same)]).compute().counts.tolist() == [9, 14, 5]


def test_a_channel_far_from_zero_with_little_variance_is_not_dead():
    maps, labels = class_maps((9, 14, 5))
    maps[:, 1] = 1e4 + 0.1 * maps[:, 1] / maps[:, 1].std()
    assert_equal_to_numpy(of_parts([(maps, labels)]).compute(), maps, 1e-9)


@pytest.mark.parametrize("level", [0.0, 0.1, -1e4, 1e10])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_constant_channel_is_dead_at_any_level(level, dtype):
    maps, labels = class_maps((9, 14, 5), (7, 9), dtype=dtype)
    maps[:, 2] = level
    moments = of_parts([(maps, labels)], dead_channels="ignore").compute()
    assert (moments.std == 0).tolist() == [False, False, True]
    assert float(moments.mean[2]) == pytest.approx(level, rel=1e-6)


def test_a_channel_that_varies_by_rounding_only_is_dead():
    maps, labels = class_maps((9, 14, 5), (7, 9), dtype=torch.float32)
    level = torch.full_like(maps[:, 1], 0.1)
    maps[:, 1] = torch.where(maps[:, 0] > 0, level, torch.nextafter(level, 2 * level))
    moments = of_parts([(maps, labels)], dead_channels="ignore").compute()
    assert (moments.std == 0).tolist() == [False, True, False]
