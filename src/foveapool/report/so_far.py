"""Rows of a study that has no table yet, from the facts and results of its trainings.

Their columns say what those of the table will say: lines that the table tells apart are told apart
here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from foveapool.columns import data_label, place
from foveapool.records import ERROR, VALIDATION, Row, moments
from foveapool.report.told import TrainingFolder


def rows_so_far(study: str, trainings: Iterable[TrainingFolder]) -> list[Row]:
    """A row for each setting among finished trainings, for a study that has no table yet."""
    found: dict[str, list[TrainingFolder]] = {}
    for each in trainings:
        same = {key: value for key, value in each.facts.items() if key not in ("seed", "held_out")}
        stage = "trials" if each.held_out is None else "search"
        if each.result is not None:
            found.setdefault(json.dumps([stage, same], sort_keys=True), []).append(each)
    return [_row(study, own) for own in found.values()]


def _row(study: str, trainings: Sequence[TrainingFolder]) -> Row:
    errors = {each.seed: float(each.result["error"]) for each in trainings if each.result}
    first = trainings[0]
    recipe = first.facts["recipe"]
    columns: dict[str, Any] = {
        **place(first.facts["setting"], recipe.get("pooling_rate")),
        "data": data_label(first.facts["data"]),
        "seeds": ", ".join(map(str, sorted(errors))),
        "epochs": str(recipe["epochs"]),
        "batch": str(recipe["batch_size"]),
        **moments([errors[seed] for seed in sorted(errors)]),
    }
    return Row(study=study, metric=ERROR if first.held_out is None else VALIDATION, **columns)
