"""A pretrained EfficientNet-Lite0 on solar cells: do learned poolings help to tell damage apart?

Plain fine-tuning, BlurPool as published, and the closed form in each form, at the last two layers
that shrink their maps. Every arm searches among six settings on a held-out part of the first
split's training images; then each is fine-tuned and tested on every split. What is finished stays
finished: started again, it goes on.

    python examples/solar_cells.py --frozen --size 128                # in half an hour on two cores
    python examples/solar_cells.py --minutes 9                        # on a GPU, until it says done
    python examples/solar_cells.py --pack                  # one file for a machine without network
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import solar_data
import torch
from efficientnet_lite import build_pretrained
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from solar_data import DEGREES, SolarCells
from solar_probe import Probe
from solar_training import (
    ARMS,
    BATCH,
    LAYERS,
    Say,
    Setting,
    fine_tune,
    list_settings,
    prepare_images,
    put_in,
    to_inputs,
)
from torch import Tensor

from foveapool.records import (
    ERROR,
    LESS,
    P_VALUE,
    Row,
    collect_provenance,
    summarize_values,
    write_rows,
)
from foveapool.runs import digest_facts
from foveapool.statistics import adjust_by_holm, compare_pairs

BALANCED = "balanced test error %"
SEARCHED = 1000  # the seed that draws the part on which settings are searched


@dataclass(frozen=True)
class Training:
    """One training: its setting, the split, and whether it is part of the search."""

    setting: Setting
    split: int
    searching: bool


@dataclass(frozen=True)
class Finished:
    """The results of trainings with the same options, a file each in a folder."""

    folder: Path
    options: dict[str, Any]

    @property
    def frozen(self) -> bool:
        return "frozen" in self.options

    def place(self, training: Training) -> Path:
        return self.folder / f"{digest_facts({**asdict(training), **self.options})}.json"

    def read(self, training: Training) -> dict[str, float] | None:
        path = self.place(training)
        return json.loads(path.read_text("utf-8")) if path.exists() else None

    def write(self, training: Training, result: dict[str, float]) -> None:
        path = self.place(training)
        path.parent.mkdir(parents=True, exist_ok=True)
        # Into its place when it is whole: a killed process leaves none that is half written.
        part = path.with_suffix(".part")
        part.write_text(json.dumps({**asdict(training), **self.options, **result}), "utf-8")
        os.replace(part, path)


def split_images(groups: Tensor, training: Training) -> tuple[Tensor, Tensor]:
    """The numbers of the images to train and to test with; a search never sees a test image."""
    held_out = solar_data.draw_split(groups, training.split)
    if not training.searching:
        return (~held_out).nonzero()[:, 0], held_out.nonzero()[:, 0]
    own = (~held_out).nonzero()[:, 0]
    tried = solar_data.draw_split(groups[own], SEARCHED)
    return own[~tried], own[tried]


def list_search(arms: Sequence[str], frozen: bool) -> list[Training]:
    return [Training(each, 0, True) for arm in arms for each in list_settings(arm, frozen)]


def choose(arm: str, finished: Finished) -> Setting:
    """The setting of the lowest validation error; of equal ones, the first."""
    settings = list_settings(arm, finished.frozen)
    errors = [(finished.read(Training(each, 0, True)) or {})["error"] for each in settings]
    return settings[errors.index(min(errors))]


def list_tests(arms: Sequence[str], splits: int, finished: Finished) -> list[Training]:
    """Split by split, so that those of a run that was cut short can be compared."""
    chosen = [choose(arm, finished) for arm in arms]
    return [Training(setting, split, False) for split in range(splits) for setting in chosen]


def make_rows(tests: Sequence[Training], finished: Finished) -> list[Row]:
    """Errors of each arm, over the splits that all arms have, and their difference to the first."""
    splits = sorted({each.split for each in tests})
    whole = [s for s in splits if all(finished.read(t) for t in tests if t.split == s)]
    if not whole:
        return []
    rows: list[Row] = []
    for key, metric in (("error", ERROR), ("balanced", BALANCED)):
        own = []
        for setting in dict.fromkeys(each.setting for each in tests):
            results = [finished.read(Training(setting, split, False)) or {} for split in whole]
            own.append(
                Row(
                    study="solar-cells",
                    metric=metric,
                    network="EfficientNet-Lite0, pretrained" + ", frozen" * finished.frozen,
                    data=f"elpv, {finished.options['size']} pixels",
                    pooling=name_pooling(setting),
                    layer=", ".join(LAYERS),
                    form=ARMS[setting.arm].form,
                    alpha=f"{setting.choice:g} trace" if ARMS[setting.arm].form else "",
                    epochs=str(finished.options.get("epochs", "")),
                    batch="" if finished.frozen else str(BATCH),
                    seeds=", ".join(map(str, whole)),
                    **summarize_values([each[key] for each in results]),
                    **collect_provenance(finished.options["device"]),
                )
            )
        rows += own + list(compare_with_first(own))
    return rows


def name_pooling(setting: Setting) -> str:
    """The arm's, without its form; of BlurPool the filter that was chosen."""
    return str(setting.choice) if setting.arm == "BlurPool" else setting.arm.split(",")[0]


