"""Into networks of other makes and out again: what is found can be fitted and replaced."""

from __future__ import annotations

import io

import pytest
import torch
from torch import nn

import foveapool as fp
from foveapool.surgery.wrapper import PooledLayer

from .zoo import NETWORKS, TOKEN_NETWORKS, answer, batches, images, network

networks = pytest.mark.parametrize("name", NETWORKS)
MODES = ("replace", "after")
# All kinds of convolutions: grouped, depthwise, with and without a bias, padded by themselves.
MIXED = [name for name in NETWORKS if name not in ("lp-pooled", "average-pooled")]
# One of each kind. (Not BiT: its convolutions come out wrong when nothing was replaced, too.)
EXPORTED = ["resnet", "convnext", "mobilenet-v1", "efficientnet", "average-pooled", "lp-pooled"]


def listed(model: nn.Module) -> list[str]:
    return [found.name for found in fp.downsampling_layers(model, images(1)[0])]


def half_and_half(model: nn.Module, trainable: bool = False) -> list[str]:
    """Every other layer gives way to a pooling, the rest are followed by one."""
    names = listed(model)
    for mode, some in zip(MODES, (names[::2], names[1::2]), strict=True):
        fit = fp.ClosedFormPooling().fit(model, batches(), some, mode)
        fit.replace(model, trainable=trainable)
    return names


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch.compiler.reset()


@pytest.mark.parametrize("mode", MODES)
@networks
def test_every_layer_that_is_listed_can_be_fitted_replaced_trained_and_restored(name, mode):
    model = network(NETWORKS[name])
    pictures, _ = images(4)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    wanted = answer(model, pictures).detach()
    names = listed(model)
    assert names
    fit = fp.ClosedFormPooling().fit(model, batches(), names, mode)
    assert list(fit.operators_) == names
    done = fit.replace(model, trainable=True)
    assert [change.names[0] for change in done.changes] == names
    pooled = answer(model, pictures)
    assert pooled.shape == wanted.shape and bool(pooled.isfinite().all())
    assert not torch.allclose(pooled, wanted)
    pooled.square().sum().backward()
    for change in done.changes:
        assert float(change.new.pool.weight.grad.abs().max()) > 0, change.names
    assert sorted(fp.restore(model)) == sorted(names)
    assert torch.equal(answer(model, pictures), wanted)
    after = model.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[key], value) for key, value in before.items())
    assert not any(isinstance(module, PooledLayer) for module in model.modules())


@pytest.mark.parametrize("name", MIXED)
def test_every_convolution_that_is_listed_can_be_mixed_trained_saved_and_restored(name, tmp_path):
    model, (pictures, _) = network(NETWORKS[name]), images(4)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    wanted = answer(model, pictures).detach()
    found = fp.downsampling_layers(model, pictures)
    names = [each.name for each in found if not each.is_pooling]
    assert names
    fit = fp.ClosedFormPooling().fit(model, batches(), names, "mix")
    assert all(each.explained < 1 for each in fit.mixings_.values())
    assert max(each.explained for each in fit.mixings_.values()) > 0.1
    done = fit.replace(model)
    pooled = answer(model, pictures)
    assert pooled.shape == wanted.shape and bool(pooled.isfinite().all())
    pooled.square().sum().backward()
    for change in done.changes:
        assert float(change.new.mixing.weight.grad.abs().max()) > 0, change.names
    fp.save(model, tmp_path)
    fresh = network(NETWORKS[name])
    fp.load(fresh, tmp_path)
    assert torch.equal(answer(fresh, pictures), pooled)
    assert sorted(fp.restore(model)) == sorted(names)
    assert torch.equal(answer(model, pictures), wanted)
    after = model.state_dict()
    assert all(torch.equal(after[key], value) for key, value in before.items())


@networks
def test_replaced_networks_compile_without_a_graph_break(name):
    model, (pictures, _) = network(NETWORKS[name]), images(4)
    half_and_half(model)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        wanted = answer(model, pictures)
        torch.testing.assert_close(answer(compiled, pictures), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["average-pooled", "lp-pooled"])
def test_replaced_networks_can_be_traced_symbolically(name):
    model, (pictures, _) = network(NETWORKS[name]), images(4)
    half_and_half(model, trainable=True)
    traced = torch.fx.symbolic_trace(model)
    torch.testing.assert_close(traced(pictures), answer(model, pictures))


def test_the_default_compiler_trains_a_replaced_network():
    model, (pictures, _) = network(NETWORKS["average-pooled"]), images(4)
    half_and_half(model, trainable=True)
    gradients = []
    for called in (model, torch.compile(model, fullgraph=True)):
        model.zero_grad()
        answer(called, pictures).square().sum().backward()
        gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-3, atol=1e-4)


def test_the_default_compiler_follows_replace_and_restore():
    model, (pictures, _) = network(NETWORKS["resnet"]), images(4)
    compiled = torch.compile(model)
    with torch.no_grad():
        untouched = answer(model, pictures)
        half_and_half(compiled)
        replaced = answer(model, pictures)
        torch.testing.assert_close(answer(compiled, pictures), replaced, rtol=1e-4, atol=1e-5)
        assert not torch.allclose(replaced, untouched, rtol=1e-2)
        fp.restore(compiled)
        assert torch.equal(answer(model, pictures), untouched)
        torch.compiler.set_stance("eager_on_recompile")
        try:
            torch.testing.assert_close(answer(compiled, pictures), untouched, rtol=1e-4, atol=1e-5)
        finally:
            torch.compiler.set_stance("default")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", EXPORTED)
def test_replaced_networks_become_onnx_files(name):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    model, (pictures, _) = network(NETWORKS[name]), images(2)
    half_and_half(model)
    file = io.BytesIO()
    torch.onnx.export(model, (pictures,), dynamo=True, verbose=False).save(file)
    session = onnxruntime.InferenceSession(file.getvalue())
    (given,) = session.run(None, {session.get_inputs()[0].name: pictures.numpy()})
    with torch.no_grad():
        wanted = answer(model, pictures)
    torch.testing.assert_close(torch.from_numpy(given), wanted, rtol=1e-3, atol=1e-4)


def test_of_a_network_of_tokens_only_what_has_maps_is_listed():
    (only,) = fp.downsampling_layers(network(TOKEN_NETWORKS["swin"]), images(1)[0])
    assert only.name == "swin.embeddings.patch_embeddings.projection"
    assert (only.in_shape, only.out_shape) == ((16, 16), (8, 8))
