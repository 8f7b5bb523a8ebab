"""What a network can read from a stand-in, how it may call it, and what becomes of hooks."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from foveapool import (
    ClosedFormPooling,
    LinearPool2d,
    downsampling_layers,
    load,
    replace,
    restore,
    save,
)

from .toys import MAIN, POOL, anatomy, loader, pictures, toy

modes = pytest.mark.parametrize("mode", ["replace", "after"])


def halving(size: int = 8, components: int = 1) -> LinearPool2d:
    return LinearPool2d.average((size, size), (size // 2, size // 2), components)


class Odd(nn.Conv2d):
    """A convolution with settings of its own, some of them named as a stand-in's might be."""

    def __init__(self) -> None:
        super().__init__(3, 6, 3, 2, 1)
        self.mode, self.turn, self.slots, self.optimizer = "edge", 3, (1, 2), "none"
        self.on_resize, self.read_shape = "crop", (5, 5)


@modes
def test_a_layers_own_settings_can_be_read_whatever_they_are_called(mode):
    layer = Odd()
    wanted = {name: getattr(layer, name) for name in ("mode", "turn", "slots", "optimizer")}
    wanted |= {"on_resize": "crop", "read_shape": (5, 5)}
    model = nn.Sequential(layer)
    replace(model, {"0": halving()}, mode=mode)
    for standin in (model[0], copy.deepcopy(model)[0]):
        assert {name: getattr(standin, name) for name in wanted} == wanted
    restore(model)
    assert model[0] is layer and layer.mode == "edge"


@pytest.mark.parametrize("bias", [True, False])
def test_a_bias_can_be_asked_for(bias):
    model = nn.Sequential(nn.Conv2d(3, 6, 3, 2, 1, bias=bias))
    layer = model[0]
    for mode, pool in (("replace", halving(8, 2)), ("replace", halving()), ("after", halving())):
        replace(model, {"0": pool}, mode=mode)
        standin = model[0]
        adding = layer if mode == "after" else standin.project
        assert standin.bias is (adding.bias if adding is not None else None)
        restore(model)


@modes
def test_settings_that_are_named_as_weights_do_no_harm(mode):
    class Weighted(nn.MaxPool2d):
        def __init__(self) -> None:
            super().__init__(2)
            self.weight, self.bias = 0.5, False

    model = nn.Sequential(Weighted())
    replace(model, {"0": halving()}, mode=mode)
    assert model(pictures()).shape == (4, 3, 4, 4)
    assert model[0].bias in (None, False)


class Named(nn.Module):
    """Calls its layers by torch's own name for what they read."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.pool = nn.Conv2d(3, 4, 3, 2, 1), nn.MaxPool2d(2)

    def forward(self, x: Tensor) -> Tensor:
        return self.pool(input=self.conv(input=x))


@modes
def test_layers_that_are_called_by_keyword_are_found_fitted_and_replaced(mode):
    model, images = Named(), loader()
    wanted = model(pictures())
    names = [each.name for each in downsampling_layers(model, pictures())]
    assert names == ["conv", "pool"]
    ClosedFormPooling().fit(model, images, names, mode).replace(model)
    assert model(pictures()).shape == wanted.shape
    restore(model)
    assert torch.equal(model(pictures()), wanted)


@modes
def test_hooks_that_rest_are_spoken_of(mode):
    model = toy()
    model.block.main.register_forward_hook(lambda *_: None)
    model.block.main.register_forward_pre_hook(lambda *_: None)
    before = anatomy(model)
    done = replace(model, {MAIN: halving(), POOL: halving(4)}, mode=mode)
    main, pool, *_ = str(done).splitlines()
    assert ("; the old layer's hooks (2) rest until it is restored" in main) == (mode == "replace")
    assert "hooks" not in pool
    restore(model)
    assert anatomy(model) == before


# Layers of other makes, whose own stride is asked for at other sizes


def weight_normed() -> nn.Module:
    return nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 6, 3, 2, 1))


def called_otherwise() -> nn.Module:
    layer = nn.Conv2d(3, 6, 3, 2, 1)
    plain = layer.forward
    layer.forward = lambda x: plain(x)
    return layer


class Blurring(nn.AvgPool2d):
    """A pooling with a buffer and no parameter, which it makes use of from the first call on."""

    def __init__(self) -> None:
        super().__init__(2, 2)
        self.register_buffer("scale", torch.ones(1))
        self.kept: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.kept is None:
            self.kept = self.scale * 2
        # Of the buffer's type or not at all, as a convolution would have it.
        assert x.dtype == self.scale.dtype
        return super().forward(x) * self.kept


@pytest.mark.parametrize("make", [weight_normed, called_otherwise, Blurring])
def test_layers_of_other_makes_are_followed_to_other_sizes_and_train(make):
    torch.manual_seed(0)
    model = nn.Sequential(make()).double()
    loader = [(torch.rand(40, 3, 8, 8).double(), torch.arange(40) % 2)]
    fit = ClosedFormPooling().fit(model, loader, "0", "after")
    fit.replace(model, on_resize="interpolate", trainable=True)
    for size in (8, 12):
        pooled = model(torch.rand(2, 3, size, size).double())
        assert pooled.shape[2:] == (size // 2, size // 2)
        pooled.sum().backward()


def test_sizes_that_are_lists_can_be_read_and_told_apart(tmp_path):
    def pooled(kernel):
        return nn.Sequential(nn.Conv2d(3, 3, 1), nn.MaxPool2d(kernel, [2, 2], 0))

    model = pooled([2, 2])
    replace(model, {"1": LinearPool2d.average((8, 8), (4, 4))})
    assert (model[1].kernel_size, model[1].stride) == ([2, 2], [2, 2])
    save(model, tmp_path)
    load(pooled([2, 2]), tmp_path)
    with pytest.raises(ValueError, match=r"an adapter for another network: 1 is .*'kernel_size'"):
        load(pooled([4, 4]), tmp_path)
