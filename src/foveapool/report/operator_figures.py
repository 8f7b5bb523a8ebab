"""Pictures of one operator: its weights at some places, and how sure each place is of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from foveapool.pooling.grid import Centre, centres
from foveapool.pooling.module import LinearPool2d, usual_centre
from foveapool.pooling.operator import PoolingOperator
from foveapool.report.style import (
    COLUMN,
    SEQUENTIAL,
    SMALL,
    axes_at,
    new_figure,
    one_two_five,
    signed_colours,
    styled,
    tidy,
    without_ticks,
    write_at,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STIPPLED = 0.1  # share of the scale from which on negative weights carry dots
_GAP, _HEAD, _SCALE, _MARGIN = 0.04, 0.17, 0.34, 0.02  # inches


def spread(size: int, count: int) -> list[int]:
    """`count` evenly spaced places of an axis, the outermost ones half a step from the edge.

    >>> spread(16, 3)
    [2, 8, 13]
    """
    return [int((i + 0.5) * size / count) for i in range(count)]


@styled
def operator_figure(
    operator: PoolingOperator | LinearPool2d,
    positions: int | tuple[int, int] | None = None,
    width: float = COLUMN,
) -> Figure:
    """The weights at evenly spaced output places, a block of heat maps a component.

    `positions` along each axis, or (down, across); three, where there are as many. Red is
    positive, blue negative, white zero, on one scale that five weights in a thousand may exceed;
    dots mark what is negative, for those who see no colours. Ticks at the frame point to the place
    on which a map is centred; of a layer, the usual one of the mode it was fitted for.
    """
    height, across = _map_shape(operator)
    rows, columns = _places(operator, positions)
    shown = _over_maps(operator.weight, operator)[:, rows][:, :, columns]
    shown = shown.reshape(*shown.shape[:3], height, across)
    limit = float(np.quantile(np.abs(shown), 0.995)) or 1.0
    middle = centres(operator.in_shape, operator.out_shape, _centre(operator))
    middle = middle.reshape(*operator.out_shape, 2) - 1

    blocks = min(operator.components, 2)
    lines = math.ceil(operator.components / blocks)
    room, between = width - 2 * _MARGIN, 0.12
    panel = ((room - (blocks - 1) * between) / blocks + _GAP) / len(columns) - _GAP
    tall = panel * height / across
    block = (len(columns) * (panel + _GAP) - _GAP + between, len(rows) * (tall + _GAP) + _HEAD)
    figure = new_figure(width, lines * block[1] + _SCALE, laid_out=False)
    for component in range(operator.components):
        left = _MARGIN + (component % blocks) * block[0]
        top = (component // blocks) * block[1]
        title = (left + (block[0] - between) / 2, top + 0.12)
        write_at(figure, *title, f"component {component + 1}", ha="center")
        for i, m in enumerate(rows):
            for j, n in enumerate(columns):
                corner = (left + j * (panel + _GAP), top + _HEAD + i * (tall + _GAP))
                axes = without_ticks(axes_at(figure, *corner, panel, tall))
                _heat_map(axes, shown[component, i, j], limit)
                y, x = middle[m, n].tolist()
                axes.set(xticks=[x], yticks=[y], xticklabels=[], yticklabels=[])
                axes.tick_params(direction="in", length=2.5, width=0.6, top=True, right=True)
    _scale(figure, width, lines * block[1] + 0.04, limit)
    return figure


def _heat_map(axes: Axes, weights: np.ndarray, limit: float) -> None:
    axes.imshow(weights, cmap=signed_colours(), vmin=-limit, vmax=limit)
    y, x = np.nonzero(weights < -STIPPLED * limit)
    across = axes.get_position().width * axes.get_figure().get_size_inches()[0]  # type: ignore[union-attr]
    dot = 0.4 * 72 * across / weights.shape[1]
    axes.plot(x, y, "o", color="black", markersize=dot, markeredgewidth=0)


def _scale(figure: Figure, width: float, top: float, limit: float) -> None:
    """The common scale; dots where they are on the maps."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    axes = axes_at(figure, 0.15 * width, top, 0.7 * width, 0.09)
    scale = ScalarMappable(Normalize(-limit, limit), signed_colours())
    bar = figure.colorbar(scale, cax=axes, orientation="horizontal", extend="both")
    ticks = [-limit, -limit / 2, 0.0, limit / 2, limit]
    bar.set_ticks(ticks, labels=[f"{tick:.2g}" for tick in ticks])
    tidy(axes, grid=False)
    dots = np.linspace(-limit, -STIPPLED * limit, 20)
    axes.plot(dots, np.full(20, 0.5), "o", color="black", markersize=0.7, markeredgewidth=0)


