"""What lines of a figure are called where the words of their rows alone would not tell them apart.

A line of a figure has one point a place: rows of one name at one place would hide each other.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

from foveapool.columns import REPLACE, TRACE
from foveapool.records import Row


def components(row: Row) -> str:
    """How many components its poolings have, said once where all layers have the same.

    >>> components(Row("s", "", 1.0, 0.1, 3, components="4, 4"))
    'components 4'
    """
    numbers = row.components.split(", ")
    told = numbers[0] if len(set(numbers)) == 1 else row.components
    return told and f"components {told}"


def form(row: Row) -> str:
    """How its poolings stand in the network; nothing where they replace a convolution."""
    return "" if row.form == REPLACE else row.form


def where(row: Row) -> str:
    """The layer; of several those before with alpha and norm, since only the last one's vary.

    >>> where(Row("s", "", 1.0, 0.1, 3, layer="3, 2", alpha="15, 65", norm="l1, l2"))
    '3 at 15, l1 + 2'
    """
    layers, alphas, norms = (each.split(", ") for each in (row.layer, row.alpha, row.norm))
    places = zip(layers, alphas, norms, strict=False)
    before = [f"{layer} at {alpha}, {norm}" for layer, alpha, norm in places][:-1]
    return " + ".join([*before, layers[-1]])


def last_norm(row: Row) -> str:
    """The norm of the pooling that was put in last."""
    return row.norm.split(", ")[-1]


def alpha_unit(row: Row) -> str:
    """What alphas are counted in, where it is trace(B)/N."""
    return f"alpha in{TRACE}" if row.alpha.endswith(TRACE) else ""


def last_alpha(row: Row) -> float | None:
    """The alpha of the pooling that was put in last; None where none was fixed beforehand."""
    try:
        return float(row.alpha.split(", ")[-1].removesuffix(TRACE))
    except ValueError:
        return None


def apart(names: Mapping[Row, str], place: Callable[[Row], Hashable]) -> dict[Row, str]:
    """The names, with the study's own where two studies have rows of one name at one place."""
    studies: dict[tuple[str, Hashable], set[str]] = {}
    for row, name in names.items():
        studies.setdefault((name, place(row)), set()).add(row.study)
    shared = {name for (name, _), own in studies.items() if len(own) > 1}
    return {r: f"{name}, {r.study}" if name in shared else name for r, name in names.items()}
