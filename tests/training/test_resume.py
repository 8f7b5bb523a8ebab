"""A training that was interrupted, however rudely, ends as if it had not been."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from foveapool.pooling.storage import load_tensors, save_tensors
from foveapool.training.checkpoint import (
    CHECKPOINT,
    RunFolder,
    UnusableCheckpoint,
    load_weights,
)
from foveapool.training.configuration import STRUCTURE
from foveapool.training.loop import train

from .toys import same, toy_data, toy_images, toy_network, toy_recipe

# Each try is a process of its own, forked from one that has imported all of torch and run nothing.
KILLED_TEN_TIMES = """
import os, random, signal, sys, time
import torch
from toys import toy_data, toy_network, toy_recipe
from foveapool.pooling.storage import load_tensors
from foveapool.training.loop import train

torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])

def training(folder):
    pid = os.fork()
    if pid == 0:
        network = torch.nn.Sequential(toy_network(), torch.nn.Dropout(0.1))
        recipe = toy_recipe(40, optimiser="adam", lr=1e-3, milestones=(20,))
        train(network, toy_data(), recipe, seed=1, device="cpu", folder=folder, checkpoint_steps=3)
        os._exit(0)
    return pid

begin = time.monotonic()
_, status = os.waitpid(training("calm"), 0)
assert status == 0
whole = time.monotonic() - begin
moments = random.Random(int(sys.argv[1]))
checkpoint = "killed/checkpoint.safetensors"

def written():
    return os.stat(checkpoint).st_mtime_ns if os.path.exists(checkpoint) else None

for attempt in range(10):
    before = written()
    pid = training("killed")
    # Every other one may first come some way, or slow machines would only see beginnings.
    while attempt % 2 and written() == before:
        time.sleep(0.001)
    time.sleep(moments.uniform(0, 0.03) * whole)
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    if written():
        facts = load_tensors(checkpoint, "checkpoint")[1]
        print(facts["epoch"], facts["step"])
_, status = os.waitpid(training("killed"), 0)
assert status == 0
"""


class Interrupted(Exception):
    pass


def interrupted_after(steps):
    def progress(progress):
        if progress.done == steps:
            raise Interrupted

    return progress


def noisy_network():
    return nn.Sequential(toy_network(), nn.Dropout(0.2))


def options(folder, **more):
    recipe = toy_recipe(3, optimiser=more.pop("optimiser", "sgd"), milestones=(2,))
    return {"data": toy_data(), "recipe": recipe, "device": "cpu", "folder": folder, **more}


def test_killed_training_ends_with_the_same_weights(tmp_path):
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    here = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", KILLED_TEN_TIMES, "7"]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, **here}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    positions = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert positions == sorted(positions) and len(set(positions)) > 3
    assert any(step for _, step in positions)
    (calm, facts), (killed, other) = (
        load_tensors(tmp_path / name / CHECKPOINT, "checkpoint") for name in ("calm", "killed")
    )
    assert facts["epoch"] == other["epoch"] == 40
    assert calm.keys() == killed.keys()
    assert all(torch.equal(calm[name], killed[name]) for name in calm)
    assert [r["loss"] for r in facts["history"]] == [r["loss"] for r in other["history"]]
    lines = [
        [json.loads(line)["loss"] for line in (tmp_path / name / "metrics.jsonl").open()]
        for name in ("calm", "killed")
    ]
    assert lines[0] == lines[1] and len(lines[0]) == 40
    # Nothing is left of what was being written when the blow came.
    assert {p.name for p in (tmp_path / "killed").iterdir()} == {
        CHECKPOINT,
        "lock",
        "metrics.jsonl",
    }


@pytest.mark.parametrize("optimiser", ["adam", "sgd"])
@pytest.mark.parametrize(("stop", "checkpoint_steps"), [(2, 1), (7, 2), (4, None), (9, 3)])
def test_a_resumed_training_ends_with_the_same_weights(tmp_path, stop, checkpoint_steps, optimiser):
    calm, resumed = noisy_network(), noisy_network()
    more = {"checkpoint_steps": checkpoint_steps, "optimiser": optimiser}
    wanted = train(calm, **options(tmp_path / "calm", **more))
    with pytest.raises(Interrupted):
        train(resumed, **options(tmp_path / "run", progress=interrupted_after(stop), **more))
    assert not same(calm, resumed)
    # In a new process the network is built anew.
    resumed = noisy_network()
    result = train(resumed, **options(tmp_path / "run", **more))
    assert same(calm, resumed)
    assert (result.test_error, result.train_loss) == (wanted.test_error, wanted.train_loss)
    assert [r.loss for r in result.history] == [r.loss for r in wanted.history]


def test_a_finished_training_is_not_repeated(tmp_path):
    network = toy_network()
    result = train(network, **options(tmp_path))
    seen, again = [], toy_network()
    assert train(again, **options(tmp_path, progress=seen.append)) == result
    assert same(again, network) and len(seen) == 1


def test_without_resuming_it_starts_afresh(tmp_path):
    train(toy_network(), **options(tmp_path))
    seen = []
    train(toy_network(), **options(tmp_path, progress=seen.append, resume=False))
    assert [progress.done for progress in seen] == list(range(13))


def test_the_old_checkpoint_is_gone_before_anyone_is_told_of_the_new_training(tmp_path):
    train(toy_network(), **options(tmp_path))
    there = []
    train(
        toy_network(),
        **options(
            tmp_path,
            progress=lambda now: there.append((tmp_path / CHECKPOINT).exists()),
            resume=False,
        ),
    )
    assert there[0] is False and there[-1] is True


def test_the_old_checkpoint_stays_where_a_new_training_is_refused(tmp_path, monkeypatch):
    train(toy_network(), **options(tmp_path))
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ImportError, match="tensorboard: not installed"):
        train(toy_network(), **options(tmp_path, resume=False, tensorboard=True))
    assert load_weights(toy_network(), tmp_path).epoch == 3


def test_metrics_beyond_the_checkpoint_are_cut(tmp_path):
    train(toy_network(), **options(tmp_path))
    path = tmp_path / "metrics.jsonl"
    lines = path.read_text()
    path.write_text(lines + '{"epoch": 4}\n{"epo')
    train(toy_network(), **options(tmp_path))
    assert path.read_text() == lines


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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": toy_data(normalisation="image")}, "data.normalisation is channel there and ima"),
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


def test_every_epoch_is_saved_however_long_saving_takes(tmp_path, monkeypatch):
    saved, save = [], RunFolder.save

    def slowly(run, tensors, position):
        time.sleep(0.2)
        saved.append((position.epoch, position.step))
        save(run, tensors, position)

    monkeypatch.setattr(RunFolder, "save", slowly)
    train(toy_network(), toy_data(), toy_recipe(3), device="cpu", folder=tmp_path)
    assert saved == [(1, 0), (2, 0), (3, 0)]


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
