"""Errors of a study, drawn from its rows: against alpha, and against the training images.

Points are means, bars their standard deviations over seeds or held-out parts; where there was one
only, there is no bar.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from foveapool.records import ERROR, VALIDATION, Row
from foveapool.report.row_names import (
    alpha_unit,
    apart,
    components,
    form,
    last_alpha,
    last_norm,
    where,
)
from foveapool.report.style import (
    COLOURS,
    COLUMN,
    DASHES,
    MARKERS,
    legend_below,
    line,
    log_axis,
    new_figure,
    styled,
    tidy,
    value_axis,
)
from foveapool.report.tables import distinct, latest

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BASELINE = "baseline"
_NORMS = ("l2", "l1")
_SHARE = re.compile(r"(?P<name>.+), (?P<percent>[0-9.]+) %")


@dataclass(frozen=True)
class _Series:
    """Points of one line: what it is called and its rows by place on the x-axis."""

    name: str
    look: dict[str, Any]
    rows: dict[float, Row]


@styled
def alpha_figure(rows: Iterable[Row], metric: str | None = None, width: float = COLUMN) -> Figure:
    """Error against alpha: a line for each layer and norm, the baseline as a level.

    `metric` is the validation error of a search where `rows` has it, else the test error. Layers
    differ in colour and marker, norms in dashes; of two layers and more the alpha is that of the
    last, and a line's name tells the others'. There is a panel for each network, data, pooling,
    placement, form, number of components and unit of alpha that was tried with two alphas or more.
    Where a search looked at some settings only briefly, those points are hollow; alphas that were
    not fixed beforehand ("auto") are levels too.
    """
    own = distinct(of_metric(rows, metric))
    panels: dict[tuple[str, ...], list[Row]] = {}
    for row in own:
        if row.pooling != BASELINE and last_alpha(row) is not None:
            panels.setdefault(_panel(row), []).append(row)
    panels = {key: rows for key, rows in panels.items() if len({last_alpha(r) for r in rows}) > 1}
    if not panels:
        raise ValueError(
            "rows: got no setting with two alphas or more that are numbers ('auto' does not "
            "count), wanted a search or a study over alpha"
        )
    drawable = {row: where(row) for rows in panels.values() for row in rows}
    places = apart(drawable, lambda row: (_panel(row), last_norm(row), last_alpha(row)))

    def drawn(axes: Axes, rows: Sequence[Row]) -> None:
        full, series = max(map(_thoroughness, rows)), _by_layer_and_norm(rows, places)
        for each in series:
            _draw(axes, each, full)
        if any(_thoroughness(row) < full for each in series for row in each.rows.values()):
            hollow: dict[str, Any] = {"marker": "o", "color": "black", "markerfacecolor": "white"}
            axes.errorbar([], [], label="first look only", linestyle="none", **hollow)
        log_axis(axes, [alpha for each in series for alpha in each.rows], "alpha")
        _levels(axes, rows[0], own)

    return _panels(panels, drawn, own[0].metric, width)


@styled
def images_figure(
    rows: Iterable[Row], totals: Mapping[str, int] | None = None, width: float = COLUMN
) -> Figure:
    """Test error against the training images, a line a pooling, a panel for network and data.

    The data of a row says which share of the images it is of: "svhn, 5 %", or all of them. With
    the number of images in `totals`, by the name of the data, x counts images, else percent.
    """
    own = distinct(of_metric(rows, ERROR))
    panels: dict[tuple[str, ...], list[Row]] = {}
    for row in own:
        panels.setdefault((row.network, share_of(row)[0]), []).append(row)
    panels = {key: rows for key, rows in panels.items() if len({share_of(r) for r in rows}) > 1}
    if not panels:
        raise ValueError(
            "rows: got no data of which two shares or more were trained on, wanted rows such as "
            "those of 'svhn, 5 %' and 'svhn'"
        )
    counted = totals or {}
    names = list(dict.fromkeys(n for rows in panels.values() for n in _names(rows).values()))

    def drawn(axes: Axes, rows: Sequence[Row]) -> None:
        total = counted.get(share_of(rows[0])[0])
        scale = 1.0 if total is None else total / 100
        series: dict[str, dict[float, Row]] = {}
        for row, name in _names(rows).items():
            at = scale * share_of(row)[1]
            series.setdefault(name, {})[at if total is None else round(at)] = row
        for name, points in series.items():
            _draw(axes, _Series(name, line(names.index(name)), points))
        label = "training images, % of all" if total is None else "training images"
        log_axis(axes, [x for points in series.values() for x in points], label)

    # Errors fall by about the same factor with each doubling: no line is to hide at the bottom.
    figure = _panels(panels, drawn, ERROR, width, height=2.4)
    value_axis(figure.axes)
    return figure


def of_metric(rows: Iterable[Row], metric: str | None) -> list[Row]:
    """The rows to draw: of the metric, or if it is None of the search where there was one."""
    rows = latest(rows)
    there = {row.metric for row in rows}
    chosen = metric or (VALIDATION if VALIDATION in there else ERROR)
    own = [row for row in rows if row.metric == chosen]
    if not own:
        such_as = f" such as {rows[0].metric!r}" if rows else ""
        raise ValueError(
            f"rows: got none of {chosen!r} among {len(rows)}{such_as}; wanted some to draw, those "
            "that `foveapool study` writes"
        )
    return own


def _panel(row: Row) -> tuple[str, ...]:
    return (*_without_unit(row), alpha_unit(row))


def _without_unit(row: Row) -> tuple[str, ...]:
    """A panel, but for the unit of alpha: "auto" has none."""
    return (row.network, row.data, row.pooling, row.placement, form(row), components(row))


def _by_layer_and_norm(rows: Sequence[Row], places: Mapping[Row, str]) -> list[_Series]:
    found, layers = [], sorted(set(places.values()))
    for norm, layer in product(_NORMS, layers):
        own = [row for row in rows if (last_norm(row), places[row]) == (norm, layer)]
        points: dict[float, Row] = {}
        # Of the looks that a search took at one setting the longest counts.
        for row in sorted(own, key=_thoroughness):
            alpha = last_alpha(row)
            if alpha is not None:
                points[alpha] = row
        number = layers.index(layer)
        look = {
            "color": COLOURS[number % len(COLOURS)],
            "marker": MARKERS[number % len(MARKERS)],
            "linestyle": DASHES[_NORMS.index(norm)],
        }
        if points:
            found.append(_Series(f"layer {layer}, {norm}", look, dict(sorted(points.items()))))
    return found


def _thoroughness(row: Row) -> tuple[int, int]:
    """How long and how often it was tried: a search's first look is a brief one."""
    return int(row.epochs or 0), row.n


