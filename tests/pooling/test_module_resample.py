"""A pooling carried to another map size: what stays, what follows the place, what is refused."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from foveapool.pooling.grid import average_weights, coordinates, resample_weights, scale_out_shape
from foveapool.pooling.module import LinearPool2d

# Old input and output, new input: steps between outputs are whole pixels, the same before and after
WHOLE_STEPS = [
    ((8, 8), (4, 4), (16, 16)),
    ((8, 8), (4, 4), (12, 18)),
    ((16, 12), (8, 6), (8, 10)),
    ((32, 32), (16, 16), (8, 8)),
    ((8, 6), (4, 3), (24, 30)),
]
# Here they are not; the new output is given too
BROKEN_STEPS = [
    ((7, 7), (4, 4), (8, 8), (4, 4)),
    ((7, 7), (4, 4), (14, 14), (8, 8)),
    ((8, 8), (4, 4), (7, 7), (4, 4)),
    ((8, 8), (4, 4), (9, 5), (5, 3)),
    ((6, 8), (4, 4), (11, 16), (8, 8)),
    ((16, 16), (8, 8), (27, 13), (14, 7)),
]
broken_steps = pytest.mark.parametrize(("in_shape", "out_shape", "new", "new_out"), BROKEN_STEPS)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def random_pool(in_shape=(4, 6), out_shape=(2, 3), trainable: bool = False) -> LinearPool2d:
    inputs, outputs = (torch.Size(shape).numel() for shape in (in_shape, out_shape))
    weight = torch.randn(2, outputs, inputs)
    shapes = {"in_shape": in_shape, "out_shape": out_shape}
    return LinearPool2d(weight, torch.randn(3), **shapes, trainable=trainable)


def distances(pool: LinearPool2d) -> Tensor:
    """From the middle of each output's block to each input place, largest axis, (M, N)."""
    step = torch.tensor(pool.in_shape).double() / torch.tensor(pool.out_shape).double()
    middle = (coordinates(pool.out_shape) - 0.5) * step + 0.5
    return (coordinates(pool.in_shape)[None] - middle[:, None]).abs().amax(-1)


# What stays


