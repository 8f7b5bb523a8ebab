"""Mode `mix`: a pooling with several components and a 1x1 convolution instead of a convolution.

What is refused is in test_mix_refusals.py, files and processes in test_mix_files.py.
"""

from __future__ import annotations

import copy
import dataclasses
import pickle

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import foveapool as fp
from foveapool import ChannelMixing, ClosedFormPooling, LinearPool2d, MixingPool, replace, restore

from ..pooling.shifts import LAYERS, as_mixing, shifts, twin_of
from .toys import MAIN, SHORTCUT, anatomy, loader, pictures, toy

layers = pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
BOTH = [MAIN, SHORTCUT]


def network(make, seed: int = 0) -> nn.Module:
    """One convolution to be replaced, behind one that makes its channels."""
    torch.manual_seed(seed)
    layer = make()
    return nn.Sequential(nn.Conv2d(3, layer.in_channels, 3, padding=1), nn.Tanh(), layer).eval()


def batches(count: int = 60, size: int = 9) -> list[tuple[Tensor, Tensor]]:
    return loader(count, 20, size)


def fitted(model: nn.Module, **more) -> ClosedFormPooling:
    settings = {"components": more.pop("components", None)}
    return ClosedFormPooling(**settings).fit(model, batches(), "2", "mix", **more)


def with_shifts(fit: ClosedFormPooling, layer: nn.Conv2d, mean: bool = False) -> None:
    """Puts the places that the layer's kernel looks at into the place of what was solved for."""
    (name,) = fit.operators_
    operator = fit.operators_[name]
    weight = shifts(layer, operator.in_shape).weight.double()
    level = operator.mean if mean else torch.zeros_like(operator.mean)
    fit.operators_[name] = dataclasses.replace(operator, rows=weight, mean=level)


# What is fitted


@layers
def test_a_pooling_that_holds_the_kernels_places_gives_back_the_network(make):
    model = network(make)
    images = batches()[0][0]
    wanted = model(images).detach()
    fit = fitted(model, components=1)
    with_shifts(fit, model[2])
    fit.fit_mixing(model, batches())
    assert fit.mixing_.explained == pytest.approx(1, abs=1e-6)
    torch.testing.assert_close(
        fit.mixing_.weight.float(), as_mixing(model[2].weight.detach()), rtol=1e-3, atol=1e-4
    )
    fit.replace(model)
    torch.testing.assert_close(model(images), wanted, rtol=0, atol=1e-5)


@layers
def test_the_mixing_is_numpys_least_squares_on_the_pooled_maps(make):
    model = network(make)
    fit = fitted(model, components=2)
    images = torch.cat([images for images, _ in batches()])
    layer, maps = model[2], model[:2](images)
    pooled = fit.operator_.module()(maps).detach()
    groups, outputs = layer.groups, layer(maps).detach()
    columns = pooled.unflatten(1, (2, groups, -1)).permute(0, 4, 5, 2, 1, 3)
    columns = columns.flatten(0, 2).flatten(2).double().numpy()
    rows = outputs.unflatten(1, (groups, -1)).permute(0, 3, 4, 1, 2).flatten(0, 2).double().numpy()
    for group in range(groups):
        given = columns[:, group]
        if layer.bias is not None:
            given = np.concatenate([given, np.ones((len(given), 1))], 1)
        wanted = np.linalg.lstsq(given, rows[:, group], rcond=None)[0]
        each = layer.out_channels // groups
        own = slice(group * each, (group + 1) * each)
        found = fit.mixing_.weight[own].flatten(1).T
        np.testing.assert_allclose(found, wanted[: len(found)], rtol=1e-3, atol=1e-5)
        if layer.bias is not None:
            np.testing.assert_allclose(fit.mixing_.bias[own], wanted[-1], rtol=1e-3, atol=1e-5)


@layers
def test_as_many_components_as_weights_in_the_kernel_and_as_many_parameters(make):
    model = network(make)
    layer = model[2]
    fit = fitted(model)
    weights = layer.kernel_size[0] * layer.kernel_size[1]
    # (classes - 1) * channels is as many as separate them.
    assert fit.operator_.components == min(weights, 2 * layer.in_channels)
    mixing = fit.module().mixing
    assert (mixing.groups, mixing.bias is None) == (layer.groups, layer.bias is None)
    done = fit.replace(model)
    if fit.operator_.components == weights:
        assert done.parameters[0] == done.parameters[1]
    assert model(batches()[0][0]).shape[1] == layer.out_channels


