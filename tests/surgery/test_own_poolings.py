"""Every replaced layer has a pooling of its own, which trains and is saved by itself."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file, save_file

from foveapool import ClosedFormPooling, LinearPool2d, replace, restore

from .toys import MAIN, POOL, SHORTCUT, anatomy, loader, pictures, toy
from .zoo import NETWORKS, answer, batches, images, network

BRANCHES = [
    "resnet.encoder.stages.1.layers.0.layer.0.convolution",
    "resnet.encoder.stages.1.layers.0.shortcut.convolution",
]


def halving(trainable: bool = False) -> LinearPool2d:
    return LinearPool2d.average((8, 8), (4, 4), 2, trainable)


@pytest.mark.parametrize("mode", ["replace", "after"])
@pytest.mark.parametrize("trainable", [True, False])
def test_branches_that_were_fitted_together_can_be_saved_by_safetensors(tmp_path, trainable, mode):
    model, twin = toy(), toy()
    fit = ClosedFormPooling().fit(model, loader(), [MAIN, SHORTCUT], mode)
    for each in (model, twin):
        fit.replace(each, trainable=trainable)
    save_file(model.state_dict(), tmp_path / "toy.safetensors")
    twin.load_state_dict(load_file(tmp_path / "toy.safetensors"))
    assert torch.equal(twin(pictures()), model(pictures()))


def test_they_can_be_saved_as_their_network_does_it(tmp_path):
    model, fresh = network(NETWORKS["resnet"]), network(NETWORKS["resnet"], seed=1)
    fit = ClosedFormPooling().fit(model, batches(), BRANCHES)
    for each in (model, fresh):
        fit.replace(each, trainable=True)
    model.save_pretrained(tmp_path)
    fresh.load_state_dict(load_file(tmp_path / "model.safetensors"))
    pictures_of_zoo, _ = images(2)
    assert torch.equal(answer(fresh, pictures_of_zoo), answer(model, pictures_of_zoo))


WAYS = {
    "by a fit": lambda model: (
        ClosedFormPooling().fit(model, loader(), [MAIN, SHORTCUT]).replace(model, trainable=True)
    ),
    "under two names": lambda model: replace(model, dict.fromkeys([MAIN, SHORTCUT], halving(True))),
    "by a pattern": lambda model: replace(model, {r"block\..*": halving(True)}),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_branches_start_alike_and_train_apart(way):
    model = toy()
    main, shortcut = way(model).changes
    weights = [change.new.pool.weight for change in (main, shortcut)]
    assert torch.equal(*weights) and weights[0] is not weights[1]
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    (model.block.main(torch.ones(1, 4, 8, 8)) ** 2).sum().backward()
    optimizer.step()
    assert not torch.equal(*weights)


def test_the_first_layer_has_the_very_module_and_what_is_copied_is_said():
    model, pool = toy(), halving()
    done = replace(model, {MAIN: pool, SHORTCUT: pool, POOL: LinearPool2d.average((4, 4), (2, 2))})
    assert model.block.main.pool is pool is not model.block.shortcut.pool
    first, second, third, _ = str(done).splitlines()
    assert ", a copy of that in block.main; parameters: " in second
    assert "copy" not in first + third


def test_a_pooling_that_is_in_the_network_already_is_copied_too():
    model, pool = toy(), halving(trainable=True)
    before = anatomy(model)
    replace(model, {MAIN: pool})
    done = replace(model, {SHORTCUT: pool})
    assert "a copy of that in block.main" in str(done)
    assert model.block.shortcut.pool.weight is not pool.weight
    restore(model)
    assert anatomy(model) == before


@pytest.mark.parametrize("trainable", [True, False])
def test_poolings_that_were_put_in_during_inference_can_be_trained_through(trainable):
    model, loose = toy(), toy()
    fit = ClosedFormPooling(components=1).fit(model, loader(), [MAIN, SHORTCUT, POOL])
    with torch.inference_mode():
        fit.replace(model, trainable=trainable)
        replace(loose, {MAIN: halving(trainable)})
        model(pictures())
    assert not any(tensor.is_inference() for tensor in model.state_dict().values())
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model(pictures()).square().sum().backward()
    loose(pictures()).square().sum().backward()
    optimizer.step()
    changed = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    wanted = {f"{MAIN}.project.weight", f"{SHORTCUT}.project.weight"}
    if trainable:
        wanted |= {f"{name}.pool.weight" for name in (MAIN, SHORTCUT, POOL)}
    assert wanted <= changed
