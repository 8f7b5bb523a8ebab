"""A and B against Algorithm 1 as printed, in float64 with loops, and against what must not matter.

Whole or as a band, of any dtype, on grids of one to three axes.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from foveapool.pooling.accumulate import ScatterAccumulator, compute_scatter
from foveapool.pooling.grid import CENTRES, windows
from foveapool.pooling.moments import ChannelMoments
from foveapool.pooling.precision import float32_products
from foveapool.pooling.sampling import BINS, random_bins
from foveapool.pooling.scatter import Scatter

from .oracles import algorithm_1, by_frequency, class_maps, distance

BALANCED, UNBALANCED = (12, 12, 12), (25, 4, 11)


def assert_equal(
    scatter: Scatter, wanted: tuple[object, object] | Scatter, tolerance: float = 1e-10
) -> None:
    if isinstance(wanted, Scatter):
        wanted = wanted.between, wanted.within
    assert distance(scatter.between, wanted[0]) < tolerance
    assert distance(scatter.within, wanted[1]) < tolerance


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
    scatter = compute_scatter(maps, labels, normalise=False)
    wanted = algorithm_1(maps - maps.mean((0, 2, 3), keepdim=True), labels, normalise=False)
    assert_equal(scatter, wanted)
    assert distance(scatter.within, compute_scatter(maps, labels).within) > 0.1


# --- weights of the classes


@pytest.mark.parametrize("sizes", [UNBALANCED, (3, 50)])
def test_frequency_weighting_weighs_every_sample_alike(sizes):
    maps, labels = class_maps(sizes)
    scatter = compute_scatter(maps, labels, weighting="frequency")
    assert_equal(scatter, by_frequency(maps, labels))
    assert scatter.weighting == "frequency"
    assert distance(scatter.between, compute_scatter(maps, labels).between) > 0.05


def test_weightings_agree_where_classes_are_equal():
    maps, labels = class_maps(BALANCED)
    by_size = compute_scatter(maps, labels, weighting="frequency")
    assert_equal(by_size, compute_scatter(maps, labels, weighting="balanced"), 1e-12)


# --- what must not matter


@pytest.mark.parametrize("weighting", ["balanced", "frequency"])
@pytest.mark.parametrize("normalise", [True, False])
def test_a_constant_added_to_a_channel_changes_nothing(weighting, normalise):
    maps, labels = class_maps(UNBALANCED)
    moved = maps + torch.tensor([1e3, -50.0, 0.25], dtype=torch.float64)[:, None, None]
    one, other = (
        compute_scatter(features, labels, weighting=weighting, normalise=normalise)
        for features in (maps, moved)
    )
    assert_equal(one, other)
    torch.testing.assert_close(other.mean - one.mean, moved.mean((0, 2, 3)) - maps.mean((0, 2, 3)))


def test_a_channel_multiplied_by_a_constant_changes_nothing():
    maps, labels = class_maps(UNBALANCED)
    scaled = maps * torch.tensor([1e-3, -7.0, 1e3], dtype=torch.float64)[:, None, None]
    assert_equal(compute_scatter(scaled, labels), compute_scatter(maps, labels))


def test_renaming_classes_reordering_samples_and_channels_changes_nothing():
    maps, labels = class_maps(UNBALANCED)
    order = torch.randperm(len(maps), generator=torch.Generator().manual_seed(1))
    shuffled = compute_scatter(maps[order][:, [2, 0, 1]], 2 - labels[order])
    assert_equal(shuffled, compute_scatter(maps, labels), 1e-12)


@pytest.mark.parametrize("batch", [1, 3, 7, 1000])
def test_batches_of_any_size_give_the_same_scatter(batch):
    maps, labels = class_maps(UNBALANCED)
    scatter = compute_scatter(maps, labels, batch_size=batch)
    assert_equal(scatter, algorithm_1(maps, labels))


@pytest.mark.parametrize("batch", [1, 5, 20, 1000])
def test_many_classes_of_which_a_batch_has_few(batch):
    maps, labels = class_maps((3, 2) * 15, (3, 3), channels=2)
    assert_equal(compute_scatter(maps, labels, batch_size=batch), algorithm_1(maps, labels))


def test_channels_last_views_and_gradients_are_welcome():
    maps, labels = class_maps(UNBALANCED)
    strange = maps.to(memory_format=torch.channels_last).requires_grad_()
    scatter = compute_scatter(strange, labels)
    assert not scatter.within.requires_grad
    assert_equal(scatter, compute_scatter(maps, labels), 1e-12)


@pytest.fixture
def medium_precision():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    yield
    torch.set_float32_matmul_precision(before)


@pytest.fixture
def wide_maps() -> tuple[Tensor, Tensor]:
    """Wide enough that a CPU with short floats would use them for the products."""
    return class_maps((60, 40), (16, 16), channels=16, dtype=torch.float32)


@pytest.fixture
def undisturbed(wide_maps) -> Scatter:
    return compute_scatter(*wide_maps)


def test_a_users_matmul_precision_changes_nothing_and_is_kept(
    wide_maps, undisturbed, medium_precision
):
    scatter = compute_scatter(*wide_maps)
    assert scatter.between.equal(undisturbed.between)
    assert scatter.within.equal(undisturbed.within)
    assert torch.get_float32_matmul_precision() == "medium"


def test_products_are_ieee_inside_and_the_users_outside_even_after_an_error(medium_precision):
    switches = torch.backends.cuda.matmul, torch.backends.mkldnn.matmul
    before = [switch.fp32_precision for switch in switches]
    with pytest.raises(KeyError), float32_products():
        assert [switch.fp32_precision for switch in switches] == ["ieee", "ieee"]
        raise KeyError
    assert [switch.fp32_precision for switch in switches] == before != ["ieee", "ieee"]
    assert torch.get_float32_matmul_precision() == "medium"


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


@pytest.mark.parametrize("normalise", [True, False])
def test_an_ignored_dead_channel_is_as_if_it_were_not_there(normalise):
    maps, labels = class_maps(UNBALANCED)
    dead = torch.cat((maps[:, :1], torch.full_like(maps[:, :1], 7.3), maps[:, 1:]), 1)
    scatter = compute_scatter(dead, labels, dead_channels="ignore", normalise=normalise)
    assert_equal(scatter, compute_scatter(maps, labels, normalise=normalise), 1e-12)
    assert scatter.std.tolist()[1] == 0 and float(scatter.mean[1]) == pytest.approx(7.3)


# --- at most so many of a class


def drawn(labels: Tensor, ids: Tensor, cap: int, seed: int) -> Tensor:
    """Which samples count: of each class the leading bins whose samples fit under the cap."""
    bins = random_bins(ids, seed)
    chosen = torch.zeros(len(labels), dtype=torch.bool)
    for q in range(int(labels.max()) + 1):
        taken = torch.zeros_like(chosen)
        for b in range(BINS):
            more = taken | ((labels == q) & (bins == b))
            if int(more.sum()) > cap:
                break
            taken = more
        chosen |= taken
    return chosen


@pytest.mark.parametrize("seed", [0, 5])
@pytest.mark.parametrize("weighting", ["balanced", "frequency"])
def test_capped_scatter_is_that_of_the_drawn_samples(seed, weighting):
    maps, labels = class_maps((150, 90, 20))
    scatter = compute_scatter(
        maps, labels, class_cap=50, seed=seed, weighting=weighting, batch_size=33
    )
    chosen = drawn(labels, torch.arange(len(labels)), 50, seed)
    oracle = algorithm_1 if weighting == "balanced" else by_frequency
    assert_equal(scatter, oracle(maps[chosen], labels[chosen]))
    assert scatter.counts.tolist() == labels[chosen].bincount().tolist()
    assert 40 <= int(scatter.counts[0]) <= 50 and 40 <= int(scatter.counts[1]) <= 50
    assert int(scatter.counts[2]) == 20


def test_another_seed_draws_other_samples():
    maps, labels = class_maps((150, 90, 20))
    one, other = (compute_scatter(maps, labels, class_cap=50, seed=seed) for seed in (0, 1))
    assert distance(one.within, other.within) > 0.01
    chosen = [drawn(labels, torch.arange(len(labels)), 50, seed) for seed in (0, 1)]
    large = labels < 2
    assert not chosen[0][large].equal(chosen[1][large])


def test_without_a_cap_all_samples_count_and_the_seed_is_idle():
    maps, labels = class_maps((150, 90, 20))
    one, other = (compute_scatter(maps, labels, class_cap=None, seed=seed) for seed in (0, 1))
    assert one.counts.tolist() == [150, 90, 20]
    assert one.within.equal(other.within)
    assert_equal(one, algorithm_1(maps, labels))


def test_a_shuffled_second_pass_with_ids_takes_the_same_samples():
    maps, labels = class_maps((150, 90, 20))
    random = torch.Generator().manual_seed(2)
    ids = torch.randint(-(2**62), 2**62, (len(maps),), generator=random)
    moments = ChannelMoments(num_classes=3, class_cap=50, seed=4)
    moments.update(maps, labels, ids)
    accumulator = ScatterAccumulator(moments.compute())
    for part in torch.randperm(len(maps), generator=random).split(41):
        accumulator.update(maps[part], labels[part], ids[part])
    chosen = drawn(labels, ids, 50, seed=4)
    assert_equal(accumulator.compute(), algorithm_1(maps[chosen], labels[chosen]))


# --- bands

BANDS = [
    ((24, 8), (12, 4), 1),
    ((24, 8), (8, 8), 2),
    ((9, 23), (4, 11), 1),
    ((20, 20), (10, 10), 0),
    ((20, 20), (10, 10), 3),
    ((300,), (150,), 3),
    ((301,), (43,), 40),
    ((14, 5, 6), (7, 2, 3), 1),
    ((40, 2, 3), (20, 2, 3), 2),
    ((4, 4), (2, 2), 1),
    ((6, 90), (3, 45), 0),
]


@pytest.mark.parametrize(("in_shape", "out_shape", "window"), BANDS)
@pytest.mark.parametrize("weighting", ["balanced", "frequency"])
def test_a_band_holds_the_blocks_of_the_whole(in_shape, out_shape, window, weighting):
    maps, labels = class_maps((9, 6), in_shape, channels=2)
    whole, band = (
        compute_scatter(maps, labels, weighting=weighting, window=width) for width in (None, window)
    )
    scale = float(whole.within.diagonal().max())
    torch.testing.assert_close(
        band.within_diagonal(), whole.within_diagonal(), rtol=1e-12, atol=1e-13 * scale
    )
    assert whole.within_diagonal().equal(whole.within.diag())
    for centre in CENTRES:
        for radius in {window, window // 2, 0}:
            index = windows(in_shape, out_shape, radius, centre)
            rows, columns = index[:, :, None], index[:, None, :]
            for got, wanted, matrix in zip(
                band.blocks(index), whole.blocks(index), (whole.between, whole.within), strict=True
            ):
                assert wanted.equal(matrix[rows, columns])
                torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-13 * scale)


def test_blocks_take_places_in_any_order():
    maps, labels = class_maps((9, 6), (24, 8), channels=2)
    whole, band = (compute_scatter(maps, labels, window=width) for width in (None, 2))
    index = windows((24, 8), (12, 4), 2)
    index = index[:, torch.randperm(index.shape[1], generator=torch.Generator().manual_seed(0))]
    for got, wanted in zip(band.blocks(index), whole.blocks(index), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("in_shape", "window"), [((24, 8), 1), ((9, 23), 1), ((300,), 3), ((14, 5, 6), 1)]
)
def test_a_band_is_smaller_than_the_whole(in_shape, window):
    maps, labels = class_maps((2, 2), in_shape)
    scatter = compute_scatter(maps, labels, window=window)
    assert not scatter.panels.whole
    assert scatter.within.numel() < math.prod(in_shape) ** 2


@pytest.mark.parametrize(
    ("in_shape", "out_shape", "window"),
    [
        ((24, 8), (12, 4), 1),
        ((20, 20), (10, 10), 0),
        ((300,), (150,), 3),
        ((14, 5, 6), (7, 2, 3), 1),
    ],
)
def test_a_window_wider_than_accumulated_is_refused(in_shape, out_shape, window):
    maps, labels = class_maps((2, 2), in_shape)
    scatter = compute_scatter(maps, labels, window=window)
    scatter.blocks(windows(in_shape, out_shape, window))
    for wider in range(window + 1, window + 4):
        with pytest.raises(ValueError, match="window: got a neighbourhood wider than"):
            scatter.blocks(windows(in_shape, out_shape, wider))


def test_a_window_as_wide_as_the_map_holds_everything():
    maps, labels = class_maps(UNBALANCED, (12, 11))
    band = compute_scatter(maps, labels, window=12)
    every = torch.arange(132)[None]
    A, B = band.blocks(every)
    assert_equal(replace(band, between=A[0], within=B[0]), algorithm_1(maps, labels))
