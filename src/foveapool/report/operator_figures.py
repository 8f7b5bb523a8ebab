"""Figures of operators: weights, eigenvalues, pooled maps, radius and separability over alpha."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from foveapool.pooling.grid import Center, centers
from foveapool.pooling.module import LinearPool, default_center
from foveapool.pooling.operator import PoolingOperator
from foveapool.report.style import (
    COLUMN,
    SEQUENTIAL,
    SMALL,
    axes_at,
    format_log_tick,
    legend_below,
    line_style,
    log_axis,
    new_figure,
    signed_colors,
    tidy_axes,
    value_axis,
    with_style,
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


@with_style
def operator_figure(
    operator: PoolingOperator | LinearPool,
    positions: int | tuple[int, int] | None = None,
    width: float = COLUMN,
) -> Figure:
    """The weights at evenly spaced output places, a block of heat maps a component.

    `positions` along each axis, or (down, across); three, where there are as many. Red is
    positive, blue negative, white zero, on one scale that five weights in a thousand may exceed;
    dots mark what is negative, for those who see no colors. Ticks at the frame point to the place
    on which a map is centered; of a layer, the usual one of the mode it was fitted for.
    """
    height, across = _get_map_shape(operator)
    rows, columns = _choose_places(operator, positions)
    whole = operator.dense_weight() if isinstance(operator, LinearPool) else operator.weight
    shown = _lay_over_maps(whole, operator)[:, rows][:, :, columns]
    shown = shown.reshape(*shown.shape[:3], height, across)
    limit = float(np.quantile(np.abs(shown), 0.995)) or 1.0
    middle = centers(operator.in_shape, operator.out_shape, _get_center(operator))
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
                _draw_heat_map(axes, shown[component, i, j], limit)
                y, x = middle[m, n].tolist()
                axes.set(xticks=[x], yticks=[y], xticklabels=[], yticklabels=[])
                axes.tick_params(direction="in", length=2.5, width=0.6, top=True, right=True)
    _draw_scale(figure, width, lines * block[1] + 0.04, limit)
    return figure


def _draw_heat_map(axes: Axes, weights: np.ndarray, limit: float) -> None:
    axes.imshow(weights, cmap=signed_colors(), vmin=-limit, vmax=limit)
    y, x = np.nonzero(weights < -STIPPLED * limit)
    across = axes.get_position().width * axes.get_figure().get_size_inches()[0]  # type: ignore[union-attr]
    dot = 0.4 * 72 * across / weights.shape[1]
    axes.plot(x, y, "o", color="black", markersize=dot, markeredgewidth=0)


def _draw_scale(figure: Figure, width: float, top: float, limit: float) -> None:
    """The common scale; dots where they are on the maps."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    axes = axes_at(figure, 0.15 * width, top, 0.7 * width, 0.09)
    scale = ScalarMappable(Normalize(-limit, limit), signed_colors())
    bar = figure.colorbar(scale, cax=axes, orientation="horizontal", extend="both")
    ticks = [-limit, -limit / 2, 0.0, limit / 2, limit]
    bar.set_ticks(ticks, labels=[f"{tick:.2g}" for tick in ticks])
    tidy_axes(axes, grid=False)
    dots = np.linspace(-limit, -STIPPLED * limit, 20)
    axes.plot(dots, np.full(20, 0.5), "o", color="black", markersize=0.7, markeredgewidth=0)


@with_style
def eigenvalue_figure(operator: PoolingOperator, width: float = COLUMN) -> Figure:
    """Eigenvalues (above) and gaps (below) over the output map, a column a component.

    Eigenvalues share one scale; gaps have their own, logarithmic: where a gap is small, the
    component is only one of many nearly as good.
    """
    from matplotlib.colors import LogNorm, Normalize

    _get_map_shape(operator)
    values, gaps = (
        _lay_over_maps(each, operator) for each in (operator.eigenvalues, operator.gaps)
    )
    positive = gaps[gaps > 0] if (gaps > 0).any() else np.ones(1)
    count, room = operator.components, width - 2 * _MARGIN - 0.55
    panel = min((room + _GAP) / count - _GAP, room / 2)
    tall = panel * values.shape[1] / values.shape[2]
    figure = new_figure(width, 2 * (tall + _HEAD + _GAP), laid_out=False)
    for number, (shown, title, norm) in enumerate(
        (
            (values, "eigenvalue", Normalize(values.min(), values.max())),
            (gaps, "gap", LogNorm(positive.min(), positive.max(), clip=True)),
        )
    ):
        top = _HEAD + number * (tall + _HEAD + _GAP)
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
                axis(format_log_tick)
        tidy_axes(beside, grid=False)
    return figure


