"""What an evaluation found, as plain data; its ratios to a baseline, and what the paper prints."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from importlib import resources
from typing import Any

from foveapool._stored_names import from_stored, to_stored
from foveapool.robustness.metrics import CorruptionTable, FlipTable, corruption_error
from foveapool.robustness.names import (
    ALL_PERTURBATIONS,
    EVALUATION_TEN,
    EXTRA_CORRUPTIONS,
    GENERATOR_TEN,
    GEOMETRIC_CORRUPTIONS,
    GEOMETRIC_PERTURBATIONS,
    STANDARD_CORRUPTIONS,
    list_files,
    name_at_level,
)


def _make_no_flips() -> FlipTable:
    return FlipTable({}, {}, {})


@dataclass(frozen=True)
class RobustnessResult:
    """Errors and flips of one classifier as fractions; parts that were not asked for are empty.

    Attributes:
        corruptions: `.errors[name][severity]`, `.clean`, and CE, mCE by methods.
        perturbations: By file, `.flip_probability["shot_noise_2"]`, `.neighbor_flips`,
            `.top5_distance`, `.zipf_distance`, and mean flip rates by methods.
        trials: How many networks this is the mean of.

    Example:
        >>> result = RobustnessResult(CorruptionTable({"fog": {1: 0.25}}, clean=0.125))
        >>> result.corruptions.errors["fog"][1], result.trials
        (0.25, 1)
    """

    corruptions: CorruptionTable
    perturbations: FlipTable = field(default_factory=_make_no_flips)
    trials: int = 1

    def to_dict(self) -> dict[str, Any]:
        """Turns the result into what JSON can hold; `from_dict` has an example.

        Returns:
            Plain dicts and numbers.
        """
        plain = asdict(self)
        return plain | {"perturbations": to_stored(plain["perturbations"])}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RobustnessResult:
        """Turns what `to_dict` gave into a result, before or after its way through JSON.

        Args:
            values: What `to_dict` gave.

        Returns:
            The result.

        Raises:
            ValueError: If it is anything else.

        Example:
            >>> import json
            >>> result = RobustnessResult(CorruptionTable({"fog": {1: 0.25}}, clean=0.125))
            >>> RobustnessResult.from_dict(json.loads(json.dumps(result.to_dict()))) == result
            True
        """
        try:
            corruptions, flips = values["corruptions"], values["perturbations"]
            # JSON knows no keys but strings.
            errors = {
                name: {int(severity): float(error) for severity, error in found.items()}
                for name, found in corruptions["errors"].items()
            }
            clean = corruptions["clean"]
            return cls(
                CorruptionTable(errors, clean), FlipTable(**from_stored(flips)), values["trials"]
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(
                f"result: not what RobustnessResult.to_dict gives ({error!r}); evaluate again"
            ) from error

    def figures(self) -> dict[str, float]:
        """Gives every figure a name of its own, shares in percent: the rows of a results file.

        Returns:
            The figures by name.

        Example:
            >>> RobustnessResult(CorruptionTable({"fog": {1: 0.25}}, clean=0.125)).figures()
            {'error %, clean': 12.5, 'error %, fog, severity 1': 25.0}
        """
        corruptions, flips = self.corruptions, self.perturbations
        found = {} if corruptions.clean is None else {"error %, clean": 100 * corruptions.clean}
        for name, errors in corruptions.errors.items():
            found |= {f"error %, {name}, severity {s}": 100 * e for s, e in errors.items()}
        for what, scale, values in (
            ("flip probability %", 100, flips.flip_probability),
            ("flips between neighbors %", 100, flips.neighbor_flips),
            ("top-5 distance", 1, flips.top5_distance),
            ("Zipf distance", 1, flips.zipf_distance),
        ):
            found |= {f"{what}, {name}": scale * value for name, value in values.items()}
        return found


def average_results(results: Sequence[RobustnessResult]) -> RobustnessResult:
    """Averages over trials of one kind of network, as the paper averages over five models.

    Args:
        results: Those of the trials; one that is a mean itself counts as often as it has trials.

    Returns:
        The mean of each figure.

    Raises:
        ValueError: If there is none, or they were evaluated on different corruptions, perturbations
            or difficulties.

    Example:
        >>> errors = [CorruptionTable({"fog": {1: error}}, clean=0.125) for error in (0.25, 0.5)]
        >>> mean = average_results([RobustnessResult(each) for each in errors])
        >>> mean.corruptions.errors["fog"][1], mean.trials
        (0.375, 2)
    """
    if not results:
        raise ValueError("results: got none, wanted those of one trial or more")
    if not all(result.perturbations.neighbor_flips for result in results):
        # Results of before these were counted have none; all else can be averaged.
        results = [_drop_neighbors(result) for result in results]
    first = results[0].figures().keys()
    for result in results[1:]:
        if different := first ^ result.figures().keys():
            raise ValueError(
                f"results: only some of the trials have {', '.join(sorted(different)[:3])}; wanted "
                "all evaluated on the same corruptions and perturbations"
            )
    if len({result.perturbations.difficulty for result in results}) > 1:
        raise ValueError("results: got flips at several difficulties, wanted those of one")
    weights = [result.trials for result in results]
    values = [result.to_dict() for result in results]
    mean = {part: _average([each[part] for each in values], weights) for part in values[0]}
    mean["perturbations"]["difficulty"] = results[0].perturbations.difficulty
    return RobustnessResult.from_dict({**mean, "trials": sum(weights)})


def _drop_neighbors(result: RobustnessResult) -> RobustnessResult:
    return replace(result, perturbations=replace(result.perturbations, neighbor_flips={}))


def _average(values: Sequence[Any], weights: Sequence[int]) -> Any:
    """The weighted mean of numbers, and of dicts of numbers however deep; None stays None."""
    if isinstance(values[0], dict):
        return {key: _average([each[key] for each in values], weights) for key in values[0]}
    if values[0] is None:
        return None
    return math.fsum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)


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


def get_paper_figures(data: str) -> Paper | None:
    """The paper's figures where networks were measured on its data, CIFAR-10, else None.

    Errors on other images say nothing beside them.
    """
    return load_paper() if data == "cifar10" else None


@cache
def load_paper() -> Paper:
    """The paper's figures for its ResNet on CIFAR-10.

    >>> load_paper().ce["glass_blur"], load_paper().pooling.corruptions.errors["fog"][5]
    (1.051, 0.233)
    """
    text = resources.files("foveapool.robustness").joinpath("paper.toml").read_text("utf-8")
    values = tomllib.loads(text)
    corruptions, perturbations = values["corruptions"], values["perturbations"]
    return Paper(
        baseline=_read_result(corruptions, perturbations, "baseline", values["clean"]),
        pooling=_read_result(corruptions, perturbations, "pooling", values["clean"]),
        ce=_index_by_name(corruptions["names"], corruptions["ce"]),
        rate=_index_by_name(perturbations["names"], perturbations["rate"]),
        corruption_titles=dict(zip(corruptions["names"], corruptions["titles"], strict=True)),
        perturbation_titles=dict(zip(perturbations["names"], perturbations["titles"], strict=True)),
        reconstructed=tuple(corruptions["reconstructed"]),
    )


def _read_result(
    corruptions: Mapping[str, Any],
    perturbations: Mapping[str, Any],
    which: str,
    clean: Mapping[str, float],
) -> RobustnessResult:
    rows = {
        int(s): _index_by_name(corruptions["names"], row) for s, row in corruptions[which].items()
    }
    errors = {name: {s: row[name] for s, row in rows.items()} for name in corruptions["names"]}
    flips: dict[str, float] = {}
    for level, row in perturbations[which].items():
        # The levels above the first are those of the last columns, the noises.
        named = _index_by_name(perturbations["names"][-len(row) :], row)
        flips |= {name_at_level(name, int(level)): value for name, value in named.items()}
    table = CorruptionTable(errors, _to_fraction(clean[which]))
    return RobustnessResult(table, FlipTable(flips, {}, {}), trials=5)


def _index_by_name(names: Sequence[str], row: Sequence[float]) -> dict[str, float]:
    return {name: _to_fraction(value) for name, value in zip(names, row, strict=True)}


def _to_fraction(percent: float) -> float:
    """Without the dust of a division: 105.1 % is 1.051."""
    return round(percent / 100, 6)


def _group(names: Iterable[str], geometric: Iterable[str]) -> dict[str, list[str]]:
    """The names in the paper's order, those that move pixels apart from the others."""
    names, moving = list(names), set(geometric)
    return {
        "geometric": [name for name in names if name in moving],
        "non-geometric": [name for name in names if name not in moving],
    }


