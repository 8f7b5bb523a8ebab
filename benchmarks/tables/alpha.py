"""What does the error do with alpha, and which criteria find a good one without training?"""

from __future__ import annotations

import statistics
from collections.abc import Callable

from foveapool.labels import BASELINE, DATA, POOLINGS
from foveapool.report.tables import format_spread
from foveapool.tabular import format_markdown
from tables.rows import read_errors, read_measurements

RANK, COST = "rank correlation with full training", "points above the best alpha"


def tabulate_alphas() -> str:
    """Error by alpha, a column for each data set and layer."""
    rows = read_errors("alphas.csv")
    fitted = [row for row in rows if row.alpha]
    columns = list(dict.fromkeys((row.data, row.layer) for row in fitted))
    found = {(row.data, row.layer, row.alpha): row for row in fitted}
    best = {c: min(r.mean for r in fitted if (r.data, r.layer) == c) for c in columns}

    def cell(column: tuple[str, str], alpha: str) -> str:
        row = found[(*column, alpha)]
        text = format_spread(row.mean, row.std, 1)
        return f"**{text}**" if row.mean == best[column] else text

    plain = {row.data: row for row in rows if not row.alpha}
    first = [POOLINGS[BASELINE]]
    first += [format_spread(plain[data].mean, plain[data].std, 1) for data, _ in columns]
    header = ["alpha", *(f"{DATA[data]}, layer {layer}" for data, layer in columns)]
    lines = [tuple(first)]
    for alpha in dict.fromkeys(row.alpha for row in fitted):
        lines.append((alpha, *(cell(column, alpha) for column in columns)))
    return format_markdown(header, lines)


def tabulate_auto_alpha() -> str:
    """What each criterion is worth, the cheapest mistake first."""
    rows = {(r.case, r.data, r.layer, r.metric): r for r in read_measurements("auto-alpha")}
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
    header = ("criterion", "points, mean", *(f"{DATA[data]}, layer {n}" for data, n in columns))
    return format_markdown(header, lines)


def _cost(data: str, layer: str, alpha: str) -> float:
    """How many points an alpha is above the best one there."""
    rows = [r for r in read_errors("alphas.csv") if r.alpha]
    own = {r.alpha: r.mean for r in rows if (r.data, r.layer) == (data, layer)}
    return own[alpha] - min(own.values())


TABLES: dict[str, Callable[[], str]] = {
    "alphas": tabulate_alphas,
    "auto_alpha": tabulate_auto_alpha,
}
