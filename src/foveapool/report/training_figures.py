"""Training curves: loss and test error against the epoch, several trainings together."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from foveapool.report.accounts import Curve
from foveapool.report.style import COLUMN, legend_below, line, new_figure, styled, tidy, value_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_FEW = 12  # points that can all have a marker


@styled
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
        _draw(loss, label, [_points(each.epochs, each.losses) for each in trainings], number)
        _draw(error, label, [_points(each.epochs, each.errors) for each in trainings], number)
    value_axis([loss])
    error.xaxis.get_major_locator().set_params(integer=True)
    loss.set_ylabel("training loss")
    error.set(ylabel="test error %", xlabel="epoch")
    for axes in (loss, error):
        tidy(axes)
    legend_below(figure, [loss], columns=2)
    return figure


def _points(epochs: Sequence[int], values: Sequence[float | None]) -> dict[int, float]:
    pairs = zip(epochs, values, strict=True)
    return {epoch: value for epoch, value in pairs if value is not None}


def _draw(axes: Axes, label: str, seeds: Sequence[dict[int, float]], number: int) -> None:
    epochs = sorted(set(seeds[0]).intersection(*seeds[1:]))
    values = [[each[epoch] for each in seeds] for epoch in epochs]
    look = line(number)
    # On long lines a few markers, each line's elsewhere: they name it and do not hide it.
    some = (number % 5, max(1, len(epochs) // 5)) if len(epochs) > _FEW else None
    axes.plot(
        epochs, [statistics.mean(each) for each in values], label=label, markevery=some, **look
    )
    if len(seeds) > 1:
        low, high = ([end(each) for each in values] for end in (min, max))
        axes.fill_between(epochs, low, high, color=look["color"], alpha=0.15, linewidth=0)
