"""Robustness as the last step of a training: measured in flight, so that no network is kept."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from foveapool.data.batches import make_normalizer
from foveapool.data.images import DataSet
from foveapool.records import CE, FLIP_RATE, Row, summarize_values
from foveapool.robustness.compare import corruption_ratios, perturbation_ratios
from foveapool.robustness.evaluate import evaluate
from foveapool.robustness.result import RobustnessResult, average_results
from foveapool.training.parallel import choose_device

CORRUPTIONS, PERTURBATIONS = "corruptions", "perturbations"


def check_robustness(asked: Sequence[str]) -> None:
    """Refuses what cannot be measured."""
    for name in asked:
        if name not in (CORRUPTIONS, PERTURBATIONS):
            raise ValueError(
                f"robustness: got {name!r}, wanted {CORRUPTIONS!r}, {PERTURBATIONS!r} or both"
            )


def measure_robustness(
    network: nn.Module, data: DataSet, asked: Sequence[str], device: str | None
) -> dict[str, Any]:
    """How the network fares on the test images, corrupted; as JSON can hold it."""
    result = evaluate(
        network,
        data.test.images,
        data.test.labels,
        make_normalizer(data),
        corruptions="standard" if CORRUPTIONS in asked else (),
        perturbations="all" if PERTURBATIONS in asked else (),
        device=choose_device(device),
    )
    return result.to_dict()


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
