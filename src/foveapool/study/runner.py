"""Doing a study, with notes in its folder, from its first training to its tables.

The folder of a study says what it is (`study.json`), which trainings it asked for, and what came
of them (`selection.csv`, `rows.csv`). The trainings themselves lie beside, shared by all studies.
Processes that work on one study share its note. Whoever comes with the same name and other choices
is refused while they work, and takes the folder over when they are gone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from foveapool._io import clear_leftovers, hold_lock, lock_file, read_json, write_text
from foveapool.records import collect_provenance, write_rows
from foveapool.runs import FORMAT_VERSION, STEP, STUDY, Runs
from foveapool.statistics import paired_p_value
from foveapool.study.engine import Engine, FinishedTraining, order_by_dependency
from foveapool.study.study import Study, StudyStages, Tables

TABLES = ("selection.csv", "rows.csv")


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
    """Notes these trainings and no others; for who is `alone_in` the folder."""
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
