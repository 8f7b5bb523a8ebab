"""The optimizer: linear poolings at a rate of their own, all else as if they had none."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from foveapool.pooling.baselines import BASELINES, baseline_pooling
from foveapool.pooling.module import LinearPool2d
from foveapool.training.loop import train
from foveapool.training.state import build_optimizer, list_optimizer_tensors, set_rate

from .toys import same, toy_data, toy_network, toy_recipe

CPU = torch.device("cpu")
on_gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


def pooled_network(trainable=True):
    """A network with one pooling matrix, always from the same numbers."""
    weight = torch.rand(2, 16, 64, generator=torch.Generator().manual_seed(3)) / 32
    pool = LinearPool2d(weight, in_shape=(8, 8), out_shape=(4, 4), trainable=trainable)
    return toy_network(poolings={2: pool})


def matrix(network):
    (pool,) = (module for module in network.modules() if isinstance(module, LinearPool2d))
    return pool.weight


def moves(pooling_rate):
    """How far one plain SGD step takes each parameter, by name, in double precision."""
    network = pooled_network().double().eval()
    recipe = toy_recipe(momentum=0.0, pooling_rate=pooling_rate)
    optimizer = build_optimizer(network, recipe, CPU)
    set_rate(optimizer, recipe.lr)
    before = {name: tensor.detach().clone() for name, tensor in network.named_parameters()}
    images = torch.rand(8, 3, 16, 16, generator=torch.Generator().manual_seed(0)).double()
    F.cross_entropy(network(images), torch.arange(8) % 4).backward()
    optimizer.step()
    return {name: tensor.detach() - before[name] for name, tensor in network.named_parameters()}


@pytest.mark.parametrize("pooling_rate", [0.1, 3])
def test_one_step_moves_the_matrix_by_its_share_and_all_else_as_ever(pooling_rate):
    usual, own = moves(1.0), moves(pooling_rate)
    (name,) = (
        name for name, tensor in pooled_network().named_parameters() if tensor.shape == (2, 16, 64)
    )
    assert usual[name].abs().max() > 1e-6
    torch.testing.assert_close(own[name], pooling_rate * usual[name], rtol=1e-9, atol=1e-15)
    assert all(torch.equal(own[other], usual[other]) for other in usual if other != name)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_at_rate_0_a_pooling_that_trains_is_a_frozen_one(optimizer):
    recipe = toy_recipe(2, optimizer=optimizer, weight_decay=0.01, pooling_rate=0)
    start, free, frozen = pooled_network(), pooled_network(), pooled_network(trainable=False)
    losses = [
        train(network, toy_data(), recipe, device="cpu").train_loss for network in (free, frozen)
    ]
    assert torch.equal(matrix(free), matrix(start))
    assert not torch.equal(free.stem.weight, start.stem.weight)
    # Not bit for bit: torch multiplies in another order where it needs the matrix's gradient.
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    usual = train(pooled_network(), toy_data(), replace(recipe, pooling_rate=1), device="cpu")
    assert usual.train_loss != pytest.approx(losses[1], rel=1e-3)


@pytest.mark.parametrize(
    ("network", "pooling_rate"),
    [(pooled_network(), 1), (pooled_network(trainable=False), 0.1), (toy_network(), 0.1)],
)
def test_without_a_rate_or_a_matrix_of_its_own_there_is_one_group_in_the_networks_order(
    network, pooling_rate
):
    optimizer = build_optimizer(network, toy_recipe(pooling_rate=pooling_rate), CPU)
    (group,) = optimizer.param_groups
    parameters = [id(p) for p in network.parameters() if p.requires_grad]
    assert [id(p) for p in group["params"]] == parameters
    assert [id(p) for p in optimizer.state] == parameters


@pytest.mark.parametrize("name", BASELINES)
def test_among_the_rivals_those_that_learn_a_matrix_have_the_rate(name):
    network = toy_network(poolings={2: baseline_pooling(name, 8, (8, 8), (4, 4), components=2)})
    optimizer = build_optimizer(network, toy_recipe(pooling_rate=0.1), CPU)
    set_rate(optimizer, 0.5)
    slow = [p for group in optimizer.param_groups if group["lr"] == 0.05 for p in group["params"]]
    assert [p.shape for p in slow] == [(2, 16, 64)] * (name in ("sgd", "sgd-local"))
    assert {group["lr"] for group in optimizer.param_groups} <= {0.5, 0.05}


def test_a_matrix_that_two_poolings_share_is_in_one_group_once():
    one, other = (LinearPool2d.random((4, 4), (2, 2)) for _ in range(2))
    other.weight = one.weight
    network = nn.Sequential(one, nn.Linear(2, 2), other)
    optimizer = build_optimizer(network, toy_recipe(pooling_rate=0.1), CPU)
    held = [[id(p) for p in group["params"]] for group in optimizer.param_groups]
    assert held == [[id(one.weight)], [id(network[1].weight), id(network[1].bias)]]


def test_rates_that_are_tensors_are_filled_where_they_lie():
    optimizer = build_optimizer(pooled_network(), toy_recipe(pooling_rate=0.1), CPU)
    rates = [torch.zeros(()), torch.zeros(())]
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
    for rate in (0.5, 0.05):
        set_rate(optimizer, rate)
        torch.testing.assert_close(sorted(map(float, rates)), [0.1 * rate, rate])


def test_the_state_is_named_as_if_there_were_one_group():
    found = [
        list_optimizer_tensors(
            network, build_optimizer(network, toy_recipe(pooling_rate=rate), CPU)
        )
        for network, rate in ((pooled_network(), 1.0), (pooled_network(), 0.1))
    ]
    assert list(found[0]) == list(found[1])
    assert all(not tensor.any() for tensor in found[1].values())


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize(("stop", "checkpoint_steps"), [(7, 2), (4, None)])
def test_a_resumed_training_with_two_rates_ends_with_the_same_weights(
    tmp_path, stop, checkpoint_steps, optimizer
):
    class Interrupted(Exception):
        pass

    def interrupt(progress):
        if progress.done == stop:
            raise Interrupted

    recipe = toy_recipe(3, optimizer=optimizer, milestones=(2,), pooling_rate=0.1)
    given = {"data": toy_data(), "recipe": recipe, "device": "cpu"}
    more = {**given, "folder": tmp_path, "checkpoint_steps": checkpoint_steps}
    calm, resumed = pooled_network(), pooled_network()
    wanted = train(calm, **given)
    with pytest.raises(Interrupted):
        train(resumed, progress=interrupt, **more)
    assert not same(calm, resumed)
    resumed = pooled_network()
    assert train(resumed, **more).train_loss == wanted.train_loss
    assert same(calm, resumed)
    message = r"recipe.pooling_rate is 0.1 there and 1.0 here"
    usual = toy_recipe(3, optimizer=optimizer, milestones=(2,))
    with pytest.raises(ValueError, match=message):
        train(pooled_network(), **{**more, "recipe": usual})


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("device", [CPU, pytest.param(torch.device("cuda"), marks=on_gpu)])
def test_the_step_follows_both_rates_through_the_schedule(device, optimizer):
    # Rate 0 from the second epoch on, for both: a second epoch changes nothing.
    start, moved = pooled_network(), []
    for epochs, rate in ((2, 0.0), (2, 0.1), (1, 0.1), (2, 1.0)):
        changes = {"milestones": (1,), "gamma": 0.0, "pooling_rate": rate}
        network = pooled_network()
        train(
            network, toy_data(), toy_recipe(epochs, optimizer=optimizer, **changes), device=device
        )
        assert not torch.equal(network.stem.weight.cpu(), start.stem.weight)
        moved.append(float((matrix(network).detach().cpu() - matrix(start).detach()).norm()))
    none, slow, stopped, usual = moved
    assert none == 0 < 2 * slow < usual
    assert slow == pytest.approx(stopped, rel=0.1)
