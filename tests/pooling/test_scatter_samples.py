"""How much a sample counts in A and B: the weights of classes, and at most so many of a class."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from foveapool.pooling.accumulate import ScatterAccumulator, compute_scatter
from foveapool.pooling.moments import ChannelMoments
from foveapool.pooling.validation import BINS, draw_bins

from .oracles import algorithm_1, by_frequency, class_maps, distance
from .scatters import assert_equal

BALANCED, UNBALANCED = (12, 12, 12), (25, 4, 11)


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


# --- at most so many of a class


def drawn(labels: Tensor, ids: Tensor, cap: int, seed: int) -> Tensor:
    """Which samples count: of each class the leading bins whose samples fit under the cap."""
    bins = draw_bins(ids, seed)
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
