"""What mode `mix` cannot do is refused in words, before data is read or a network changed."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import foveapool as fp
from foveapool import ChannelMixing, ClosedFormPooling, LinearPool2d, MixingPool, replace
from foveapool.pooling import least_squares

from .toys import MAIN, POOL, SHORTCUT, anatomy, loader, toy


def mixing_pool(inputs: int = 4, outputs: int = 8, components: int = 2, **more) -> MixingPool:
    pool = LinearPool2d.average((8, 8), (4, 4), components)
    return MixingPool(pool, ChannelMixing(inputs, outputs, components, **more))


def refused_fit(message: str, model: nn.Module | None = None, layer=MAIN, **more) -> None:
    """Nothing but the first batch is looked at."""
    model, told = model or toy(), []
    before = anatomy(model)
    settings = more.pop("settings", {})
    with pytest.raises(ValueError, match=message):
        ClosedFormPooling(**settings).fit(model, loader(), layer, progress=told.append, **more)
    assert not told and anatomy(model) == before


def refused_replace(message: str, pools, model: nn.Module | None = None, **more) -> None:
    model = model or toy()
    before = anatomy(model)
    with pytest.raises(ValueError, match=message):
        replace(model, pools, **more)
    assert anatomy(model) == before


# Before a fit


@pytest.mark.parametrize("mode", ["mixed", "", None])
def test_a_wrong_mode_is_answered_with_the_three(mode):
    wanted = r"mode: got .*, wanted one of \('replace', 'mix', 'after'\)"
    refused_fit(wanted, mode=mode)
    if mode is not None:
        refused_replace(wanted, {MAIN: LinearPool2d.average((8, 8), (4, 4))}, mode=mode)


@pytest.mark.parametrize("layer", [POOL, [MAIN, POOL]], ids=["alone", "among others"])
def test_a_pooling_layer_cannot_be_mixed(layer):
    message = r"pool: got a MaxPool2d for mode 'mix', wanted a convolution: .*'replace' or 'after'"
    refused_fit(message, layer=layer, mode="mix")
    average = {POOL: LinearPool2d.average((4, 4), (2, 2))}
    refused_replace(message, average, mode="mix")


def test_an_average_pooling_and_a_transposed_convolution_cannot_be_mixed():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AvgPool2d(2), nn.ConvTranspose2d(4, 4, 2, 2))
    refused_fit("1: got a AvgPool2d for mode 'mix'", model, "1", mode="mix")
    refused_fit("got '2', a ConvTranspose2d, wanted a convolution or a", model, "2", mode="mix")
    refused_replace("got '2', a ConvTranspose2d", {"2": mixing_pool(4, 4)}, model)


def test_a_convolution_that_does_not_shrink_is_named():
    refused_fit("'stem' .*does not shrink", layer="stem", mode="mix")


@pytest.mark.parametrize(
    ("mixing", "mode", "message"),
    [
        ("zeros", "mix", r"mixing: got 'zeros', wanted one of \('least-squares', 'random'\)"),
        ("zeros", "replace", "mixing: got 'zeros'"),
        ("random", "replace", "mixing: got 'random' in mode 'replace', wanted it left out"),
        ("random", "after", "mixing: got 'random' in mode 'after', wanted it left out"),
    ],
)
def test_a_start_of_the_mixing_that_does_not_exist_is_refused(mixing, mode, message):
    refused_fit(message, mode=mode, mixing=mixing)


def test_sums_that_do_not_fit_into_the_memory_are_refused_before_data_is_read(monkeypatch):
    monkeypatch.setattr(least_squares, "get_free_memory", lambda device: 20_000)
    message = r"need 0\.0 GB of memory, .*block.main \(9 components of 4 channels\).*fewer comp"
    refused_fit(message, mode="mix")
    ClosedFormPooling().fit(toy(), loader(), MAIN, "mix", mixing="random")
    fit = ClosedFormPooling(components=1).fit(toy(), loader(), MAIN, "mix")
    fit.set_params(components=8).solve()
    with pytest.raises(ValueError, match=r"memory, .*8 components of 4"):
        fit.fit_mixing(toy(), loader())


# Before the third pass alone


def test_the_third_pass_is_of_mode_mix():
    with pytest.raises(ValueError, match="not fitted yet"):
        ClosedFormPooling().fit_mixing(toy(), loader())
    fit = ClosedFormPooling().fit(toy(), loader(), MAIN)
    with pytest.raises(ValueError, match="fit_mixing: got a fit in mode 'replace', wanted mode 'm"):
        fit.fit_mixing(toy(), loader())
    with pytest.raises(ValueError, match=r"mixings_: got none, since .* mode 'replace'"):
        fit.mixing_  # noqa: B018
    random = ClosedFormPooling().fit(toy(), loader(), MAIN, "mix", mixing="random")
    with pytest.raises(ValueError, match=r"mixings_: got none, since .*mixing='random'"):
        random.mixing_  # noqa: B018


def test_the_third_pass_wants_the_network_and_the_sizes_of_the_fit():
    fit = ClosedFormPooling().fit(toy(), loader(), MAIN, "mix")
    other = toy()
    other.block.main = nn.Conv2d(4, 8, 3, 2, 1, bias=False)
    before = fit.mixing_
    with pytest.raises(ValueError, match=r"model: got bias False at block.main, wanted True"):
        fit.fit_mixing(other, loader())
    with pytest.raises(ValueError, match=r"got in_shape \(12, 12\) at block.main, wanted \(8, 8\)"):
        fit.fit_mixing(toy(), loader(size=12))
    replaced = toy()
    fit.replace(replaced)
    with pytest.raises(ValueError, match=r"replaced already; call restore\(model\) first"):
        fit.fit_mixing(replaced, loader())
    assert fit.mixing_ is before


def test_an_output_that_is_not_finite_names_its_layer():
    model = toy()
    with torch.no_grad():
        model.block.shortcut.bias[0] = torch.inf
    with pytest.raises(ValueError, match=r"layer: block.shortcut: mixing: got NaN or infinity"):
        ClosedFormPooling().fit(model, loader(), [MAIN, SHORTCUT], "mix")


# Before a network is changed


def test_poolings_of_another_mode_are_refused():
    model = toy()
    for own, other in (("mix", "replace"), ("mix", "after"), ("replace", "mix"), ("after", "mix")):
        pools = ClosedFormPooling().fit(model, loader(), MAIN, own).modules()
        message = f"mode: got '{other}' for {MAIN}, wanted '{own}', which its pooling was fitted"
        refused_replace(message, pools, mode=other)


@pytest.mark.parametrize(
    ("pool", "message"),
    [
        (mixing_pool(3, 8), "block.main: got a mixing of 3 to 8 channels, wanted 4 to 8; was it"),
        (mixing_pool(4, 6), "block.main: got a mixing of 4 to 6 channels, wanted 4 to 8"),
        (
            MixingPool(nn.MaxPool2d(2), ChannelMixing(4, 8, 3)),
            "block.main: got a mixing for 3 components, wanted 1",
        ),
    ],
    ids=["other inputs", "other outputs", "more components"],
)
def test_mixings_that_do_not_fit_the_layer_are_refused(pool, message):
    refused_replace(message, {MAIN: pool})


def test_a_mean_of_other_channels_is_refused():
    pool = LinearPool2d(torch.ones(1, 16, 64), torch.ones(8), in_shape=(8, 8), out_shape=(4, 4))
    message = r"got a pooling for 8 channels, wanted 4 in mode 'mix'"
    refused_replace(message, {MAIN: pool}, mode="mix")


@pytest.mark.parametrize("mode", ["replace", "after"])
def test_a_mixing_is_not_dropped_in_another_mode(mode):
    message = f"got a MixingPool for mode '{mode}', wanted mode 'mix', or its `pool` alone"
    refused_replace(message, {MAIN: mixing_pool()}, mode=mode)


def test_what_is_replaced_already_is_refused():
    model = toy()
    replace(model, {MAIN: mixing_pool()})
    with pytest.raises(ValueError, match=r"block\.main: is replaced already; call restore"):
        replace(model, {MAIN: mixing_pool()})


def test_an_adapter_holds_linear_poolings_only(tmp_path):
    model = toy()
    replace(model, {MAIN: MixingPool(nn.MaxPool2d(2), ChannelMixing(4, 8, 1))})
    with pytest.raises(ValueError, match=r"block\.main: got a MaxPool2d, wanted a linear pooling"):
        fp.save(model, tmp_path / "adapter")
