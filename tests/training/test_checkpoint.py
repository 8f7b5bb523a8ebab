"""A checkpoint gives its weights and goes on only with what it was made with, or says why not."""

import math
import os
from dataclasses import replace

import pytest
import torch

from foveapool.pooling.storage import load_tensors, save_tensors
from foveapool.training.checkpoint import (
    CHECKPOINT,
    STRUCTURE,
    RunFolder,
    UnusableCheckpoint,
    load_weights,
)
from foveapool.training.loop import train

from .toys import options, same, toy_data, toy_images, toy_network, toy_recipe


def test_weights_can_be_taken_from_a_run_folder(tmp_path):
    network, other = toy_network(), toy_network(seed=9)
    train(network, **options(tmp_path))
    position = load_weights(other, tmp_path)
    assert same(network, other) and (position.epoch, len(position.history)) == (3, 3)
    message = r"holds the weights of another network than PreActResNet18.*tensors differ"
    with pytest.raises(ValueError, match=message):
        load_weights(toy_network("resnet18"), tmp_path)
    with pytest.raises(FileNotFoundError, match=r"checkpoint.safetensors: no such file"):
        load_weights(other, tmp_path / "none")


@pytest.mark.parametrize(("number", "kind"), [(math.nan, None), (1, torch.int32), (1, torch.bool)])
def test_weights_that_are_no_weights_are_refused(tmp_path, number, kind):
    network = toy_network()
    train(network, **options(tmp_path))
    tensors, facts = load_tensors(tmp_path / CHECKPOINT, "checkpoint")
    name = next(name for name in tensors if name.startswith("network/"))
    tensors[name] = torch.full_like(tensors[name], number, dtype=kind)
    save_tensors(tmp_path / CHECKPOINT, "checkpoint", tensors, facts)
    with pytest.raises(ValueError, match=rf"{CHECKPOINT}: got .* wanted f.*; train again"):
        load_weights(network, tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": toy_data(normalization="image")}, "data.normalisation is channel there and ima"),
        ({"data": replace(toy_data(), test=toy_images(40, 2))}, r"data.content is \w+ there and "),
        ({"seed": 1}, r"seed is 0 there and 1 here; wanted them with the images"),
    ],
)
def test_weights_are_not_taken_for_what_they_were_not_trained_with(tmp_path, change, message):
    train(toy_network(), **options(tmp_path))
    network, start = toy_network(seed=9), toy_network(seed=9)
    asked = {"data": replace(toy_data(None), name="moved"), "seed": 0}
    with pytest.raises(ValueError, match=rf"weights of another training: {message}"):
        load_weights(network, tmp_path, **{**asked, **change})
    assert same(network, start)
    assert load_weights(network, tmp_path, **asked).epoch == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"recipe": toy_recipe(3, lr=0.1, milestones=(2,))},
            r"recipe.lr is 0.05 there and 0.1 here",
        ),
        ({"seed": 5}, r"seed is 0 there and 5 here"),
        ({"data": toy_data(None)}, r"data.augmentation is \{.*\} there and None here"),
        ({"network": toy_network("resnet18")}, r"network is CNN there and PreActResNet18 here"),
        ({"network": toy_network(seed=1)}, r"network.start is"),
    ],
)
def test_a_folder_of_another_configuration_is_refused_and_kept(tmp_path, change, message):
    given = {"network": toy_network(), **options(tmp_path)}
    train(**given)
    before = (tmp_path / CHECKPOINT).read_bytes()
    network = toy_network(seed=1) if "network" in change else toy_network()
    start = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    with pytest.raises(ValueError, match=message):
        train(**{**given, "network": network, **change})
    assert (tmp_path / CHECKPOINT).read_bytes() == before
    assert all(torch.equal(start[name], now) for name, now in network.state_dict().items())


def test_two_processes_do_not_share_a_folder(tmp_path):
    with (
        RunFolder(tmp_path, {}).locked(),
        pytest.raises(BlockingIOError, match=rf"process {os.getpid()} works in this folder"),
    ):
        train(toy_network(), **options(tmp_path))
    train(toy_network(), **options(tmp_path))


def test_a_damaged_checkpoint_is_named(tmp_path):
    train(toy_network(), **options(tmp_path))
    whole = (tmp_path / CHECKPOINT).read_bytes()
    (tmp_path / CHECKPOINT).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"checkpoint.safetensors: not a whole safetensors file"):
        train(toy_network(), **options(tmp_path))


def test_a_checkpoint_that_the_system_does_not_give_is_not_called_unusable(tmp_path, monkeypatch):
    train(toy_network(), **options(tmp_path))

    def too_many(*_, **__):
        raise FileNotFoundError("No such file or directory")  # what safetensors makes of EMFILE

    monkeypatch.setattr("foveapool.pooling.storage.safe_open", too_many)
    with pytest.raises(OSError, match=r"checkpoint.safetensors: is there and could not be read"):
        train(toy_network(), **options(tmp_path))


def test_a_checkpoint_that_lacks_something_changes_nothing(tmp_path):
    train(toy_network(), **options(tmp_path))
    tensors, facts = load_tensors(tmp_path / CHECKPOINT, "checkpoint")
    facts["history"] = [{"epoch": 1}]
    save_tensors(tmp_path / CHECKPOINT, "checkpoint", tensors, facts)
    network = toy_network()
    with pytest.raises(UnusableCheckpoint, match=r"missing .*'loss'.*written by another version"):
        train(network, **options(tmp_path))
    assert same(network, toy_network())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epoch": "one"}, "epoch: got 'one', wanted int"),
        ({"epoch": 10**9}, "got epoch 1000000000, step 0 and 3 epochs behind it"),
        ({"step": -1}, "got epoch 3, step -1 and"),
        ({"elapsed": True}, "elapsed: got True"),
        ({"history": 7}, "history: got 7"),
        ({"history": [7]}, r"history: got \[7\]"),
        ({"configuration": [["a", 1]]}, "configuration: got"),
    ],
)
def test_a_checkpoint_of_other_facts_is_unusable_and_named(tmp_path, change, message):
    train(toy_network(), **options(tmp_path))
    path = tmp_path / CHECKPOINT
    tensors, facts = load_tensors(path, "checkpoint")
    save_tensors(path, "checkpoint", tensors, facts | change)
    with pytest.raises(UnusableCheckpoint, match=rf"{CHECKPOINT}: {message}.*another version"):
        load_weights(toy_network(), tmp_path)


def test_a_checkpoint_of_another_torch_that_prints_networks_otherwise_is_gone_on_with(
    tmp_path, monkeypatch
):
    whole = toy_network()
    train(whole, toy_data(), toy_recipe(4), seed=1, device="cpu")
    train(toy_network(), toy_data(), toy_recipe(4), seed=1, device="cpu", folder=tmp_path)
    path = tmp_path / CHECKPOINT
    tensors, facts = load_tensors(path, "checkpoint")

    def written_by(version: str) -> None:
        told = {**facts["configuration"], STRUCTURE: "in other words"}
        place = {"epoch": 4, "step": 0, "elapsed": 1.0, "history": facts["history"]}
        save_tensors(
            path, "checkpoint", tensors, {**place, "configuration": told, "torch": version}
        )

    written_by("2.0.0")
    again = toy_network()
    train(again, toy_data(), toy_recipe(4), seed=1, device="cpu", folder=tmp_path)
    assert same(again, whole)
    written_by(torch.__version__)
    with pytest.raises(ValueError, match=r"network\.structure is in other words there"):
        train(toy_network(), toy_data(), toy_recipe(4), seed=1, device="cpu", folder=tmp_path)
