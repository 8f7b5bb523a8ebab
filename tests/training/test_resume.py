"""A training that was interrupted, however rudely, ends as if it had not been.

What is refused of a checkpoint is in test_checkpoint.py.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from foveapool.pooling.storage import load_tensors
from foveapool.training.checkpoint import CHECKPOINT, RunFolder, load_weights
from foveapool.training.loop import train

from .toys import options, same, toy_data, toy_network, toy_recipe

# Each try is a process of its own, forked from one that has imported all of torch and run nothing.
KILLED_AGAIN_AND_AGAIN = """
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
        recipe = toy_recipe(40, optimizer="adam", lr=1e-3, milestones=(20,))
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

middle = False
# Ten times, and more where none of the blows came in the middle of an epoch.
for attempt in range(40):
    if attempt >= 10 and middle:
        break
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
        middle = middle or facts["step"] > 0
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


def test_killed_training_ends_with_the_same_weights(tmp_path):
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    here = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", KILLED_AGAIN_AND_AGAIN, "7"]
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


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize(("stop", "checkpoint_steps"), [(2, 1), (7, 2), (4, None), (9, 3)])
def test_a_resumed_training_ends_with_the_same_weights(tmp_path, stop, checkpoint_steps, optimizer):
    calm, resumed = noisy_network(), noisy_network()
    more = {"checkpoint_steps": checkpoint_steps, "optimizer": optimizer}
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


def test_every_epoch_is_saved_however_long_saving_takes(tmp_path, monkeypatch):
    saved, save = [], RunFolder.save

    def slowly(run, tensors, position):
        time.sleep(0.2)
        saved.append((position.epoch, position.step))
        save(run, tensors, position)

    monkeypatch.setattr(RunFolder, "save", slowly)
    train(toy_network(), toy_data(), toy_recipe(3), device="cpu", folder=tmp_path)
    assert saved == [(1, 0), (2, 0), (3, 0)]
