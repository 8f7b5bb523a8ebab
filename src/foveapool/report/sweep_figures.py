"""What alpha does to an operator, before anyone trains: how far its rows reach, what they reach.

A sweep is some operators of one layer that differ in alpha; several layers are drawn together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from foveapool.pooling.operator import PoolingOperator
from foveapool.report.style import (
    COLUMN,
    legend_below,
    line,
    log_axis,
    new_figure,
    styled,
    tidy,
    value_axis,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Sweeps = Mapping[str, Sequence[PoolingOperator]]


@styled
def radius_figure(sweeps: Sweeps, width: float = COLUMN) -> Figure:
    """The effective radius of the rows against alpha, a line a sweep, a panel a component.

    `sweeps` maps a layer's name to its operators. Lines are means over the output places, bands
    reach from the narrowest row to the widest.
    """
    figure = _against_alpha(sweeps, PoolingOperator.radius, width)
    figure.axes[0].set_ylabel("radius of a row, pixels")
    return figure


@styled
def separability_figure(sweeps: Sweeps, width: float = COLUMN) -> Figure:
    """S_b / S_w of the pooled values in units of average pooling's mean, against alpha.

    Drawn as `radius_figure` is; the level 1 is the mean of average pooling itself. A line below it
    is a map that separates the classes less than averages do, on the images of the fit.
    """
    figure = _against_alpha(sweeps, PoolingOperator.gain, width)
    for axes in figure.axes:
        axes.axhline(1.0, color="0.4", linewidth=0.8, linestyle=(0, (6, 2)), zorder=0)
    value_axis(figure.axes)
    figure.axes[0].set_ylabel("gain over average pooling")
    return figure


def _against_alpha(
    sweeps: Sweeps, measure: Callable[[PoolingOperator], Tensor], width: float
) -> Figure:
    """Means over the places of `measure` (k, M), within bands from the least to the largest."""
    _check(sweeps)
    components = max(each.components for sweep in sweeps.values() for each in sweep)
    figure = new_figure(width, 0.65 * width)
    panels = figure.subplots(1, components, sharey=True, squeeze=False)[0]
    alphas: list[float] = []
    for number, (name, sweep) in enumerate(sweeps.items()):
        ordered = sorted(sweep, key=lambda each: each.settings.alpha)
        at = [each.settings.alpha for each in ordered]
        alphas += at
        for component in range(ordered[0].components):
            values = [measure(each)[component].double().cpu() for each in ordered]
            axes, look = panels[component], line(number)
            axes.plot(at, [float(v.mean()) for v in values], label=name, **look)
            low, high = ([float(getattr(v, end)()) for v in values] for end in ("min", "max"))
            axes.fill_between(at, low, high, color=look["color"], alpha=0.12, linewidth=0)
    for component, axes in enumerate(panels):
        log_axis(tidy(axes), alphas, "alpha")
        axes.set_title(f"component {component + 1}")
    legend_below(figure, panels)
    return figure


def _check(sweeps: Sweeps) -> None:
    if not sweeps or not all(sweeps.values()):
        raise ValueError("sweeps: got none, or one without operators; wanted one or more of each")
    for name, sweep in sweeps.items():
        if len({each.components for each in sweep}) > 1:
            raise ValueError(
                f"sweeps: {name}: got operators with several numbers of components, wanted one; "
                "give those of one sweep"
            )
        units = {each.settings.alpha_unit for each in sweep}
        if len(units) > 1:
            raise ValueError(f"sweeps: {name}: got alphas in {sorted(units)}, wanted one unit")
