"""Engines: each training once, after what it is fitted on, whatever happens to the workers."""

import os
import signal
import threading
import time
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace

import pytest
import torch

from foveapool.runs import Runs
from foveapool.study import engine as module
from foveapool.study.engine import Engine, ProcessWorkers, order_by_dependency
from foveapool.study.rows import make_diverged_result
from foveapool.study.worker import Outcome, run_training
from foveapool.training.metrics import METRICS

from .small_studies import CPU, engine, results_of, training

BASELINE, FITTED = training(), training(("closed-form", 3))
TWICE = training(("closed-form", 3), ("closed-form", 2))
DONE = {**make_diverged_result("scripted"), "error": 1.0}


class Scripted:
    """Workers that answer as they are told, one answer a training; `finish` writes the result."""

    def __init__(self, runs, at_once=1, **answers):
        self.runs, self.at_once, self.answers = runs, at_once, answers
        self.given, self.means, self.mended, self.open = [], [], 0, []

    def finish(self, training):
        self.runs.begin(training.name, training.facts)
        self.runs.finish(training.name, DONE)
        return Outcome(self.runs.result(training.name, training.facts))

    def submit(self, training, runs, means):
        self.given.append(training.name)
        self.means.append(means)
        future = Future()
        answers = self.answers.get(f"seed{training.seed}", [])
        answer = answers.pop(0) if answers else "done"
        if answer == "refuse":
            raise BrokenProcessPool
        if answer == "later":
            self.open.append(future)
            return future
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(Outcome(None) if answer == "busy" else self.finish(training))
        return future

    def mend(self):
        self.mended += 1
        while self.open:
            self.open.pop().set_exception(BrokenProcessPool())

    def close(self):
        pass


def seeds(count):
    return [training(seed=seed) for seed in range(count)]


def test_what_others_are_fitted_on_comes_first_and_once():
    other = training(("closed-form", 3, 5.0))
    levels = order_by_dependency([TWICE, other, FITTED, training(("sgd", 3))])
    names = [[each.name for each in level] for level in levels]
    assert names == [
        [BASELINE.name, training(("sgd", 3)).name],
        [FITTED.name, other.name],
        [TWICE.name],
    ]
    assert order_by_dependency([]) == []


def test_results_come_by_name_with_those_they_are_fitted_on(tmp_path):
    seen = list(engine(tmp_path).run([FITTED]))
    assert [done.training.name for done in seen] == [BASELINE.name, FITTED.name]
    assert [(done.number, done.total) for done in seen] == [(1, 2), (2, 2)]
    assert all(Runs(tmp_path).result(d.training.name, d.training.facts) == d.result for d in seen)


def test_what_is_finished_is_not_given_out_again(runs):
    workers = Scripted(runs)
    results_of(Engine(runs, CPU, workers), [FITTED])
    assert workers.given == [BASELINE.name, FITTED.name]
    again = Scripted(runs)
    assert len(results_of(Engine(runs, CPU, again), [TWICE])) == 3
    assert again.given == [TWICE.name]


def test_the_networks_that_others_are_fitted_on_keep_their_weights(runs):
    workers = Scripted(runs)
    results_of(Engine(runs, CPU, workers), [TWICE, training(("sgd", 3))])
    kept = {name: means.keep for name, means in zip(workers.given, workers.means, strict=True)}
    assert kept == {
        BASELINE.name: True,
        FITTED.name: True,
        training(("sgd", 3)).name: False,
        TWICE.name: False,
    }


def test_what_was_finished_without_its_weights_is_told_of_when_all_are_wanted(tmp_path):
    results_of(engine(tmp_path), [FITTED])
    said = []
    wanting = engine(tmp_path, said)
    results_of(wanting, [FITTED])
    assert said == []
    wanting.means = replace(CPU, keep=True)
    results_of(wanting, [FITTED])
    (text,) = said  # of the baseline they are there
    assert text.startswith("1 trainings were finished before, without their weights")
    assert FITTED.name in text and "another folder of runs" in text


def test_a_second_layer_repeats_no_training(tmp_path):
    said = []
    results_of(engine(tmp_path, said), [TWICE])
    assert said == []


def test_what_another_process_holds_is_left_and_looked_for_again(runs, monkeypatch):
    monkeypatch.setattr(module, "LOOK_AGAIN", 0.01)
    workers = Scripted(runs, seed0=["busy", "busy"])
    found = results_of(Engine(runs, CPU, workers), seeds(3))
    assert set(found) == {each.name for each in seeds(3)}
    first, second, third = (each.name for each in seeds(3))
    assert workers.given == [first, second, third, first, first]
    assert workers.mended == 0 and runs.said == []


