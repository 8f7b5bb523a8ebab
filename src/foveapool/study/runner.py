"""A study from its plan to its tables: what it will cost, then doing it, with notes in its folder.

The folder of a study says what it is (`study.json`), which trainings it asked for, and what came
of them (`selection.csv`, `rows.csv`). The trainings themselves lie beside, shared by all studies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from foveapool.records import collect_provenance, write_rows
from foveapool.runs import STEP, Runs
from foveapool.statistics import paired_p_value
from foveapool.study.engine import Engine, order_by_dependency
from foveapool.study.manifest import (
    TABLES,
    add_to_manifest,
    claim_study,
    lock_study,
    write_manifest,
)
from foveapool.study.spec import TrainingSpec
from foveapool.study.study import Study, Tables, run_study


def conduct_study(study: Study, engine: Engine) -> Tables:
    """Does the study and writes its tables; what is finished already is only read."""
    engine.runs.make()
    folder = engine.runs.study(study.name)
    # Says at once, not after hours, that scipy is missing.
    paired_p_value([0.0, 0.0])
    asked: dict[str, str] = {}

    def run(stage: str, trainings: Sequence[TrainingSpec]) -> Mapping[str, Mapping[str, Any]]:
        for level in order_by_dependency(trainings):
            for each in level:
                asked.setdefault(each.name, STEP)
        asked.update((each.name, stage) for each in trainings)
        add_to_manifest(study, folder, asked)
        return engine.run(trainings)

    with claim_study(study, folder):
        tables = run_study(study, run, collect_provenance())
        with lock_study(folder):
            for name, rows in zip(TABLES, (tables.selection, tables.rows), strict=True):
                if rows:
                    write_rows(folder / name, rows)
            write_manifest(study, folder, asked)
    return tables


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

    def finished(stage: str, trainings: Sequence[TrainingSpec]) -> Mapping[str, Mapping[str, Any]]:
        found = {each.name: runs.result(each.name, each.facts) for each in trainings}
        there = {name: result for name, result in found.items() if result is not None}
        if stage == "search" and len(there) < len(found):
            raise ValueError(
                f"{study.name}: {len(there)} of {len(found)} trainings of its search are finished, "
                "wanted all of them, since they decide what is compared; go on with the study"
            )
        return there

    tables = run_study(study, finished, collect_provenance())
    if not tables.rows:
        raise ValueError(
            f"{runs.root}: got no line of {study.name} with all its {study.seeds} seeds finished, "
            "wanted one or more; go on with the study, or ask for fewer seeds by --set "
            "trials.seeds=1"
        )
    return tables