@styled
def eigenvalue_figure(operator: PoolingOperator, width: float = COLUMN) -> Figure:
    """Eigenvalues (above) and gaps (below) over the output map, a column a component.

    Eigenvalues share one scale; gaps have their own, logarithmic: where a gap is small, the
    component is only one of many nearly as good.
    """
    from matplotlib.colors import LogNorm, Normalize

    _map_shape(operator)
    values, gaps = (_over_maps(each, operator) for each in (operator.eigenvalues, operator.gaps))
    positive = gaps[gaps > 0] if (gaps > 0).any() else np.ones(1)
    count, room = operator.components, width - 2 * _MARGIN - 0.55
    panel = min((room + _GAP) / count - _GAP, room / 2)
    tall = panel * values.shape[1] / values.shape[2]
    figure = new_figure(width, 2 * (tall + _HEAD + _GAP), laid_out=False)
    for line, (shown, title, norm) in enumerate(
        (
            (values, "eigenvalue", Normalize(values.min(), values.max())),
            (gaps, "gap", LogNorm(positive.min(), positive.max(), clip=True)),
        )
    ):
        top = _HEAD + line * (tall + _HEAD + _GAP)
        for component in range(count):
            left = _MARGIN + component * (panel + _GAP)
            # The word once: four components leave no room for more.
            name = f"{title} {component + 1}" if component == 0 else str(component + 1)
            write_at(figure, left, top - 0.05, name, fontsize=SMALL)
            axes = without_ticks(axes_at(figure, left, top, panel, tall))
            image = axes.imshow(shown[component], cmap=SEQUENTIAL, norm=norm)
        beside = axes_at(figure, _MARGIN + count * (panel + _GAP) + 0.03, top, 0.09, tall)
        bar = figure.colorbar(image, cax=beside)
        if title == "gap":
            for axis in (bar.long_axis.set_major_formatter, bar.long_axis.set_minor_formatter):
                axis(one_two_five)
        tidy(beside, grid=False)
    return figure


def _centre(operator: PoolingOperator | LinearPool2d) -> Centre:
    if isinstance(operator, PoolingOperator):
        return operator.settings.centre
    return usual_centre(operator.fitted_for)


def _map_shape(operator: PoolingOperator | LinearPool2d) -> tuple[int, int]:
    """Height and width of the input map; refuses maps that are no pictures."""
    if len(operator.in_shape) != 2:
        raise ValueError(
            f"operator: got one over maps of shape {operator.in_shape}, wanted (height, width): "
            "only maps with two axes can be drawn"
        )
    return operator.in_shape[0], operator.in_shape[1]


def _places(
    operator: PoolingOperator | LinearPool2d, positions: int | tuple[int, int] | None
) -> tuple[list[int], list[int]]:
    if positions is None:
        positions = (min(3, operator.out_shape[0]), min(3, operator.out_shape[1]))
    counts = (positions, positions) if isinstance(positions, int) else positions
    for count, size in zip(counts, operator.out_shape, strict=True):
        if not 1 <= count <= size:
            raise ValueError(
                f"positions: got {count} along an axis of {size} output places, wanted 1 to {size}"
            )
    down, across = operator.out_shape
    return spread(down, counts[0]), spread(across, counts[1])


def _over_maps(values: Tensor, operator: PoolingOperator | LinearPool2d) -> np.ndarray:
    """(k, M, ...) as (k, H', W', ...)."""
    array = values.detach().cpu().double().numpy()  # NumPy has no bfloat16
    return array.reshape(len(array), *operator.out_shape, *array.shape[2:])
