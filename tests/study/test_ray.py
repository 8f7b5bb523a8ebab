"""Ray's workers: the same trainings, and one that is killed in the middle changes nothing."""

import os
import signal
import threading
import time
from dataclasses import replace

import pytest
import torch

from foveapool.runs import Runs
from foveapool.study.engine import Engine, RayWorkers, _unwrap_ray_error
from foveapool.study.worker import run_training
from foveapool.training.metrics import METRICS

from .small import CPU, training

LONG = training(epochs=20)
FITTED = training(("closed-form", 3), epochs=20)


@pytest.fixture
def workers(monkeypatch):
    pytest.importorskip("ray", reason="ray is an extra and not installed")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    workers = RayWorkers(cpus=1)
    yield workers
    workers.close()


@pytest.fixture
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_a_worker_killed_in_the_middle_of_its_training_changes_nothing(
    tmp_path, workers, one_thread
):
    runs, killed = Runs(tmp_path / "killed"), []

    def kill():
        # Once it has come some way.
        metrics = runs.folder(LONG.name) / METRICS
        while not metrics.exists() or len(metrics.read_text().splitlines()) < 3:
            time.sleep(0.01)
        killed.append(int((runs.root / "locks" / f"{LONG.name}.lock").read_text()))
        os.kill(killed[0], signal.SIGKILL)

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    found = Engine(runs, CPU, workers).run([FITTED])
    assert killed and os.getpid() not in killed
    calm = Runs(tmp_path / "calm")
    for each in (LONG, FITTED):
        wanted, result = run_training(each, calm, CPU), found[each.name]
        assert (result["error"], result["loss"]) == (wanted["error"], wanted["loss"])
    # A mistake comes back in its own words.
    recipe = replace(LONG.recipe, batch_size=500)
    with pytest.raises(ValueError, match="batch_size: got 500") as caught:
        Engine(runs, CPU, workers).run([replace(LONG, recipe=recipe)])
    assert "Traceback" not in str(caught.value)


def test_workers_that_always_die_are_told_of_in_plain_words():
    exceptions = pytest.importorskip("ray.exceptions", reason="ray is an extra and not installed")
    error = _unwrap_ray_error(exceptions.WorkerCrashedError(), LONG)
    assert isinstance(error, ChildProcessError) and "memory enough" in str(error)


def test_gpus_that_a_cluster_does_not_have_are_refused(monkeypatch):
    ray = pytest.importorskip("ray", reason="ray is an extra and not installed")
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 2.0})
    with pytest.raises(ValueError, match=r"gpus: got 0.5 for each training, but Ray's cluster has"):
        RayWorkers(gpus=0.5)
