"""Stability of predictions along a sequence: flips, and two distances between rankings.

A noise compares each later frame with the first, every other perturbation with the frame before,
or at difficulty d with the frame d earlier. Scores are (V, F, K): sequences, frames, classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from foveapool.robustness.errors import (
    Values,
    as_tensor,
    average_over,
    divide_safely,
    predict_classes,
    refuse_nan,
)
from foveapool.robustness.names import (
    ALL_PERTURBATIONS,
    NOISE_LEVELS,
    PERTURBATION_FILES,
    check_name,
    is_noise,
    list_files,
    name_at_level,
)

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
    return _mean(top5_distances(_measure_changes("scores", scores, noise, difficulty)))


def zipf_distance(scores: Values, noise: bool, difficulty: int = 1) -> float:
    """The mean of `zipf_distances` over all compared frames of scores (V, F, K)."""
    return _mean(zipf_distances(_measure_changes("scores", scores, noise, difficulty)))


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
        return average_over(self.flip_probability, self._files(names))

    def mfr(self, baseline: FlipTable, names: Iterable[str] = ALL_PERTURBATIONS) -> float:
        """The mean flip rate against a baseline."""
        return self._mean_ratio(self.flip_probability, baseline.flip_probability, names)

    def mt5d(self, baseline: FlipTable, names: Iterable[str] = ALL_PERTURBATIONS) -> float:
        """The mean top-5 distance against a baseline."""
        return self._mean_ratio(self.top5_distance, baseline.top5_distance, names)

    def _files(self, names: Iterable[str]) -> list[str]:
        return [name_at_level(name, self.difficulty) for name in names]

    def _mean_ratio(
        self, values: Mapping[str, float], baseline: Mapping[str, float], names: Iterable[str]
    ) -> float:
        files = self._files(names)
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


def _mean(values: Tensor) -> float:
    return float(values.sum(dtype=torch.float64)) / values.numel()
