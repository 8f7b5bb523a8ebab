"""Ray's workers: the same trainings, and one that is killed in the middle changes nothing."""

import os
import signal
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from foveapool.runs import RESULT, Runs
from foveapool.study import ray_workers
from foveapool.study.engine import Engine
from foveapool.study.parcels import Changes, write_files
from foveapool.study.ray_workers import RayWorkers, SharedRayWorkers, unwrap_ray_error
from foveapool.study.worker import run_training
from foveapool.training.checkpoint import CHECKPOINT, read_checkpoint
from foveapool.training.metrics import METRICS

from .small_studies import CPU, results_of, training

LONG = training(epochs=20)
FITTED = training(("closed-form", 3), epochs=20)


@pytest.fixture(scope="module")
def cluster():
    ray = pytest.importorskip("ray", reason="ray is an extra and not installed")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("RAY_USAGE_STATS_ENABLED", "0")
        environment.setenv("RAY_AUTH_MODE", "disabled")
        environment.delenv("RAY_ADDRESS", raising=False)
        ray.init(log_to_driver=False, include_dashboard=False)
        yield
        ray.shutdown()


@pytest.fixture
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.soak
def test_a_worker_killed_in_the_middle_of_its_training_changes_nothing(
    tmp_path, cluster, one_thread
):
    workers = SharedRayWorkers(cpus=1)
    runs, killed = Runs(tmp_path / "killed"), []
    long, fitted = training(epochs=100), training(("closed-form", 3), epochs=100)

    def kill():
        # Once it has come some way.
        metrics = runs.folder(long.name) / METRICS
        while not metrics.exists() or len(metrics.read_text().splitlines()) < 3:
            time.sleep(0.01)
        killed.append(int((runs.root / "locks" / f"{long.name}.lock").read_text()))
        os.kill(killed[0], signal.SIGKILL)

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    found = results_of(Engine(runs, CPU, workers), [fitted])
    assert killed and os.getpid() not in killed
    calm = Runs(tmp_path / "calm")
    for each in (long, fitted):
        wanted, result = run_training(each, calm, CPU), found[each.name]
        assert (result["error"], result["loss"]) == (wanted["error"], wanted["loss"])
    # A mistake comes back in its own words.
    recipe = replace(LONG.recipe, batch_size=500)
    with pytest.raises(ValueError, match="batch_size: got 500") as caught:
        results_of(Engine(runs, CPU, workers), [replace(LONG, recipe=recipe)])
    assert "Traceback" not in str(caught.value)


def test_what_a_training_needs_and_makes_travels(tmp_path, cluster, one_thread):
    runs, calm = Runs(tmp_path / "runs"), Runs(tmp_path / "calm")
    workers = RayWorkers(cpus=1)
    found = results_of(Engine(runs, CPU, workers), [FITTED])
    workers.close()
    calmly = {each.name: run_training(each, calm, CPU) for each in (LONG, FITTED)}
    for each in (LONG, FITTED):
        wanted, result = calmly[each.name], found[each.name]
        assert (result["error"], result["loss"]) == (wanted["error"], wanted["loss"])
        files, theirs = (
            {path.name for path in folder.folder(each.name).iterdir()} for folder in (runs, calm)
        )
        assert files == theirs - {"lock", "fit.lock"}


def stop_after_epochs(epochs):
    """What a worker does, but the first one saves after each epoch and then stops for ever.

    It is a function of no module, so that Ray sends it to the worker as it is.
    """

    def _work_apart(training, files, others, means, mailbox, attempt, send_seconds):
        from foveapool.study import ray_workers, spec
        from foveapool.training.checkpoint import RunFolder

        save = RunFolder.save

        def save_and_stop(self, tensors, position):
            save(self, tensors, position)
            if position.epoch == epochs:
                time.sleep(3600)

        with pytest.MonkeyPatch.context() as patches:
            if attempt == 0:
                patches.setattr(spec, "CHECKPOINT_SECONDS", 0.0)
                patches.setattr(RunFolder, "save", save_and_stop)
            return ray_workers._work_apart(
                training, files, others, means, mailbox, attempt, send_seconds
            )

    return _work_apart


@pytest.mark.soak
def test_a_worker_that_dies_goes_on_from_the_checkpoint_that_it_sent(
    tmp_path, cluster, one_thread, monkeypatch
):
    runs, calm = Runs(tmp_path / "killed"), Runs(tmp_path / "calm")
    sent, said = [], []
    metrics, checkpoint = (runs.folder(LONG.name) / name for name in (METRICS, CHECKPOINT))

    def has_come():
        with suppress(FileNotFoundError):
            epochs = read_checkpoint(checkpoint)[2].epoch
            return epochs == len(metrics.read_text().splitlines()) == 8

    def kill():
        while not has_come():
            time.sleep(0.01)
        sent.extend(metrics.read_text().splitlines())
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                if b"_work_apart" in path.read_bytes():
                    os.kill(int(path.parent.name), signal.SIGKILL)

    monkeypatch.setattr(ray_workers, "_work_apart", stop_after_epochs(8))
    workers = RayWorkers(cpus=1, send_seconds=0.2)
    threading.Thread(target=kill, daemon=True).start()
    runs.say = said.append
    found = results_of(Engine(runs, CPU, workers), [LONG])[LONG.name]
    workers.close()
    assert any("it goes on from what was sent last" in each for each in said)
    wanted = run_training(LONG, calm, CPU)
    assert (found["error"], found["loss"]) == (wanted["error"], wanted["loss"])
    # The epochs before it died have the times that they took then.
    assert metrics.read_text().splitlines()[:8] == sent


def test_what_a_worker_sent_before_goes_with_its_result_again(tmp_path):
    folder = tmp_path / "trainings" / "a"
    folder.mkdir(parents=True)
    (folder / "training.json").write_text("came with it")
    changes, sent = Changes(tmp_path), f"trainings/a/{METRICS}"
    (folder / METRICS).write_text("new")
    (folder / RESULT).write_text("new")
    # A message may be lost with the machine that holds it, or come after the answer.
    assert set(changes.read_new()) == {sent} and not changes.read_new()
    changes.forget()
    assert set(changes.read_new()) == {sent}
    assert set(changes.read_all()) == {sent, f"trainings/a/{RESULT}"}


def test_files_from_a_worker_stay_in_their_folder(tmp_path):
    for name in ("trainings/../../other/result.json", "result.json", "studies/a/rows.csv"):
        with pytest.raises(ValueError, match="wanted a file of a training"):
            write_files(tmp_path, "a", {name: b""})
    assert not any(tmp_path.iterdir())


def test_a_machine_that_does_not_see_the_shared_folder_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(ray_workers, "SEEN_SECONDS", 0.0)
    with pytest.raises(FileNotFoundError, match="leave out --shared, and results travel"):
        ray_workers._work_shared(LONG, tmp_path, CPU, "nonce")


def test_workers_that_always_die_are_told_of_in_plain_words():
    exceptions = pytest.importorskip("ray.exceptions", reason="ray is an extra and not installed")
    error = unwrap_ray_error(exceptions.WorkerCrashedError(), LONG)
    assert isinstance(error, ChildProcessError) and "memory enough" in str(error)


def test_gpus_that_a_cluster_does_not_have_are_refused(monkeypatch):
    ray = pytest.importorskip("ray", reason="ray is an extra and not installed")
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 2.0})
    with pytest.raises(ValueError, match=r"gpus: got 0.5 for each training, but Ray's cluster has"):
        RayWorkers(gpus=0.5)
