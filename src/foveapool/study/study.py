"""Study: what is searched, what is compared, on which data; its stages, and doing them.

A study yields stages of trainings and makes tables of what they come to; who trains is the
engine's business. All trainings of one folder of runs are shared between the studies in it.

The folder of a study says what it is (`study.json`), which trainings it asked for, and what came
of them (`selection.csv`, `rows.csv`). Processes that work on one study share its note. Whoever
comes with the same name and other choices is refused while they work, and takes the folder over
when they are gone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from foveapool._io import clear_leftovers, hold_lock, lock_file, read_json, write_text
from foveapool._stored_names import to_stored
from foveapool.records import Row, collect_provenance, write_rows
from foveapool.runs import FORMAT_VERSION, STEP, STUDY, Runs
from foveapool.statistics import paired_p_value
from foveapool.study.engine import Engine, FinishedTraining, order_by_dependency
from foveapool.study.layers import add_line, check_line, check_pooling, exchange_pooling
from foveapool.study.robustness import check_robustness
from foveapool.study.rows import SeedTrials, make_selection_rows, make_trial_rows
from foveapool.study.search import Search, Selection, run_search
from foveapool.study.setting import (
    BASELINE,
    BESIDE,
    FITTED,
    LAYERS,
    MATRICES,
    POOLINGS,
    THEN,
    Setting,
)
from foveapool.study.spec import Source, Stage, TrainingSpec
from foveapool.training.recipe import Recipe

# How an arm says whose search it follows.
LIKE = "like"
TABLES = ("selection.csv", "rows.csv")


@dataclass(frozen=True)
class Arm:
    """One line of the table: a pooling in its place, or one whose place the search has to find.

    Choices are those of `Pool`, and these. `layers`: the same pooling at each of them, closed forms
    fitted together. `beside`: tables of poolings at other layers, which are there when a closed
    form is fitted; one that names no pooling has the arm's, and is fitted with it. `then`: tables
    of poolings that follow at other layers, each fitted on the network that was trained with those
    before; what they do not say is as at the first. `like`: the pooling by whose search a matrix
    has its place, where that is another one's: the matrix stands where the search found that one.
    """

    pooling: str
    choices: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        where = f"arm {self.pooling}"
        check_pooling("arm", self.pooling, POOLINGS)
        choices = dict(self.choices)
        if self.pooling in MATRICES:
            check_pooling(f"{where}: {LIKE}", choices.pop(LIKE, self.pooling), MATRICES)
        check_line(
            where,
            self.pooling,
            choices,
            "; give poolings that have the choice an [[arm]] of their own",
        )
        if self.like is not None and not self.is_searched:
            raise ValueError(
                f"{where}: got {LIKE} and a layer, wanted one of them: the search finds the layer"
            )
        for name in ("placement", "form"):
            if self.is_searched and name in self.choices:
                raise ValueError(
                    f"{where}: got a {name} and no layer; the search finds both, or the arm says "
                    "both"
                )
        for name in (THEN, BESIDE):
            if self.choices.get(name) and self.is_searched:
                raise ValueError(f"{where}: got {name} and no layer, wanted one")

    @property
    def is_searched(self) -> bool:
        """Whether a search has to say where it goes."""
        return self.pooling != BASELINE and not {"layer", LAYERS} & set(self.choices)

    @property
    def like(self) -> str | None:
        """The pooling whose search it follows, if it says so."""
        return self.choices.get(LIKE)

    def setting(self, start: Setting, selection: Selection | None = None) -> Setting:
        """The network with this arm's pooling in it."""
        if self.pooling == BASELINE:
            return start
        if not self.is_searched:
            return add_line(start, self.pooling, self.choices)
        assert selection is not None, "a study is checked before it is run"
        own = {k: v for k, v in self.choices.items() if k not in (LIKE, BESIDE, THEN)}
        return exchange_pooling(selection.best, selection.beside, self.pooling, own)


