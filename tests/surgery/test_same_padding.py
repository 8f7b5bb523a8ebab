"""Layers that pad by their stride: their own output lies somewhere at stride 1, or nowhere."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from foveapool import ClosedFormPooling, LinearPool2d, capture, replace, restore

from .toys import anatomy


def padded(x: Tensor, kernel: tuple[int, int], stride: tuple[int, int], value: float = 0) -> Tensor:
    """As TensorFlow's "same" has it: enough for ceil(size / stride) windows."""
    edges = []
    for size, window, step in zip(x.shape[:1:-1], kernel[::-1], stride[::-1], strict=True):
        missing = max(0, (math.ceil(size / step) - 1) * step + window - size)
        edges += [missing // 2, missing - missing // 2]
    return F.pad(x, edges, value=value)


class ConvSame(nn.Conv2d):
    def forward(self, x: Tensor) -> Tensor:
        x = padded(x, self.kernel_size, self.stride)
        return F.conv2d(x, self.weight, self.bias, self.stride, 0, self.dilation, self.groups)


class MaxSame(nn.MaxPool2d):
    def __init__(self, kernel: int, stride: int) -> None:
        super().__init__((kernel, kernel), (stride, stride))

    def forward(self, x: Tensor) -> Tensor:
        x = padded(x, self.kernel_size, self.stride, -math.inf)
        return F.max_pool2d(x, self.kernel_size, self.stride)


class OwnPadding(nn.Conv2d):
    """Pads, but not by its stride."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(F.pad(x, (0, 1, 1, 1)))


SAME = {"conv": lambda: ConvSame(3, 4, 3, 2), "max": lambda: MaxSame(3, 2)}
same = pytest.mark.parametrize("make", SAME.values(), ids=SAME)


def loader(size: int) -> list[tuple[Tensor, Tensor]]:
    return [(torch.randn(20, 3, size, size), torch.arange(20) % 2)]


def network(layer: nn.Module) -> nn.Module:
    return nn.Sequential(nn.ReLU(), layer).train()


class ConvBehind(nn.Conv2d):
    """Its numbers at stride 2 are not among those at stride 1."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.stride[0]


@same
@pytest.mark.parametrize("sizes", [(8, 8), (9, 9), (8, 9), (10, 11)])
def test_at_any_size_the_old_subsampling_gives_the_old_output(make, sizes):
    model, maps = network(make()).eval(), torch.rand(2, 3, *sizes)
    wanted = model(maps)
    even = [size + size % 2 for size in sizes]
    pool = LinearPool2d.from_kernel(torch.ones(1, 1), even, stride=2)
    replace(model, {"1": pool}, mode="after", in_shapes={"1": sizes})
    torch.testing.assert_close(model(maps), wanted)
    restore(model)
    assert torch.equal(model(maps), wanted)


@same
def test_what_is_fitted_there_leaves_the_network_as_it_was_if_it_is_local_enough(make):
    model, maps = network(make()).eval(), torch.rand(2, 3, 8, 8)
    wanted = model(maps)
    ClosedFormPooling(alpha=1e9, alpha_unit="trace").fit(model, loader(8), "1", "after").replace(
        model
    )
    torch.testing.assert_close(model(maps), wanted, rtol=1e-3, atol=1e-3)


@same
def test_maps_of_another_size_are_asked_where_the_old_output_lies_there(make):
    model, maps = network(make()).eval(), torch.rand(2, 3, 9, 9)
    wanted = model(maps)
    pool = LinearPool2d.from_kernel(torch.ones(1, 1), (8, 8), stride=2)
    replace(model, {"1": pool}, mode="after", on_resize="interpolate")
    torch.testing.assert_close(model(maps), wanted)


def test_where_the_old_output_is_not_at_stride_1_mode_after_is_refused():
    model = network(ConvBehind(3, 4, 3, 2))
    model[1].register_forward_hook(lambda *_: pytest.fail("hooks are their owner's"))
    model[1].register_forward_pre_hook(lambda *_: pytest.fail("hooks are their owner's"))
    before = anatomy(model)
    pool = LinearPool2d.average((8, 8), (4, 4))
    with pytest.raises(
        ValueError, match=r"1: got a ConvBehind which at stride 1 does .* mode 'repl"
    ):
        replace(model, {"1": pool}, mode="after")
    assert anatomy(model) == before


def test_where_the_old_output_is_not_at_stride_1_fit_and_capture_refuse_mode_after():
    model = network(ConvBehind(3, 4, 3, 2))
    before = anatomy(model)
    for read in (
        lambda: ClosedFormPooling().fit(model, loader(8), "1", "after"),
        lambda: next(capture(model, loader(8), "1", mode="after")),
    ):
        with pytest.raises(ValueError, match=r"tried on maps of 8 x 8\), wanted one that does"):
            read()
    assert anatomy(model) == before


@same
def test_in_mode_replace_layers_that_pad_themselves_are_replaced(make):
    model = network(make())
    wanted = model(loader(8)[0][0]).shape
    ClosedFormPooling().fit(model, loader(8), "1").replace(model)
    assert model(loader(8)[0][0]).shape == wanted


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_layer_that_pads_in_another_way_is_taken(dtype):
    model = network(OwnPadding(3, 4, 3, 2)).to(dtype)
    maps = torch.rand(2, 3, 8, 8, dtype=dtype)
    wanted = model(maps)
    steps = LinearPool2d.from_kernel(torch.ones(1, 1), (8, 8), stride=2)
    replace(model, {"1": steps}, mode="after")
    torch.testing.assert_close(model(maps)[:, :, :, :3], wanted[:, :, :, :3], rtol=2e-2, atol=2e-2)
