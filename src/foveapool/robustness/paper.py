"""The figures of the paper's Tables 2 and 3, to stand beside ours; `paper.toml` holds them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from foveapool.robustness.corruption_metrics import CorruptionTable
from foveapool.robustness.flip_metrics import FlipTable
from foveapool.robustness.groups import at_level
from foveapool.robustness.result import RobustnessResult


@dataclass(frozen=True)
class Paper:
    """What the paper prints, as fractions: its ResNet, that with the pooling replaced, and ratios.

    ce, rate: its last rows, by corruption and by perturbation. titles: short heads of columns, in
    its order. reconstructed: the severities of the baseline that it does not print and that were
    worked out from its CE.
    """

    baseline: RobustnessResult
    pooling: RobustnessResult
    ce: dict[str, float]
    rate: dict[str, float]
    corruption_titles: dict[str, str]
    perturbation_titles: dict[str, str]
    reconstructed: tuple[int, ...]


def paper_on(data: str) -> Paper | None:
    """The paper's figures where networks were measured on its data, CIFAR-10, else None.

    Errors on other images say nothing beside them.
    """
    return paper() if data == "cifar10" else None


@cache
def paper() -> Paper:
    """The paper's figures for its ResNet on CIFAR-10.

    >>> paper().ce["glass_blur"], paper().pooling.corruptions.errors["fog"][5]
    (1.051, 0.233)
    """
    text = resources.files("foveapool.robustness").joinpath("paper.toml").read_text("utf-8")
    values = tomllib.loads(text)
    corruptions, perturbations = values["corruptions"], values["perturbations"]
    return Paper(
        baseline=_result(corruptions, perturbations, "baseline", values["clean"]),
        pooling=_result(corruptions, perturbations, "pooling", values["clean"]),
        ce=_by_name(corruptions["names"], corruptions["ce"]),
        rate=_by_name(perturbations["names"], perturbations["rate"]),
        corruption_titles=dict(zip(corruptions["names"], corruptions["titles"], strict=True)),
        perturbation_titles=dict(zip(perturbations["names"], perturbations["titles"], strict=True)),
        reconstructed=tuple(corruptions["reconstructed"]),
    )


def _result(
    corruptions: Mapping[str, Any],
    perturbations: Mapping[str, Any],
    which: str,
    clean: Mapping[str, float],
) -> RobustnessResult:
    rows = {int(s): _by_name(corruptions["names"], row) for s, row in corruptions[which].items()}
    errors = {name: {s: row[name] for s, row in rows.items()} for name in corruptions["names"]}
    flips: dict[str, float] = {}
    for level, row in perturbations[which].items():
        # The levels above the first are those of the last columns, the noises.
        named = _by_name(perturbations["names"][-len(row) :], row)
        flips |= {at_level(name, int(level)): value for name, value in named.items()}
    table = CorruptionTable(errors, _fraction(clean[which]))
    return RobustnessResult(table, FlipTable(flips, {}, {}), trials=5)


def _by_name(names: Sequence[str], row: Sequence[float]) -> dict[str, float]:
    return {name: _fraction(value) for name, value in zip(names, row, strict=True)}


def _fraction(percent: float) -> float:
    """Without the dust of a division: 105.1 % is 1.051."""
    return round(percent / 100, 6)