@dataclass(frozen=True)
class Study:
    """The paper's procedure with its choices; `presets.py` reads one from a file."""

    name: str
    source: Source
    recipe: Recipe
    network: Setting = field(default_factory=Setting)
    searches: tuple[Search, ...] = ()
    arms: tuple[Arm, ...] = (Arm(BASELINE),)
    seeds: int = 5
    robustness: tuple[str, ...] = ()
    title: str = ""

    def __post_init__(self) -> None:
        if not self.name.strip("."):
            raise ValueError(
                f"name: got {self.name!r}, wanted one with a letter or a digit in it: it becomes "
                "the name of a folder"
            )
        if type(self.seeds) is not int or self.seeds < 1:
            raise ValueError(f"seeds: got {self.seeds!r}, wanted a whole number, 1 or more")
        check_robustness(self.robustness)
        searched = [search.pooling for search in self.searches]
        if len(set(searched)) != len(searched):
            raise ValueError(f"search: got {searched}, wanted each pooling once")
        for arm in self.arms:
            if arm.is_searched and self.search_for(arm) is None:
                if arm.like is not None:
                    raise ValueError(
                        f"arm {arm.pooling}: got {LIKE} {arm.like!r}, and no search of that "
                        f"pooling; add a [[search]] of {arm.like}, or give the arm a layer"
                    )
                raise ValueError(
                    f"arm {arm.pooling}: got no layer, and no search for it; give it a layer or "
                    "add a [[search]]"
                )
        # An impossible one is to be known before the hours.
        self.settings()
        lines = [[each.facts() for each in self._list_settings_of(arm)] for arm in self.arms]
        for number, arm in enumerate(self.arms):
            if lines[number] in lines[:number]:
                told = ", ".join(f"{name} {value}" for name, value in arm.choices.items())
                raise ValueError(
                    f"arm {arm.pooling}: got the same line twice ({told or 'no choices'}), wanted "
                    "each once; leave one out"
                )

    def settings(self) -> list[Setting]:
        """Every setting that its searches may look at or its arms become."""
        found = [each for search in self.searches for each in search.settings(self.network)]
        return found + [each for arm in self.arms for each in self._list_settings_of(arm)]

    def _list_settings_of(self, arm: Arm) -> list[Setting]:
        """What an arm may become: one setting, or one for each that its search may find."""
        search = self.search_for(arm) if arm.is_searched else None
        if search is None:
            return [arm.setting(self.network)]
        return [
            arm.setting(self.network, Selection(each.setting, (), each.beside))
            for each in search.alternatives(self.network)
        ]

    def facts(self) -> dict[str, Any]:
        """All of it as JSON can hold it, to be kept beside its tables."""
        return {
            "data": self.source.facts(),
            "network": self.network.facts(),
            "recipe": self.recipe.facts(),
            "searches": [search.facts() for search in self.searches],
            "arms": [{"pooling": arm.pooling, **to_stored(arm.choices)} for arm in self.arms],
            "seeds": self.seeds,
            "robustness": list(self.robustness),
        }

    def search_for(self, arm: Arm) -> Search | None:
        """The search that finds this arm's place: its own, or for a closed form that of another.

        One that is to be like another pooling has that pooling's.
        """
        if arm.like is not None:
            return next((each for each in self.searches if each.pooling == arm.like), None)
        own = [each for each in self.searches if each.pooling == arm.pooling]
        if arm.pooling in FITTED:
            own += [each for each in self.searches if each.pooling in FITTED]
        return own[0] if own else None

    def training(self, setting: Setting, seed: int) -> TrainingSpec:
        """A training on all training images, measured on the test images."""
        return TrainingSpec(setting, self.source, self.recipe, seed, robustness=self.robustness)


@dataclass(frozen=True)
class Tables:
    """What a study came to, and those of its trials that are not all finished."""

    selection: tuple[Row, ...]
    rows: tuple[Row, ...]
    unfinished: tuple[SeedTrials, ...] = ()


class StudyStages:
    """The stages of a study: its searches, then every arm with every seed.

    Each stage comes when the results of those before are filled in. That of the trials may lack
    some: an arm is in the table when all its seeds are there.

    Args:
        study: The study.
        provenance: Columns that all rows have.

    Example:
        >>> from foveapool.training.recipe import Recipe
        >>> stages = StudyStages(Study("s", Source("svhn"), Recipe("adam", 1e-3, 1), seeds=2))
        >>> [(each.name, len(each.trainings)) for each in stages], len(stages.tables.unfinished)
        ([('trials', 2)], 1)
    """

    tables: Tables  # once all stages are through

    def __init__(self, study: Study, provenance: Mapping[str, str] | None = None) -> None:
        self.study, self.provenance = study, provenance or {}

    def __iter__(self) -> Iterator[Stage]:
        study = self.study
        selections: dict[str, Selection] = {}
        chosen: list[Row] = []
        for search in study.searches:
            selection = yield from run_search(search, study.network, study.source, study.recipe)
            selections[search.pooling] = selection
            chosen += make_selection_rows(study.name, selection, self.provenance)
        trials = _make_trials(study, selections)
        stage = Stage("trials", [training for each in trials for training in each.trainings])
        yield stage
        whole = [each for each in trials if all(t.name in stage.results for t in each.trainings)]
        rows = make_trial_rows(study.name, whole, stage.results, self.provenance)
        unfinished = tuple(each for each in trials if each not in whole)
        self.tables = Tables(tuple(chosen), tuple(rows), unfinished)


def _make_trials(study: Study, selections: dict[str, Selection]) -> list[SeedTrials]:
    found: list[SeedTrials] = []
    for arm in study.arms:
        search = study.search_for(arm) if arm.is_searched else None
        setting = arm.setting(study.network, selections[search.pooling] if search else None)
        # A search may find what another arm says: one setting is one line.
        if all(setting.facts() != each.setting.facts() for each in found):
            trainings = tuple(study.training(setting, seed) for seed in range(study.seeds))
            found.append(SeedTrials(setting, trainings))
    return found


