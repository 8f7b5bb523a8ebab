"""Errors of a model under corruption, from its answers, checked and made comparable."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from foveapool.robustness.names import ALL_CORRUPTIONS, SEVERITIES, STANDARD_CORRUPTIONS, check_name

Errors = Mapping[str, Mapping[int, float]]


def error_rate(predictions: Values, labels: Values, name: str = "images") -> float:
    """The share of images whose predicted class is not their label.

    predictions: integers (n,) or scores (n, K).

    >>> error_rate([3, 8, 1, 0], [3, 8, 8, 0])
    0.25
    """
    wrong, count = _count_wrong(name, predictions, labels)
    return wrong / count


def unnormalized_ce(errors: Errors) -> dict[str, float]:
    """The mean error over severities of each corruption: CE where no baseline is at hand."""
    return {name: _sum_severities(name, found) / len(found) for name, found in errors.items()}


def corruption_error(errors: Errors, baseline: Errors) -> dict[str, float]:
    """CE of each corruption: sum over severities of E, divided by the same sum of the baseline.

    >>> corruption_error({"fog": {1: 0.1, 2: 0.2}}, {"fog": {1: 0.2, 2: 0.4}})
    {'fog': 0.5}
    """
    return relative_corruption_error(errors, 0.0, baseline, 0.0)


def relative_corruption_error(
    errors: Errors, clean: float, baseline: Errors, baseline_clean: float
) -> dict[str, float]:
    """Relative CE of each corruption: as CE, of what corruption adds to the clean error."""
    _check_fraction("clean", clean)
    _check_fraction("baseline_clean", baseline_clean)
    found = {}
    for name, ours in errors.items():
        theirs = baseline.get(name, {})
        if ours.keys() != theirs.keys():
            raise ValueError(
                f"{name}: errors at severities {sorted(ours)}, the baseline's at {sorted(theirs)}; "
                "wanted the same ones"
            )
        below = _sum_severities(name, theirs) - len(theirs) * baseline_clean
        found[name] = divide_safely(name, _sum_severities(name, ours) - len(ours) * clean, below)
    return found


@dataclass(frozen=True)
class CorruptionTable:
    """The errors of one model: `errors[corruption][severity]`, and of clean images if measured.

    Methods that take `names` average over those corruptions, by default the 15 standard ones.
    """

    errors: dict[str, dict[int, float]]
    clean: float | None = None

    def unnormalized_ce(self) -> dict[str, float]:
        """The mean error over severities of each corruption."""
        return unnormalized_ce(self.errors)

    def mean_error(self, names: Iterable[str] = STANDARD_CORRUPTIONS) -> float:
        """The unnormalized mCE: what CIFAR papers usually report."""
        return average_over(self.unnormalized_ce(), names)

    def ce(self, baseline: CorruptionTable) -> dict[str, float]:
        """CE of each corruption against a baseline."""
        return corruption_error(self.errors, baseline.errors)

    def mce(self, baseline: CorruptionTable, names: Iterable[str] = STANDARD_CORRUPTIONS) -> float:
        """The mean CE against a baseline."""
        return average_over(self.ce(baseline), names)

    def relative_ce(self, baseline: CorruptionTable) -> dict[str, float]:
        """Relative CE of each corruption against a baseline; both need their clean error."""
        if self.clean is None or baseline.clean is None:
            raise ValueError(
                f"clean: got {self.clean} and {baseline.clean} for the baseline, wanted the error "
                "of clean images of both; call update_clean"
            )
        return relative_corruption_error(self.errors, self.clean, baseline.errors, baseline.clean)

    def relative_mce(
        self, baseline: CorruptionTable, names: Iterable[str] = STANDARD_CORRUPTIONS
    ) -> float:
        """The mean relative CE against a baseline."""
        return average_over(self.relative_ce(baseline), names)


class CorruptionErrors:
    """Counts errors batch by batch; `compute` gives the table.

    >>> errors = CorruptionErrors()
    >>> errors.update("fog", 1, [3, 8], [3, 1])
    >>> errors.update("fog", 1, [0, 6], [0, 6])
    >>> errors.compute().errors
    {'fog': {1: 0.25}}
    """

    def __init__(self) -> None:
        self._counts: dict[tuple[str, int], tuple[int, int]] = {}

    def update(self, name: str, severity: int, predictions: Values, labels: Values) -> None:
        """Adds a batch: predictions as integers (n,) or scores (n, K), labels (n,)."""
        check_name("corruption", name, ALL_CORRUPTIONS)
        if severity not in SEVERITIES:
            raise ValueError(f"severity: got {severity!r}, wanted 1 to 5")
        self._add((name, severity), f"{name}, severity {severity}", predictions, labels)

    def update_clean(self, predictions: Values, labels: Values) -> None:
        """Adds a batch of clean images, for the relative errors."""
        self._add(("clean", 0), "clean images", predictions, labels)

    def _add(self, key: tuple[str, int], name: str, predictions: Values, labels: Values) -> None:
        wrong, count = _count_wrong(name, predictions, labels)
        old_wrong, old_count = self._counts.get(key, (0, 0))
        self._counts[key] = (old_wrong + wrong, old_count + count)

    def compute(self) -> CorruptionTable:
        """The errors of all batches so far."""
        rates = {key: wrong / count for key, (wrong, count) in self._counts.items()}
        # In the order of the published lists, whatever the order of the batches was.
        errors = {
            name: {s: rates[name, s] for s in SEVERITIES if (name, s) in rates}
            for name in ALL_CORRUPTIONS
            if any((name, s) in rates for s in SEVERITIES)
        }
        return CorruptionTable(errors, rates.get(("clean", 0)))


def _count_wrong(name: str, predictions: Values, labels: Values) -> tuple[int, int]:
    """How many predictions are wrong, and how many there are."""
    guessed, truth = predict_classes(name, predictions), as_tensor(labels)
    if truth.shape != guessed.shape or truth.is_floating_point():
        raise ValueError(
            f"{name}: got labels of {truth.dtype} {tuple(truth.shape)} for {len(guessed)} "
            f"predictions, wanted one integer a prediction, ({len(guessed)},)"
        )
    if not len(guessed):
        raise ValueError(f"{name}: got no predictions, wanted one or more")
    return int((guessed != truth.to(guessed.device)).sum()), len(guessed)


def _check_fraction(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(
            f"{name}: got an error of {value}, wanted a fraction from 0 to 1; divide percent by 100"
        )


def _sum_severities(name: str, errors: Mapping[int, float]) -> float:
    """The sum over severities."""
    if not errors:
        raise ValueError(f"{name}: got no severities, wanted the error of one or more")
    for severity, error in errors.items():
        _check_fraction(f"{name}, severity {severity}", error)
    return math.fsum(errors.values())


# Tensors on any device, numpy arrays and nested lists.
Values: TypeAlias = Any


def as_tensor(values: Values) -> Tensor:
    """The values as a tensor, without their gradients and without a copy where that can be."""
    return torch.as_tensor(values).detach()


def refuse_nan(name: str, scores: Tensor) -> None:
    """ValueError if a model returned NaN: argmax would call it a class."""
    if scores.is_floating_point():
        bad = scores.isnan().flatten(0, -2).any(-1)
        if count := int(bad.sum()):
            raise ValueError(
                f"{name}: the model returned NaN for {count} of {len(bad)} images, wanted a number "
                "for every class; look at its weights and at the normalization of its input"
            )


def predict_classes(name: str, predictions: Values, frames: bool = False) -> Tensor:
    """The predicted classes: integers as they are, of scores the largest, the first among equals.

    predictions: integers (n,) or scores (n, K); of sequences, (V, F) or (V, F, K).
    """
    given = as_tensor(predictions)
    dims, shape = (2, "(V, F)") if frames else (1, "(n,)")
    if given.dim() == dims and not given.is_floating_point() and given.dtype != torch.bool:
        return given
    if given.dim() == dims + 1 and given.is_floating_point() and given.shape[-1] > 0:
        refuse_nan(name, given)
        return given.argmax(-1)
    raise ValueError(
        f"{name}: got predictions of {given.dtype} {tuple(given.shape)}, wanted classes as "
        f"integers {shape} or scores as floats {shape[:-1].rstrip(',')}, K)"
    )


def average_over(values: Mapping[str, float], names: Iterable[str]) -> float:
    """The plain mean of the values of these names; ValueError if one is missing."""
    names = list(names)
    if not names:
        raise ValueError("names: got none, wanted one or more to take the mean over")
    if missing := [name for name in names if name not in values]:
        raise ValueError(
            f"names: no value for {', '.join(missing)}; measure them too, or take the mean over "
            f"the names there are: {', '.join(values) or 'none'}"
        )
    return math.fsum(values[name] for name in names) / len(names)


def divide_safely(name: str, value: float, baseline: float) -> float:
    """`value / baseline`; ValueError if the baseline is 0."""
    if math.isclose(baseline, 0, abs_tol=1e-12):
        raise ValueError(
            f"{name}: the baseline is {baseline:.3g}, wanted another value than 0 to divide by; "
            "choose another baseline, more images, or the unnormalized mean"
        )
    return value / baseline
