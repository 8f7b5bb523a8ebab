"""What A and B must not depend on: levels, scales, order, batches, memory, the user's switches."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from foveapool.pooling.accumulate import compute_scatter
from foveapool.pooling.gram import float32_products
from foveapool.pooling.scatter import Scatter

from .oracles import algorithm_1, class_maps
from .scatters import assert_equal

UNBALANCED = (25, 4, 11)


@pytest.mark.parametrize("weighting", ["balanced", "frequency"])
@pytest.mark.parametrize("normalize", [True, False])
def test_a_constant_added_to_a_channel_changes_nothing(weighting, normalize):
    maps, labels = class_maps(UNBALANCED)
    moved = maps + torch.tensor([1e3, -50.0, 0.25], dtype=torch.float64)[:, None, None]
    one, other = (
        compute_scatter(features, labels, weighting=weighting, normalize=normalize)
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


# --- products of float32


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


def test_an_autocast_around_it_changes_nothing():
    maps, labels = class_maps(UNBALANCED, dtype=torch.float32)
    plain = compute_scatter(maps, labels)
    with torch.autocast("cpu", torch.bfloat16):
        inside = compute_scatter(maps, labels)
        assert torch.is_autocast_enabled("cpu")
    assert torch.equal(plain.within, inside.within) and torch.equal(plain.between, inside.between)


@pytest.mark.parametrize(
    ("shape", "batch"),
    [((1024, 512, 2, 2), 512), ((600, 1024, 1, 1), 600), ((40_000, 1, 4, 4), 40_000)],
)
@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_many_numbers_a_place_add_up_as_in_float64(shape, batch, offset):
    random = torch.Generator().manual_seed(0)
    labels = torch.arange(shape[0]) % 4
    signal = torch.randn(4, *shape[1:], generator=random)
    maps = torch.randn(shape, generator=random).relu() + 0.3 * signal[labels] + offset
    single = compute_scatter(maps, labels, batch_size=batch, class_cap=None)
    double = compute_scatter(maps.double(), labels, class_cap=None)
    assert_equal(single, double, 1e-6)