@contextmanager
def claim_study(study: Study, folder: Path) -> Iterator[None]:
    """Says that this process works on the study; what is noted and tabled of another goes.

    BlockingIOError where a process works on a study of this name with other choices.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # Shared by all that work on it, and so exclusive to one alone that may change what it is.
    with open(folder / "at-work", "a+") as file:
        with lock_study(folder):
            clear_leftovers(folder / STUDY)
            if _read_manifest(study, folder) is None:
                try:
                    lock_file(file, wait=False)
                except BlockingIOError as error:
                    raise BlockingIOError(
                        f"{folder}: another process works on a study {study.name} with other "
                        "choices; wait for it, or give this one another name with --name"
                    ) from error
                for name in TABLES:
                    (folder / name).unlink(missing_ok=True)
                write_manifest(study, folder, {})
            lock_file(file, shared=True)
        yield


@contextmanager
def lock_study(folder: Path) -> Iterator[None]:
    """The study's folder for a moment, to write to; others wait."""
    with hold_lock(folder / "lock", wait=True):
        yield


def add_to_manifest(study: Study, folder: Path, asked: Mapping[str, str]) -> None:
    """Notes trainings, as name and stage, beside those that this process or another noted."""
    with lock_study(folder):
        write_manifest(study, folder, {**(_read_manifest(study, folder) or {}), **asked})


def write_manifest(study: Study, folder: Path, asked: Mapping[str, str]) -> None:
    """Notes these trainings and no others; for who holds `lock_study`."""
    note = {
        "format_version": FORMAT_VERSION,
        "name": study.name,
        "title": study.title,
        "facts": study.facts(),
        "trainings": [{"name": name, "stage": stage} for name, stage in asked.items()],
    }
    write_text(folder / STUDY, json.dumps(note, indent=1) + "\n")


def _read_manifest(study: Study, folder: Path) -> dict[str, str] | None:
    """The trainings of the note, by name; None where it is not there or of other choices."""
    try:
        note = read_json(folder / STUDY)
        if note["facts"] != json.loads(json.dumps(study.facts())):
            return None
        return {each["name"]: each["stage"] for each in note["trainings"]}
    except (OSError, ValueError, KeyError, TypeError):
        return None


class StudyRun:
    """A study that is done by going through it: yields each training as it is finished.

    What was finished before is only read. The tables are written and here when all is done.

    Args:
        study: What is done.
        engine: Who does it, into which folder of runs.
    """

    tables: Tables

    def __init__(self, study: Study, engine: Engine) -> None:
        self.study, self.engine = study, engine

    def __iter__(self) -> Iterator[FinishedTraining]:
        study, engine = self.study, self.engine
        engine.runs.make()
        folder = engine.runs.study(study.name)
        # Says at once, not after hours, that scipy is missing.
        paired_p_value([0.0, 0.0])
        asked: dict[str, str] = {}
        with claim_study(study, folder):
            stages = StudyStages(study, collect_provenance())
            for stage in stages:
                for level in order_by_dependency(stage.trainings):
                    for each in level:
                        asked.setdefault(each.name, STEP)
                asked.update((each.name, stage.name) for each in stage.trainings)
                add_to_manifest(study, folder, asked)
                results = {}
                for done in engine.run(stage.trainings):
                    results[done.training.name] = done.result
                    yield done
                stage.results = results
            with lock_study(folder):
                tables = stages.tables
                for name, rows in zip(TABLES, (tables.selection, tables.rows), strict=True):
                    if rows:
                        write_rows(folder / name, rows)
                write_manifest(study, folder, asked)
        self.tables = tables


def make_partial_tables(study: Study, runs: Runs) -> Tables:
    """The tables of what is finished by now; nothing is trained, and nothing written.

    Where a search is not finished, nobody knows which trainings its arms are.
    """
    source = study.source
    if source.name.startswith(("folder:", "npz:")) and not source.content:
        raise FileNotFoundError(
            f"{source.name}: not there, wanted the images of {study.name}, by whose content its "
            "trainings are found; put them back, or go where that path leads to them"
        )

    stages = StudyStages(study, collect_provenance())
    for stage in stages:
        found = {each.name: runs.result(each.name, each.facts) for each in stage.trainings}
        stage.results = {name: result for name, result in found.items() if result is not None}
        if stage.name == "search" and len(stage.results) < len(found):
            raise ValueError(
                f"{study.name}: {len(stage.results)} of {len(found)} trainings of its search are "
                "finished, wanted all of them, since they decide what is compared; go on with the "
                "study"
            )
    tables = stages.tables
    if not tables.rows:
        raise ValueError(
            f"{runs.root}: got no line of {study.name} with all its {study.seeds} seeds finished, "
            "wanted one or more; go on with the study, or ask for fewer seeds by --set "
            "trials.seeds=1"
        )
    return tables
