"""`foveapool demo`: the whole experiment in a few minutes, without a GPU and without downloads.

Street digits, a narrow CNN, three seeds: the usual strided convolution against a pooling learned
in closed form, the same one trained on, and one learned by SGD alone. Killed, it goes on where it
was.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context, parent_process
from pathlib import Path

import torch

from foveapool.data.images import DataSet
from foveapool.data.registry import load_data
from foveapool.pooling.operator import PoolingOperator
from foveapool.report.figures import operator_figure
from foveapool.study.protocol import BASELINE, CLOSED_FORM, TRAINED, Setting, Trial
from foveapool.training.recipe import Recipe

NAMES = {
    BASELINE: "strided convolution",
    CLOSED_FORM: "closed form",
    TRAINED: "closed form, then trained",
    "sgd": "P learned by SGD",
}


@dataclass(frozen=True)
class Demo:
    """The size of the demonstration."""

    out: Path = Path("runs/demo")
    seeds: tuple[int, ...] = (0, 1, 2)
    train_images: int = 3000
    test_images: int = 2000
    epochs: int = 15
    width: int = 16
    layer: int = 3
    alpha: float = 25.0

    def data(self) -> DataSet:
        """The scenes."""
        return load_data("street-digits", train_size=self.train_images, test_size=self.test_images)

    def trial(self, pooling: str, seed: int, data: DataSet) -> Trial:
        """One training."""
        setting = Setting(pooling, self.layer, self.alpha, width=self.width)
        recipe = Recipe("adam", 1e-3, self.epochs, batch_size=64)
        folder = self.out / f"{pooling}-{seed}"
        return Trial(setting, data, recipe, seed, device="cpu", folder=folder)

    def operator(self, seed: int) -> Path:
        """Where the operator of a seed lies."""
        return self.out / f"operator-{seed}.safetensors"


@dataclass(frozen=True)
class Outcome:
    """What one training came to."""

    pooling: str
    seed: int
    error: float
    parameters: int
    seconds: float


def run_job(demo: Demo, pooling: str, seed: int) -> Outcome:
    """One training with its fit, in a process of its own."""
    trial = demo.trial(pooling, seed, demo.data())
    operator = None
    if trial.setting.is_fitted:
        operator = PoolingOperator.load(demo.operator(seed))
    network, result = trial.run(operator)
    if pooling == BASELINE:
        fitted = replace(trial, setting=replace(trial.setting, pooling=CLOSED_FORM))
        fitted.fit(network, demo.operator(seed))
    parameters = sum(p.numel() for p in network.parameters())
    return Outcome(pooling, seed, result.test_error, parameters, result.seconds)


def _begin_worker() -> None:
    torch.set_num_threads(1)
    parent = parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        # Killed, it could tell nobody; who starts again must find the folders free.
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def run_demo(demo: Demo, say: Callable[[str], None], processes: int = 2) -> list[Outcome]:
    """All trainings, the ones that others wait for first."""
    demo.out.mkdir(parents=True, exist_ok=True)
    outcomes = []
    context = get_context("spawn")
    # One thread each: two small trainings at once are faster than one after the other.
    with ProcessPoolExecutor(processes, context, initializer=_begin_worker) as pool:
        for names in ((BASELINE, "sgd"), (CLOSED_FORM, TRAINED)):
            jobs = [pool.submit(run_job, demo, name, seed) for name in names for seed in demo.seeds]
            for job in as_completed(jobs):
                outcome = job.result()
                outcomes.append(outcome)
                done, total = len(outcomes), len(NAMES) * len(demo.seeds)
                say(
                    f"{done:2} of {total}: {NAMES[outcome.pooling]}, seed {outcome.seed}: "
                    f"{outcome.error:.1f} % wrong"
                )
    return outcomes


def table(outcomes: Sequence[Outcome]) -> list[tuple[str, str, str, str]]:
    """Pooling, error with its deviation over the seeds, parameters, seconds a training."""
    rows = []
    for pooling, name in NAMES.items():
        own = [outcome for outcome in outcomes if outcome.pooling == pooling]
        errors = [outcome.error for outcome in own]
        spread = statistics.stdev(errors) if len(errors) > 1 else 0.0
        seconds = statistics.mean(outcome.seconds for outcome in own)
        error = f"{statistics.mean(errors):.1f} +- {spread:.1f}"
        rows.append((name, error, f"{own[0].parameters:,}", f"{seconds:.0f}"))
    return rows


def verdict(outcomes: Sequence[Outcome]) -> str:
    """Whether the learned pooling can be told from the baseline, in plain words."""
    errors = {
        pooling: [outcome.error for outcome in outcomes if outcome.pooling == pooling]
        for pooling in NAMES
    }
    base, closed = errors[BASELINE], errors[CLOSED_FORM]
    gain = statistics.mean(base) - statistics.mean(closed)
    spread = sum(statistics.stdev(each) if len(each) > 1 else 0.0 for each in (base, closed))
    if abs(gain) <= spread:
        return (
            f"Closed form and strided convolution differ by {gain:.1f} points, no more than their "
            f"spread ({spread:.1f}): this run does not tell them apart."
        )
    better, worse = ("closed form", "strided convolution")[:: 1 if gain > 0 else -1]
    return (
        f"With the {better} {abs(gain):.1f} points fewer are wrong than with the {worse}; "
        f"their spread over the seeds is {spread:.1f}."
    )


def main(demo: Demo | None = None) -> None:
    """Runs the demonstration and prints what came of it."""
    demo = demo or Demo()
    clock = time.perf_counter()

    def say(text: str) -> None:
        print(f"[{time.perf_counter() - clock:5.1f} s] {text}", flush=True)

    total = len(NAMES) * len(demo.seeds)
    say(
        f"{demo.train_images:,} street digits to learn from, {demo.test_images:,} to be tested on; "
        f"a CNN of width {demo.width}, {demo.epochs} epochs, {total} trainings, two at a time"
    )
    outcomes = run_demo(demo, say)
    first = demo.operator(demo.seeds[0])
    operator = PoolingOperator.load(first)
    picture = demo.out / "operator.png"
    operator_figure(operator).savefig(picture, dpi=110)
    print()
    print_table(outcomes)
    print(verdict(outcomes))
    print()
    print(operator.summary())
    print()
    print(f"the pooling, seed {demo.seeds[0]}: {first}")
    print(f"its picture:         {picture}")
    print(f"every training:      {demo.out}/*/metrics.jsonl")


def print_table(outcomes: Sequence[Outcome]) -> None:
    """The table on the terminal."""
    from rich.console import Console
    from rich.table import Table

    shown = Table("pooling at the third layer", "error %", "parameters", "seconds a training")
    for row in table(outcomes):
        shown.add_row(*row)
    Console().print(shown)


if __name__ == "__main__":
    main()
