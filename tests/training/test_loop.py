"""Training: does what a plain loop of torch does, to the last bit, and learns."""

import json
import sys
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F

from foveapool.data.batches import draw_epoch_plan, iterate_batches, load_resident
from foveapool.data.images import Augmentation
from foveapool.pooling.baselines import LocalSgdPool
from foveapool.pooling.module import LinearPool2d
from foveapool.training.loop import train
from foveapool.training.parallel import Workers
from foveapool.training.state import measure_error

from .toys import same, toy_data, toy_network, toy_recipe


def plain_training(network, data, recipe, optimizer, seed):
    """The loop that anyone would write, over the same order of images."""
    resident_train, _ = load_resident(data, "cpu")
    batches = list(iterate_batches(resident_train, 1000))
    images, labels = batches[0]
    schedule = torch.optim.lr_scheduler.MultiStepLR(
        optimizer, list(recipe.milestones), recipe.gamma
    )
    for epoch in range(recipe.epochs):
        order = draw_epoch_plan(len(labels), seed, epoch)[:, 0]
        for index in order.split(recipe.batch_size):
            if len(index) < recipe.batch_size:
                continue
            loss = F.cross_entropy(network(images[index]), labels[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
    return network


@pytest.mark.parametrize("name", ["adam", "sgd"])
@pytest.mark.parametrize("batch_size", [16, 24])
def test_a_training_is_what_a_plain_loop_gives(name, batch_size):
    data = toy_data(augmentation=None, normalization="image")
    recipe = toy_recipe(
        3, optimizer=name, lr=0.01, weight_decay=1e-3, milestones=(1, 2), batch_size=batch_size
    )
    ours, theirs = toy_network("resnet18"), toy_network("resnet18")
    result = train(ours, data, recipe, seed=5, device="cpu")
    if name == "adam":
        optimizer = torch.optim.Adam(theirs.parameters(), 0.01, weight_decay=1e-3)
    else:
        optimizer = torch.optim.SGD(theirs.parameters(), 0.01, 0.9, weight_decay=1e-3)
    plain_training(theirs, data, recipe, optimizer, seed=5)
    assert same(ours, theirs)
    assert [round(record.lr, 9) for record in result.history] == [0.01, 0.001, 0.0001]


def test_it_learns_repeats_itself_and_hangs_on_the_seed():
    data, recipe = toy_data(), toy_recipe(8)
    networks = [toy_network() for _ in range(3)]
    first, again, other = (
        train(network, data, recipe, seed=seed, device="cpu")
        for network, seed in zip(networks, (1, 1, 2), strict=True)
    )
    assert first.history[0].loss > 1 > 0.4 > first.train_loss
    assert first.test_error < 10
    assert same(networks[0], networks[1]) and not same(networks[0], networks[2])
    assert (first.test_error, first.train_loss) == (again.test_error, again.train_loss)
    assert first.seconds == sum(record.seconds for record in first.history) > 0
    assert other.train_loss != first.train_loss


def test_the_error_is_that_of_the_last_epoch_and_of_the_network_that_is_left():
    data, network = toy_data(), toy_network()
    result = train(network, data, toy_recipe(3), device="cpu", evaluate_every=2)
    assert [record.test_error is None for record in result.history] == [True, False, False]
    network.eval()
    _, test = load_resident(data, "cpu")
    (images, labels), *_ = iterate_batches(test)
    wrong = (network(images).argmax(1) != labels).float().mean()
    assert result.test_error == result.history[-1].test_error == pytest.approx(100 * float(wrong))


def test_evaluation_changes_nothing():
    data, recipe = toy_data(), toy_recipe(3)
    watched, unwatched = toy_network(), toy_network()
    train(watched, data, recipe, device="cpu", evaluate_every=1)
    train(unwatched, data, recipe, device="cpu")
    assert same(watched, unwatched)
    watched.norm1.eval()
    measure_error(watched, load_resident(data, "cpu")[1], Workers())
    assert not watched.norm1.training and watched.norm2.training


def test_a_frozen_pooling_stays_and_a_trainable_one_learns():
    weight = torch.rand(2, 16, 64)
    for trainable in (False, True):
        pooling = LinearPool2d(
            weight, torch.zeros(8), in_shape=(8, 8), out_shape=(4, 4), trainable=trainable
        )
        network = toy_network("resnet18", poolings={2: pooling}, placement="shortcut")
        train(network, toy_data(), toy_recipe(1), device="cpu")
        assert torch.equal(pooling.weight, weight) is not trainable


def test_a_penalty_of_a_pooling_joins_the_loss():
    weights = {}
    for alpha in (0.0, 1e-2):
        torch.manual_seed(0)
        pooling = LocalSgdPool(8, (8, 8), (4, 4), components=2, alpha=alpha)
        start = pooling.penalty().item()
        network = toy_network(poolings={2: pooling})
        result = train(network, toy_data(), toy_recipe(1, lr=0.0), device="cpu")
        weights[alpha] = result.train_loss - start
    assert weights[0.0] == pytest.approx(weights[1e-2], rel=1e-5)
    train(network, toy_data(), toy_recipe(2, lr=0.01, momentum=0.0), device="cpu")
    assert pooling.penalty().item() < 0.9 * start


def test_progress_and_metrics_tell_of_every_epoch(tmp_path):
    seen = []
    result = train(
        toy_network(),
        toy_data(),
        toy_recipe(2),
        device="cpu",
        folder=tmp_path,
        progress=seen.append,
    )
    assert [progress.done for progress in seen] == list(range(9))
    assert {(progress.total, progress.epochs) for progress in seen} == {(8, 2)}
    assert seen[-1].last == result.history[-1] and seen[3].last is None
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["loss"] for line in lines] == [record.loss for record in result.history]
    assert [line["epoch"] for line in lines] == [1, 2]


def test_augmentation_is_seen_by_the_network():
    moved, unmoved = toy_network(), toy_network()
    train(moved, toy_data(Augmentation(pad=2)), toy_recipe(1), device="cpu")
    train(unmoved, toy_data(None), toy_recipe(1), device="cpu")
    assert not same(moved, unmoved)


def test_the_random_numbers_of_others_are_left_alone():
    torch.manual_seed(3)
    wanted = torch.rand(2)
    torch.manual_seed(3)
    network = torch.nn.Sequential(toy_network(), torch.nn.Dropout(0.5))
    train(network, toy_data(), toy_recipe(1), device="cpu")
    assert torch.equal(torch.rand(2), wanted)


def test_on_a_cpu_a_gpus_random_numbers_are_left_alone_too(monkeypatch):
    seeded = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    monkeypatch.setattr(torch.cuda, "manual_seed", seeded.append)
    train(toy_network(), toy_data(), toy_recipe(1), device="cpu")
    assert not seeded


@pytest.mark.parametrize("own", [0.1, torch.nn.L1Loss()])
def test_a_penalty_that_is_no_method_is_the_networks_own_business(own):
    plain, named = toy_network(), toy_network()
    named.penalty = own
    train(plain, toy_data(), toy_recipe(1), device="cpu")
    train(named, toy_data(), toy_recipe(1), device="cpu")
    assert same(plain, named)


def test_tensorboard_gets_what_the_lines_say(tmp_path, monkeypatch):
    written = []

    class Writer:
        def __init__(self, folder, purge_step):
            written.append(("purge", purge_step))

        def add_scalar(self, name, value, epoch):
            written.append((name, value, epoch))

        def flush(self):
            pass

        def close(self):
            written.append("closed")

    fake = SimpleNamespace(SummaryWriter=Writer)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", fake)
    given = {"device": "cpu", "folder": tmp_path, "tensorboard": True}
    result = train(toy_network(), toy_data(), toy_recipe(2), **given)
    first, last = result.history
    assert written[0] == ("purge", 1) and written[-1] == "closed"
    assert ("loss/train", first.loss, 1) in written
    assert ("error/test", last.test_error, 2) in written
    train(toy_network(), toy_data(), toy_recipe(2), **given)
    assert written[-2] == ("purge", 3)
