"""What an evaluation found, as plain data: one network's, or the mean over several trials."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from foveapool._stored_names import from_stored, to_stored
from foveapool.robustness.metrics import CorruptionTable, FlipTable


def _no_flips() -> FlipTable:
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
    perturbations: FlipTable = field(default_factory=_no_flips)
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
        results = [_without_neighbors(result) for result in results]
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
    mean = {part: _mean([each[part] for each in values], weights) for part in values[0]}
    mean["perturbations"]["difficulty"] = results[0].perturbations.difficulty
    return RobustnessResult.from_dict({**mean, "trials": sum(weights)})


def _without_neighbors(result: RobustnessResult) -> RobustnessResult:
    return replace(result, perturbations=replace(result.perturbations, neighbor_flips={}))


def _mean(values: Sequence[Any], weights: Sequence[int]) -> Any:
    """The weighted mean of numbers, and of dicts of numbers however deep; None stays None."""
    if isinstance(values[0], dict):
        return {key: _mean([each[key] for each in values], weights) for key in values[0]}
    if values[0] is None:
        return None
    return math.fsum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)
