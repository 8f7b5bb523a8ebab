"""A pooling and the 1x1 convolution behind it: contains the strided convolution, in any order."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from foveapool import ChannelMixing, LinearPool2d, MixingPool
from foveapool.pooling import mixing as mixing_file
from foveapool.pooling.mixing import is_mixing_first_cheaper, pool_and_mix

from .shifts import LAYERS, twin_of

layers = pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
SIZE = (9, 10)


def maps_for(layer: nn.Conv2d) -> torch.Tensor:
    random = torch.Generator().manual_seed(1)
    return torch.randn(3, layer.in_channels, *SIZE, generator=random).to(layer.weight)


@layers
def test_shifts_mixed_by_a_kernel_are_the_strided_convolution(make):
    torch.manual_seed(0)
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-12)):
        layer = make().to(dtype)
        maps = maps_for(layer)
        twin = twin_of(layer, SIZE)
        torch.testing.assert_close(twin(maps), layer(maps), rtol=0, atol=tolerance)
    assert sum(p.numel() for p in twin.parameters()) == sum(p.numel() for p in layer.parameters())


def with_mean(pool: LinearPool2d, channels: int) -> LinearPool2d:
    """The same with a level for each channel, trained."""
    mean = torch.linspace(-1, 2, channels)
    shapes = {"in_shape": pool.in_shape, "out_shape": pool.out_shape}
    return LinearPool2d(pool.weight, mean, **shapes, trainable=True, dtype=pool.weight.dtype)


@layers
def test_both_orders_give_the_same_numbers_and_gradients(make, monkeypatch):
    torch.manual_seed(0)
    layer = make().double()
    twin = twin_of(layer, SIZE)
    pool = LinearPool2d.random(SIZE, twin.out_shape, twin.mixing.components)
    answers = []
    for first in (True, False):
        monkeypatch.setattr(mixing_file, "is_mixing_first_cheaper", lambda *_, first=first: first)
        own = MixingPool(with_mean(pool, layer.in_channels).double(), copy.deepcopy(twin.mixing))
        maps = maps_for(layer).requires_grad_()
        answer = own(maps)
        answer.square().sum().backward()
        answers.append([answer, maps.grad, *(p.grad for p in own.parameters())])
    assert all(part is not None for part in answers[0])
    torch.testing.assert_close(answers[0], answers[1], rtol=1e-10, atol=1e-12)


def test_the_cheaper_order_is_taken():
    pool = LinearPool2d.average((8, 8), (4, 4), components=2)
    assert is_mixing_first_cheaper(pool, ChannelMixing(64, 4, 2))
    assert not is_mixing_first_cheaper(pool, ChannelMixing(4, 64, 2))


def test_what_is_no_linear_pooling_is_pooled_first():
    pool, mixing = nn.MaxPool2d(2), ChannelMixing(6, 2, 1)
    maps = torch.randn(2, 6, 8, 8)
    assert torch.equal(pool_and_mix(maps, pool, mixing), mixing(pool(maps)))


@pytest.mark.parametrize("outputs", [2, 8], ids=["mixed first", "pooled first"])
@pytest.mark.parametrize("shape", [(4, 16), (7, 7)])
def test_maps_of_another_size_are_refused_in_both_orders(outputs, shape):
    pool = LinearPool2d.average((8, 8), (4, 4), components=2)
    layer = MixingPool(pool, ChannelMixing(4, outputs, 2))
    with pytest.raises(ValueError, match=r"got a map of shape .* wanted \(batch, channels, 8, 8\)"):
        layer(torch.zeros(1, 4, *shape))


@pytest.mark.parametrize("outputs", [2, 8], ids=["mixed first", "pooled first"])
def test_it_compiles_exports_and_can_be_traced(outputs):
    torch.compiler.reset()
    torch.manual_seed(0)
    pool = with_mean(LinearPool2d.random((8, 8), (4, 4), 3), 4)
    layer = MixingPool(pool, ChannelMixing(4, outputs, 3, groups=2, bias=True)).eval()
    maps = torch.randn(2, 4, 8, 8)
    wanted = layer(maps)
    torch.testing.assert_close(torch.compile(layer, backend="eager", fullgraph=True)(maps), wanted)
    torch.testing.assert_close(torch.export.export(layer, (maps,)).module()(maps), wanted)
    torch.testing.assert_close(torch.fx.symbolic_trace(layer)(maps), wanted)


@pytest.mark.parametrize("outputs", [2, 8], ids=["mixed first", "pooled first"])
def test_channels_last_and_autocast_change_nothing_but_rounding(outputs):
    torch.manual_seed(0)
    pool = with_mean(LinearPool2d.random((8, 8), (4, 4), 3), 4)
    layer = MixingPool(pool, ChannelMixing(4, outputs, 3))
    maps = torch.randn(2, 4, 8, 8)
    wanted = layer(maps)
    torch.testing.assert_close(layer(maps.to(memory_format=torch.channels_last)), wanted)
    with torch.autocast("cpu", torch.bfloat16):
        given = layer(maps)
    assert given.dtype == torch.bfloat16
    torch.testing.assert_close(given.float(), wanted, rtol=0.05, atol=0.05)


def test_sizes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="groups: got 3 for 4 and 6 channels"):
        ChannelMixing(4, 6, 1, groups=3)
    pool = LinearPool2d.average((8, 8), (4, 4), components=2)
    with pytest.raises(ValueError, match="mixing: got one for 3 components, wanted one for 2"):
        MixingPool(pool, ChannelMixing(4, 8, 3))