def compare_with_first(rows: Sequence[Row]) -> Iterator[Row]:
    """How many points less than the first, in pairs, and its p after Holm; with two splits."""
    if len(rows) < 2 or rows[0].n < 2:
        return
    pairs = [compare_pairs(rows[0], row) for row in rows[1:]]
    known = [pair.p for pair in pairs if not math.isnan(pair.p)]
    adjusted = iter(adjust_by_holm(known) if known else [])
    for row, pair in zip(rows[1:], pairs, strict=True):
        p = math.nan if math.isnan(pair.p) else next(adjusted)
        shared = asdict(row) | {"n": pair.n, "values": "", "std": 0.0}
        less = {"metric": f"{LESS}: {row.metric}", "mean": pair.mean, "std": pair.std}
        yield Row(**shared | less)
        yield Row(**shared | {"metric": f"{P_VALUE}, Holm: {row.metric}", "mean": p})


def tabulate(rows: Sequence[Row]) -> str:
    lines = [f"{'':32}{'error %':>16}{'balanced %':>16}"]
    of_metric = {
        metric: [row for row in rows if row.metric == metric] for metric in (ERROR, BALANCED)
    }
    for error, balanced in zip(of_metric[ERROR], of_metric[BALANCED], strict=True):
        name = ", ".join(filter(None, (error.pooling, error.form)))
        cells = [f"{row.mean:6.2f} +- {row.std:5.2f}" for row in (error, balanced)]
        lines.append(f"{name:32}{cells[0]:>16}{cells[1]:>16}")
    return "\n".join(lines)


def save_operators(
    folder: Path, arms: Sequence[str], finished: Finished, cells: SolarCells, images: Tensor
) -> None:
    """What the chosen closed forms look at, in the first split: a file a form and layer."""
    groups = 2 * cells.photographs.labels + cells.is_poly
    labels = cells.photographs.labels.to(images.device)
    for setting in (choose(arm, finished) for arm in arms if ARMS[arm].form):
        train = split_images(groups, Training(setting, 0, False))[0].to(images.device)
        network = build_pretrained(cells.weights, len(DEGREES), grey=True).to(images.device)
        inputs = to_inputs(images[train])
        fit = put_in(network, setting, inputs, labels[train], images.shape[-1])
        assert fit is not None, "it has a form"
        folder.mkdir(parents=True, exist_ok=True)
        for layer, operator in zip(LAYERS, fit.operators_.values(), strict=True):
            operator.save(folder / f"solar-cells-{ARMS[setting.arm].form}-{layer}.safetensors")


def read_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--data", type=Path, default=Path("runs/solar-cells/packages"))
    options.add_argument("--out", type=Path, default=Path("runs/solar-cells/finished"))
    options.add_argument("--rows", type=Path, default=Path("runs/solar-cells/rows.csv"))
    options.add_argument("--splits", type=int, default=10)
    options.add_argument("--epochs", type=int, default=15)
    options.add_argument("--frozen", action="store_true", help="train a last linear layer alone")
    options.add_argument("--size", type=int, default=solar_data.USED, help="pixels, 32 times n")
    options.add_argument("--arms", nargs="+", default=list(ARMS), choices=list(ARMS))
    options.add_argument("--minutes", type=float, default=math.inf, help="begin nothing later")
    options.add_argument("--operators", type=Path, help="also save P of the first split there")
    options.add_argument("--pack", action="store_true", help="photographs and weights in one file")
    chosen = options.parse_args(arguments)
    if chosen.size % 32 or not 64 <= chosen.size <= solar_data.USED:
        options.error(f"--size: got {chosen.size}, wanted 64, 96, 128, 160, 192 or 224")
    for name in ("splits", "epochs"):
        if getattr(chosen, name) < 1:
            options.error(f"--{name}: got {getattr(chosen, name)}, wanted 1 or more")
    return chosen


def main(arguments: Sequence[str] | None = None) -> list[Row]:
    chosen = read_options(arguments)
    if chosen.pack:
        print(solar_data.pack(chosen.data))
        return []
    deadline = time.monotonic() + 60 * chosen.minutes
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    cells = solar_data.load(chosen.data)
    groups = 2 * cells.photographs.labels + cells.is_poly
    images = prepare_images(cells, chosen.size, device)
    options = {"size": chosen.size, "device": device.type}
    options |= {"frozen": True} if chosen.frozen else {"epochs": chosen.epochs}
    finished = Finished(chosen.out, options)
    probe = Probe(cells, images) if chosen.frozen else None

    def judge(training: Training, say: Say) -> dict[str, float]:
        parts = split_images(groups, training)
        if probe is not None:
            return probe(training.setting, parts, say)
        return fine_tune(cells, images, training.setting, parts, chosen.epochs, training.split, say)

    def work_off(title: str, trainings: Sequence[Training]) -> bool:
        """Whether all were finished in time."""
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, TimeRemainingColumn()) as bars:
            whole = bars.add_task(title, total=len(trainings))
            part = bars.add_task("", total=100)
            for training in trainings:
                if finished.read(training) is None:
                    if time.monotonic() > deadline:
                        return False
                    bars.update(part, completed=0, description=training.setting.arm)
                    began = time.monotonic()
                    result = judge(
                        training, lambda done: bars.update(part, completed=round(100 * done))
                    )
                    finished.write(training, {**result, "seconds": time.monotonic() - began})
                bars.advance(whole)
        return True

    if not work_off("search", list_search(chosen.arms, chosen.frozen)):
        print("the search goes on when you start this again")
        return []
    tests = list_tests(chosen.arms, chosen.splits, finished)
    done = work_off("splits", tests)
    rows = make_rows(tests, finished)
    if rows:
        write_rows(chosen.rows, rows)
        print(f"{rows[0].n} splits, {chosen.rows}\n{tabulate(rows)}")
    if chosen.operators is not None:
        save_operators(chosen.operators, chosen.arms, finished, cells, images)
    print("done" if done else "more splits follow when you start this again")
    return rows


if __name__ == "__main__":
    main()