def test_a_window_bounds_the_components_too():
    model = network(lambda: nn.Conv2d(8, 4, 5, 2, 2))
    for window, components in ((None, 16), (1, 9)):
        fit = ClosedFormPooling(window=window).fit(model, batches(), "2", "mix", mixing="random")
        assert fit.operator_.components == components


def test_the_pooling_is_that_of_mode_replace_and_branches_share_their_scatter():
    model = toy()
    before = anatomy(model)
    fit = ClosedFormPooling(25.0, components=2).fit(model, loader(), BOTH, "mix")
    assert anatomy(model) == before
    wanted = ClosedFormPooling(25.0, components=2).fit(model, loader(), BOTH, "replace")
    for name in BOTH:
        assert torch.equal(fit.operators_[name].weight, wanted.operators_[name].weight)
    assert fit.scatters_[MAIN] is fit.scatters_[SHORTCUT]
    assert not torch.equal(fit.mixings_[MAIN].weight, fit.mixings_[SHORTCUT].weight)
    assert set(fit.seconds_) == {"passes", "solve", "mixing"}


def test_more_components_explain_more():
    model = network(LAYERS["3x3"])
    shares = [fitted(model, components=k).mixing_.explained for k in (1, 3, 8)]
    assert 0 < shares[0] < shares[1] < shares[2] < 1


def test_all_samples_make_the_mixing_whatever_the_cap():
    model = network(LAYERS["3x3"])
    fit = ClosedFormPooling(class_cap=4).fit(model, batches(), "2", "mix")
    again = copy.deepcopy(fit).fit_mixing(model, [batch for batch in batches() for _ in range(2)])
    torch.testing.assert_close(fit.mixing_.weight, again.mixing_.weight)
    assert fit.operator_.components == again.operator_.components


def test_the_third_pass_is_told_of():
    told: list[fp.Progress] = []
    fitted(network(LAYERS["3x3"]), progress=told.append)
    assert [(now.number, now.batches) for now in told if now.layer is None] == [
        (n, b) for n in (1, 2, 3) for b in (1, 2, 3)
    ]
    assert str(told[-1]) == "pass 3 of 3: 3 of 3 batches, 0 s left"
    told.clear()
    fit = fitted(network(LAYERS["3x3"]), progress=told.append, mixing="random")
    passes = [str(now)[:11] for now in told if now.layer is None]
    assert passes == ["pass 1 of 2"] * 3 + ["pass 2 of 2"] * 3
    told.clear()
    fit.fit_mixing(network(LAYERS["3x3"]), batches(), progress=told.append)
    assert [str(now)[:11] for now in told] == ["pass 3 of 3"] * 3


def test_random_mixings_are_called_so_and_have_the_layers_sizes():
    torch.manual_seed(0)
    model = network(LAYERS["grouped"])
    fit = fitted(model, mixing="random")
    assert fit.mixings_ == {}
    one, other = fit.module(), fit.module()
    assert one.mixing.weight.shape == (8, 8, 2) and one.mixing.groups == 2
    assert not torch.equal(one.mixing.weight, other.mixing.weight)
    assert "and a 1x1 convolution (random: it has to learn)" in str(fit.replace(model))


def test_a_fitted_mixing_says_how_much_it_gives():
    model = network(LAYERS["3x3"])
    fit = fitted(model)
    share = f"{100 * fit.mixing_.explained:.1f}% of the old output's variance"
    assert f"and a 1x1 convolution (least squares, {share})" in str(fit.replace(model))
    assert share in str(fit.mixing_)


def test_solving_again_asks_for_the_third_pass():
    model = network(LAYERS["3x3"])
    fit = fitted(model)
    before = fit.mixing_
    fit.set_params(alpha=40.0).solve()
    for ask in (fit.modules, fit.module, lambda: fit.mixing_, lambda: fit.replace(model)):
        with pytest.raises(ValueError, match=r"mixings_: got none, .*call fit_mixing\(model, load"):
            ask()
    fit.fit_mixing(model, batches())
    wanted = ClosedFormPooling(alpha=40.0).fit(model, batches(), "2", "mix")
    assert torch.equal(fit.mixing_.weight, wanted.mixing_.weight)
    assert not torch.allclose(fit.mixing_.weight, before.weight)


