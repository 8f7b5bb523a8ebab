"""`restore` gives the old network back, bit for bit, whatever happened to it in between."""

from __future__ import annotations

import copy
import gc
import pickle

import pytest
import torch
from torch import nn

from foveapool import LinearPool2d, replace, restore

from .toys import MAIN, POOL, SHORTCUT, anatomy, pictures, toy

modes = pytest.mark.parametrize("mode", ["replace", "after"])


def halving(size: int = 8, components: int = 1, trainable: bool = False) -> LinearPool2d:
    return LinearPool2d.average((size, size), (size // 2, size // 2), components, trainable)


def every_layer(trainable: bool = False) -> dict[str, LinearPool2d]:
    sizes = {MAIN: 8, SHORTCUT: 8, POOL: 4}
    return {name: halving(size, 1, trainable) for name, size in sizes.items()}


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


def test_so_it_has_when_what_stood_in_has_no_numbers():
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


# The optimiser


def two_groups(model: nn.Module) -> torch.optim.Optimizer:
    """Biases without weight decay, as many recipes have it, and one step behind it."""
    weights = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": weights}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, 1e-3)
    model(pictures()).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    return optimizer


def contents(optimizer: torch.optim.Optimizer):
    groups = [[id(p) for p in group["params"]] for group in optimizer.param_groups]
    state = {
        id(p): {key: value.clone() for key, value in memory.items()}
        for p, memory in optimizer.state.items()
    }
    return groups, state


@modes
def test_the_optimiser_follows_and_gets_its_memory_back(mode):
    model = toy()
    optimizer = two_groups(model)
    groups, state = contents(optimizer)
    leaving = {id(p) for p in (*model.block.main.parameters(), *model.block.shortcut.parameters())}
    done = replace(model, every_layer(trainable=True), mode=mode, optimizer=optimizer)
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    assert held == {id(p) for p in model.parameters()}
    assert bool(leaving & held) == (mode == "after")
    assert all(id(p) in held for p in optimizer.state)
    model(pictures()).square().sum().backward()
    optimizer.step()
    assert any(done.changes[0].new.pool.weight is p for p in optimizer.state)
    for p in model.parameters():
        p.grad = None
    restore(model, optimizer=optimizer)
    now, memory = contents(optimizer)
    assert now == groups and set(memory) == set(state)
    if mode == "replace":
        for key in leaving:
            assert all(torch.equal(memory[key][name], state[key][name]) for name in state[key])


def test_fixed_poolings_are_no_business_of_an_optimiser():
    model = toy()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    pool = halving(8, 2, trainable=True)
    pool.weight.requires_grad_(False)
    replace(model, {MAIN: pool, POOL: halving(4)}, optimizer=optimizer)
    held = {id(p) for p in optimizer.param_groups[0]["params"]}
    assert held == {id(p) for p in model.parameters() if p is not pool.weight}


def test_new_parameters_join_the_last_group_where_none_left():
    model = toy()
    optimizer = two_groups(model)
    pool = halving(4, trainable=True)
    replace(model, {POOL: pool}, optimizer=optimizer)
    assert optimizer.param_groups[1]["params"][-1] is pool.weight


def test_a_pooling_for_two_layers_joins_once_for_each():
    model = toy()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    pool = halving(8, 2, trainable=True)
    replace(model, {MAIN: pool, SHORTCUT: pool}, optimizer=optimizer)
    params = optimizer.param_groups[0]["params"]
    assert sum(p is pool.weight for p in params) == 1
    assert {id(p) for p in params} == {id(p) for p in model.parameters()}
    assert len(params) == len(list(toy().parameters())) - 2


def test_a_pooling_that_the_optimiser_knows_already_does_not_join_again():
    model, pool = toy(), halving(8, 2, trainable=True)
    optimizer = torch.optim.SGD([*model.parameters(), pool.weight], 0.1)
    replace(model, {MAIN: pool}, optimizer=optimizer)
    assert sum(p is pool.weight for p in optimizer.param_groups[0]["params"]) == 1


def test_an_optimiser_that_followed_is_asked_for_and_nothing_is_changed_without():
    model = toy()
    optimizer = two_groups(model)
    groups, _ = contents(optimizer)
    original = anatomy(model)
    replace(model, every_layer(trainable=True), optimizer=optimizer)
    before, held = anatomy(model), contents(optimizer)[0]
    with pytest.raises(
        ValueError, match=r"optimizer: got none.*restore\(model, optimizer=\.\.\.\)"
    ):
        restore(model)
    assert anatomy(model) == before and contents(optimizer)[0] == held
    assert restore(model, optimizer=optimizer) == [MAIN, SHORTCUT, POOL]
    assert anatomy(model) == original and contents(optimizer)[0] == groups


def test_an_optimiser_that_is_gone_is_not_asked_for():
    model = toy()
    before = anatomy(model)
    replace(model, every_layer(), optimizer=torch.optim.SGD(model.parameters(), 0.1))
    gc.collect()
    restore(model)
    assert anatomy(model) == before


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copy_is_no_business_of_the_optimiser_that_followed(copied):
    model = toy()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    replace(model, every_layer(), optimizer=optimizer)
    assert restore(copied(model)) == [MAIN, SHORTCUT, POOL]
    assert restore(model, optimizer=optimizer) == [MAIN, SHORTCUT, POOL]


def test_an_optimiser_of_another_network_is_refused_and_nothing_is_changed():
    model, other = toy(), torch.optim.SGD(toy().parameters(), 0.1)
    held = contents(other)[0]
    message = "optimizer: got a SGD that holds no parameter of the model, wanted the one that"
    before = anatomy(model)
    with pytest.raises(ValueError, match=message):
        replace(model, every_layer(trainable=True), optimizer=other)
    assert anatomy(model) == before and contents(other)[0] == held
    replace(model, every_layer(trainable=True))
    before = anatomy(model)
    with pytest.raises(ValueError, match=message):
        restore(model, optimizer=other)
    assert anatomy(model) == before and contents(other)[0] == held


def test_an_optimiser_that_was_left_without_parameters_gets_them_back():
    model = nn.Sequential(nn.Conv2d(3, 3, 3, 2, 1), nn.MaxPool2d(2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    groups = contents(optimizer)[0]
    for name, pool in {"0": halving(8), "1": halving(4)}.items():
        replace(model, {name: pool}, optimizer=optimizer)
    assert contents(optimizer)[0] == [[]]
    restore(model, optimizer=optimizer)
    assert contents(optimizer)[0] == groups


def test_names_of_parameters_follow_in_optimisers_that_have_them():
    model = toy()
    optimizer = torch.optim.SGD(model.named_parameters(), 0.1)
    before = list(optimizer.param_groups[0]["param_names"])
    replace(model, {MAIN: halving(8, 2, trainable=True)}, optimizer=optimizer)
    group = optimizer.param_groups[0]
    assert dict(zip(group["param_names"], map(id, group["params"]), strict=True)) == {
        name: id(p) for name, p in model.named_parameters()
    }
    restore(model, optimizer=optimizer)
    assert group["param_names"] == before


@pytest.mark.parametrize("followed", [True, False])
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
def test_an_optimiser_made_meanwhile_gets_the_layers_and_none_of_anothers_memory(kind, followed):
    model = toy()
    first = two_groups(model)
    pool = halving(8, 2, trainable=True)
    replace(model, {MAIN: pool}, optimizer=first if followed else None)
    later = kind(model.parameters(), 1e-3)
    place = [p is pool.weight for p in later.param_groups[0]["params"]].index(True)
    restore(model, optimizer=later)
    (group,) = later.param_groups
    assert group["params"][place] is model.block.main.weight
    assert {id(p) for p in group["params"]} == {id(p) for p in model.parameters()}
    before = model.block.main.weight.detach().clone()
    model(pictures()).square().sum().backward()
    later.step()
    assert not torch.equal(model.block.main.weight, before)


def test_a_copy_does_not_carry_the_memory_of_an_optimiser():
    model = toy()
    optimizer = two_groups(model)
    replace(model, {MAIN: halving(8, 2)}, optimizer=optimizer)
    assert model.block.main.role.slots and not copy.deepcopy(model).block.main.role.slots
