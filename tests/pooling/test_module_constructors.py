"""How a LinearPool2d is made: the layers it contains, what it says of itself, what it refuses."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from foveapool.pooling.module import LinearPool1d, LinearPool2d, LinearPool3d

from .random_layers import IN_SHAPE, OUT_SHAPE, random_maps, random_pool


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


# The layers it contains


@pytest.mark.parametrize("step", [(2, 2), (3, 2), (1, 4)])
@pytest.mark.parametrize("components", [1, 2])
def test_average_is_average_pooling_each_channel_as_often_as_there_are_components(step, components):
    maps = torch.randn(2, 3, 4 * step[0], 3 * step[1])
    pooled = LinearPool2d.average(maps.shape[2:], (4, 3), components)(maps)
    torch.testing.assert_close(pooled, F.avg_pool2d(maps, step).repeat(1, components, 1, 1))


@pytest.mark.parametrize("sizes", [((7, 7), (4, 4)), ((7, 5), (4, 2)), ((6, 6), (6, 1))])
def test_average_is_adaptive_average_pooling_where_blocks_do_not_divide_the_map(sizes):
    maps = torch.randn(2, 3, *sizes[0])
    pooled = LinearPool2d.average(*sizes)(maps)
    torch.testing.assert_close(pooled, F.adaptive_avg_pool2d(maps, sizes[1]))


@pytest.mark.parametrize("kernel", [(3, 3), (2, 3), (1, 3, 2), (3, 2, 2)], ids=str)
@pytest.mark.parametrize(
    ("stride", "padding"), [(2, 0), (2, 1), ((2, 3), 0), ((1, 2), (0, 1)), (3, (1, 0))]
)
def test_from_kernel_is_the_depthwise_strided_convolution(kernel, stride, padding):
    kernels = torch.randn(kernel)
    maps = torch.randn(2, 3, 7, 8)
    pooled = LinearPool2d.from_kernel(kernels, (7, 8), stride, padding)(maps)
    each = [
        F.conv2d(maps, one.expand(3, 1, -1, -1), stride=stride, padding=padding, groups=3)
        for one in kernels.reshape(-1, *kernel[-2:])
    ]
    torch.testing.assert_close(pooled, torch.cat(each, dim=1))


def test_a_single_one_as_kernel_is_subsampling():
    maps = torch.randn(2, 3, 7, 8)
    pool = LinearPool2d.from_kernel(torch.ones(1, 1), (7, 8), stride=2)
    assert torch.equal(pool(maps), maps[..., ::2, ::2])


@pytest.mark.parametrize("components", [1, 3])
def test_random_weights_fill_the_range_in_which_a_linear_layer_starts(components):
    pool = LinearPool2d.random((8, 9), (4, 3), components)
    bound = 1 / math.sqrt(72)
    assert pool.trainable and pool.weight.shape == (components, 12, 72)
    assert 0.99 * bound < pool.weight.abs().max() <= bound
    assert pool.weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)


def test_a_generator_makes_random_weights_repeatable_and_leaves_the_global_one_alone():
    def draw(number: int) -> Tensor:
        generator = torch.Generator().manual_seed(number)
        return LinearPool2d.random(IN_SHAPE, OUT_SHAPE, generator=generator).weight

    state = torch.get_rng_state()
    assert torch.equal(draw(1), draw(1))
    assert not torch.equal(draw(1), draw(2))
    assert torch.equal(torch.get_rng_state(), state)


def test_constructors_give_a_fixed_matrix_unless_asked():
    kernel = torch.ones(2, 2)
    assert not LinearPool2d.average(IN_SHAPE, OUT_SHAPE).trainable
    assert LinearPool2d.average(IN_SHAPE, OUT_SHAPE, trainable=True).trainable
    assert not LinearPool2d.from_kernel(kernel, IN_SHAPE).trainable
    assert LinearPool2d.from_kernel(kernel, IN_SHAPE, trainable=True).trainable


# What it says


def test_printing_shows_what_goes_in_and_what_comes_out():
    shown = repr(random_pool(components=2))
    assert shown == "LinearPool2d((4, 6) -> (2, 3), components=2, trainable=False)"


@pytest.mark.parametrize("shape", [(2, 3, 6, 4), (2, 3, 8, 8), (3, 4, 6)])
def test_a_map_of_another_size_is_refused_with_both_sizes_and_the_way_out(shape):
    with pytest.raises(ValueError, match="resized") as error:
        random_pool()(torch.zeros(shape))
    assert str(shape) in str(error.value)
    assert "(batch, channels, 4, 6)" in str(error.value)


def test_another_number_of_channels_is_refused_only_where_a_mean_was_fitted():
    maps = random_maps(channels=5)
    with pytest.raises(ValueError, match="got 5 channels, wanted 3"):
        random_pool(channels=3, fitted=True)(maps)
    assert random_pool(fitted=False)(maps).shape == (5, 10, *OUT_SHAPE)


@pytest.mark.parametrize("shape", [(2, 6, 23), (2, 24, 6), (5, 24), (0, 6, 24), (1, 2, 6, 24)])
def test_a_matrix_that_does_not_fit_the_maps_is_refused_with_the_shape_wanted(shape):
    with pytest.raises(ValueError, match=r"weight: .* wanted \(components, 6, 24\)") as error:
        LinearPool2d(torch.zeros(shape), in_shape=IN_SHAPE, out_shape=OUT_SHAPE)
    assert str(shape[-2:])[1:-1] in str(error.value)


@pytest.mark.parametrize("mean", [torch.tensor(1.0), torch.zeros(1, 3), torch.zeros(3, 1, 1)])
def test_a_mean_that_is_no_list_of_channels_is_refused(mean):
    with pytest.raises(ValueError, match=r"mean: .* wanted \(channels,\)"):
        LinearPool2d(torch.zeros(1, 6, 24), mean, in_shape=IN_SHAPE, out_shape=OUT_SHAPE)


@pytest.mark.parametrize(
    "make",
    [
        lambda: LinearPool2d(torch.zeros(1, 2, 4), in_shape=(4,), out_shape=(2,)),
        lambda: LinearPool2d.average((4,), (2,)),
        lambda: LinearPool2d.random((4, 4, 4), (2, 2, 2)),
        lambda: LinearPool2d.from_kernel(torch.ones(2, 2), (4,)),
    ],
)
def test_maps_of_one_or_three_axes_are_refused(make):
    with pytest.raises(ValueError, match=r"in_shape: got \(4.*wanted \(H, W\)"):
        make()


@pytest.mark.parametrize("components", [0, -1])
@pytest.mark.parametrize("make", [LinearPool2d.average, LinearPool2d.random])
def test_no_components_are_refused(make, components):
    with pytest.raises(ValueError, match=rf"^components: got {components}, wanted 1 or more"):
        make(IN_SHAPE, OUT_SHAPE, components=components)


@pytest.mark.parametrize("shape", [(5, 1), (1, 7), (2, 5, 7)])
def test_a_kernel_larger_than_the_map_is_refused_unless_padded(shape):
    with pytest.raises(
        ValueError, match=r"^kernel: got shape .* wanted at most \(4, 6\) .* padding"
    ):
        LinearPool2d.from_kernel(torch.ones(shape), (4, 6))
    assert LinearPool2d.from_kernel(torch.ones(shape), (4, 6), padding=1).in_shape == (4, 6)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"stride": 0}, "stride: got 0, wanted a whole number, 1 or more"),
        ({"stride": (2, 0)}, r"stride: got \(2, 0\), wanted a whole number, 1 or more"),
        ({"stride": (2, 2, 2)}, r"stride: got \(2, 2, 2\), .* or 2 of them"),
        ({"stride": 1.5}, "stride: got 1.5, wanted a whole number"),
        ({"padding": -1}, "padding: got -1, wanted a whole number, 0 or more"),
        ({"padding": "same"}, "padding: got 'same', wanted a whole number"),
    ],
    ids=str,
)
def test_steps_and_margins_that_are_none_are_refused(choices, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        LinearPool2d.from_kernel(torch.ones(2, 2), IN_SHAPE, **choices)


@pytest.mark.parametrize("shape", [(3,), (1, 1, 2, 2), (0, 2), (2, 0), (0, 2, 2)])
def test_a_kernel_that_is_no_picture_is_refused(shape):
    with pytest.raises(ValueError, match=r"kernel: .* wanted \(h, w\) or \(k, h, w\)"):
        LinearPool2d.from_kernel(torch.ones(shape), IN_SHAPE)


@pytest.mark.parametrize(
    "make",
    [
        lambda: LinearPool2d(torch.zeros(1, 40, 24), in_shape=(4, 6), out_shape=(5, 8)),
        lambda: LinearPool2d.average((4, 6), (5, 8)),
        lambda: LinearPool2d.random((4, 6), (5, 8)),
        lambda: LinearPool2d.from_kernel(torch.ones(2, 1), (4, 6), stride=1, padding=(1, 1)),
    ],
)
def test_an_output_larger_than_the_input_is_refused(make):
    with pytest.raises(ValueError, match=r"out_shape: got \(5, 8\) .* does not enlarge"):
        make()


@pytest.mark.parametrize(
    ("convolve", "shape", "kernel"),
    [(F.conv1d, (11,), (4,)), (F.conv3d, (5, 6, 7), (2, 3, 3))],
    ids=["line", "volume"],
)
def test_kernels_for_lines_and_volumes_are_those_of_torch(convolve, shape, kernel):
    maps, numbers = torch.randn(2, 3, *shape), torch.randn(2, *kernel)
    kind = {1: LinearPool1d, 3: LinearPool3d}[len(shape)]
    pool = kind.from_kernel(numbers, shape, stride=2, padding=1)
    own = numbers[:, None].repeat_interleave(3, 0)
    channels = maps.repeat(1, 2, *[1] * len(shape))
    wanted = convolve(channels, own, stride=2, padding=1, groups=6)
    torch.testing.assert_close(pool(maps), wanted, rtol=1e-4, atol=1e-5)
    other = pool.resized([2 * size for size in shape])
    assert type(other) is kind and other.axes == len(shape)
    with pytest.raises(ValueError, match=r"^kernel: got shape \(1, 1, 1, 1, 1\), wanted \("):
        kind.from_kernel(torch.ones(1, 1, 1, 1, 1), shape)