def test_the_network_may_work_in_half_precision():
    model = network(LAYERS["3x3"])
    fit = fitted(model, autocast=torch.bfloat16)
    torch.testing.assert_close(fit.mixing_.weight, fitted(model).mixing_.weight, rtol=0.3, atol=0.1)


def test_what_was_fitted_in_inference_mode_trains():
    model = network(LAYERS["3x3"])
    with torch.inference_mode():
        fitted(model).replace(model, trainable=True)
    model(batches()[0][0]).sum().backward()
    assert float(model[2].mixing.weight.grad.abs().max()) > 0


# What stands in the layer's place


@layers
def test_a_pooling_and_a_mixing_of_ones_own_are_the_convolution(make):
    model = network(make)
    images = batches()[0][0]
    wanted = model(images).detach()
    done = replace(model, {"2": twin_of(model[2], (9, 9))})
    assert done.changes[0].new.role.mode == "mix"
    assert "and a 1x1 convolution (as it was given)" in str(done)
    torch.testing.assert_close(model(images), wanted, rtol=0, atol=1e-5)


@layers
def test_what_was_replaced_trains_and_comes_back_bit_for_bit(make):
    model = network(make)
    images, layer = batches()[0][0], model[2]
    before, wanted = anatomy(model), model(images).detach()
    done = fitted(model).replace(model, trainable=True)
    replaced = model(images)
    assert replaced.shape == wanted.shape
    replaced.square().sum().backward()
    for parameter in done.changes[0].new.parameters():
        assert float(parameter.grad.abs().max()) > 0
    assert restore(model) == ["2"] and model[2] is layer
    for parameter in model.parameters():
        parameter.grad = None
    assert anatomy(model) == before and torch.equal(model(images), wanted)


def test_a_plain_pooling_gets_a_random_mixing_like_the_convolution():
    model = network(LAYERS["grouped"]).double()
    pool = LinearPool2d.average((9, 9), (5, 5), 3)
    done = replace(model, {"2": pool}, mode="mix")
    mixing = done.changes[0].new.mixing
    assert (mixing.weight.shape, mixing.groups, mixing.weight.dtype) == (
        (8, 3, 2),
        2,
        torch.float64,
    )
    assert done.changes[0].new.pool is pool and "(random: it has to learn)" in str(done)


def test_a_fitted_pooling_without_its_mixing_goes_in_in_mode_mix_only():
    model = network(LAYERS["3x3"])
    pool = fitted(model).module().pool
    with pytest.raises(ValueError, match="mode: got 'replace' for 2, wanted 'mix', which its pool"):
        replace(model, {"2": pool}, mode="replace")
    assert "(random: it has to learn)" in str(replace(model, {"2": pool}))


def test_the_weights_type_and_the_bias_can_be_read():
    model = network(LAYERS["3x3"])
    fitted(model).replace(model)
    model.to(torch.float16)
    assert model[2].weight.dtype == model[2].mixing.weight.dtype == torch.float16
    assert model[2].bias is model[2].mixing.bias
    assert (model[2].kernel_size, model[2].stride) == ((3, 3), (2, 2))
    restore(model)
    bare = network(LAYERS["without a bias"])
    fitted(bare).replace(bare)
    assert bare[2].bias is None and bare[2].mixing.bias is None


@pytest.mark.parametrize("make", [LAYERS["3x3"], LAYERS["grouped, fewer channels"]])
def test_maps_of_another_size_are_refused_or_pooled_by_a_resized_operator(make):
    model = network(make)
    fit = fitted(model)
    fit.replace(model)
    with pytest.raises(ValueError, match=r"got a map of shape .*12, 12.* wanted .*9, 9.*resized"):
        model(pictures(2, 12))
    restore(model)
    images = pictures(2, 12)
    shape = model(images).shape
    fit.replace(model, on_resize="interpolate")
    standin = model[2]
    wanted = standin.mixing(standin.pool.resized((12, 12), shape[2:])(model[:2](images)))
    assert model(images).shape == shape
    torch.testing.assert_close(model(images), wanted)


