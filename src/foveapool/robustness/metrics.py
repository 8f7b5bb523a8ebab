"""The metrics of CIFAR-10-C and CIFAR-10-P: errors under corruption, stability along a sequence.

Pure functions, and two classes that take a model's answers batch by batch: `CorruptionErrors` and
`FlipRates`. Errors, flip probabilities and rates are fractions; the papers print percent.

Stability is flips, and two distances between rankings. A noise compares each later frame with the
first, every other perturbation with the frame before, or at difficulty d with the frame d earlier.
Scores are (V, F, K): sequences, frames, classes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor

from foveapool.robustness.names import (
    ALL_CORRUPTIONS,
    ALL_PERTURBATIONS,
    NOISE_LEVELS,
    PERTURBATION_FILES,
    SEVERITIES,
    STANDARD_CORRUPTIONS,
    check_name,
    is_noise,
    list_files,
    name_at_level,
)

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


TOP = 5


def rank_classes(scores: Values) -> Tensor:
    """The rank of each class, 1 for the largest score, equal ones in order of class; (..., K).

    >>> rank_classes([[0.1, 0.7, 0.2, 0.1]])
    tensor([[3, 1, 2, 4]])
    """
    return _sort_scores(as_tensor(scores)).argsort(-1) + 1


def rank_changes(before: Values, after: Values) -> Tensor:
    """sigma: the rank in `after` of the class ranked i = 1, 2, ... in `before`; (..., K)."""
    return rank_classes(after).gather(-1, _sort_scores(as_tensor(before)))


def top5_distances(sigma: Values) -> Tensor:
    """How far the five first classes moved, steps below the fifth rank not counted; (...)."""
    new = (as_tensor(sigma)[..., :TOP] - 1).clamp(max=TOP)
    old = torch.arange(new.shape[-1], device=new.device)
    return (old - new).abs().sum(-1)


def zipf_distances(sigma: Values) -> Tensor:
    """How far all classes moved, rank i weighted by 1 / i; float64 (...)."""
    new = as_tensor(sigma).double().reciprocal()
    old = torch.arange(1, new.shape[-1] + 1, device=new.device).double().reciprocal()
    return (old * (old - new).abs()).sum(-1)


def flip_probability(predictions: Values, noise: bool, difficulty: int = 1) -> float:
    """How often the class differs between compared frames.

    predictions: integers (V, F) or scores (V, F, K).

    >>> flip_probability([[0, 0, 5, 0, 0, 0]], noise=False)
    0.4
    >>> flip_probability([[0, 0, 5, 0, 0, 0]], noise=True)
    0.2
    """
    before, after = _pair_frames(
        predict_classes("predictions", predictions, frames=True), noise, difficulty
    )
    return int((before != after).sum()) / after.numel()


def top5_distance(scores: Values, noise: bool, difficulty: int = 1) -> float:
    """The mean of `top5_distances` over all compared frames of scores (V, F, K)."""
    return _take_mean(top5_distances(_measure_changes("scores", scores, noise, difficulty)))


def zipf_distance(scores: Values, noise: bool, difficulty: int = 1) -> float:
    """The mean of `zipf_distances` over all compared frames of scores (V, F, K)."""
    return _take_mean(zipf_distances(_measure_changes("scores", scores, noise, difficulty)))


def flip_rates(values: Mapping[str, float], baseline: Mapping[str, float]) -> dict[str, float]:
    """Each value divided by the baseline's: flip rates, or distances against a baseline.

    >>> flip_rates({"tilt": 0.01, "scale": 0.03}, {"tilt": 0.02, "scale": 0.04})
    {'tilt': 0.5, 'scale': 0.75}
    """
    if missing := [name for name in values if name not in baseline]:
        raise ValueError(f"baseline: no value for {', '.join(missing)}; measure them too")
    return {name: divide_safely(name, value, baseline[name]) for name, value in values.items()}


def average_over_levels(values: Mapping[str, float]) -> dict[str, float]:
    """One value a perturbation: the mean over its noise levels, as Table 3 of the paper has it."""
    found = {}
    for name in ALL_PERTURBATIONS:
        files = list_files(name)
        if any(file in values for file in files):
            found[name] = average_over(values, files)
    return found


@dataclass(frozen=True)
class FlipTable:
    """The stability of one model, by file: "tilt", "shot_noise", "shot_noise_2", ...

    The distances hold the files that were given as scores. `neighbor_flips` are those of noises
    between neighboring frames: not what the authors of the sets count, but what the paper seems
    to. `names` are perturbations without their level, by default all 14; a mean at difficulty d
    takes each noise's file of level d.
    """

    flip_probability: dict[str, float]
    top5_distance: dict[str, float]
    zipf_distance: dict[str, float]
    difficulty: int = 1
    neighbor_flips: dict[str, float] = field(default_factory=dict)

    def mfp(self, names: Iterable[str] = ALL_PERTURBATIONS) -> float:
        """The mean flip probability."""
        return average_over(self.flip_probability, self._list_files(names))

    def mfr(self, baseline: FlipTable, names: Iterable[str] = ALL_PERTURBATIONS) -> float:
        """The mean flip rate against a baseline."""
        return self._average_ratio(self.flip_probability, baseline.flip_probability, names)

    def mt5d(self, baseline: FlipTable, names: Iterable[str] = ALL_PERTURBATIONS) -> float:
        """The mean top-5 distance against a baseline."""
        return self._average_ratio(self.top5_distance, baseline.top5_distance, names)

    def _list_files(self, names: Iterable[str]) -> list[str]:
        return [name_at_level(name, self.difficulty) for name in names]

    def _average_ratio(
        self, values: Mapping[str, float], baseline: Mapping[str, float], names: Iterable[str]
    ) -> float:
        files = self._list_files(names)
        wanted = {name: values[name] for name in files if name in values}
        return average_over(flip_rates(wanted, baseline), files)


class FlipRates:
    """Counts flips and sums distances batch by batch; `compute` gives the table.

    >>> rates = FlipRates()
    >>> rates.update("tilt", [[1, 2, 1, 2, 1]])
    >>> rates.compute().flip_probability
    {'tilt': 1.0}
    """

    def __init__(self, difficulty: int = 1) -> None:
        if difficulty not in NOISE_LEVELS:
            raise ValueError(f"difficulty: got {difficulty!r}, wanted 1, 2 or 3")
        self.difficulty = difficulty
        # Sums over comparisons and their number, by metric and file.
        self._sums: dict[tuple[str, str], tuple[float, int]] = {}

    def update(self, name: str, predictions: Values) -> None:
        """Adds sequences: classes (V, F), or scores (V, F, K) for the distances too."""
        check_name("perturbation", name, PERTURBATION_FILES)
        noise, given = is_noise(name), as_tensor(predictions)
        guessed = predict_classes(name, given, frames=True)
        before, after = _pair_frames(guessed, noise, self.difficulty)
        self._check_metrics(name, with_scores=given.dim() == 3)
        self._add("flip_probability", name, before != after)
        if noise:
            self._add("neighbor_flips", name, guessed[:, :-1] != guessed[:, 1:])
        if given.dim() == 3:
            sigma = rank_changes(*_pair_frames(given, noise, self.difficulty))
            self._add("top5_distance", name, top5_distances(sigma))
            self._add("zipf_distance", name, zipf_distances(sigma))

    def _check_metrics(self, name: str, with_scores: bool) -> None:
        """Every batch of a file must tell as much, or the metrics would be of different images."""
        known = ("flip_probability", name) in self._sums
        if known and with_scores != (("zipf_distance", name) in self._sums):
            kinds = ("scores", "classes") if with_scores else ("classes", "scores")
            raise ValueError(
                f"{name}: got {kinds[0]} after batches of {kinds[1]}, wanted one kind for all"
            )

    def _add(self, metric: str, name: str, values: Tensor) -> None:
        total, count = self._sums.get((metric, name), (0.0, 0))
        more = float(values.sum(dtype=torch.float64))
        self._sums[metric, name] = (total + more, count + values.numel())

    def compute(self) -> FlipTable:
        """The means of all batches so far."""
        found: dict[str, dict[str, float]] = {}
        for metric in ("flip_probability", "neighbor_flips", "top5_distance", "zipf_distance"):
            sums = {name: self._sums.get((metric, name)) for name in PERTURBATION_FILES}
            found[metric] = {name: each[0] / each[1] for name, each in sums.items() if each}
        return FlipTable(**found, difficulty=self.difficulty)


def _sort_scores(scores: Tensor) -> Tensor:
    """The classes from the largest score to the smallest."""
    return scores.argsort(dim=-1, descending=True, stable=True)


def _pair_frames(frames: Tensor, noise: bool, difficulty: int) -> tuple[Tensor, Tensor]:
    """The frames (V, F, ...) that are compared, the earlier ones and the later ones."""
    step = 1 if noise else difficulty
    if difficulty < 1 or frames.shape[1] <= step or not len(frames):
        raise ValueError(
            f"predictions: got {len(frames)} sequences of {frames.shape[1]} frames at difficulty "
            f"{difficulty}, wanted one or more of {step + 1} frames or more, and difficulty >= 1"
        )
    before, after = frames[:, :-step], frames[:, step:]
    return (frames[:, :1].expand_as(after) if noise else before), after


def _measure_changes(name: str, scores: Values, noise: bool, difficulty: int) -> Tensor:
    """The sigma of all compared frames."""
    given = as_tensor(scores)
    if given.dim() != 3 or not given.is_floating_point():
        raise ValueError(
            f"{name}: got {given.dtype} {tuple(given.shape)}, wanted scores as floats (V, F, K)"
        )
    refuse_nan(name, given)
    return rank_changes(*_pair_frames(given, noise, difficulty))


def _take_mean(values: Tensor) -> float:
    return float(values.sum(dtype=torch.float64)) / values.numel()
