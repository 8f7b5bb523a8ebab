"""Figures of studies: errors against alpha, images and layers; training curves."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from foveapool.labels import (
    BASELINE,
    POOLINGS,
    alpha_unit,
    apart,
    components,
    form,
    label_cell,
    last_alpha,
    last_norm,
    where,
)
from foveapool.records import ERROR, VALIDATION, Row
from foveapool.report.run_summary import Curve
from foveapool.report.style import (
    COLORS,
    COLUMN,
    DASHES,
    MARKERS,
    legend_below,
    line_style,
    log_axis,
    new_figure,
    tidy_axes,
    value_axis,
    with_style,
)
from foveapool.report.tables import distinct_rows, latest_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_NORMS = ("l2", "l1")
_SHARE = re.compile(r"(?P<name>.+), (?P<percent>[0-9.]+) %")


@dataclass(frozen=True)
class _Series:
    """Points of one line: what it is called and its rows by position on the x-axis."""

    name: str
    look: dict[str, Any]
    rows: dict[float, Row]


@with_style
def alpha_figure(rows: Iterable[Row], metric: str | None = None, width: float = COLUMN) -> Figure:
    """Error against alpha: a line for each layer and norm, the baseline as a level.

    `metric` is the validation error of a search where `rows` has it, else the test error. Layers
    differ in color and marker, norms in dashes; of two layers and more the alpha is that of the
    last, and a line's name tells the others'. There is a panel for each network, data, pooling,
    placement, form, number of components and unit of alpha that was tried with two alphas or more.
    Where a search looked at some settings only briefly, those points are hollow; alphas that were
    not fixed beforehand ("auto") are levels too.
    """
    own = distinct_rows(select_metric(rows, metric))
    panels: dict[tuple[str, ...], list[Row]] = {}
    for row in own:
        if row.pooling != BASELINE and last_alpha(row) is not None:
            panels.setdefault(_get_panel(row), []).append(row)
    panels = {key: rows for key, rows in panels.items() if len({last_alpha(r) for r in rows}) > 1}
    if not panels:
        raise ValueError(
            "rows: got no setting with two alphas or more that are numbers ('auto' does not "
            "count), wanted a search or a study over alpha"
        )
    drawable = {row: where(row) for rows in panels.values() for row in rows}
    layer_names = apart(drawable, lambda row: (_get_panel(row), last_norm(row), last_alpha(row)))

    def drawn(axes: Axes, rows: Sequence[Row]) -> None:
        full, series = (
            max(map(_rank_thoroughness, rows)),
            _group_by_layer_and_norm(rows, layer_names),
        )
        for each in series:
            _draw(axes, each, full)
        if any(_rank_thoroughness(row) < full for each in series for row in each.rows.values()):
            hollow: dict[str, Any] = {"marker": "o", "color": "black", "markerfacecolor": "white"}
            axes.errorbar([], [], label="first look only", linestyle="none", **hollow)
        log_axis(axes, [alpha for each in series for alpha in each.rows], "alpha")
        _draw_levels(axes, rows[0], own)

    return _draw_panels(panels, drawn, own[0].metric, width)


@with_style
def images_figure(
    rows: Iterable[Row], totals: Mapping[str, int] | None = None, width: float = COLUMN
) -> Figure:
    """Test error against the training images, a line a pooling, a panel for network and data.

    The data of a row says which share of the images it is of: "svhn, 5 %", or all of them. With
    the number of images in `totals`, by the name of the data, x counts images, else percent.
    """
    own = distinct_rows(select_metric(rows, ERROR))
    panels: dict[tuple[str, ...], list[Row]] = {}
    for row in own:
        panels.setdefault(
            (_label_network(row), label_cell("data", parse_share(row)[0])), []
        ).append(row)
    panels = {key: rows for key, rows in panels.items() if len({parse_share(r) for r in rows}) > 1}
    if not panels:
        raise ValueError(
            "rows: got no data of which two shares or more were trained on, wanted rows such as "
            "those of 'svhn, 5 %' and 'svhn'"
        )
    counted = totals or {}
    names = list(dict.fromkeys(n for rows in panels.values() for n in _name_rows(rows).values()))

    def drawn(axes: Axes, rows: Sequence[Row]) -> None:
        total = counted.get(parse_share(rows[0])[0])
        scale = 1.0 if total is None else total / 100
        series: dict[str, dict[float, Row]] = {}
        for row, name in _name_rows(rows).items():
            at = scale * parse_share(row)[1]
            series.setdefault(name, {})[at if total is None else round(at)] = row
        for name, points in series.items():
            _draw(axes, _Series(name, line_style(names.index(name)), points))
        label = "training images, % of all" if total is None else "training images"
        log_axis(axes, [x for points in series.values() for x in points], label)

    # Errors fall by about the same factor with each doubling: no line is to hide at the bottom.
    figure = _draw_panels(panels, drawn, ERROR, width, height=2.4)
    value_axis(figure.axes)
    return figure


def select_metric(rows: Iterable[Row], metric: str | None) -> list[Row]:
    """The rows to draw: of the metric, or if it is None of the search where there was one."""
    rows = latest_rows(rows)
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


def _get_panel(row: Row) -> tuple[str, ...]:
    return (*_get_panel_without_unit(row), alpha_unit(row))


def _get_panel_without_unit(row: Row) -> tuple[str, ...]:
    """A panel, but for the unit of alpha: "auto" has none."""
    return (
        _label_network(row),
        _label_data(row),
        _label_pooling(row),
        row.placement,
        form(row),
        components(row),
    )


def _group_by_layer_and_norm(rows: Sequence[Row], names: Mapping[Row, str]) -> list[_Series]:
    found, layers = [], sorted(set(names.values()))
    for norm, layer in product(_NORMS, layers):
        own = [row for row in rows if (last_norm(row), names[row]) == (norm, layer)]
        points: dict[float, Row] = {}
        # Of the looks that a search took at one setting the longest counts.
        for row in sorted(own, key=_rank_thoroughness):
            alpha = last_alpha(row)
            if alpha is not None:
                points[alpha] = row
        number = layers.index(layer)
        look = {
            "color": COLORS[number % len(COLORS)],
            "marker": MARKERS[number % len(MARKERS)],
            "linestyle": DASHES[_NORMS.index(norm)],
        }
        if points:
            found.append(_Series(f"layer {layer}, {norm}", look, dict(sorted(points.items()))))
    return found


def _rank_thoroughness(row: Row) -> tuple[int, int]:
    """How long and how often it was tried: a search's first look is a brief one."""
    return int(row.epochs or 0), row.n