_STANDARD = _group(load_paper().corruption_titles, GEOMETRIC_CORRUPTIONS)


CORRUPTION_GROUPS = {**_STANDARD, "extra": list(EXTRA_CORRUPTIONS)}


PERTURBATION_GROUPS = _group(load_paper().perturbation_titles, GEOMETRIC_PERTURBATIONS)


_MEANS = {
    "all 14": ALL_PERTURBATIONS,
    "the generator's ten": GENERATOR_TEN,
    "the evaluation script's ten": EVALUATION_TEN,
}


def corruption_ratios(ours: RobustnessResult, baseline: RobustnessResult) -> dict[str, float]:
    """CE of each corruption; one under which the baseline makes no error is left out."""
    theirs = baseline.corruptions.errors
    found: dict[str, float] = {}
    for name, errors in ours.corruptions.errors.items():
        if name not in theirs or sum(theirs[name].values()) > 0:
            found |= corruption_error({name: errors}, theirs)
    return found


def perturbation_ratios(
    ours: RobustnessResult, baseline: RobustnessResult, neighbors: bool = False
) -> dict[str, float]:
    """The flip rate of each perturbation; one that never flips the baseline is left out.

    As in the paper: the levels of a noise are averaged first, then divided. With `neighbors`
    those of noises alone, from flips between neighboring frames.
    """
    found = {}
    for name in ALL_PERTURBATIONS:
        mine, theirs = (sum_levels(each, name, neighbors) for each in (ours, baseline))
        if mine and mine.keys() != theirs.keys():
            raise ValueError(
                f"{name}: got flips of {', '.join(mine)}, of the baseline those of "
                f"{', '.join(theirs) or 'none'}; wanted the same ones"
            )
        if mine and sum(theirs.values()) > 0:
            found[name] = math.fsum(mine.values()) / math.fsum(theirs.values())
    return found