def _get_center(operator: PoolingOperator | LinearPool) -> Center:
    if isinstance(operator, PoolingOperator):
        return operator.settings.center
    return default_center(operator.fitted_for)


def _get_map_shape(operator: PoolingOperator | LinearPool) -> tuple[int, int]:
    """Height and width of the input map; refuses maps that are no pictures."""
    if len(operator.in_shape) != 2:
        raise ValueError(
            f"operator: got one over maps of shape {operator.in_shape}, wanted (height, width): "
            "only maps with two axes can be drawn"
        )
    return operator.in_shape[0], operator.in_shape[1]


def _choose_places(
    operator: PoolingOperator | LinearPool, positions: int | tuple[int, int] | None
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


def _lay_over_maps(values: Tensor, operator: PoolingOperator | LinearPool) -> np.ndarray:
    """(k, M, ...) as (k, H', W', ...)."""
    array = values.detach().cpu().double().numpy()  # NumPy has no bfloat16
    return array.reshape(len(array), *operator.out_shape, *array.shape[2:])


MOST_CLASSES = 10
_NAMES, _BETWEEN, _MAP_GAP, _MAP_HEAD, _FOOT = (
    0.7,
    0.1,
    0.02,
    0.3,
    0.84,
)  # inches, at most for names


@dataclass(frozen=True)
class ClassMaps:
    """The maps of one channel by class, and how they scatter.

    `within` is the mean squared distance from the class mean, `between` that of the class means
    from their mean, every class counting the same; `all_channels` is between / within over all
    channels, each scaled to the same total.
    """

    labels: tuple[int, ...]  # the classes that have maps, Q of them
    means: Tensor  # (Q, h, w)
    nearest: tuple[Tensor, ...]  # for each class some positions, the nearest to its mean first
    within: float
    between: float
    all_channels: float


def class_maps(maps: Tensor, labels: Tensor, channel: int = 0, count: int = 5) -> ClassMaps:
    """The class means of a channel of `maps` (n, C, h, w), and the `count` maps nearest to each."""
    maps, labels = torch.as_tensor(maps), torch.as_tensor(labels)
    if maps.dim() != 4 or labels.shape != maps.shape[:1]:
        raise ValueError(
            f"maps, labels: got shapes {tuple(maps.shape)} and {tuple(labels.shape)}, wanted "
            "(n, C, h, w) and (n,)"
        )
    if not 0 <= channel < maps.shape[1]:
        raise ValueError(f"channel: got {channel}, wanted 0 to {maps.shape[1] - 1}")
    maps = maps.detach().double().cpu()
    classes, index = labels.cpu().unique(return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"labels: got {len(classes)} classes, wanted two or more to compare")
    of_class = [maps[index == q] for q in range(len(classes))]
    means = torch.stack([each.mean(0) for each in of_class])
    spread = [((e - m) ** 2).mean(0) for e, m in zip(of_class, means, strict=True)]
    within = torch.stack(spread).mean(0).sum((1, 2))
    between = ((means - means.mean(0)) ** 2).mean(0).sum((1, 2))
    total = within + between
    # A channel that never changes has nothing to tell.
    share = (between / total)[total > 0].mean()
    nearest = []
    for q, mean in enumerate(means[:, channel]):
        own = (index == q).nonzero()[:, 0]
        distance = (maps[own, channel] - mean).square().sum((1, 2))
        nearest.append(own[distance.argsort(stable=True)[:count]])
    return ClassMaps(
        labels=tuple(classes.tolist()),
        means=means[:, channel],
        nearest=tuple(nearest),
        within=float(within[channel]),
        between=float(between[channel]),
        all_channels=float(share / (1 - share)),
    )


@with_style
def feature_map_figure(
    default: Tensor,
    learned: Tensor,
    labels: Tensor,
    names: Sequence[str],
    channels: tuple[int, int] = (0, 0),
    count: int = 5,
    titles: tuple[str, str] = ("default pooling", "learned pooling"),
    width: float = COLUMN,
) -> Figure:
    """A channel of two poolings' maps (n, C, h, w): for each class its mean and the nearest maps.

    `channels` are one of each pooling. A row a class, the first ten that have maps. Below: the
    scale, and of this channel how much of its scatter is within classes and between them.
    """
    pooled = [class_maps(default, labels, channels[0], count)]
    pooled.append(class_maps(learned, labels, channels[1], count))
    classes = pooled[0].labels[:MOST_CLASSES]
    if classes[-1] >= len(names):
        raise ValueError(f"names: got {len(names)}, wanted one for each class up to {classes[-1]}")
    shown = [_shorten(names[label]) for label in classes]
    room = 0.08 + max(map(_measure_text, shown))
    block = (width - room - _BETWEEN - 2 * _MAP_GAP) / 2
    cell = block / (count + 1) - _MAP_GAP
    tall = max(cell * maps.shape[2] / maps.shape[3] for maps in (default, learned))
    bottom = _MAP_HEAD + len(classes) * (tall + _MAP_GAP)
    figure = new_figure(width, bottom + _FOOT, laid_out=False)
    for row, name in enumerate(shown):
        top = _MAP_HEAD + row * (tall + _MAP_GAP) + tall / 2 + 0.03
        write_at(figure, room - 0.05, top, name, ha="right", fontsize=SMALL)
    for side, (maps, found) in enumerate(zip((default, learned), pooled, strict=True)):
        left = room + side * (block + _BETWEEN)
        write_at(figure, left + block / 2, 0.12, titles[side], ha="center")
        write_at(figure, left, 0.26, "mean", fontsize=SMALL)
        beside = left + max(cell + 3 * _MAP_GAP, 0.32)  # the word "mean" needs as much
        write_at(figure, beside, 0.26, f"nearest {count}", fontsize=SMALL)
        rows = [
            [found.means[row], *maps[found.nearest[row], channels[side]].detach().double().cpu()]
            for row in range(len(classes))
        ]
        low = min(float(each.min()) for own in rows for each in own)
        high = max(float(each.max()) for own in rows for each in own)
        for row, own in enumerate(rows):
            for column, each in enumerate(own):
                # The mean stands a little apart.
                x = left + column * (cell + _MAP_GAP) + (2 * _MAP_GAP if column else 0)
                axes = axes_at(figure, x, _MAP_HEAD + row * (tall + _MAP_GAP), cell, tall)
                image = without_ticks(axes).imshow(each, cmap=SEQUENTIAL, vmin=low, vmax=high)
        scale = axes_at(figure, left + 0.1, bottom + 0.04, block - 0.2, 0.07)
        figure.colorbar(image, cax=scale, orientation="horizontal")
        scale.set_xticks([low, high], [f"{low:.2g}", f"{high:.2g}"])
        tidy_axes(scale, grid=False)
        for number, text in enumerate(_describe_maps(found)):
            write_at(figure, left, bottom + 0.4 + 0.12 * number, text, fontsize=SMALL)
    return figure


def _measure_text(text: str) -> float:
    """How long a text of small letters is, inches."""
    from matplotlib.textpath import TextPath

    return TextPath((0, 0), text, size=SMALL).get_extents().x1 / 72


def _shorten(name: str) -> str:
    if _measure_text(name) <= _NAMES:
        return name
    name = name[:30]  # more than fit, and few enough to try one after the other
    while _measure_text(f"{name}...") > _NAMES:
        name = name[:-1]
    return f"{name}..."


def _describe_maps(maps: ClassMaps) -> tuple[str, ...]:
    """The figures under a block of maps."""
    total = (maps.within + maps.between) or 1.0
    ratio = maps.between / maps.within if maps.within else float("inf")
    return (
        f"within {maps.within / total:.2f}",
        f"between {maps.between / total:.2f}",
        f"between / within {ratio:.2g}",
        f"over all channels {maps.all_channels:.2g}",
    )


Sweeps = Mapping[str, Sequence[PoolingOperator]]


@with_style
def radius_figure(sweeps: Sweeps, width: float = COLUMN) -> Figure:
    """The effective radius of the rows against alpha, a line a sweep, a panel a component.

    `sweeps` maps a layer's name to its operators. Lines are means over the output places, bands
    reach from the narrowest row to the widest.
    """
    figure = _draw_against_alpha(sweeps, PoolingOperator.radius, width)
    figure.axes[0].set_ylabel("radius of a row, pixels")
    return figure


@with_style
def separability_figure(sweeps: Sweeps, width: float = COLUMN) -> Figure:
    """S_b / S_w of the pooled values in units of average pooling's mean, against alpha.

    Drawn as `radius_figure` is; the level 1 is the mean of average pooling itself. A line below it
    is a map that separates the classes less than averages do, on the images of the fit.
    """
    figure = _draw_against_alpha(sweeps, PoolingOperator.gain, width)
    for axes in figure.axes:
        axes.axhline(1.0, color="0.4", linewidth=0.8, linestyle=(0, (6, 2)), zorder=0)
    value_axis(figure.axes)
    figure.axes[0].set_ylabel("gain over average pooling")
    return figure


def _draw_against_alpha(
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
            axes, look = panels[component], line_style(number)
            axes.plot(at, [float(v.mean()) for v in values], label=name, **look)
            low, high = ([float(getattr(v, end)()) for v in values] for end in ("min", "max"))
            axes.fill_between(at, low, high, color=look["color"], alpha=0.12, linewidth=0)
    for component, axes in enumerate(panels):
        log_axis(tidy_axes(axes), alphas, "alpha")
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