def _draw(axes: Axes, series: _Series, full: tuple[int, int] | None = None) -> None:
    """A line with bars; hollow points are those below `full`."""
    points = sorted(series.rows.items())
    x, y = [at for at, _ in points], [row.mean for _, row in points]
    spread = [0.0 if math.isnan(row.std) else row.std for _, row in points]
    axes.errorbar(x, y, spread, label=series.name, capsize=1.5, elinewidth=0.6, **series.look)
    brief = [(at, row.mean) for at, row in points if full and _rank_thoroughness(row) < full]
    if brief:
        look = {**series.look, "linestyle": "none", "markerfacecolor": "white"}
        axes.plot(*zip(*brief, strict=True), zorder=3, **look)


def _draw_levels(axes: Axes, like: Row, rows: Sequence[Row]) -> None:
    """Horizontal lines at the baseline's error and at those of alphas chosen by the fit."""
    for row in rows:
        same = (row.network, row.data) == (like.network, like.data)
        if same and row.pooling == BASELINE:
            axes.axhline(row.mean, color="0.4", linestyle=(0, (6, 2)), label=POOLINGS[BASELINE])
        elif (
            _get_panel_without_unit(row) == _get_panel_without_unit(like)
            and row.alpha.split(", ")[-1] == "auto"
        ):
            name = f"layer {where(row)}, {last_norm(row)}, auto"
            axes.axhline(row.mean, color="0.6", linestyle=(0, (2, 2)), label=name)


def _label_network(row: Row) -> str:
    return label_cell("network", row.network)


def _label_data(row: Row) -> str:
    return label_cell("data", row.data)


