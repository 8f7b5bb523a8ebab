"""Run summaries: what a page tells of one run, as data, wherever it came from.

`sources.py` makes them from folders; whoever has operators in memory makes one with
`group_operators`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from foveapool.labels import DEFAULTS
from foveapool.pooling.operator import PoolingOperator
from foveapool.records import Row
from foveapool.report.examples import Examples, digest_means

NO_OPERATOR = "No operator"  # begins what is said of a summary in which one is missing
# Settings of an operator that go without saying.
_USUAL = {name: DEFAULTS[name] for name in ("window", "sign", "weighting")}
_USUAL |= {"center": "paper", "alpha_unit": "absolute"}


@dataclass(frozen=True)
class Family:
    """Operators that differ in alpha alone, rising, and examples of the maps they are for.

    `path` is the file of the first of them, where they come from files.
    """

    label: str
    operators: tuple[PoolingOperator, ...]
    examples: Examples | None = None
    path: Path | None = None


@dataclass(frozen=True)
class Curve:
    """A training, epoch by epoch; errors in percent where they were taken."""

    label: str
    epochs: tuple[int, ...]
    losses: tuple[float, ...]
    errors: tuple[float | None, ...]


@dataclass(frozen=True)
class RunSummary:
    """All that is known of a run, and in words what is `missing`."""

    title: str
    facts: tuple[tuple[str, str], ...] = ()
    families: tuple[Family, ...] = ()
    rows: tuple[Row, ...] = ()
    selection: tuple[Row, ...] = ()
    curves: tuple[Curve, ...] = ()
    missing: tuple[str, ...] = ()


def group_operators(
    operators: PoolingOperator | Iterable[PoolingOperator] | Mapping[str, PoolingOperator],
    examples: Examples | None = None,
) -> tuple[Family, ...]:
    """Operators sorted into families: by name if they have names, by shape and norm if not.

    Names that end in ", alpha ..." are those of one family.
    """
    if isinstance(operators, PoolingOperator):
        operators = [operators]
    if not isinstance(operators, Mapping):
        named = [("", each) for each in operators]
    else:
        named = [(name.partition(", alpha ")[0], each) for name, each in operators.items()]
    found: dict[tuple[object, ...], list[PoolingOperator]] = {}
    for name, each in named:
        found.setdefault((name, *family_key(each)), []).append(each)
    made = []
    for key, own in found.items():
        for number, members in enumerate(_without_repeats(own), 1):
            name = f"{key[0]} ({number})".strip() if number > 1 else str(key[0])
            made.append(
                make_family(
                    name, members, examples if fits_operator(examples, members[0]) else None
                )
            )
    return tuple(made)


def make_family(
    name: str,
    operators: Sequence[PoolingOperator],
    examples: Examples | None = None,
    path: Path | None = None,
) -> Family:
    """One family, labeled with its name and what its operators have in common."""
    ordered = tuple(sorted(operators, key=lambda each: each.settings.alpha))
    first = ordered[0]
    sizes = " \N{RIGHTWARDS ARROW} ".join(
        "\N{MULTIPLICATION SIGN}".join(map(str, shape))
        for shape in (first.in_shape, first.out_shape)
    )
    parts = [name, sizes, first.settings.norm]
    if first.components != 2:
        parts.append(f"components {first.components}")
    chosen = {setting: getattr(first.settings, setting) for setting in _USUAL}
    parts += [
        f"{setting.replace('_', ' ')} {value}"
        for setting, value in chosen.items()
        if value != _USUAL[setting]
    ]
    label = ", ".join(part for part in parts if part)
    return Family(label, ordered, examples, path)


def fits_operator(examples: Examples | None, operator: PoolingOperator) -> bool:
    """Whether the examples' maps are what the operator pools, of its network if that is known."""
    if examples is None or examples.means not in ("", digest_means(operator.mean)):
        return False
    shape = operator.in_shape if len(operator.in_shape) > 1 else (1, *operator.in_shape)
    return tuple(examples.maps.shape[2:]) == shape and max(examples.channels) < len(operator.mean)


def family_key(operator: PoolingOperator) -> tuple[object, ...]:
    """What operators of one family have in common."""
    settings = operator.settings
    chosen = [settings.norm, *(getattr(settings, setting) for setting in _USUAL)]
    return (operator.in_shape, operator.out_shape, operator.components, *chosen)


def _without_repeats(operators: Sequence[PoolingOperator]) -> list[list[PoolingOperator]]:
    """Parts in which every alpha occurs once, as a slider needs it."""
    parts: list[dict[float, PoolingOperator]] = []
    for each in operators:
        alpha = each.settings.alpha
        part = next((part for part in parts if alpha not in part), None)
        if part is None:
            part = {}
            parts.append(part)
        part[alpha] = each
    return [list(part.values()) for part in parts]