def sum_levels(result: RobustnessResult, name: str, neighbors: bool = False) -> dict[str, float]:
    """The flip probabilities of a perturbation by file, of a noise those of all levels there."""
    found = result.perturbations
    flips = found.neighbor_flips if neighbors else found.flip_probability
    return {file: flips[file] for file in list_files(name) if file in flips}


def count_better(names: Iterable[str], ratios: Mapping[str, float]) -> str:
    """How many are better than the baseline's, of those that could be compared.

    >>> count_better(["fog", "snow", "frost"], {"fog": 0.91, "snow": 1.007})
    '1 of 2'
    """
    there = [ratios[name] for name in names if name in ratios]
    return f"{sum(ratio < 1 for ratio in there)} of {len(there)}"


def summarize_alone(result: RobustnessResult) -> dict[str, str]:
    """What can be said of a network alone, in percent."""
    corruptions, flips = result.corruptions, result.perturbations
    found = {}
    if corruptions.clean is not None:
        found["error, clean images"] = f"{100 * corruptions.clean:.2f}"
    if corruptions.errors.keys() >= set(STANDARD_CORRUPTIONS):
        found["mean error, 15 corruptions"] = f"{100 * corruptions.mean_error():.2f}"
    for what, names in _MEANS.items():
        if flips.flip_probability.keys() >= set(names):
            found[f"mean flip probability, {what}"] = f"{100 * flips.mfp(names):.2f}"
    return found


def compare_with_baseline(ours: RobustnessResult, baseline: RobustnessResult) -> dict[str, str]:
    """What can be said of a network against another: means in percent, and counts."""
    found = {}
    if ours.corruptions.errors.keys() >= set(STANDARD_CORRUPTIONS):
        theirs = baseline.corruptions
        found["mCE"] = _format_percent(partial(ours.corruptions.mce, theirs))
        found["relative mCE"] = _format_percent(partial(ours.corruptions.relative_mce, theirs))
    ce = corruption_ratios(ours, baseline)
    for group, names in _STANDARD.items():
        if any(name in ce for name in names):
            found[f"CE below 100, {group}"] = count_better(names, ce)
    for what, ten in _MEANS.items():
        if ours.perturbations.flip_probability.keys() >= set(ten):
            mfr = partial(ours.perturbations.mfr, baseline.perturbations, ten)
            found[f"mFR, {what}"] = _format_percent(mfr)
    rates = perturbation_ratios(ours, baseline)
    for group, names in PERTURBATION_GROUPS.items():
        if any(name in rates for name in names):
            found[f"flip rate below 100, {group}"] = count_better(names, rates)
    return found


def _format_percent(mean: Callable[[], float]) -> str:
    """The mean of ratios, or a dash where a baseline without any error leaves one undefined."""
    try:
        return f"{100 * mean():.1f}"
    except ValueError:
        return "-"
