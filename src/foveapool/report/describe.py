"""What trainings were and took, in words, from the facts in their folders.

The facts are those of `runs`: plain JSON. A fact that is not there is left out.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path

from foveapool._io import parse_json, read_json, read_sealed_json, read_text
from foveapool._stored_names import from_stored
from foveapool.labels import (
    BASELINE,
    POOLINGS,
    REPLACE,
    Facts,
    default_components,
    format_alpha,
    get_placement,
    label_cell,
    label_columns,
    label_data,
    list_unusual,
)
from foveapool.report.run_summary import Curve
from foveapool.runs import RESULT, TRAINING, find_result_fault

Pairs = list[tuple[str, str]]

METRICS = "metrics.jsonl"
_POINTS = 200  # of a curve; more cannot be seen


class TrainingFolder:
    """A training's folder: what it is of, what it came to if it is finished, how it went."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.facts: Facts = read_json(path / TRAINING)
        try:
            self.pools: Sequence[Facts] = self.facts["setting"]["pools"]
            self.seed = int(self.facts["seed"])
            self.epochs = int(self.facts.get("recipe", {}).get("epochs", 0))
            part = self.facts["held_out"]
            # The held-out part that it is measured on; None for the test images.
            self.held_out = None if part is None else int(part["number"])
            self.words, self.told = describe_training(self.facts), describe_data(self.facts)
            # Of a row; what else a report names it by.
            recipe = self.facts.get("recipe", {})
            self.columns = {
                **label_columns(self.facts["setting"], recipe.get("pooling_rate")),
                "data": label_data(self.facts["data"]),
                "epochs": str(self.epochs),
                "batch": str(recipe.get("batch_size", "")),
            }
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise ValueError(
                f"{TRAINING}: {error!r}; wanted a training's facts as this version has them"
            ) from error
        try:
            result = read_sealed_json(path / RESULT)
        except OSError:
            result = {}
        is_whole = not find_result_fault(path.name, result)
        self.result: Facts | None = result if is_whole else None

    def curve(self) -> Curve | None:
        """How it went; None before its first epoch is over."""
        return read_curve(self.path / METRICS, self.words)