def _label_pooling(row: Row) -> str:
    return label_cell("pooling", row.pooling)


def parse_share(row: Row) -> tuple[str, float]:
    """The data's name and the share of it in percent.

    >>> parse_share(Row("s", ERROR, 1.0, 0.1, 3, data="svhn, 5 %"))
    ('svhn', 5.0)
    """
    found = _SHARE.fullmatch(row.data)
    return (found["name"], float(found["percent"])) if found else (row.data, 100.0)


def _name_rows(rows: Sequence[Row]) -> dict[Row, str]:
    """The pooling of each row, with its setting where one pooling was tried in several at once."""
    at_once: dict[tuple[str, tuple[str, float]], list[Row]] = {}
    for row in rows:
        at_once.setdefault((row.pooling, parse_share(row)), []).append(row)
    several = {pooling for (pooling, _), own in at_once.items() if len(own) > 1}
    varies = {
        (pooling, number)
        for (pooling, _), own in at_once.items()
        for number, words in enumerate(zip(*map(_list_rarely_told, own), strict=True))
        if len(set(words)) > 1
    }

    def name(row: Row) -> str:
        if row.pooling not in several:
            return _label_pooling(row)
        words = [row.layer and f"layer {row.layer}", row.alpha and f"alpha {row.alpha}", row.norm]
        others = enumerate(_list_rarely_told(row))
        words += [word for number, word in others if (row.pooling, number) in varies]
        return ", ".join([_label_pooling(row), *filter(None, words)])

    return apart({row: name(row) for row in rows}, parse_share)


def _list_rarely_told(row: Row) -> tuple[str, ...]:
    """What has to be in a name only where it differs."""
    batch = row.batch and f"batch {row.batch}"
    return row.placement, form(row), components(row), row.epochs and f"{row.epochs} epochs", batch