def _draw(axes: Axes, series: _Series, full: tuple[int, int] | None = None) -> None:
    """A line with bars; hollow points are those below `full`."""
    points = sorted(series.rows.items())
    x, y = [at for at, _ in points], [row.mean for _, row in points]
    spread = [0.0 if math.isnan(row.deviation) else row.deviation for _, row in points]
    axes.errorbar(x, y, spread, label=series.name, capsize=1.5, elinewidth=0.6, **series.look)
    brief = [(at, row.mean) for at, row in points if full and _thoroughness(row) < full]
    if brief:
        look = {**series.look, "linestyle": "none", "markerfacecolor": "white"}
        axes.plot(*zip(*brief, strict=True), zorder=3, **look)


def _levels(axes: Axes, like: Row, rows: Sequence[Row]) -> None:
    """Horizontal lines at the baseline's error and at those of alphas chosen by the fit."""
    for row in rows:
        same = (row.network, row.data) == (like.network, like.data)
        if same and row.pooling == BASELINE:
            axes.axhline(row.mean, color="0.4", linestyle=(0, (6, 2)), label=BASELINE)
        elif _without_unit(row) == _without_unit(like) and row.alpha.split(", ")[-1] == "auto":
            name = f"layer {where(row)}, {last_norm(row)}, auto"
            axes.axhline(row.mean, color="0.6", linestyle=(0, (2, 2)), label=name)


def share_of(row: Row) -> tuple[str, float]:
    """The data's name and the share of it in percent.

    >>> share_of(Row("s", ERROR, 1.0, 0.1, 3, data="svhn, 5 %"))
    ('svhn', 5.0)
    """
    found = _SHARE.fullmatch(row.data)
    return (found["name"], float(found["percent"])) if found else (row.data, 100.0)


def _names(rows: Sequence[Row]) -> dict[Row, str]:
    """The pooling of each row, with its setting where one pooling was tried in several at once."""
    at_once: dict[tuple[str, tuple[str, float]], list[Row]] = {}
    for row in rows:
        at_once.setdefault((row.pooling, share_of(row)), []).append(row)
    several = {pooling for (pooling, _), own in at_once.items() if len(own) > 1}
    varies = {
        (pooling, number)
        for (pooling, _), own in at_once.items()
        for number, words in enumerate(zip(*map(_rarely_told, own), strict=True))
        if len(set(words)) > 1
    }

    def name(row: Row) -> str:
        if row.pooling not in several:
            return row.pooling
        words = [row.layer and f"layer {row.layer}", row.alpha and f"alpha {row.alpha}", row.norm]
        others = enumerate(_rarely_told(row))
        words += [word for number, word in others if (row.pooling, number) in varies]
        return ", ".join([row.pooling, *filter(None, words)])

    return apart({row: name(row) for row in rows}, share_of)


def _rarely_told(row: Row) -> tuple[str, ...]:
    """What has to be in a name only where it differs."""
    batch = row.batch and f"batch {row.batch}"
    return row.placement, form(row), components(row), row.epochs and f"{row.epochs} epochs", batch


def _panels(
    panels: Mapping[tuple[str, ...], Sequence[Row]],
    draw: Callable[[Axes, Sequence[Row]], None],
    metric: str,
    width: float,
    height: float = 1.75,
) -> Figure:
    """One panel under the other, each with its own axes and what tells it from the others."""
    figure = new_figure(width, 0.35 + height * len(panels))
    every = figure.subplots(len(panels), 1, squeeze=False)[:, 0]
    for axes, title, rows in zip(every, panel_titles(panels), panels.values(), strict=True):
        draw(tidy(axes), rows)
        axes.set_ylabel(metric)
        axes.set_title(title)
    legend_below(figure, every, columns=2)
    return figure


def panel_titles(panels: Iterable[tuple[str, ...]]) -> list[str]:
    """What tells each panel from the others, from all that is known of it.

    >>> panel_titles([("cnn", "svhn", ""), ("cnn", "cifar10", "")])
    ['svhn', 'cifar10']
    """
    keys = list(panels)
    varies = [len(set(parts)) > 1 for parts in zip(*keys, strict=True)]
    return [", ".join(p for p, told in zip(key, varies, strict=True) if p and told) for key in keys]
