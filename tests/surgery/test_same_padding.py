"""Layers that compute their padding from their stride: mode `after` only where it is exact."""

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


@same
def test_where_the_old_output_is_not_at_stride_1_mode_after_is_refused(make):
    model = network(make())
    model[1].register_forward_hook(lambda *_: pytest.fail("hooks are their owner's"))
    model[1].register_forward_pre_hook(lambda *_: pytest.fail("hooks are their owner's"))
    before = anatomy(model)
    pool = LinearPool2d.average((8, 8), (4, 4))
    with pytest.raises(ValueError, match=r"1: got a \w+Same which, at stride 1, .* use mode 'repl"):
        replace(model, {"1": pool}, mode="after")
    assert anatomy(model) == before


@same
def test_where_the_old_output_is_not_at_stride_1_fit_and_capture_refuse_mode_after(make):
    model = network(make())
    before = anatomy(model)
    for read in (
        lambda: ClosedFormPooling().fit(model, loader(8), "1", "after"),
        lambda: next(capture(model, loader(8), "1", mode="after")),
    ):
        with pytest.raises(ValueError, match=r"tried on maps of 8 x 8; it may compute its padding"):
            read()
    assert anatomy(model) == before


@same
def test_where_it_is_there_the_old_subsampling_gives_the_old_output(make):
    model, maps = network(make()).eval(), torch.rand(2, 3, 9, 9)
    wanted, stride = model(maps), model[1].stride
    pool = LinearPool2d.from_kernel(torch.ones(1, 1), (10, 10), stride=2)
    with pytest.raises(ValueError, match=r"tried on maps of 10 x 10.* in_shapes"):
        replace(model, {"1": pool}, mode="after")
    replace(model, {"1": pool}, mode="after", in_shapes={"1": (9, 9)})
    torch.testing.assert_close(model(maps), wanted)
    restore(model)
    assert model[1].stride == stride and torch.equal(model(maps), wanted)
    ClosedFormPooling().fit(model, loader(9), "1", "after").replace(model)
    assert model(maps).shape == wanted.shape


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
