"""`foveapool demo`: the whole experiment in a few minutes, without a GPU and without downloads.

The preset `demo`: street digits, a narrow CNN, three seeds; the usual strided convolution against
a pooling learned in closed form, the same one trained on, and one learned by SGD alone. Killed, it
goes on where it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from foveapool.pooling.operator import PoolingOperator
from foveapool.records import ERROR, LESS, P_VALUE, Row
from foveapool.report.collect import account_of
from foveapool.report.figures import operator_figure, save_figure
from foveapool.report.operator_files import with_examples
from foveapool.report.page import write_accounts
from foveapool.report.tables import with_spread
from foveapool.runs import Runs
from foveapool.study.conduct import conduct
from foveapool.study.engine import Done, Engine, Here, Processes, in_order
from foveapool.study.maps import maps_of_fit
from foveapool.study.presets import read_preset
from foveapool.study.setting import BASELINE, CLOSED_FORM, TRAINED
from foveapool.study.study import Study
from foveapool.study.training import Means, Training

NAMES = {
    BASELINE: "strided convolution",
    CLOSED_FORM: "closed form",
    TRAINED: "closed form, then trained",
    "sgd": "P learned by SGD",
}
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

    def report(done: Done) -> None:
        training = done.training
        say(
            f"{done.number:2} of {done.total}: {NAMES[training.setting.pooling]}, seed "
            f"{training.seed}: {done.result['error']:.1f} % wrong"
        )

    # One thread each: two small trainings at once are faster than one after the other.
    workers = Processes(demo.processes) if demo.processes > 1 else Here()
    try:
        engine = Engine(Runs(demo.out, say), Means("cpu"), workers, report)
        return conduct(demo.study(), engine).rows
    finally:
        workers.close()


def operator_path(demo: Demo) -> Path:
    """Where the first seed's operator lies."""
    study = demo.study()
    arm = next(arm for arm in study.arms if arm.pooling == CLOSED_FORM)
    training: Training = study.training(arm.setting(study.network), 0)
    layer = training.setting.pools[0].layer
    return Runs(demo.out).folder(training.name) / f"operator-{layer}.safetensors"


def table(rows: Sequence[Row]) -> list[tuple[str, str, str, str]]:
    """Pooling, error with its deviation over the seeds, parameters, seconds a training."""
    lines = []
    for pooling, name in NAMES.items():
        own = {row.metric: row for row in rows if row.pooling == pooling}
        error, numbers = own[ERROR], own["parameters"].mean
        seconds = own["seconds a training"].mean
        spread = with_spread(error.mean, error.deviation, 1)
        lines.append((name, spread, f"{numbers:,.0f}", f"{seconds:.0f}"))
    return lines


def verdict(rows: Sequence[Row]) -> str:
    """Whether the learned pooling can be told from the baseline, in plain words."""
    own = {row.metric: row for row in rows if row.pooling == CLOSED_FORM}
    if LESS not in own:
        return "One seed only: nothing can be said of the spread."
    gain = -own[LESS].mean
    told = f"paired over {own[LESS].n} seeds, deviation {own[LESS].deviation:.1f}"
    # Where all seeds differ by the same there is no test.
    if P_VALUE in own:
        told += f", p = {own[P_VALUE].mean:.2g}"
    if P_VALUE not in own or own[P_VALUE].mean > CERTAIN:
        return (
            f"Closed form and strided convolution differ by {gain:.1f} points ({told}): this run "
            "does not tell them apart."
        )
    better, worse = ("closed form", "strided convolution")[:: 1 if gain > 0 else -1]
    return (
        f"With the {better} {abs(gain):.1f} points fewer are wrong than with the {worse} ({told})."
    )


def main(demo: Demo | None = None) -> None:
    """Runs the demonstration and prints what came of it."""
    demo = demo or Demo()
    clock = time.perf_counter()

    def say(text: str) -> None:
        print(f"[{time.perf_counter() - clock:5.1f} s] {text}", flush=True)

    study = demo.study()
    settings = [arm.setting(study.network) for arm in study.arms]
    asked = [study.training(each, seed) for each in settings for seed in range(demo.seeds)]
    total = sum(len(level) for level in in_order(asked))
    say(
        f"{demo.train_images:,} street digits to learn from, {demo.test_images:,} to be tested on; "
        f"a CNN of width {demo.width}, {demo.epochs} epochs, {total} trainings, "
        f"{demo.processes} at a time"
    )
    rows = run_demo(demo, say)
    first = operator_path(demo)
    operator = PoolingOperator.load(first)
    folder = Runs(demo.out).study(study.name)
    picture = folder / "operator.png"
    save_figure(operator_figure(operator, width=6.6), picture, dpi=150)
    print()
    print_table(rows)
    print(verdict(rows))
    print()
    print(operator.summary())
    print()
    print(f"the pooling of seed 0: {first}")
    print(f"its picture:           {picture}")
    print(f"the table's rows:      {folder / 'rows.csv'}")
    account = with_examples(account_of(folder), maps_of_fit)
    page = write_accounts([account], folder / "report.html")
    print(f"a page to explore it:  {page}")


def print_table(rows: Sequence[Row]) -> None:
    """The table on the terminal."""
    from rich.console import Console
    from rich.table import Table

    shown = Table("pooling at the third layer", "error %", "parameters", "seconds a training")
    for row in table(rows):
        shown.add_row(*row)
    Console().print(shown)


if __name__ == "__main__":
    main()