def _draw_panels(
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
        draw(tidy_axes(axes), rows)
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


_LINE = 0.22  # inches
_APART = 0.5  # of a line: from its first marker to its last, so that none hides another
_CHOICES = {"form": "{}", "alpha": "alpha {}", "norm": "{}", "components": "components {}"}


@with_style
def poolings_figure(rows: Iterable[Row], width: float = COLUMN) -> Figure:
    """A line for each pooling, the best on top, and on it a marker for the error at each layer.

    Where one pooling was tried in several forms, with several alphas, norms or components, each is
    a line. The baseline is a level across all lines. There is a panel for each network, data and
    placement, and for each number of epochs and batch size.
    """
    own = distinct_rows(select_metric(rows, ERROR))
    baselines = [row for row in own if row.pooling == BASELINE]
    panels: dict[tuple[str, ...], list[Row]] = {}
    for row in own:
        if row.pooling != BASELINE:
            panels.setdefault((*_describe_training(row), row.placement), []).append(row)
    if not panels:
        raise ValueError(
            f"rows: got no pooling beside the baseline among {len(own)} of {ERROR!r}, wanted a "
            "study of poolings"
        )
    panels = dict(sorted(panels.items()))
    layers = sorted({row.layer for rows in panels.values() for row in rows})
    lines = [_group_lines(rows) for rows in panels.values()]
    counts = [len(each) for each in lines]
    figure = new_figure(width, 0.35 + 0.4 * len(panels) + _LINE * sum(counts))
    every = figure.subplots(len(panels), 1, squeeze=False, height_ratios=counts)[:, 0]
    for axes, title, key, named in zip(every, panel_titles(panels), panels, lines, strict=True):
        _draw_lines(tidy_axes(axes), named, layers)
        levels = [row.mean for row in baselines if _describe_training(row) == key[:-1]]
        for number, level in enumerate(levels):
            name = None if number else POOLINGS[BASELINE]
            axes.axvline(level, color="0.4", linestyle=(0, (6, 2)), label=name)
        axes.set_xlabel(ERROR)
        axes.set_title(title)
    # Two layers at once have long names.
    legend_below(figure, every, columns=4 if max(map(len, layers)) < 3 else 2)
    return figure


def _describe_training(row: Row) -> tuple[str, ...]:
    """What a pooling shares with the baseline that it is to be compared with."""
    epochs = row.epochs and f"{row.epochs} epochs"
    return _label_network(row), _label_data(row), epochs, row.batch and f"batch {row.batch}"


def _group_lines(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows by the pooling's name, the one with the lowest error first.

    A name has those choices that differ between the rows of its pooling.
    """
    found: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row.mean):
        like = [each for each in rows if each.pooling == row.pooling]
        told = [
            words.format(getattr(row, choice))
            for choice, words in _CHOICES.items()
            if len({getattr(each, choice) for each in like}) > 1
        ]
        found.setdefault(", ".join([_label_pooling(row), *filter(None, told)]), []).append(row)
    return found


def _draw_lines(axes: Axes, lines: dict[str, list[Row]], layers: Sequence[str]) -> None:
    """The markers of each line, the first layer's above the others'."""
    heights: dict[Row, float] = {}
    for number, rows in enumerate(lines.values()):
        step = _APART / max(2, len(rows) - 1)
        for i, row in enumerate(sorted(rows, key=lambda row: row.layer)):
            heights[row] = number + (i - (len(rows) - 1) / 2) * step
    for number, layer in enumerate(layers):
        own = [row for row in heights if row.layer == layer]
        axes.errorbar(
            [row.mean for row in own],
            [heights[row] for row in own],
            xerr=[0.0 if math.isnan(row.std) else row.std for row in own],
            label=f"layer {layer}",
            elinewidth=0.6,
            **{**line_style(number), "linestyle": "none"},
        )
    axes.set_yticks(range(len(lines)), list(lines))
    axes.set_ylim(len(lines) - 0.5, -0.5)


_FEW = 12  # points that can all have a marker


@with_style
def curves_figure(curves: Iterable[Curve], width: float = COLUMN) -> Figure:
    """Training loss and test error against the epoch, a line for each label.

    Trainings of one label, the seeds of a setting, make one line: their mean over the epochs that
    all have reached, in a band from the lowest to the highest. Errors are drawn where they were
    taken, the last epoch at least.
    """
    named: dict[str, list[Curve]] = {}
    for curve in curves:
        if not curve.epochs:
            raise ValueError(f"curves: {curve.label}: got no finished epoch, wanted one or more")
        named.setdefault(curve.label, []).append(curve)
    if not named:
        raise ValueError("curves: got none, wanted one or more")
    figure = new_figure(width, 1.1 * width)
    loss, error = figure.subplots(2, 1, sharex=True)
    for number, (label, trainings) in enumerate(named.items()):
        _draw_curves(
            loss, label, [_drop_gaps(each.epochs, each.losses) for each in trainings], number
        )
        _draw_curves(
            error, label, [_drop_gaps(each.epochs, each.errors) for each in trainings], number
        )
    value_axis([loss])
    error.xaxis.get_major_locator().set_params(integer=True)
    loss.set_ylabel("training loss")
    error.set(ylabel="test error %", xlabel="epoch")
    for axes in (loss, error):
        tidy_axes(axes)
    legend_below(figure, [loss], columns=2)
    return figure


def _drop_gaps(epochs: Sequence[int], values: Sequence[float | None]) -> dict[int, float]:
    pairs = zip(epochs, values, strict=True)
    return {epoch: value for epoch, value in pairs if value is not None}


def _draw_curves(axes: Axes, label: str, seeds: Sequence[dict[int, float]], number: int) -> None:
    epochs = sorted(set(seeds[0]).intersection(*seeds[1:]))
    values = [[each[epoch] for each in seeds] for epoch in epochs]
    look = line_style(number)
    # On long lines a few markers, each line's elsewhere: they name it and do not hide it.
    some = (number % 5, max(1, len(epochs) // 5)) if len(epochs) > _FEW else None
    axes.plot(
        epochs, [statistics.mean(each) for each in values], label=label, markevery=some, **look
    )
    if len(seeds) > 1:
        low, high = ([end(each) for each in values] for end in (min, max))
        axes.fill_between(epochs, low, high, color=look["color"], alpha=0.15, linewidth=0)
