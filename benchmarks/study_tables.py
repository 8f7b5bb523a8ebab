"""The tables of docs that come from studies: alpha, its criteria, and how fast studies go."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from told import NAMES, RESULTS

from foveapool.records import ERROR, BenchmarkRow, read_benchmark_rows, read_rows
from foveapool.report.tables import Table, format_spread

RANK, COST = "rank correlation with full training", "points above the best alpha"


def alphas() -> str:
    """Error by alpha, a column for each data set and layer."""
    rows = [row for row in read_rows(RESULTS / "alphas.csv") if row.metric == ERROR]
    fitted = [row for row in rows if row.alpha]
    columns = list(dict.fromkeys((row.data, row.layer) for row in fitted))
    found = {(row.data, row.layer, row.alpha): row for row in fitted}
    best = {c: min(r.mean for r in fitted if (r.data, r.layer) == c) for c in columns}

    def cell(column: tuple[str, str], alpha: str) -> str:
        row = found[(*column, alpha)]
        text = format_spread(row.mean, row.std, 1)
        return f"**{text}**" if row.mean == best[column] else text

    plain = {row.data: row for row in rows if not row.alpha}
    first = ["strided convolution"]
    first += [format_spread(plain[data].mean, plain[data].std, 1) for data, _ in columns]
    header = ["alpha", *(f"{NAMES[data]}, layer {layer}" for data, layer in columns)]
    lines = [tuple(first)]
    for alpha in dict.fromkeys(row.alpha for row in fitted):
        lines.append((alpha, *(cell(column, alpha) for column in columns)))
    return Table(tuple(header), tuple(lines)).markdown()


def auto_alpha() -> str:
    """What each criterion is worth, the cheapest mistake first."""
    rows: dict[tuple[str, str, str, str], BenchmarkRow] = {}
    for row in read_benchmark_rows(RESULTS / "auto-alpha.csv"):
        rows[(row.case, row.data, row.layer, row.metric)] = row
    columns = list(dict.fromkeys(key[1:3] for key in rows))

    def mean(name: str) -> float:
        return statistics.mean(rows[(name, *c, COST)].mean for c in columns)

    found = {}
    for name in dict.fromkeys(key[0] for key in rows):
        cells = [
            f"{rows[(name, *c, RANK)].mean:.2f}, {rows[(name, *c, COST)].mean:.1f}" for c in columns
        ]
        found[name] = (mean(name), cells)
    for alpha in ("25", "200"):
        costs = [_cost(*column, alpha) for column in columns]
        found[f"always {alpha}"] = (statistics.mean(costs), [f"-, {cost:.1f}" for cost in costs])
    best_first = sorted(found.items(), key=lambda item: item[1][0])
    lines = [(name, f"{cost:.1f}", *cells) for name, (cost, cells) in best_first]
    header = ("criterion", "points, mean", *(f"{NAMES[data]}, layer {n}" for data, n in columns))
    return Table(header, tuple(lines)).markdown()


def _cost(data: str, layer: str, alpha: str) -> float:
    """How many points an alpha is above the best one there."""
    rows = [r for r in read_rows(RESULTS / "alphas.csv") if r.metric == ERROR and r.alpha]
    own = {r.alpha: r.mean for r in rows if (r.data, r.layer) == (data, layer)}
    return own[alpha] - min(own.values())


def study_speed() -> str:
    """Trials an hour, one or several at once."""
    rows = read_benchmark_rows(RESULTS / "study.csv")
    hourly = {row.options: row.mean for row in rows if row.metric == "trials an hour"}
    one = next(row for row in rows if row.metric == "seconds a trial")
    lines = [
        (place, f"{mean:,.0f}", f"{mean / hourly['1 at once']:.2f}")
        for place, mean in hourly.items()
    ]
    table = Table(("trials", "an hour", "times one at a time"), tuple(lines))
    return f"{table.markdown()}\n\nOne at a time: {one.mean:.2f} s a trial."


STUDY_TABLES: dict[str, Callable[[], str]] = {
    "alphas": alphas,
    "auto_alpha": auto_alpha,
    "study_speed": study_speed,
}
