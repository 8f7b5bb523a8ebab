"""Rows of a study that has no table yet, from the facts and results of its trainings.

Their columns say what those of the table will say: lines that the table tells apart are told apart
here. The study's own words are in `study.trials`, which this room does not know; a test holds the
two together.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from foveapool.records import ERROR, VALIDATION, Row, moments
from foveapool.report.told import BASELINE, USUAL, Facts, TrainingFolder

_CLOSED_FORM = "closed-form"  # the one pooling that does not train
_WIDTH = 64  # of a network, which goes without saying
_COLUMNS = ("components",)  # choices that are columns of their own


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
    data, recipe = first.facts["data"], first.facts["recipe"]
    share = data.get("share")
    columns: dict[str, Any] = {
        **place(first.facts),
        "data": data["name"] + ("" if share is None else f", {_number(100 * share)} %"),
        "seeds": ", ".join(map(str, sorted(errors))),
        "epochs": str(recipe["epochs"]),
        "batch": str(recipe["batch_size"]),
        **moments([errors[seed] for seed in sorted(errors)]),
    }
    return Row(study=study, metric=ERROR if first.held_out is None else VALIDATION, **columns)


def place(facts: Facts) -> dict[str, str]:
    """Where a training's poolings are and how they were fitted, as columns of a row."""
    setting: Mapping[str, Any] = facts["setting"]
    pools: Sequence[Facts] = setting["pools"]
    fitted = [pool for pool in pools if "alpha" in pool]

    def joined(those: Iterable[Facts], choice: str) -> str:
        return ", ".join(_number(pool[choice]) for pool in those)

    own = "" if setting["network"] == "cnn" else "both"  # a CNN has no placements
    return {
        "network": _network(setting),
        "pooling": _label(pools, facts["recipe"]),
        "layer": joined(pools, "layer"),
        "placement": (setting.get("placement") or own) if pools else "",
        "alpha": joined(fitted, "alpha"),
        "norm": joined(fitted, "norm"),
        "components": joined(pools, "components"),
        "trainable": str(not pools or pools[-1]["pooling"] != _CLOSED_FORM),
    }


def _number(value: Any) -> str:
    # Digits enough that no two settings are told as one.
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def _network(setting: Mapping[str, Any]) -> str:
    """The network's name, with its width and options where they are not the usual ones."""
    width = [] if setting["width"] == _WIDTH else [f"width {setting['width']}"]
    options = [f"{name} {value}" for name, value in (setting.get("options") or {}).items()]
    return ", ".join([setting["network"], *width, *options])


def _label(pools: Sequence[Facts], recipe: Facts) -> str:
    """The pooling's name, with those of its choices that are not the usual ones.

    A choice that not all fitted poolings share is told with its layer.
    """
    if not pools:
        return BASELINE
    fitted = [pool for pool in pools if "alpha" in pool]
    words = []
    for pool in fitted:
        for choice, usual in USUAL.items():
            value = pool.get(choice, usual)
            if value == usual or choice in _COLUMNS:
                continue
            shared = all(other.get(choice, usual) == value for other in fitted)
            words.append(f"{choice} {value}" + ("" if shared else f" at layer {pool['layer']}"))
    if "pooling_rate" in recipe:
        words.append(f"pooling rate {_number(recipe['pooling_rate'])}")
    return ", ".join([pools[-1]["pooling"], *dict.fromkeys(words)])
