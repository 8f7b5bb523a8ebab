"""`foveapool demo`: the whole experiment in a few minutes, without a GPU and without downloads.

The preset `demo`: street digits, a narrow CNN, three seeds; the usual strided convolution, BlurPool
as published, a closed form instead of the last convolution as in the paper, and a closed form that
a 1 x 1 convolution follows, with BlurPool before it. Killed, it goes on where it was.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from foveapool.pooling.operator import PoolingOperator
from foveapool.records import ERROR, Row
from foveapool.report.figures import operator_figure, save_figure
from foveapool.report.operator_files import add_examples
from foveapool.report.page import write_summaries
from foveapool.report.sources import summarize_run
from foveapool.report.tables import Key, format_spread, setting_key
from foveapool.runs import Runs
from foveapool.statistics import compare_pairs
from foveapool.study.engine import (
    Engine,
    ProcessWorkers,
    SerialWorkers,
    order_by_dependency,
)
from foveapool.study.loading import load_fit_maps
from foveapool.study.presets import read_preset
from foveapool.study.spec import ExecutionOptions, TrainingSpec
from foveapool.study.study import Study, StudyRun

# The lines of the table, in the order of the preset's arms.
NAMES = (
    "strided convolution",
    "convolution, then BlurPool",
    "closed form instead of the last convolution",
    "BlurPool twice, then closed form and 1x1 convolution",
)
STRIDED, BLUR, PAPER, BEST = range(len(NAMES))
CERTAIN = 0.05


@dataclass(frozen=True)
class Demo:
    """Where the demonstration goes, and its size."""

    out: Path = Path("runs")
    seeds: int = 3
    train_images: int = 3000
    test_images: int = 2000
    epochs: int = 15
    width: int = 16
    processes: int = 2

    def study(self) -> Study:
        """The preset in this size."""
        options = {"train_size": self.train_images, "test_size": self.test_images}
        changes = {
            "data": {"options": options},
            "network": {"width": self.width},
            "recipe": {"epochs": self.epochs},
            "trials": {"seeds": self.seeds},
        }
        return read_preset("demo", changes)


def run_demo(demo: Demo, say: Callable[[str], None]) -> tuple[Row, ...]:
    """All trainings, the ones that others wait for first; the rows of the table."""
    study = demo.study()
    settings = [arm.setting(study.network) for arm in study.arms]

    # One thread each: two small trainings at once are faster than one after the other.
    workers = ProcessWorkers(demo.processes) if demo.processes > 1 else SerialWorkers()
    try:
        run = StudyRun(study, Engine(Runs(demo.out, say), ExecutionOptions("cpu"), workers))
        for done in run:
            name = "BlurPool twice, to fit on"
            if done.training.setting in settings:
                name = NAMES[settings.index(done.training.setting)]
            wrong = f"{done.result['error']:.1f} % wrong"
            say(f"{done.number:2} of {done.total}: {name}, seed {done.training.seed}: {wrong}")
    finally:
        workers.close()
    return run.tables.rows


def get_operator_path(demo: Demo) -> Path:
    """Where the first seed's operator lies."""
    study = demo.study()
    training: TrainingSpec = study.training(study.arms[PAPER].setting(study.network), 0)
    layer = training.setting.pools[0].layer
    return Runs(demo.out).folder(training.name) / f"operator-{layer}.safetensors"


def make_table(rows: Sequence[Row]) -> list[tuple[str, str, str, str]]:
    """Pooling, error with its deviation over the seeds, parameters, seconds a training."""
    lines = []
    for name, own in zip(NAMES, _by_line(rows), strict=True):
        error, numbers = own[ERROR], own["parameters"].mean
        seconds = own["seconds a training"].mean
        spread = format_spread(error.mean, error.std, 1)
        lines.append((name, spread, f"{numbers:,.0f}", f"{seconds:.0f}"))
    return lines


def _by_line(rows: Sequence[Row]) -> list[dict[str, Row]]:
    """The rows of each line of the table by what they measure, in the order of the arms."""
    lines: dict[Key, dict[str, Row]] = {}
    for row in rows:
        lines.setdefault(setting_key(row), {})[row.metric] = row
    return list(lines.values())


def describe_verdict(rows: Sequence[Row]) -> str:
    """Whether the best closed form can be told from the others, in plain words."""
    errors = [own[ERROR] for own in _by_line(rows)]
    if errors[BEST].n < 2:
        return "One seed only: nothing can be said of the spread."
    return "\n".join(_compared(errors[BEST], errors[other], NAMES[other]) for other in range(BEST))


def _compared(best: Row, other: Row, name: str) -> str:
    pair = compare_pairs(best, other)
    told = f"paired over {pair.n} seeds, deviation {pair.std:.1f}"
    # Where all seeds differ by the same there is no test.
    if not math.isnan(pair.p):
        told += f", p = {pair.p:.2g}"
    if not pair.p <= CERTAIN:
        return f"{abs(pair.mean):.1f} points from: {name} ({told}); not significantly different."
    more = "better" if pair.mean < 0 else "worse"
    return f"{abs(pair.mean):.1f} points {more} than: {name} ({told})."


def main(demo: Demo | None = None) -> None:
    """Runs the demonstration and prints what came of it."""
    demo = demo or Demo()
    clock = time.perf_counter()

    def say(text: str) -> None:
        print(f"[{time.perf_counter() - clock:5.1f} s] {text}", flush=True)

    study = demo.study()
    settings = [arm.setting(study.network) for arm in study.arms]
    asked = [study.training(each, seed) for each in settings for seed in range(demo.seeds)]
    total = sum(len(level) for level in order_by_dependency(asked))
    say(
        f"{demo.train_images:,} street digits to learn from, {demo.test_images:,} to be tested on; "
        f"a CNN of width {demo.width}, {demo.epochs} epochs, {total} trainings, "
        f"{demo.processes} at a time"
    )
    rows = run_demo(demo, say)
    first = get_operator_path(demo)
    operator = PoolingOperator.load(first)
    folder = Runs(demo.out).study(study.name)
    picture = folder / "operator.png"
    save_figure(operator_figure(operator, width=6.6), picture, dpi=150)
    print()
    print_table(rows)
    print("The last line is")
    print(describe_verdict(rows))
    print()
    print(operator.summary())
    print()
    print(f"the pooling of seed 0: {first}")
    print(f"its picture:           {picture}")
    print(f"the table's rows:      {folder / 'rows.csv'}")
    summary = add_examples(summarize_run(folder), load_fit_maps)
    page = write_summaries([summary], folder / "report.html")
    print(f"a page to explore it:  {page}")


def print_table(rows: Sequence[Row]) -> None:
    """The table on the terminal."""
    from rich.console import Console
    from rich.table import Table

    shown = Table("pooling", "error %", "parameters", "seconds a training")
    for row in make_table(rows):
        shown.add_row(*row)
    Console().print(shown)


if __name__ == "__main__":
    main()
