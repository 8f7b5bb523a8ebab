"""Charts for the page, as data: what is to be drawn, for `assets/charts.js` to draw.

Errors with the paper's beside them, error against alpha, and training curves, of one run or of
several together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from foveapool.columns import usual_components
from foveapool.records import ERROR, VALIDATION, Row
from foveapool.report.accounts import Account
from foveapool.report.row_names import alpha_unit, form, last_alpha, last_norm, where
from foveapool.report.tables import latest, paper_error

Chart = dict[str, Any]


def charts(accounts: Sequence[tuple[str, Account]]) -> dict[str, Chart]:
    """All charts that the named accounts have something to show in."""
    made = {
        "errors": errors_chart(accounts),
        "alpha": alpha_chart(accounts),
        "loss": losses_by_epoch(accounts),
        "test": errors_by_epoch(accounts),
    }
    return {name: chart for name, chart in made.items() if chart is not None}


def setting_words(row: Row) -> str:
    """A row's setting in words.

    >>> setting_words(Row("s", ERROR, 20.0, 1.0, 5, pooling="closed-form", layer="3", norm="l1"))
    'closed-form, layer 3, l1'
    >>> mixed = dict(form="mix", components="9")
    >>> setting_words(Row("s", ERROR, 20.0, 1.0, 5, pooling="sgd", layer="3", **mixed))
    'sgd, layer 3, mix'
    """
    words = [row.pooling, f"layer {row.layer}" if row.layer else "", row.placement]
    words.append(form(row))
    words += [f"alpha {row.alpha}" if row.alpha else "", row.norm]
    usual = usual_components({"pooling": row.pooling.split(", ")[0], "form": row.form})
    if set(row.components.split(", ")) - {"", str(usual)}:
        words.append(f"components {row.components}")
    return ", ".join(word for word in words if word)


def errors_chart(accounts: Sequence[tuple[str, Account]]) -> Chart | None:
    """Test errors, a line each, the paper's where it has one for this network and data."""
    lines = []
    for number, (name, account) in enumerate(accounts):
        rows = [r for r in latest(account.rows) if r.metric == ERROR and math.isfinite(r.mean)]
        several = len({(row.network, row.data) for row in rows}) > 1
        for row in rows:
            replaces = not form(row)  # as in the paper
            paper = paper_error(row.network, row.data, row.pooling) if replaces else None
            where = f"{row.network} on {row.data}: " if several else ""
            lines.append(
                {
                    "name": name + where + setting_words(row),
                    "hue": number,
                    "mean": row.mean,
                    "deviation": _known(row.deviation),
                    "paper": None if paper is None else dict(mean=paper[0], deviation=paper[1]),
                }
            )
    if not lines:
        return None
    title = "Test errors of all settings"
    return {"kind": "dots", "title": title, "x": ERROR, "lines": lines}


def alpha_chart(accounts: Sequence[tuple[str, Account]]) -> Chart | None:
    """Error against alpha by layer and norm: of a search if there was one, else of the trials."""
    for metric in (VALIDATION, ERROR):
        series = []
        for name, account in accounts:
            rows = [r for r in (*account.selection, *account.rows) if r.metric == metric]
            series += _over_alpha(name, rows)
        if series:
            title = f"{metric} against alpha, by layer and norm"
            axes = {"x": "alpha", "y": metric, "logX": True, "wholeX": False, "logY": False}
            return {"kind": "lines", "title": title, **axes, "series": series}
    return None


def _over_alpha(name: str, rows: Iterable[Row]) -> list[dict[str, Any]]:
    found: dict[str, dict[float, Row]] = {}
    # A search that first looks briefly has some settings twice: the longest and last look counts.
    for row in sorted(latest(rows), key=lambda row: int(row.epochs or 0)):
        alpha = last_alpha(row)
        if alpha is None or not math.isfinite(row.mean):
            continue
        line = replace(row, layer=where(row), alpha="", norm=last_norm(row))
        words = [name + setting_words(line), alpha_unit(row)]
        found.setdefault(", ".join(filter(None, words)), {})[alpha] = row
    return [
        {
            "name": label,
            "points": [[a, r.mean, _known(r.deviation)] for a, r in sorted(own.items())],
        }
        for label, own in sorted(found.items())
        if len(own) > 1
    ]


def losses_by_epoch(accounts: Sequence[tuple[str, Account]]) -> Chart | None:
    """Training loss by epoch; trainings of one setting share a colour."""
    series = [
        {"name": name + curve.label, "points": _points(curve.epochs, curve.losses)}
        for name, account in accounts
        for curve in account.curves
    ]
    return _by_epoch("training loss", series, log=True)


def errors_by_epoch(accounts: Sequence[tuple[str, Account]]) -> Chart | None:
    """Test error by epoch, for trainings that took it more than once."""
    series = [
        {"name": name + curve.label, "points": _points(curve.epochs, curve.errors)}
        for name, account in accounts
        for curve in account.curves
    ]
    return _by_epoch(ERROR, [each for each in series if len(each["points"]) > 1], log=False)


def _by_epoch(what: str, series: list[dict[str, Any]], log: bool) -> Chart | None:
    series = [each for each in series if each["points"]]
    if not series:
        return None
    axes = {"x": "epoch", "y": what, "logX": False, "wholeX": True, "logY": log}
    return {"kind": "lines", "title": f"{what} by epoch", **axes, "series": series}


def _points(epochs: Sequence[int], values: Sequence[float | None]) -> list[list[float]]:
    pairs = zip(epochs, values, strict=True)
    return [[x, _short(y)] for x, y in pairs if y is not None and math.isfinite(y)]


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _short(value: float) -> float:
    return float(f"{value:.5g}")