def read_curve(path: Path, label: str) -> Curve | None:
    """The epochs in a metrics file, thinned where there are very many; None without any."""
    try:
        # What is behind the last line feed is half a line, of one who writes or was killed.
        lines = read_text(path).split("\n")[:-1]
        records = [parse_json(line, path) for line in lines]
        every = max(1, math.ceil(len(records) / _POINTS))
        # Counted from the first epoch, so that seeds that have come less far have epochs in common
        # with the others; the last one always stays.
        records = [r for i, r in enumerate(records, 1) if i % every == 0 or i == len(records)]
        curve = Curve(
            label,
            tuple(int(each["epoch"]) for each in records),
            tuple(float(each["loss"]) for each in records),
            tuple(each.get("test_error") for each in records),
        )
    except (OSError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return None
    return curve if records else None


def describe_training(facts: Facts) -> str:
    """What trainings of one study may differ in, beside their seed: they are drawn by these words.

    >>> pool = {"pooling": "closed-form", "layer": 3, "alpha": 25.0, "norm": "l2", "components": 4}
    >>> describe_training({"setting": {"pools": [pool], "placement": "before"}})
    'closed form, layer 3, alpha 25, l2, components 4, before'
    """
    setting, recipe = facts["setting"], facts.get("recipe", {})
    placements = [get_placement(setting, pool) for pool in setting["pools"]]
    agree = len(set(placements)) == 1
    pools = [
        {**pool, "placement": None if agree else placement}
        for pool, placement in zip(setting["pools"], placements, strict=True)
    ]
    words = [describe_poolings(pools) or POOLINGS[BASELINE]]
    if agree and (setting.get("placement") or any(p.get("placement") for p in setting["pools"])):
        words.append(placements[0])
    if "pooling_rate" in recipe:
        words.append(f"pooling rate {recipe['pooling_rate']:g}")
    if share := facts.get("data", {}).get("share"):
        words.append(f"{100 * share:g} % of the data")
    return ", ".join(words)


def describe_poolings(pools: Sequence[Facts]) -> str:
    """Poolings in the order in which they were put in; one of the same name is not named again.

    >>> describe_poolings([{"pooling": "average", "layer": 3}, {"pooling": "average", "layer": 2}])
    'average, layer 3; layer 2'
    """
    before = [None, *(pool["pooling"] for pool in pools)]
    return "; ".join(
        _describe_pooling(pool, named=pool["pooling"] != other)
        for pool, other in zip(pools, before, strict=False)
    )


def _describe_pooling(pool: Facts, named: bool) -> str:
    words = [label_cell("pooling", str(pool["pooling"]))] if named else []
    words.append(f"layer {pool['layer']}")
    if pool.get("form", REPLACE) != REPLACE:
        words.append(str(pool["form"]))
    if pool.get("placement"):
        words.append(str(pool["placement"]))
    if "alpha" in pool:
        words += [f"alpha {format_alpha(pool)}", str(pool["norm"])]
    if pool.get("components", default_components(pool)) != default_components(pool):
        words.append(f"components {pool['components']}")
    words += describe_unusual(pool)
    return ", ".join([*words, *["fitted together"] * bool(pool.get("together"))])


def describe_unusual(pool: Facts) -> list[str]:
    """Those of a pooling's choices that do not go without saying."""
    return [f"{choice.replace('_', ' ')} {value}" for choice, value in list_unusual(pool).items()]


def describe_data(facts: Facts) -> Pairs:
    """Data, network and recipe; the same keys are in a training's facts and in a study's."""
    told: Pairs = []
    if data := facts.get("data"):
        options = _describe_options(data)
        share = [f"{100 * data['share']:g} % of it"] if data.get("share") else []
        told.append(
            (
                "data",
                ", ".join(
                    [label_cell("data", data["name"]), *share, *options, f"seed {data['seed']}"]
                ),
            )
        )
    if network := facts.get("setting") or facts.get("network"):
        options = _describe_options(network)
        words = [
            label_cell("network", str(network["network"])),
            f"width {network['width']}",
            *options,
        ]
        if network.get("placement"):
            words.append(f"placement {network['placement']}")
        told.append(("network", ", ".join(words)))
    if recipe := facts.get("recipe"):
        words = [
            str(from_stored(recipe)["optimizer"]),
            f"rate {recipe['lr']:g}",
            f"{recipe['epochs']} epochs",
            f"batches of {recipe['batch_size']}",
        ]
        if recipe.get("weight_decay"):
            words.append(f"weight decay {recipe['weight_decay']:g}")
        if recipe.get("milestones"):
            at = ", ".join(map(str, recipe["milestones"]))
            words.append(f"rate times {recipe['gamma']:g} at {at}")
        told.append(("recipe", ", ".join(words)))
    return told


def _describe_options(facts: Facts) -> list[str]:
    options = facts.get("options") or {}
    return [f"{key.replace('_', ' ')} {value}" for key, value in options.items()]


def describe_results(results: Sequence[Facts]) -> Pairs:
    """Times, machine and origin of one or more results."""
    if not results:
        return []
    told: Pairs = []
    for key, name in (("seconds", "training"), ("fit_seconds", "fitting")):
        seconds = [float(each[key]) for each in results if key in each]
        if seconds:
            text = format_duration(sum(seconds))
            if len(seconds) > 1:
                text += f" in all, {format_duration(statistics.mean(seconds))} on average"
            told.append((f"time {name}", text))
    for key, name in (
        ("hardware", "machine"),
        ("torch", "torch"),
        ("commit", "commit"),
        ("date", "date"),
        ("command", "command"),
    ):
        values = list(dict.fromkeys(str(each[key]) for each in results if each.get(key)))
        if values:
            told.append((name, " / ".join(values[:3]) + (" / ..." if values[3:] else "")))
    return told


def format_duration(seconds: float) -> str:
    """A time as people say it.

    >>> format_duration(0.0312), format_duration(42), format_duration(3700)
    ('0.031 s', '42 s', '1 h 2 min')
    """
    if seconds < 10:
        return f"{seconds:.2g} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
