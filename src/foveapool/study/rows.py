"""From trainings to rows: mean and deviation over the seeds, and comparisons in pairs.

Trials of one seed share their order of images and the start of every layer they have in common,
so differences are taken seed by seed; the test is Student's, for pairs, two-sided.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from foveapool import labels
from foveapool.records import (
    CE,
    ERROR,
    FLIP_RATE,
    LESS,
    P_VALUE,
    VALIDATION,
    Row,
    collect_origin,
    summarize_values,
)
from foveapool.robustness.result import (
    RobustnessResult,
    average_results,
    corruption_ratios,
    perturbation_ratios,
)
from foveapool.statistics import paired_p_value
from foveapool.study.search import Selection
from foveapool.study.setting import AUTO, Setting
from foveapool.study.spec import TrainingSpec, trains_matrix
from foveapool.training.recipe import Recipe

DIVERGED = "trainings that diverged"
LOSS = "training loss, last epoch"
ALPHA = "alpha that auto took"
COSTS = {
    "parameters": "parameters",
    "multiply_adds": "multiply-adds an image",
    "seconds": "seconds a training",
    "fit_seconds": "seconds to fit",
}


def make_diverged_result(why: str) -> dict[str, Any]:
    """The result of a training that came to none: it gets everything wrong, and cost nothing."""
    nothing: dict[str, Any] = {"error": 100.0, "loss": None, "alphas": {}, "diverged": why}
    return {**nothing, **dict.fromkeys(COSTS, 0), **collect_origin([])}


@dataclass(frozen=True)
class SeedTrials:
    """One setting and its trainings, a seed each."""

    setting: Setting
    trainings: tuple[TrainingSpec, ...]


def setting_columns(setting: Setting, recipe: Recipe) -> dict[str, str]:
    """Where the poolings are and how they were fitted, as columns of a row."""
    told = recipe.pooling_rate != 1 and trains_matrix(setting)
    return labels.label_columns(setting.facts(), recipe.pooling_rate if told else None)


def make_trial_rows(
    study: str,
    trials: Sequence[SeedTrials],
    results: Mapping[str, Mapping[str, Any]],
    provenance: Mapping[str, str],
) -> list[Row]:
    """The study's table; comparisons are with the setting that has no poolings, if it is there."""
    plain = next((each for each in trials if not each.setting.pools), None)
    rows = []
    for each in trials:
        own = [results[training.name] for training in each.trainings]
        columns = _make_columns(study, each, own, provenance)

        def row(metric: str, values: Sequence[float], columns: Any = columns) -> Row:
            return Row(metric=metric, **summarize_values(values), **columns)

        ended = _drop_diverged(own)

        rows.append(row(ERROR, [result["error"] for result in own]))
        if diverged := len(own) - len(ended):
            # They count as all wrong in the line before, and in no other.
            rows.append(Row(metric=DIVERGED, mean=diverged, std=0.0, n=len(own), **columns))
            columns["seeds"] = ", ".join(map(str, ended))
        others = () if plain is None or each is plain else plain.trainings
        usual = [results[training.name] for training in others]
        if len(usual) > 1 and not diverged and len(_drop_diverged(usual)) == len(usual):
            gains = [mine["error"] - its["error"] for mine, its in zip(own, usual, strict=True)]
            rows.append(row(LESS, gains))
            if not math.isnan(p := paired_p_value(gains)):
                rows.append(Row(metric=P_VALUE, mean=p, std=0.0, n=len(gains), **columns))
        if ended:
            shown = {"loss": LOSS, **COSTS}
            rows += [row(shown[key], [r[key] for r in ended.values()]) for key in shown]
            for pool in (p for p in each.setting.pools if p.is_fitted and p.alpha == AUTO):
                for name in each.setting.operator_names(pool).values():
                    taken = [result["alphas"][name] for result in ended.values()]
                    rows.append(row(f"{ALPHA} at layer {name}", taken))
        if robust := read_robustness(own):
            base = read_robustness(usual)
            against = average_results(base) if base else None
            rows += make_robustness_rows(robust, against, columns)
    return rows


def _drop_diverged(results: Sequence[Mapping[str, Any]]) -> dict[int, Mapping[str, Any]]:
    """The results that are numbers, by their seed: those of trainings that did not diverge."""
    return {seed: found for seed, found in enumerate(results) if "diverged" not in found}


def _make_columns(
    study: str,
    trials: SeedTrials,
    results: Sequence[Mapping[str, Any]],
    provenance: Mapping[str, str],
) -> dict[str, str]:
    first = trials.trainings[0]
    columns = setting_columns(trials.setting, first.recipe)
    ended = _drop_diverged(results).values()
    return {
        **columns,
        "study": study,
        "data": label_data(first),
        "seeds": f"0-{len(trials.trainings) - 1}",
        "epochs": str(first.recipe.epochs),
        "batch": str(first.recipe.batch_size),
        "seconds": f"{statistics.mean(r['seconds'] for r in ended):.2f}" if ended else "",
        **provenance,
        **collect_origin(results),
    }


def label_data(training: TrainingSpec) -> str:
    """The data's name, with the share of it that is trained on."""
    return labels.label_data(training.source.facts())


def make_robustness_rows(
    results: Sequence[RobustnessResult],
    baseline: RobustnessResult | None,
    columns: Mapping[str, Any],
) -> list[Row]:
    """A row for each figure over some trials, and for each ratio of their mean to a baseline."""
    figures, ours = [each.figures() for each in results], average_results(results)
    rows = []
    for metric in ours.figures():
        values = [each[metric] for each in figures]
        rows.append(Row(metric=metric, **summarize_values(values), **columns))
    if baseline is None:
        return rows
    for what, ratios in (
        (CE, corruption_ratios(ours, baseline)),
        (FLIP_RATE, perturbation_ratios(ours, baseline)),
    ):
        for name, ratio in ratios.items():
            # A ratio of means: there is one of it.
            metric, spread, n = f"{what}, {name}", math.nan, len(results)
            rows.append(Row(metric=metric, mean=100 * ratio, std=spread, n=n, **columns))
    return rows


def read_robustness(trainings: Sequence[Mapping[str, Any]]) -> list[RobustnessResult]:
    """What trainings measured, from their results; none unless all of them did."""
    if not all("robustness" in each for each in trainings):
        return []
    return [RobustnessResult.from_dict(each["robustness"]) for each in trainings]


def make_selection_rows(
    study: str, selection: Selection, provenance: Mapping[str, str]
) -> list[Row]:
    """Every setting that was looked at, in the order of the search; a row a stage."""
    rows = []
    for each in selection.candidates:
        recipe = each.training.recipe
        columns: dict[str, Any] = {
            **setting_columns(each.setting, recipe),
            "data": label_data(each.training),
            "seeds": f"0-{len(each.errors) - 1}",
            "epochs": str(recipe.epochs),
            "batch": str(recipe.batch_size),
            **provenance,
            **each.origin,
        }
        rows.append(Row(study=study, metric=VALIDATION, **summarize_values(each.errors), **columns))
    return rows
