"""A study from its plan to its tables: what it will cost, then doing it, with notes in its folder.

The folder of a study says what it is (`study.json`), which trainings it asked for, and what came
of them (`selection.csv`, `rows.csv`). The trainings themselves lie beside, shared by all studies.
"""

from __future__ import annotations

from collections.abc import Iterator

from foveapool.records import collect_provenance, write_rows
from foveapool.runs import STEP, Runs
from foveapool.statistics import paired_p_value
from foveapool.study.engine import Engine, FinishedTraining, order_by_dependency
from foveapool.study.manifest import (
    TABLES,
    add_to_manifest,
    claim_study,
    lock_study,
    write_manifest,
)
from foveapool.study.study import Study, StudyStages, Tables


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