def test_an_optimizer_follows_and_gets_its_memory_back():
    model = network(LAYERS["3x3"])
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    model(batches()[0][0]).square().mean().backward()
    optimizer.step()
    held = [id(p) for p in optimizer.param_groups[0]["params"]]
    memory = optimizer.state[model[2].weight]["momentum_buffer"].clone()
    fitted(model).replace(model, optimizer=optimizer, trainable=True)
    now = {id(p) for p in optimizer.param_groups[0]["params"]}
    assert now == {id(p) for p in model.parameters()} != set(held)
    assert id(model[2].mixing.bias) in now and id(model[2].pool.weight) in now
    restore(model, optimizer=optimizer)
    assert [id(p) for p in optimizer.param_groups[0]["params"]] == held
    assert torch.equal(optimizer.state[model[2].weight]["momentum_buffer"], memory)


def test_hooks_that_rest_are_spoken_of():
    model = network(LAYERS["3x3"])
    model[2].register_forward_hook(lambda *_: None)
    first = str(fitted(model).replace(model)).splitlines()[0]
    assert "; the old layer's hooks (1) rest until it is restored" in first


def test_each_of_several_layers_gets_a_pooling_and_a_mixing_of_its_own():
    torch.manual_seed(0)
    model = nn.ModuleDict({name: nn.Conv2d(4, 8, 3, 2, 1) for name in "ab"})
    given = twin_of(model["a"], (8, 8))
    done = replace(model, {"[ab]": given})
    assert "a copy of that in a" in str(done)
    one, other = model["a"], model["b"]
    assert one.pool is given.pool and one.mixing is given.mixing
    assert torch.equal(other.mixing.weight, one.mixing.weight)
    with torch.no_grad():
        one.mixing.weight.zero_()
    assert bool(other.mixing.weight.any())
    restore(model)
    shared = MixingPool(LinearPool2d.average((8, 8), (4, 4), 9), given.mixing)
    replace(model, {"a": given, "b": shared})
    assert model["a"].mixing is not model["b"].mixing


def test_a_layer_that_goes_by_two_names_is_replaced_once():
    torch.manual_seed(0)
    layer = nn.Conv2d(3, 3, 3, 2, 1)
    model = nn.ModuleDict({"a": layer, "b": layer})
    replace(model, {"a": twin_of(layer, (8, 8))})
    assert model["a"] is model["b"] and model["a"].mixing is not None


def test_copies_pickles_and_states_hold_all():
    model, images = network(LAYERS["grouped"]), batches()[0][0]
    fit = fitted(model)
    fit.replace(model, trainable=True)
    wanted = model(images)
    assert torch.equal(copy.deepcopy(model)(images), wanted)
    assert torch.equal(pickle.loads(pickle.dumps(model))(images), wanted)
    fresh = network(LAYERS["grouped"], seed=1)
    replace(fresh, {"2": LinearPool2d.random((9, 9), (5, 5), 8)}, mode="mix")
    fresh[2].pool.register_buffer("mean", torch.zeros(4))
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(fresh(images), wanted)
    assert [key for key in model.state_dict() if key.startswith("2.")] == [
        "2.pool.weight",
        "2.pool.mean",
        "2.mixing.weight",
        "2.mixing.bias",
    ]


@pytest.mark.parametrize("make", [LAYERS["3x3"], LAYERS["grouped, fewer channels"]])
def test_it_compiles_and_exports(make):
    torch.compiler.reset()
    model, images = network(make), batches()[0][0]
    fitted(model).replace(model)
    wanted = model(images).detach()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(images), wanted)
    torch.testing.assert_close(torch.export.export(model, (images,)).module()(images), wanted)
    torch.testing.assert_close(torch.fx.symbolic_trace(model)(images), wanted)


def test_a_mixing_in_mode_mix_is_a_channel_mixing():
    model = network(LAYERS["3x3"])
    module = fitted(model).module()
    assert isinstance(module, MixingPool) and isinstance(module.mixing, ChannelMixing)
    assert (module.fitted_for, module.read_shape) == ("mix", (9, 9))
    assert (module.in_shape, module.out_shape) == ((9, 9), (5, 5))
