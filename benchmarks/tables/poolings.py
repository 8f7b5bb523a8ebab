"""Which pooling is best instead of a convolution, layer by layer?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from foveapool.labels import BASELINE, CLOSED_FORM, POOLINGS, TRAINED
from foveapool.records import Row
from foveapool.report.tables import format_spread
from foveapool.statistics import compare_pairs
from foveapool.tabular import format_markdown
from tables.rows import (
    describe_fit,
    format_pair,
    mark_best,
    name_task,
    order_tasks,
    read_errors,
)


def tabulate_trained_on() -> str:
    """What training on from the closed form changes, in pairs with the closed form alone."""
    rows = read_errors("replaced*.csv table1-*.csv settings-*.csv")
    rows.sort(key=lambda row: order_tasks(row.network, row.data))
    frozen = {_fit_key(row): row for row in rows if row.pooling == CLOSED_FORM}
    lines = []
    for row in (row for row in rows if row.pooling == TRAINED):
        start = frozen[_fit_key(row)]
        pair = compare_pairs(row, start)
        lines.append(
            (
                name_task(row.network, row.data),
                describe_fit(row),
                format_spread(start.mean, start.std),
                format_spread(row.mean, row.std),
                *format_pair(pair),
                str(row.n),
            )
        )
    header = ("", "setting", "closed form", "then trained", "difference, in pairs", "p", "seeds")
    return format_markdown(header, lines)


def _fit_key(row: Row) -> tuple[str, ...]:
    return (row.network, row.data, row.layer, row.placement, row.alpha, row.norm, row.components)


def tabulate_poolings() -> str:
    """Every pooling at each layer of the CNN."""
    return _beside(read_errors("replaced.csv"))


def tabulate_poolings_resnet18() -> str:
    """Some poolings at each place of the ResNet."""
    return _beside(read_errors("replaced-resnet18.csv"))


def _beside(rows: Sequence[Row]) -> str:
    """Error by pooling and place; bold: the best of a place and what is not told apart from it."""
    places = sorted({_name_spot(row) for row in rows if row.layer})
    plain = next(row for row in rows if row.pooling == BASELINE)
    lines = [(POOLINGS[BASELINE], *[format_spread(plain.mean, plain.std, 1)] * len(places))]
    cells: dict[tuple[str, str], str] = {}
    for spot in places:
        own = [row for row in rows if _name_spot(row) == spot]
        named = [(_name_line(row), spot) for row in own]
        cells |= dict(zip(named, mark_best(own), strict=True))
    lowest: dict[str, float] = {}
    for row in (row for row in rows if row.layer):
        lowest[_name_line(row)] = min(row.mean, lowest.get(_name_line(row), row.mean))
    for name in sorted(lowest, key=lambda name: -lowest[name]):
        lines.append((name, *(cells.get((name, spot), "-") for spot in places)))
    return format_markdown(("pooling", *places), lines)


def _name_spot(row: Row) -> str:
    return f"layer {row.layer}, {row.placement}" if row.placement else f"layer {row.layer}"


def _name_line(row: Row) -> str:
    """A pooling in words; a closed form with its alpha, where "auto" is what users get."""
    if not row.alpha:
        return POOLINGS[row.pooling]
    return f"{POOLINGS[row.pooling]}, alpha {row.alpha}"


def tabulate_rivals() -> str:
    """Each pooling less ours, in the same layer, in pairs."""
    rows = [row for row in read_errors("replaced.csv") if row.layer]
    layers = sorted({row.layer for row in rows})
    ours = {row.layer: row for row in rows if (row.pooling, row.alpha) == (TRAINED, "auto")}

    def cell(own: Sequence[Row]) -> str:
        if not own:
            return "-"
        pair = compare_pairs(own[0], ours[own[0].layer])
        return f"{pair.mean:+.1f} (p {pair.p:.2g})"

    lines = []
    for name in dict.fromkeys(_name_line(row) for row in rows if row not in ours.values()):
        cells = [cell([r for r in rows if (_name_line(r), r.layer) == (name, n)]) for n in layers]
        lines.append((name, *cells))
    return format_markdown(("pooling", *(f"layer {n}" for n in layers)), lines)


TABLES: dict[str, Callable[[], str]] = {
    "trained_on": tabulate_trained_on,
    "poolings": tabulate_poolings,
    "poolings_resnet18": tabulate_poolings_resnet18,
    "rivals": tabulate_rivals,
}
