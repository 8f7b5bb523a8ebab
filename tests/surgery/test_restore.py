"""`restore` gives the old network back, bit for bit, whatever happened to it in between."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

from foveapool import replace, restore

from .toys import MAIN, POOL, SHORTCUT, anatomy, every_layer, halving, pictures, toy

modes = pytest.mark.parametrize("mode", ["replace", "after"])


@modes
def test_restored_networks_are_the_same_to_the_last_object(mode):
    model = toy().train()
    model.block.shortcut.eval()
    before = anatomy(model)
    replace(model, every_layer(), mode=mode)
    assert anatomy(model) != before
    assert restore(model) == [MAIN, SHORTCUT, POOL]
    assert anatomy(model) == before
    assert restore(model) == []


@modes
def test_the_owners_hooks_are_still_there_and_run_once(mode):
    model, calls = toy(), []
    model.block.main.register_forward_hook(lambda *_: calls.append("behind"))
    model.block.main.register_forward_pre_hook(lambda *_: calls.append("before"))
    before = anatomy(model)
    replace(model, every_layer(), mode=mode)
    model(pictures())
    # In mode `after` the layer is still at work, and its hooks with it.
    assert calls == (["before", "behind"] if mode == "after" else [])
    restore(model)
    assert anatomy(model) == before
    calls.clear()
    model(pictures())
    assert calls == ["before", "behind"]


def test_several_calls_are_undone_at_once_the_last_one_first():
    model = toy()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    before, order = anatomy(model), [id(p) for p in optimizer.param_groups[0]["params"]]
    replace(model, {SHORTCUT: halving(8, 2, trainable=True)}, optimizer=optimizer)
    replace(model, {POOL: halving(4)}, mode="after", optimizer=optimizer)
    replace(model, {MAIN: halving(8, 2, trainable=True)}, optimizer=optimizer)
    assert sorted(restore(model, optimizer=optimizer)) == [MAIN, SHORTCUT, POOL]
    assert anatomy(model) == before
    assert [id(p) for p in optimizer.param_groups[0]["params"]] == order


@modes
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copy_is_restored_to_a_copy(copied, mode):
    model = toy()
    wanted = model(pictures())
    replace(model, every_layer(), mode=mode)
    twin = copied(model)
    assert torch.equal(twin(pictures()), model(pictures()))
    restore(twin)
    assert torch.equal(twin(pictures()), wanted)
    assert list(twin.state_dict()) == list(toy().state_dict())
    # The origin noticed nothing of it.
    assert not torch.equal(model(pictures()), wanted)
    restore(model)
    assert torch.equal(model(pictures()), wanted)
    twins, ours = (set(map(id, m.parameters())) for m in (twin, model))
    assert not twins & ours


@modes
def test_the_layer_has_the_type_that_the_network_was_given_meanwhile(mode):
    model = toy()
    wanted = toy().double()(pictures().double())
    replace(model, every_layer(), mode=mode)
    model.double()
    restore(model)
    assert {tensor.dtype for tensor in model.parameters()} == {torch.float64}
    assert torch.equal(model(pictures().double()), wanted)


def test_the_layer_has_the_type_of_the_network_though_the_pooling_has_no_numbers():
    model = toy()
    replace(model, {MAIN: nn.Sequential(nn.AvgPool2d(2)), POOL: nn.AvgPool2d(2)})
    model.block.main.project = None
    model.double()
    restore(model)
    assert model.block.main.weight.dtype == torch.float64


@modes
def test_the_layer_has_the_mode_that_the_network_was_given_meanwhile(mode):
    model = toy()
    replace(model, every_layer(), mode=mode)
    model.train()
    restore(model)
    assert all(module.training for module in model.modules())


def test_a_pooling_that_was_trained_changes_and_the_layer_does_not():
    model = toy()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    before = [tensor.clone() for tensor in (model.block.main.weight, model.block.main.bias)]
    pool = halving(8, 2, trainable=True)
    start = pool.weight.detach().clone()
    replace(model, {MAIN: pool}, optimizer=optimizer)
    model(pictures()).square().sum().backward()
    optimizer.step()
    assert not torch.equal(pool.weight, start)
    restore(model, optimizer=optimizer)
    assert torch.equal(model.block.main.weight, before[0])
    assert torch.equal(model.block.main.bias, before[1])
