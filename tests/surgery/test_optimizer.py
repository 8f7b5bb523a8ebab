"""An optimizer follows `replace` and `restore`: its groups, its memory, and whose it is."""

from __future__ import annotations

import copy
import gc
import pickle
import warnings

import pytest
import torch
from torch import nn

from foveapool import replace, restore

from .toys import MAIN, POOL, SHORTCUT, anatomy, every_layer, halving, pictures, toy

modes = pytest.mark.parametrize("mode", ["replace", "after"])


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
def test_the_optimizer_follows_and_gets_its_memory_back(mode):
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


def test_fixed_poolings_are_no_business_of_an_optimizer():
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


def test_a_pooling_that_the_optimizer_knows_already_does_not_join_again():
    model, pool = toy(), halving(8, 2, trainable=True)
    optimizer = torch.optim.SGD([*model.parameters(), pool.weight], 0.1)
    replace(model, {MAIN: pool}, optimizer=optimizer)
    assert sum(p is pool.weight for p in optimizer.param_groups[0]["params"]) == 1


def test_an_optimizer_that_followed_is_asked_for_and_nothing_is_changed_without():
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


def test_an_optimizer_that_is_gone_is_not_asked_for():
    model = toy()
    before = anatomy(model)
    replace(model, every_layer(), optimizer=torch.optim.SGD(model.parameters(), 0.1))
    gc.collect()
    restore(model)
    assert anatomy(model) == before


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copy_is_no_business_of_the_optimizer_that_followed(copied):
    model = toy()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    replace(model, every_layer(), optimizer=optimizer)
    assert restore(copied(model)) == [MAIN, SHORTCUT, POOL]
    assert restore(model, optimizer=optimizer) == [MAIN, SHORTCUT, POOL]


def test_an_optimizer_of_another_network_is_refused_and_nothing_is_changed():
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


def test_an_optimizer_that_was_left_without_parameters_gets_them_back():
    model = nn.Sequential(nn.Conv2d(3, 3, 3, 2, 1), nn.MaxPool2d(2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    groups = contents(optimizer)[0]
    for name, pool in {"0": halving(8), "1": halving(4)}.items():
        replace(model, {name: pool}, optimizer=optimizer)
    assert contents(optimizer)[0] == [[]]
    restore(model, optimizer=optimizer)
    assert contents(optimizer)[0] == groups


def test_names_of_parameters_follow_in_optimizers_that_have_them():
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
def test_an_optimizer_made_meanwhile_gets_the_layers_and_none_of_anothers_memory(kind, followed):
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


@pytest.mark.parametrize("trainable", [True, False])
def test_of_two_optimizers_each_gets_back_what_it_had(trainable):
    model = toy()
    parts = [model.block.main, model.block.shortcut, model.head]
    first = torch.optim.SGD(parts[0].parameters(), 0.1)
    second = torch.optim.Adam([*parts[1].parameters(), *parts[2].parameters()])
    before = [list(each.param_groups[0]["params"]) for each in (first, second)]
    replace(model, {MAIN: halving(8, 2, trainable)}, optimizer=first)
    replace(model, {SHORTCUT: halving(8, 2, trainable)}, optimizer=second)
    restore(model, optimizer=second)
    for optimizer, wanted in zip((first, second), before, strict=True):
        assert list(map(id, optimizer.param_groups[0]["params"])) == list(map(id, wanted))


def test_a_copy_does_not_carry_the_memory_of_an_optimizer():
    model = toy()
    optimizer = two_groups(model)
    replace(model, {MAIN: halving(8, 2)}, optimizer=optimizer)
    assert model.block.main.role.slots and not copy.deepcopy(model).block.main.role.slots


@pytest.mark.parametrize("biases_first", [True, False])
def test_weights_join_weights_and_biases_join_biases(biases_first):
    model = toy()
    weights = [p for p in model.parameters() if p.dim() > 1]
    biases = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": weights, "weight_decay": 0.05}, {"params": biases, "weight_decay": 0.0}]
    optimizer = torch.optim.SGD(groups[::-1] if biases_first else groups, 0.1)
    before = contents(optimizer)
    replace(model, {MAIN: halving(trainable=True)}, optimizer=optimizer)
    decay = {id(p): g["weight_decay"] for g in optimizer.param_groups for p in g["params"]}
    new = dict(model.block.main.named_parameters())
    assert {name: decay[id(p)] for name, p in new.items()} == {
        name: 0.05 if p.dim() > 1 else 0.0 for name, p in new.items()
    }
    assert {p.dim() > 1 for p in new.values()} == {True, False}
    restore(model, optimizer=optimizer)
    assert contents(optimizer) == before


def test_an_optimizer_that_does_not_train_the_layer_is_told_of():
    model = toy()
    head = torch.optim.SGD(model.head.parameters(), 0.1)
    with pytest.warns(UserWarning, match="does not hold the parameters of the layers that gave"):
        replace(model, {MAIN: halving(trainable=True)}, optimizer=head)


def test_in_one_group_the_new_ones_stand_where_the_old_ones_stood():
    model = toy()
    optimizer = torch.optim.SGD(model.named_parameters(), 0.1)
    names = list(optimizer.param_groups[0]["param_names"])
    replace(model, {MAIN: halving(trainable=True)}, optimizer=optimizer)
    (group,) = optimizer.param_groups
    own = [f"{MAIN}.pool.weight", f"{MAIN}.project.weight", f"{MAIN}.project.bias"]
    place = names.index(f"{MAIN}.weight")
    assert group["param_names"] == names[:place] + own + names[place + 2 :]
    known = dict(model.named_parameters())
    assert [id(p) for p in group["params"]] == [id(known[n]) for n in group["param_names"]]


def test_where_nothing_joins_it_nothing_is_said():
    model = toy()
    head = torch.optim.SGD(model.head.parameters(), 0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        replace(model, {POOL: halving(4, trainable=True)}, optimizer=head)  # none left
        replace(model, {MAIN: halving(components=2)}, optimizer=head)  # none came


@pytest.mark.parametrize("other", ["adam", torch.optim.SGD])
def test_what_is_no_optimizer_is_refused_and_nothing_is_replaced(other):
    model = toy()
    before = anatomy(model)
    with pytest.raises(ValueError, match=r"optimizer: got .*, wanted the torch\.optim\.Optimizer"):
        replace(model, {MAIN: halving()}, optimizer=other)
    assert anatomy(model) == before
