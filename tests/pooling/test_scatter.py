"""A and B against Algorithm 1 as printed, in float64 with loops, and what is always true of them.

What must not matter to them is in test_scatter_invariance.py, how much a sample counts in
test_scatter_samples.py, a part of the matrices in test_scatter_bands.py.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from foveapool.pooling.accumulate import ScatterAccumulator, compute_scatter
from foveapool.pooling.moments import ChannelMoments

from .oracles import algorithm_1, class_maps, distance
from .scatters import assert_equal

BALANCED, UNBALANCED = (12, 12, 12), (25, 4, 11)


# --- Algorithm 1


@pytest.mark.parametrize("sizes", [BALANCED, UNBALANCED, (2, 2)])
@pytest.mark.parametrize("in_shape", [(5, 4), (11,), (2, 3, 4), (1, 1), (12, 11)])
def test_scatter_is_algorithm_1(sizes, in_shape):
    maps, labels = class_maps(sizes, in_shape)
    scatter = compute_scatter(maps, labels)
    assert_equal(scatter, algorithm_1(maps, labels))
    assert scatter.between.dtype == scatter.within.dtype == torch.float64
    assert scatter.counts.tolist() == list(sizes)
    assert scatter.in_shape == in_shape


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.integers(2, 12), min_size=2, max_size=5),
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.integers(1, 4),
    st.integers(1, 50),
    st.integers(0, 2**16),
)
def test_scatter_is_algorithm_1_for_any_classes_maps_and_batches(
    sizes, in_shape, channels, batch, seed
):
    maps, labels = class_maps(sizes, in_shape, channels, seed)
    A, B = algorithm_1(maps, labels)
    scatter = compute_scatter(maps, labels, batch_size=batch)
    # One place and one channel may leave next to nothing between the classes.
    torch.testing.assert_close(scatter.between, torch.tensor(A), rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(scatter.within, torch.tensor(B), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("sizes", [BALANCED, UNBALANCED])
def test_float32_features_far_from_zero_cost_no_digits(sizes):
    maps, labels = class_maps(sizes, (6, 6), channels=4)
    maps = (maps / maps.std((0, 2, 3), keepdim=True) + 1e4).float()
    assert_equal(compute_scatter(maps, labels), algorithm_1(maps, labels), 1e-6)


@pytest.mark.parametrize("level", [0, 1, 3.9, 100])
def test_float32_features_keep_six_digits_at_any_level(level):
    maps, labels = class_maps((60, 40, 20), (8, 8), channels=4)
    spread = maps - maps.mean((0, 2, 3), keepdim=True)
    maps = (spread / spread.std((0, 2, 3), keepdim=True) + level).float()
    moments = ChannelMoments(num_classes=3)
    moments.update(maps, labels)
    accumulator = ScatterAccumulator(moments.compute())
    accumulator.update(maps, labels)
    assert_equal(accumulator.compute(), algorithm_1(maps, labels), 1e-6)


def test_constant_borders_have_no_scatter_whatever_the_level_of_their_channel():
    maps, labels = class_maps((60, 40, 20), (8, 8), channels=4)
    maps = (maps.relu() + 3).float()
    maps[:, :, -1] = 0
    maps[:, :, :, -1] = 0
    scatter = compute_scatter(maps, labels)
    border = torch.zeros(8, 8, dtype=torch.bool)
    border[-1] = border[:, -1] = True
    scale = scatter.within.diagonal().mean()
    assert scatter.within[border.flatten()].abs().max() <= 1e-12 * scale
    assert torch.linalg.eigvalsh(scatter.within).min() >= -1e-12 * scale


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_short_floats_are_taken_for_what_they_are(dtype):
    maps, labels = class_maps(UNBALANCED, (6, 6), dtype=dtype)
    assert_equal(compute_scatter(maps, labels), algorithm_1(maps, labels), 1e-6)


def test_channels_can_keep_their_own_scale():
    maps, labels = class_maps(UNBALANCED)
    scatter = compute_scatter(maps, labels, normalize=False)
    wanted = algorithm_1(maps - maps.mean((0, 2, 3), keepdim=True), labels, normalize=False)
    assert_equal(scatter, wanted)
    assert distance(scatter.within, compute_scatter(maps, labels).within) > 0.1


# --- symmetry, rank, dead channels


def test_scatter_is_symmetric_to_the_last_bit_and_positive():
    maps, labels = class_maps(UNBALANCED, (9, 9), dtype=torch.float32)
    scatter = compute_scatter(maps, labels)
    for matrix in (scatter.between, scatter.within):
        assert matrix.equal(matrix.T)
        assert float(torch.linalg.eigvalsh(matrix).min()) > -1e-5 * float(matrix.trace())


def test_between_scatter_has_the_rank_that_classes_and_channels_allow():
    maps, labels = class_maps((20, 15, 10), (5, 4), channels=2)
    scatter = compute_scatter(maps, labels)
    assert scatter.rank_bound == 4
    assert int(torch.linalg.matrix_rank(scatter.between, hermitian=True)) == 4


@pytest.mark.parametrize("normalize", [True, False])
def test_an_ignored_dead_channel_is_as_if_it_were_not_there(normalize):
    maps, labels = class_maps(UNBALANCED)
    dead = torch.cat((maps[:, :1], torch.full_like(maps[:, :1], 7.3), maps[:, 1:]), 1)
    scatter = compute_scatter(dead, labels, dead_channels="ignore", normalize=normalize)
    assert_equal(scatter, compute_scatter(maps, labels, normalize=normalize), 1e-12)
    assert scatter.std.tolist()[1] == 0 and float(scatter.mean[1]) == pytest.approx(7.3)
    assert scatter.rank_bound == compute_scatter(maps, labels).rank_bound