@pytest.mark.parametrize(("in_shape", "out_shape", "new"), WHOLE_STEPS)
def test_average_pooling_stays_average_pooling(in_shape, out_shape, new):
    pool = LinearPool2d.average(in_shape, out_shape, components=2).resized(new)
    wanted = LinearPool2d.average(new, (new[0] // 2, new[1] // 2), components=2)
    assert pool.in_shape == wanted.in_shape and pool.out_shape == wanted.out_shape
    assert torch.equal(pool.weight, wanted.weight)


@pytest.mark.parametrize(
    ("in_shape", "out_shape", "new"), [((6, 8), (2, 2), (9, 4)), ((4, 9), (4, 3), (7, 3))]
)
def test_average_pooling_stays_average_pooling_where_each_axis_has_its_own_step(
    in_shape, out_shape, new
):
    pool = LinearPool2d.average(in_shape, out_shape).resized(new)
    assert torch.equal(pool.weight, LinearPool2d.average(new, pool.out_shape).weight)


@pytest.mark.parametrize(("in_shape", "out_shape", "new"), WHOLE_STEPS)
@pytest.mark.parametrize(("kernel", "padding"), [((3, 3), 1), ((5, 3), (2, 1)), ((2, 4, 4), 1)])
def test_a_padded_strided_kernel_stays_exactly_that_kernel(
    in_shape, out_shape, new, kernel, padding
):
    kernels = torch.randn(kernel)
    pool = LinearPool2d.from_kernel(kernels, in_shape, stride=2, padding=padding)
    assert pool.out_shape == out_shape
    wanted = LinearPool2d.from_kernel(kernels, new, stride=2, padding=padding)
    assert torch.equal(pool.resized(new).weight, wanted.weight)


def test_subsampling_stays_subsampling():
    pool = LinearPool2d.from_kernel(torch.ones(1, 1), (4, 6), stride=2).resized((10, 8))
    maps = torch.randn(2, 3, 10, 8)
    assert torch.equal(pool(maps), maps[..., ::2, ::2])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(
    ("in_shape", "out_shape"),
    [((4, 6), (2, 3)), ((7, 11), (4, 6)), ((13, 9), (3, 5)), ((1, 5), (1, 1))],
)
def test_the_same_size_gives_the_same_weights(in_shape, out_shape, dtype):
    pool = random_pool(in_shape, out_shape).to(dtype)
    pool.weight.normal_()
    pool.mean.normal_()
    same = pool.resized(in_shape)
    assert same.out_shape == out_shape
    assert torch.equal(same.weight, pool.weight)
    assert torch.equal(same.mean, pool.mean)


# What happens where it cannot stay


@broken_steps
def test_an_average_over_broken_steps_is_still_a_local_average(in_shape, out_shape, new, new_out):
    pool = LinearPool2d.average(in_shape, out_shape).resized(new, new_out)
    weight = pool.weight[0].double()
    assert weight.isfinite().all() and weight.min() >= 0
    torch.testing.assert_close(weight.sum(-1), torch.ones(len(weight), dtype=torch.float64))
    assert (weight * (distances(pool) > 3)).max() == 0


@broken_steps
def test_an_average_over_broken_steps_still_sees_every_pixel(in_shape, out_shape, new, new_out):
    pool = LinearPool2d.average(in_shape, out_shape).resized(new, new_out)
    seen = pool.weight[0].sum(0)
    assert seen.min() > 0.1 * seen.max()


size = st.integers(1, 12)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_rows_of_an_average_sum_to_one_between_any_two_sizes(data):
    old, new = data.draw(size, "size"), data.draw(size, "new size")
    outputs = data.draw(st.integers(1, old), "outputs")
    new_outputs = data.draw(st.integers(1, new), "new outputs")
    weight = average_weights((old,), (outputs,))[None]
    sums = resample_weights(weight, (old,), (outputs,), (new,), (new_outputs,)).sum(-1)
    torch.testing.assert_close(sums, torch.ones_like(sums))


@pytest.mark.parametrize(("in_shape", "out_shape", "new"), [WHOLE_STEPS[1], BROKEN_STEPS[3][:3]])
def test_carrying_is_linear_and_each_component_goes_its_own_way(in_shape, out_shape, new):
    first, second = torch.randn(2, 1, 16, 64, dtype=torch.float64)
    target = scale_out_shape(in_shape, out_shape, new)

    def carried(weight: Tensor) -> Tensor:
        return resample_weights(weight, in_shape, out_shape, new, target)

    torch.testing.assert_close(
        carried(3 * first - second), 3 * carried(first) - carried(second), rtol=1e-10, atol=1e-10
    )
    both = carried(torch.cat([first, second]))
    torch.testing.assert_close(both, torch.cat([carried(first), carried(second)]))


# What follows the place in the image


def test_weights_that_depend_on_the_place_follow_that_place():
    gain = torch.tensor([1.0, 2.0, 5.0, 9.0]).repeat(4)
    weight = average_weights((8, 8), (4, 4)) * gain[:, None]
    pool = LinearPool2d(weight, in_shape=(8, 8), out_shape=(4, 4)).resized((8, 24))
    sums = pool.weight[0].sum(-1).reshape(4, 12)
    torch.testing.assert_close(sums, sums[:1].expand(4, -1))
    assert sums[0, 0].item() == pytest.approx(1.0) and sums[0, -1].item() == pytest.approx(9.0)
    assert (sums.diff(dim=1) >= 0).all()
    torch.testing.assert_close(sums[0, 1::3], torch.tensor([1.0, 2.0, 5.0, 9.0]))


def test_a_pooling_with_a_mirror_image_keeps_it():
    weight = torch.rand(1, 4, 4, 7, 7, dtype=torch.float64)
    weight = (weight + weight.flip(2, 4)).reshape(1, 16, 49)
    new = resample_weights(weight, (7, 7), (4, 4), (9, 10), (6, 6)).reshape(1, 6, 6, 9, 10)
    torch.testing.assert_close(new, new.flip(2, 4))


def test_the_output_shrinks_by_the_same_factor_unless_another_size_is_asked_for():
    pool = random_pool((8, 8), (4, 4))
    assert pool.resized((20, 13)).out_shape == (10, 7)
    assert pool.resized((20, 13), (5, 5)).out_shape == (5, 5)
    assert pool.resized((20, 13), (5, 5))(torch.randn(2, 3, 20, 13)).shape == (2, 6, 5, 5)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_maps_of_one_two_and_three_axes_are_carried(axes):
    old, target, new, new_target = ((n,) * axes for n in (4, 2, 6, 3))
    weight = resample_weights(average_weights(old, target)[None], old, target, new, new_target)
    torch.testing.assert_close(weight[0], average_weights(new, new_target))


# The layer that comes out


@pytest.mark.parametrize("trainable", [True, False])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_new_layer_is_of_the_old_ones_kind(trainable, training, dtype):
    pool = random_pool(trainable=trainable).to(dtype).train(training)
    new = pool.resized((8, 8))
    assert new.trainable == trainable and new.training == training
    assert new.weight.dtype == new.mean.dtype == dtype
    assert new.weight.device == pool.weight.device
    assert torch.equal(new.mean, pool.mean)
    assert new.weight.requires_grad == trainable and not new.mean.requires_grad


def test_a_frozen_parameter_stays_frozen():
    pool = random_pool(trainable=True).requires_grad_(False)
    new = pool.resized((8, 8))
    assert new.trainable and not new.weight.requires_grad


@pytest.mark.parametrize("new", [(4, 6), (8, 12)])
def test_the_new_layer_shares_nothing_with_the_old_one(new):
    pool = random_pool(trainable=True)
    other = pool.resized(new)
    before = {name: value.clone() for name, value in pool.state_dict().items()}
    other(torch.randn(2, 3, *new)).square().sum().backward()
    assert pool.weight.grad is None and other.weight.grad is not None
    with torch.no_grad():
        other.weight.zero_()
        other.mean.zero_()
    assert all(torch.equal(value, before[name]) for name, value in pool.state_dict().items())


def test_a_constant_map_at_its_channels_mean_stays_constant_at_the_new_size():
    pool = random_pool().double().resized((7, 9))
    level = pool.mean[:, None, None]
    pooled = pool(level.expand(1, 3, 7, 9))
    torch.testing.assert_close(pooled, level.repeat(2, 1, 1).expand_as(pooled))


# What is refused


@pytest.mark.parametrize("sizes", [((8,),), ((8,), (4,)), ((8, 8, 8),), ((8, 8, 8), (4, 4, 4))])
def test_another_number_of_axes_is_refused(sizes):
    with pytest.raises(ValueError, match=r"new_in_shape: got \(8.*wanted 2 sizes as \(4, 6\)"):
        random_pool().resized(*sizes)


def test_an_output_larger_than_the_new_input_is_refused():
    with pytest.raises(ValueError, match=r"out_shape: got \(9, 8\) .* does not enlarge"):
        random_pool().resized((8, 8), (9, 8))


@pytest.mark.parametrize("new", [(0, 8), (8, -1), "ab"])
def test_a_size_that_is_none_is_refused(new):
    with pytest.raises(ValueError, match="positive sizes"):
        random_pool().resized(new)
