"""A layer at stride 1, and subsampling behind it, is the old layer; sizes are those torch gives."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from foveapool import LinearPool2d, replace, restore
from foveapool.surgery.geometry import Unstrided, measure_out_shape

LAYERS = {
    "3x3 conv, padded": lambda: nn.Conv2d(3, 4, 3, 2, 1),
    "3x3 conv, not padded": lambda: nn.Conv2d(3, 4, 3, 2),
    "1x1 conv": lambda: nn.Conv2d(3, 4, 1, 2),
    "valid conv": lambda: nn.Conv2d(3, 4, 4, 2, "valid"),
    "patches": lambda: nn.Conv2d(3, 4, 4, 4),
    "dilated conv": lambda: nn.Conv2d(3, 4, 3, 2, 2, dilation=2),
    "reflecting conv": lambda: nn.Conv2d(3, 4, 3, 2, 1, padding_mode="reflect"),
    "depthwise conv": lambda: nn.Conv2d(3, 6, 5, 3, 2, groups=3),
    "uneven conv": lambda: nn.Conv2d(3, 4, (3, 5), (2, 3), (1, 0)),
    "one-sided conv": lambda: nn.Conv2d(3, 4, 3, (2, 1), 1),
    "max": lambda: nn.MaxPool2d(2),
    "padded max": lambda: nn.MaxPool2d(3, 2, 1),
    "dilated max": lambda: nn.MaxPool2d(2, 2, dilation=2),
    "max to the end": lambda: nn.MaxPool2d(2, ceil_mode=True),
    "overhanging max": lambda: nn.MaxPool2d(3, 3, 1, ceil_mode=True),
    "dilated overhanging max": lambda: nn.MaxPool2d(2, 4, 1, dilation=3, ceil_mode=True),
    "average": lambda: nn.AvgPool2d(2),
    "padded average": lambda: nn.AvgPool2d(3, 2, 1),
    "average of what is there": lambda: nn.AvgPool2d(3, 2, 1, count_include_pad=False),
    "average to the end": lambda: nn.AvgPool2d(3, 2, ceil_mode=True),
    "overhanging average": lambda: nn.AvgPool2d(4, 3, 2, ceil_mode=True),
    "overhanging average of what is there": lambda: nn.AvgPool2d(
        4, 3, 2, ceil_mode=True, count_include_pad=False
    ),
    "divided average": lambda: nn.AvgPool2d(3, 2, 1, divisor_override=5),
    "overhanging divided average": lambda: nn.AvgPool2d(3, 2, ceil_mode=True, divisor_override=5),
    "power": lambda: nn.LPPool2d(2, 2),
    "power with a stride": lambda: nn.LPPool2d(2, 3, 2),
    "overhanging power": lambda: nn.LPPool2d(2, 3, 2, ceil_mode=True),
    "power to the end": lambda: nn.LPPool2d(4, 2, ceil_mode=True),
    "a max of another name": lambda: type("Named", (nn.MaxPool2d,), {})(2, ceil_mode=True),
}
SIZES = [(8, 8), (9, 11), (10, 13), (7, 12)]

layers = pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)


def subsampling(stage_shape: tuple[int, int], layer: nn.Module) -> LinearPool2d:
    stride = layer.stride or layer.kernel_size
    return LinearPool2d.from_kernel(torch.ones(1, 1), stage_shape, stride=stride)


@layers
def test_the_old_subsampling_in_mode_after_gives_the_old_output(make):
    torch.manual_seed(0)
    for size in SIZES:
        layer, maps = make(), torch.randn(2, 3, *size)
        network, wanted = nn.Sequential(layer), layer(maps)
        stage = Unstrided(layer, size, wanted.shape[2:])
        stage_shape = stage(maps).shape[2:]
        stage.release()
        assert torch.equal(layer(maps), wanted), size
        replace(network, {"0": subsampling(stage_shape, layer)}, mode="after")
        torch.testing.assert_close(network(maps), wanted, rtol=1e-5, atol=1e-5)
        own_stride = network[0].stride
        restore(network)
        assert network[0] is layer and layer.stride == own_stride, size
        assert torch.equal(layer(maps), wanted), size


@layers
def test_the_size_that_a_layer_makes_is_foretold_without_its_hooks(make):
    layer = make().double()
    layer.register_forward_hook(lambda *_: pytest.fail("a dry run is no business of hooks"))
    for size in SIZES:
        wanted = layer.forward(torch.zeros(1, 3, *size, dtype=torch.float64)).shape[2:]
        assert measure_out_shape(layer, size, 3) == wanted


@pytest.mark.parametrize("output", [4, (4, 2), (None, 3)])
@pytest.mark.parametrize("kind", [nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d])
def test_poolings_that_are_told_a_size_give_their_old_output_where_it_divides(kind, output):
    layer, maps = kind(output), torch.randn(2, 3, 8, 12)
    network, wanted = nn.Sequential(layer), layer(maps)
    shape = tuple(wanted.shape[2:])
    steps = (8 // shape[0], 12 // shape[1])
    pool = LinearPool2d.from_kernel(torch.ones(1, 1), (8, 12), stride=steps)
    replace(network, {"0": pool}, mode="after", in_shapes={"0": (8, 12)})
    torch.testing.assert_close(network(maps), wanted, rtol=1e-5, atol=1e-5)
    restore(network)
    assert network[0] is layer


@pytest.mark.parametrize(
    ("layer", "size"),
    [
        (nn.AvgPool2d(2), (8, 6)),
        (nn.AvgPool2d((1, 3)), (5, 9)),
        (nn.AdaptiveAvgPool2d((2, 3)), (8, 6)),
        (nn.AdaptiveAvgPool2d(4), (8, 12)),
    ],
    ids=str,
)
def test_average_weights_in_the_place_of_an_average_pooling_give_its_output(layer, size):
    maps = torch.randn(2, 3, *size)
    network, wanted = nn.Sequential(layer), layer(maps)
    replace(network, {"0": LinearPool2d.average(size, wanted.shape[2:])})
    torch.testing.assert_close(network(maps), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kernel", [2, 3])
def test_a_random_pooling_at_stride_one_is_a_max_pooling(kernel):
    layer, maps = nn.FractionalMaxPool2d(kernel, output_ratio=0.6), torch.randn(2, 3, 10, 10)
    stage = Unstrided(layer, (10, 10), layer(maps).shape[2:])
    places = 11 - kernel
    wanted = nn.functional.max_pool2d(maps, kernel, 1)
    assert torch.equal(stage(maps)[:, :, :places, :places], wanted)
    assert stage.release() is layer


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_maps_keep_their_type_and_memory_format_when_they_are_made_up_to_blocks(dtype):
    layer = nn.Conv2d(3, 4, 3, 2).to(dtype).to(memory_format=torch.channels_last)
    maps = torch.randn(2, 3, 9, 9, dtype=dtype).contiguous(memory_format=torch.channels_last)
    stage = Unstrided(layer, (9, 9), (4, 4))
    made = stage(maps)
    assert made.dtype == dtype and made.shape == (2, 4, 8, 8)
    assert made.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(made[:, :, 7], made[:, :, 6])
