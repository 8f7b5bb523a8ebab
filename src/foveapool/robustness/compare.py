"""One network against another: CE and flip rates by name, and the means and counts of papers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from foveapool.robustness.corruption_metrics import corruption_error
from foveapool.robustness.groups import (
    ALL_PERTURBATIONS,
    EVALUATION_TEN,
    EXTRA_CORRUPTIONS,
    GENERATOR_TEN,
    GEOMETRIC_CORRUPTIONS,
    GEOMETRIC_PERTURBATIONS,
    STANDARD_CORRUPTIONS,
    files_of,
)
from foveapool.robustness.paper import paper
from foveapool.robustness.result import RobustnessResult


def _grouped(names: Iterable[str], geometric: Iterable[str]) -> dict[str, list[str]]:
    """The names in the paper's order, those that move pixels apart from the others."""
    names, moving = list(names), set(geometric)
    return {
        "geometric": [name for name in names if name in moving],
        "non-geometric": [name for name in names if name not in moving],
    }


_STANDARD = _grouped(paper().corruption_titles, GEOMETRIC_CORRUPTIONS)
CORRUPTION_GROUPS = {**_STANDARD, "extra": list(EXTRA_CORRUPTIONS)}
PERTURBATION_GROUPS = _grouped(paper().perturbation_titles, GEOMETRIC_PERTURBATIONS)
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
    ours: RobustnessResult, baseline: RobustnessResult, neighbours: bool = False
) -> dict[str, float]:
    """The flip rate of each perturbation; one that never flips the baseline is left out.

    As in the paper: the levels of a noise are averaged first, then divided. With `neighbours`
    those of noises alone, from flips between neighbouring frames.
    """
    found = {}
    for name in ALL_PERTURBATIONS:
        mine, theirs = (levels(each, name, neighbours) for each in (ours, baseline))
        if mine and mine.keys() != theirs.keys():
            raise ValueError(
                f"{name}: got flips of {', '.join(mine)}, of the baseline those of "
                f"{', '.join(theirs) or 'none'}; wanted the same ones"
            )
        if mine and sum(theirs.values()) > 0:
            found[name] = math.fsum(mine.values()) / math.fsum(theirs.values())
    return found


def levels(result: RobustnessResult, name: str, neighbours: bool = False) -> dict[str, float]:
    """The flip probabilities of a perturbation by file, of a noise those of all levels there."""
    found = result.perturbations
    flips = found.neighbour_flips if neighbours else found.flip_probability
    return {file: flips[file] for file in files_of(name) if file in flips}


def better(names: Iterable[str], ratios: Mapping[str, float]) -> str:
    """How many are better than the baseline's, of those that could be compared.

    >>> better(["fog", "snow", "frost"], {"fog": 0.91, "snow": 1.007})
    '1 of 2'
    """
    there = [ratios[name] for name in names if name in ratios]
    return f"{sum(ratio < 1 for ratio in there)} of {len(there)}"


def standing(result: RobustnessResult) -> dict[str, str]:
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


def comparison(ours: RobustnessResult, baseline: RobustnessResult) -> dict[str, str]:
    """What can be said of a network against another: means in percent, and counts."""
    found = {}
    if ours.corruptions.errors.keys() >= set(STANDARD_CORRUPTIONS):
        theirs = baseline.corruptions
        found["mCE"] = _percent(partial(ours.corruptions.mce, theirs))
        found["relative mCE"] = _percent(partial(ours.corruptions.relative_mce, theirs))
    ce = corruption_ratios(ours, baseline)
    for group, names in _STANDARD.items():
        if any(name in ce for name in names):
            found[f"CE below 100, {group}"] = better(names, ce)
    for what, ten in _MEANS.items():
        if ours.perturbations.flip_probability.keys() >= set(ten):
            mfr = partial(ours.perturbations.mfr, baseline.perturbations, ten)
            found[f"mFR, {what}"] = _percent(mfr)
    rates = perturbation_ratios(ours, baseline)
    for group, names in PERTURBATION_GROUPS.items():
        if any(name in rates for name in names):
            found[f"flip rate below 100, {group}"] = better(names, rates)
    return found


def _percent(mean: Callable[[], float]) -> str:
    """The mean of ratios, or a dash where a baseline without any error leaves one undefined."""
    try:
        return f"{100 * mean():.1f}"
    except ValueError:
        return "-"
