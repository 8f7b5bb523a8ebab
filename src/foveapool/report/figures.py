"""Figures with matplotlib; each function returns a Figure and leaves files to the caller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foveapool.pooling.operator import PoolingOperator

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _new_figure(width: float, height: float) -> Figure:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("figures need matplotlib: pip install foveapool[plot]") from error
    return Figure(figsize=(width, height), layout="constrained")


def spread(size: int, count: int) -> list[int]:
    """`count` evenly spaced places of an axis, the outermost ones half a step from the edge.

    >>> spread(16, 3)
    [2, 8, 13]
    """
    return [int((i + 0.5) * size / count) for i in range(count)]


def operator_figure(operator: PoolingOperator, positions: int = 3) -> Figure:
    """The weights at positions x positions output places, a block of heat maps a component.

    Red is positive, blue negative, white zero, on one scale that the largest weight in a thousand
    may exceed; a dot marks the middle of each place's block.
    """
    (height, width), (out_height, out_width) = operator.in_shape, operator.out_shape
    weight = operator.weight.cpu().reshape(
        operator.components, out_height, out_width, height, width
    )
    rows, columns = spread(out_height, positions), spread(out_width, positions)
    shown = weight[:, rows][:, :, columns]
    limit = float(shown.abs().flatten().quantile(0.999))
    figure = _new_figure(0.95 * positions * operator.components + 0.9, 0.95 * positions + 0.35)
    # The last block carries the scale and is a little wider for it.
    shares = [*[positions] * (operator.components - 1), positions + 0.45]
    parts = figure.subfigures(1, operator.components, squeeze=False, width_ratios=shares)[0]
    for component, part in enumerate(parts):
        part.suptitle(f"component {component + 1}", fontsize=9)
        axes = part.subplots(positions, positions, squeeze=False)
        for i, m in enumerate(rows):
            for j, n in enumerate(columns):
                axis = axes[i, j]
                image = axis.imshow(shown[component, i, j], cmap="RdBu_r", vmin=-limit, vmax=limit)
                centre_x = (n + 0.5) * width / out_width - 0.5
                centre_y = (m + 0.5) * height / out_height - 0.5
                axis.plot(centre_x, centre_y, "k.", markersize=2.5)
                axis.set_xticks([])
                axis.set_yticks([])
    bar = parts[-1].colorbar(image, ax=axes.ravel().tolist(), shrink=0.8, aspect=25)
    bar.ax.tick_params(labelsize=7)
    return figure