def test_a_training_that_another_process_holds_is_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LOOK_AGAIN", 0.01)
    other = Runs(tmp_path)
    ready = threading.Event()

    def hold():
        with other.claimed(BASELINE.name, BASELINE.facts):
            ready.set()
            time.sleep(0.3)

    thread = threading.Thread(target=hold)
    thread.start()
    ready.wait()
    begin = time.monotonic()
    found = results_of(engine(tmp_path), [BASELINE])
    assert time.monotonic() - begin > 0.2
    assert found[BASELINE.name] == other.result(BASELINE.name, BASELINE.facts)
    thread.join()


def test_a_dead_worker_is_replaced_and_its_training_given_out_again(runs):
    workers = Scripted(runs, seed1=[BrokenProcessPool()])
    found = results_of(Engine(runs, CPU, workers), seeds(3))
    assert len(found) == 3 and workers.mended == 1
    assert runs.said == ["a worker died; its training goes on from its last checkpoint"]


def test_the_trainings_of_all_workers_are_given_out_again_after_one_death(runs):
    # The pool is broken, but only one of its futures knows it by now.
    workers = Scripted(runs, 2, seed0=[BrokenProcessPool()], seed1=["later"])
    found = results_of(Engine(runs, CPU, workers), seeds(3))
    assert len(found) == 3 and workers.mended == 1
    assert sorted(workers.given) == sorted([seeds(3)[i].name for i in (0, 0, 1, 1, 2)])


def test_a_pool_that_takes_nothing_more_is_replaced(runs):
    workers = Scripted(runs, seed0=["refuse"])
    assert len(results_of(Engine(runs, CPU, workers), seeds(1))) == 1
    assert workers.mended == 1


def test_workers_that_always_die_are_not_replaced_for_ever(runs):
    workers = Scripted(runs, seed1=[BrokenProcessPool()] * 9)
    with pytest.raises(ChildProcessError, match=r"workers died 4 times, last with .*seed1.*fewer"):
        results_of(Engine(runs, CPU, workers), seeds(2))
    # What was finished before is.
    assert runs.result(seeds(1)[0].name, seeds(1)[0].facts) is not None


def test_a_mistake_in_a_training_ends_the_run_and_lets_the_others_go(runs):
    workers = Scripted(runs, 2, seed0=["later"], seed1=[ValueError("wrong")])
    with pytest.raises(ValueError, match="wrong"):
        results_of(Engine(runs, CPU, workers), seeds(3))


def test_what_a_worker_says_is_passed_on(tmp_path):
    said = []
    (tmp_path / "trainings" / BASELINE.name).mkdir(parents=True)
    (tmp_path / "trainings" / BASELINE.name / "result.json").write_text("{")
    results_of(engine(tmp_path, said), [BASELINE])
    assert len(said) == 1 and "set aside" in said[0]


def test_no_process_at_all_is_refused():
    with pytest.raises(ValueError, match="processes: got 0, wanted 1 or more"):
        ProcessWorkers(0)


def test_a_process_killed_in_the_middle_of_its_training_changes_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)  # a thread for each of two
    long = training(epochs=40)
    said, killed = [], []
    runs = Runs(tmp_path / "killed", said.append)

    def kill():
        # Once it has come some way.
        metrics = runs.folder(long.name) / METRICS
        while not metrics.exists() or len(metrics.read_text().splitlines()) < 3:
            time.sleep(0.01)
        killed.append(int((runs.root / "locks" / f"{long.name}.lock").read_text()))
        os.kill(killed[0], signal.SIGKILL)

    thread = threading.Thread(target=kill, daemon=True)
    workers = ProcessWorkers(2)
    thread.start()
    try:
        found = results_of(Engine(runs, CPU, workers), [long])
    finally:
        workers.close()
    assert killed and said == ["a worker died; its training goes on from its last checkpoint"]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        wanted = run_training(long, Runs(tmp_path / "calm"), CPU)
    finally:
        torch.set_num_threads(threads)
    result = found[long.name]
    assert (result["error"], result["loss"]) == (wanted["error"], wanted["loss"])


def test_what_a_finished_training_left_is_removed_where_nothing_is_to_be_done(tmp_path):
    results_of(engine(tmp_path), [BASELINE])
    left = Runs(tmp_path).folder(BASELINE.name) / "checkpoint.safetensors"
    left.write_text("large")
    results_of(engine(tmp_path), [BASELINE])
    assert not left.exists()
