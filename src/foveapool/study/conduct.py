"""A study from its plan to its tables: what it will cost, then doing it, with notes in its folder.

The folder of a study says what it is (`study.json`), which trainings it asked for, and what came
of them (`selection.csv`, `rows.csv`). The trainings themselves lie beside, shared by all studies.
"""

from __future__ import annotations

import math
import shutil
import statistics
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from foveapool.data.images import subset
from foveapool.files import nearest
from foveapool.networks.build import build
from foveapool.pairs import paired_p_value
from foveapool.records import append_rows, hardware, provenance
from foveapool.runs import STEP, Runs
from foveapool.study.cost import parameters
from foveapool.study.engine import Engine, in_order
from foveapool.study.enough import check_images
from foveapool.study.fits import WEIGHTS
from foveapool.study.note import TABLES, add_to_note, alone_in, working_on, write_note
from foveapool.study.study import Study, Tables, run_study
from foveapool.study.training import Means, Training, trial_of
from foveapool.study.trials import no_numbers
from foveapool.training.loop import train

TIMED_STEPS = 6
SPARE_BYTES = 200_000_000
# The largest of images of 32 x 32: all layers of a network, and the first layer.
SCATTER_BYTES, OPERATOR_BYTES = 20_000_000, 4_200_000


@dataclass(frozen=True)
class Plan:
    """How many trainings a study takes, those that are done already, and the time for the rest.

    The time is that of training alone: fits and robustness come on top. A second layer that the
    search may add is counted as if it were not kept. `again` are those that are done, but whose
    network others are fitted on and is not here: it is trained again, and that time is counted.
    """

    trainings: tuple[Training, ...]
    done: int
    seconds: float  # one training after the other; not a number where that is not known
    unknown: str = ""  # why it is not: no data to try it with, or steps that diverge
    again: int = 0

    @property
    def left(self) -> int:
        """The trainings that are still to be done."""
        return len(self.trainings) - self.done


def plan(study: Study, runs: Runs, means: Means) -> Plan:
    """What the study would train, found by going through it with what is known by now.

    A training that is still to be done is taken for one that gets everything wrong. ValueError
    where the images, if they are here, would not do.
    """
    asked: dict[str, Training] = {}

    def rehearse(stage: str, trainings: Sequence[Training]) -> Mapping[str, Mapping[str, Any]]:
        asked.update((each.name, each) for level in in_order(trainings) for each in level)
        found = {each.name: runs.result(each.name, each.facts) for each in trainings}
        return {name: result or no_numbers("not done yet") for name, result in found.items()}

    run_study(study, rehearse)
    left = [each for each in asked.values() if runs.result(each.name, each.facts) is None]
    if left:
        # Images that are not here may be where it will run.
        with suppress(FileNotFoundError):
            check_images(study, means)
    again = _trained_again(left, runs)
    try:
        seconds, unknown = _seconds(study, [*left, *again], runs, means) if left else 0.0, ""
    except (FileNotFoundError, FloatingPointError) as error:
        seconds, unknown = math.nan, str(error)
    return Plan(tuple(asked.values()), len(asked) - len(left), seconds, unknown, len(again))


def _trained_again(left: Sequence[Training], runs: Runs) -> list[Training]:
    """The finished trainings whose networks are not here, but are wanted for fits."""
    found: dict[str, Training] = {}
    for training in left:
        before = training.fitted_on
        while before is not None and before.name not in found:
            folder, result = runs.folder(before.name), runs.result(before.name, before.facts)
            is_here = (folder / WEIGHTS).exists() or any(folder.glob("scatter-*.safetensors"))
            if result is None or "diverged" in result or is_here:
                break
            found[before.name] = before
            before = before.fitted_on
    return list(found.values())


