"""Poolings side by side: the test error of each at each layer, the best pooling first.

Points are means, bars their standard deviations over seeds; where there was one seed only, there
is no bar.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from foveapool.records import ERROR, Row
from foveapool.report.study_figures import BASELINE, of_metric, panel_titles
from foveapool.report.style import COLUMN, legend_below, line, new_figure, styled, tidy
from foveapool.report.tables import distinct

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LINE = 0.22  # inches
_APART = 0.5  # of a line: from its first marker to its last, so that none hides another
_CHOICES = {"form": "{}", "alpha": "alpha {}", "norm": "{}", "components": "components {}"}


@styled
def poolings_figure(rows: Iterable[Row], width: float = COLUMN) -> Figure:
    """A line for each pooling, the best on top, and on it a marker for the error at each layer.

    Where one pooling was tried in several forms, with several alphas, norms or components, each is
    a line. The baseline is a level across all lines. There is a panel for each network, data and
    placement, and for each number of epochs and batch size.
    """
    own = distinct(of_metric(rows, ERROR))
    baselines = [row for row in own if row.pooling == BASELINE]
    panels: dict[tuple[str, ...], list[Row]] = {}
    for row in own:
        if row.pooling != BASELINE:
            panels.setdefault((*_training(row), row.placement), []).append(row)
    if not panels:
        raise ValueError(
            f"rows: got no pooling beside the baseline among {len(own)} of {ERROR!r}, wanted a "
            "study of poolings"
        )
    panels = dict(sorted(panels.items()))
    layers = sorted({row.layer for rows in panels.values() for row in rows})
    lines = [_lines(rows) for rows in panels.values()]
    counts = [len(each) for each in lines]
    figure = new_figure(width, 0.35 + 0.4 * len(panels) + _LINE * sum(counts))
    every = figure.subplots(len(panels), 1, squeeze=False, height_ratios=counts)[:, 0]
    for axes, title, key, named in zip(every, panel_titles(panels), panels, lines, strict=True):
        _draw(tidy(axes), named, layers)
        levels = [row.mean for row in baselines if _training(row) == key[:-1]]
        for number, level in enumerate(levels):
            name = None if number else BASELINE
            axes.axvline(level, color="0.4", linestyle=(0, (6, 2)), label=name)
        axes.set_xlabel(ERROR)
        axes.set_title(title)
    # Two layers at once have long names.
    legend_below(figure, every, columns=4 if max(map(len, layers)) < 3 else 2)
    return figure


def _training(row: Row) -> tuple[str, ...]:
    """What a pooling shares with the baseline that it is to be compared with."""
    epochs = row.epochs and f"{row.epochs} epochs"
    return row.network, row.data, epochs, row.batch and f"batch {row.batch}"


def _lines(rows: Sequence[Row]) -> dict[str, list[Row]]:
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
        found.setdefault(", ".join([row.pooling, *filter(None, told)]), []).append(row)
    return found


def _draw(axes: Axes, lines: dict[str, list[Row]], layers: Sequence[str]) -> None:
    """The markers of each line, the first layer's above the others'."""
    places: dict[Row, float] = {}
    for number, rows in enumerate(lines.values()):
        step = _APART / max(2, len(rows) - 1)
        for i, row in enumerate(sorted(rows, key=lambda row: row.layer)):
            places[row] = number + (i - (len(rows) - 1) / 2) * step
    for number, layer in enumerate(layers):
        own = [row for row in places if row.layer == layer]
        axes.errorbar(
            [row.mean for row in own],
            [places[row] for row in own],
            xerr=[0.0 if math.isnan(row.deviation) else row.deviation for row in own],
            label=f"layer {layer}",
            elinewidth=0.6,
            **{**line(number), "linestyle": "none"},
        )
    axes.set_yticks(range(len(lines)), list(lines))
    axes.set_ylim(len(lines) - 0.5, -0.5)
