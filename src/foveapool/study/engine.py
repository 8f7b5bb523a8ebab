"""Engines: many trainings, each after the one it is fitted on, in one process or in several.

An engine hands trainings to workers: this process, several of this machine, or a Ray cluster. What
a worker does is `worker.run_training`. Processes that were started by others on the same runs share
the work: what one holds, the others leave.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any, Protocol

import torch

from foveapool.runs import RESULT, Finished, Runs
from foveapool.study.fits import WEIGHTS, check_fitted_on
from foveapool.study.spec import ExecutionOptions, TrainingSpec
from foveapool.study.worker import Outcome, find_finished, work_on

LOOK_AGAIN = 0.3  # seconds, while others work on what is left
MOST_BREAKDOWNS = 3


class Workers(Protocol):
    """Those who train."""

    @property
    def at_once(self) -> int:
        """How many trainings they can have in hand."""
        ...

    def submit(
        self, training: TrainingSpec, runs: Path, means: ExecutionOptions
    ) -> Future[Outcome]:
        """Begins a training."""
        ...

    def mend(self) -> None:
        """Begins anew after a worker died."""
        ...

    def close(self) -> None:
        """Lets the workers go, whatever they do."""
        ...


@dataclass(frozen=True)
class FinishedTraining:
    """A training that is finished, for whoever watches: `number` of `total`."""

    training: TrainingSpec
    result: dict[str, Any]
    number: int
    total: int


def order_by_dependency(trainings: Iterable[TrainingSpec]) -> list[list[TrainingSpec]]:
    """The trainings and all that they are fitted on, each once; every level needs those before."""
    levels: list[dict[str, TrainingSpec]] = []
    for training in trainings:
        chain = [training]
        while chain[-1].fitted_on is not None:
            chain.append(chain[-1].fitted_on)
        for depth, each in enumerate(reversed(chain)):
            if depth == len(levels):
                levels.append({})
            levels[depth].setdefault(each.name, each)
    return [list(level.values()) for level in levels]


class Engine:
    """Runs trainings by some workers, into one folder of runs."""

    def __init__(
        self,
        runs: Runs,
        means: ExecutionOptions,
        workers: Workers,
    ) -> None:
        self.runs, self.means, self.workers = runs, means, workers

    def run(self, trainings: Sequence[TrainingSpec]) -> Iterator[FinishedTraining]:
        """Yields each training as it is finished, with those that they are fitted on."""
        levels = order_by_dependency(trainings)
        results: dict[str, dict[str, Any]] = {}
        total = sum(len(level) for level in levels)
        fitted_on = [each.fitted_on for level in levels for each in level]
        needed = {each.name for each in fitted_on if each is not None}
        for level in levels:
            for training, result in self._run_level(level, needed):
                results[training.name] = result
                yield FinishedTraining(training, result, len(results), total)
        if self.means.keep:
            self._tell_of_weights(results)

    def _tell_of_weights(self, results: Mapping[str, Mapping[str, Any]]) -> None:
        """Says how many trainings were finished before anyone wanted their weights."""
        ended = [name for name, result in results.items() if "diverged" not in result]
        bare = [name for name in ended if not (self.runs.folder(name) / WEIGHTS).exists()]
        if bare:
            elsewhere = any(not (self.runs.folder(name) / RESULT).exists() for name in bare)
            without = " and without the known trainings" if elsewhere else ""
            self.runs.say(
                f"{len(bare)} trainings were finished before, without their weights, such as "
                f"{bare[0]}; train into another folder of runs{without} to keep all"
            )

    def _run_level(
        self, level: Sequence[TrainingSpec], needed: set[str]
    ) -> Iterable[tuple[TrainingSpec, dict[str, Any]]]:
        """Each training of the level and its result; the weights of those `needed` are kept."""
        waiting: list[TrainingSpec] = []
        # What is finished is told at once, whatever others of the level will take.
        for training in level:
            done = find_finished(training, self.runs)
            if done is None:
                waiting.append(training)
            else:
                yield training, done
        breakdowns = 0
        busy: list[TrainingSpec] = []
        running: dict[Future[Outcome], TrainingSpec] = {}
        try:
            while waiting or busy or running:
                while waiting and len(running) < self.workers.at_once:
                    training = waiting.pop(0)
                    done = find_finished(training, self.runs)
                    if done is not None:
                        yield training, done
                        continue
                    means = replace(self.means, keep=self.means.keep or training.name in needed)
                    try:
                        future = self._submit(training, means)
                    except BrokenProcessPool:
                        waiting.insert(0, training)
                        break
                    running[future] = training
                ended = wait(running, return_when=FIRST_COMPLETED).done if running else set()
                broken = not ended
                for future in ended:
                    training = running.pop(future)
                    try:
                        outcome = future.result()
                    except BrokenProcessPool:
                        broken = True
                        waiting.append(training)
                        continue
                    for text in outcome.said:
                        self.runs.say(text)
                    if outcome.result is None:
                        busy.append(training)
                    else:
                        yield training, outcome.result
                if broken and waiting:
                    breakdowns += 1
                    if breakdowns > MOST_BREAKDOWNS:
                        raise ChildProcessError(
                            f"workers died {breakdowns} times, last with {waiting[-1].name}; is "
                            "there memory enough? Start again with fewer at once: what is "
                            "finished stays"
                        )
                    self.runs.say("a worker died; its training goes on from its last checkpoint")
                    self.workers.mend()
                    # The others went with it, whether their futures know by now or not.
                    waiting += running.values()
                    running.clear()
                if busy and not waiting and not running:
                    time.sleep(LOOK_AGAIN)
                    waiting, busy = busy, []
        finally:
            for future in running:
                future.cancel()

    def _submit(self, training: TrainingSpec, means: ExecutionOptions) -> Future[Outcome]:
        """Begins a training: with the workers, unless what is known here ends it at once."""
        before = training.fitted_on
        if before is not None and not self.runs.result_in_folder(before.name, before.facts):
            try:
                check_fitted_on(training, self.runs)
            except FloatingPointError:
                # A worker knows the folder alone: it would train the network that diverged again.
                return _run_as_future(training, self.runs.root, means, self.runs.known)
        return self.workers.submit(training, self.runs.root, means)


def _run_as_future(
    training: TrainingSpec,
    runs: Path,
    means: ExecutionOptions,
    known: Mapping[str, Finished] | None = None,
) -> Future[Outcome]:
    """A training that is done at once, by this process."""
    future: Future[Outcome] = Future()
    try:
        future.set_result(work_on(training, runs, means, known))
    except Exception as error:
        future.set_exception(error)
    return future


class SerialWorkers:
    """This process alone, one training after the other."""

    at_once = 1

    def submit(
        self, training: TrainingSpec, runs: Path, means: ExecutionOptions
    ) -> Future[Outcome]:
        """Does the training at once."""
        return _run_as_future(training, runs, means)

    def mend(self) -> None:
        """Nothing to mend."""

    def close(self) -> None:
        """Nothing to close."""


class ProcessWorkers:
    """Several processes of this machine; on a CPU they share its cores."""

    def __init__(self, count: int) -> None:
        if count < 1:
            raise ValueError(f"processes: got {count}, wanted 1 or more")
        self.at_once = count
        self._pool = self._start_pool()

    def _start_pool(self) -> ProcessPoolExecutor:
        threads = max(1, (os.cpu_count() or 1) // self.at_once)
        context = get_context("spawn")
        return ProcessPoolExecutor(self.at_once, context, _begin_worker, (threads,))

    def submit(
        self, training: TrainingSpec, runs: Path, means: ExecutionOptions
    ) -> Future[Outcome]:
        """Gives the training to a process."""
        return self._pool.submit(work_on, training, runs, means)

    def mend(self) -> None:
        """New processes for those that died."""
        self.close()
        self._pool = self._start_pool()

    def close(self) -> None:
        """Ends the processes; a training that one was at can be gone on with."""
        for process in list((self._pool._processes or {}).values()):
            process.terminate()
        self._pool.shutdown(wait=True, cancel_futures=True)


def _begin_worker(threads: int) -> None:
    torch.set_num_threads(threads)
    parent = parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        # Killed, it could tell nobody; who starts again must find the folders free.
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