def _seconds(study: Study, left: Sequence[Training], runs: Runs, means: Means) -> float:
    """The time that they train: as long a step as others like them took, or as a few take."""

    def is_like(training: Mapping[str, Any], result: Mapping[str, Any]) -> bool:
        return (
            "diverged" not in result
            and training["setting"]["network"] == study.network.network
            and training["setting"]["width"] == study.network.width
            and training["data"] == study.source.facts()
            and training["recipe"]["batch_size"] == study.recipe.batch_size
        )

    def epochs_like(finished: Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> list[float]:
        found = [each for each in finished if is_like(*each)]
        return [result["seconds"] / training["recipe"]["epochs"] for training, result in found]

    # Those of another machine say nothing of how long it takes on this one.
    here = hardware(means.device)
    known = [each for each in runs.known.values() if each.result["hardware"] == here]
    like = epochs_like(runs.finished()) or epochs_like(known)
    epoch = statistics.median(like) if like else _timed_epoch(left[0], means)
    return sum(epoch * each.recipe.epochs for each in left)


def _timed_epoch(training: Training, means: Means) -> float:
    """How long an epoch of the network without poolings takes, from a few of its steps."""
    trial = trial_of(replace(training, setting=replace(training.setting, pools=())), means)
    batch = trial.recipe.batch_size
    steps = max(1, min(TIMED_STEPS, len(trial.data.train) // batch))
    few = replace(trial.data, test=trial.data.test.part(slice(0, 1)))  # type: ignore[arg-type]
    if steps * batch < len(few.train):
        few = replace(few, train=subset(few.train, steps * batch, 0))
    recipe = replace(trial.recipe, epochs=2, milestones=())
    # The first epoch warms up.
    result = train(trial.network(), few, recipe, device=means.device)
    return result.history[-1].seconds / steps * (len(trial.data.train) // batch)


def check_space(study: Study, runs: Runs, at_once: int) -> None:
    """Refuses to begin where the disk cannot hold the checkpoints and what is kept."""
    network = study.network
    numbers = parameters(build(network.network, seed=0, width=network.width, **network.options))
    kept = study.seeds + max((search.parts for search in study.searches), default=0)
    # A checkpoint has the weights and two numbers more for each, and a second one while it is
    # written; of finished networks without poolings the weights stay.
    weights = 4 * numbers * (6 * at_once + kept)
    fits = sum(len(s.settings(network)) * s.parts for s in study.searches)
    fits += len(study.arms) * study.seeds
    needed = weights + kept * SCATTER_BYTES + fits * OPERATOR_BYTES + SPARE_BYTES
    free = shutil.disk_usage(nearest(runs.root)).free
    if free < needed:
        raise OSError(
            f"{runs.root}: {free / 1e9:.1f} GB are free, wanted {needed / 1e9:.1f} GB for "
            f"{study.name}; free some, or choose another folder"
        )


def conduct(study: Study, engine: Engine) -> Tables:
    """Does the study and writes its tables; what is finished already is only read."""
    engine.runs.make()
    folder = engine.runs.study(study.name)
    # Says at once, not after hours, that scipy is missing.
    paired_p_value([0.0, 0.0])
    asked: dict[str, str] = {}

    def run(stage: str, trainings: Sequence[Training]) -> Mapping[str, Mapping[str, Any]]:
        for level in in_order(trainings):
            for each in level:
                asked.setdefault(each.name, STEP)
        asked.update((each.name, stage) for each in trainings)
        add_to_note(study, folder, asked)
        return engine.run(trainings)

    with working_on(study, folder):
        tables = run_study(study, run, provenance())
        with alone_in(folder):
            for name, rows in zip(TABLES, (tables.selection, tables.rows), strict=True):
                if rows:
                    (folder / f".{name}").unlink(missing_ok=True)
                    append_rows(folder / f".{name}", rows)
                    (folder / f".{name}").replace(folder / name)
            write_note(study, folder, asked)
    return tables


def so_far(study: Study, runs: Runs) -> Tables:
    """The tables of what is finished by now; nothing is trained, and nothing written.

    Where a search is not finished, nobody knows which trainings its arms are.
    """
    source = study.source
    if source.name.startswith(("folder:", "npz:")) and not source.content:
        raise FileNotFoundError(
            f"{source.name}: not there, wanted the images of {study.name}, by whose content its "
            "trainings are found; put them back, or go where that path leads to them"
        )

    def finished(stage: str, trainings: Sequence[Training]) -> Mapping[str, Mapping[str, Any]]:
        found = {each.name: runs.result(each.name, each.facts) for each in trainings}
        there = {name: result for name, result in found.items() if result is not None}
        if stage == "search" and len(there) < len(found):
            raise ValueError(
                f"{study.name}: {len(there)} of {len(found)} trainings of its search are finished, "
                "wanted all of them, since they decide what is compared; go on with the study"
            )
        return there

    tables = run_study(study, finished, provenance())
    if not tables.rows:
        raise ValueError(
            f"{runs.root}: got no line of {study.name} with all its {study.seeds} seeds finished, "
            "wanted one or more; go on with the study, or ask for fewer seeds by --set "
            "trials.seeds=1"
        )
    return tables
