"""CE and flip rates as bars: each corruption against the baseline's 100, geometric ones apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from foveapool.labels import apart, components, form, label_cell
from foveapool.records import CE, Row
from foveapool.report.style import (
    COLORS,
    COLUMN,
    SMALL,
    legend_below,
    new_figure,
    tidy_axes,
    with_style,
)
from foveapool.report.tables import distinct_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BASELINE = 100.0
# Blue, orange, grey: far apart in lightness, and in their hatching.
_FILLS = ((COLORS[1], ""), (COLORS[2], "/////"), ("0.85", "....."), (COLORS[3], "xxxxx"))


@with_style
def ratio_figure(
    ratios: Mapping[str, Mapping[str, float]],
    groups: Mapping[str, Sequence[str]],
    what: str = CE,
    printed: Mapping[str, float] | None = None,
    width: float = COLUMN,
) -> Figure:
    """A bar for each corruption, from the baseline's 100 to the network's own percentage.

    `ratios` has percentages by network and by corruption; `groups` are the corruptions in order,
    such as {"geometric": [...], "non-geometric": [...]}, and those that no network has are left
    out. Bars to the left are better than the baseline. `printed` are the paper's, diamonds.
    """
    printed = printed or {}
    there = {
        group: [name for name in names if any(name in own for own in ratios.values())]
        for group, names in groups.items()
    }
    there = {group: names for group, names in there.items() if names}
    if not there:
        wanted = ", ".join(name for names in groups.values() for name in names)
        got = ", ".join(sorted({name for own in ratios.values() for name in own})) or "none"
        raise ValueError(f"ratios: got {got}; wanted some of the groups: {wanted}")
    if len(ratios) > len(_FILLS):
        raise ValueError(f"ratios: got {len(ratios)} networks, wanted at most {len(_FILLS)}")
    count = sum(map(len, there.values()))
    figure = new_figure(width, 0.7 + (0.12 + 0.05 * len(ratios)) * count + 0.2 * len(there))
    panels = figure.subplots(
        len(there), 1, sharex=True, squeeze=False, height_ratios=[len(n) for n in there.values()]
    )[:, 0]
    for axes, (group, names) in zip(panels, there.items(), strict=True):
        _draw_bars(axes, names, ratios)
        others = [(printed[n], i) for i, n in enumerate(names) if n in printed]
        if others:
            look = {"color": "white", "edgecolor": "black", "linewidth": 0.7, "zorder": 3}
            axes.scatter(*zip(*others, strict=True), marker="D", s=9, label="paper", **look)
        axes.axvline(BASELINE, color="black", linewidth=0.8)
        axes.set_yticks(range(len(names)), [name.replace("_", " ") for name in names])
        axes.set_ylim(len(names) - 0.4, -0.6)
        counted = ""
        if len(ratios) == 1:
            (own,) = ratios.values()
            counted = f": {sum(own[n] < BASELINE for n in names)} of {len(names)} below 100"
        axes.set_title(f"{group}{counted}", fontsize=SMALL)
        tidy_axes(axes)
    panels[-1].set_xlabel(f"{what.removesuffix(' %')}, % of the baseline's; lower is better")
    legend_below(figure, panels)
    return figure


def _draw_bars(axes: Axes, names: Sequence[str], ratios: Mapping[str, Mapping[str, float]]) -> None:
    """The bars of all networks, those of one corruption side by side."""
    thick = 0.75 / len(ratios)
    for number, (network, own) in enumerate(ratios.items()):
        told = [(at, own[name]) for at, name in enumerate(names) if name in own]
        color, hatch = _FILLS[number]
        axes.barh(
            [at + (number - (len(ratios) - 1) / 2) * thick for at, _ in told],
            [value - BASELINE for _, value in told],
            left=BASELINE,
            height=thick,
            label=network,
            color=color,
            hatch=hatch,
            edgecolor="black",
            linewidth=0.4,
        )


def read_ratios(rows: Iterable[Row], what: str = CE) -> dict[str, dict[str, float]]:
    """The percentages that rows hold, by network and by corruption, as `ratio_figure` takes them.

    A network is called by its pooling and by what else tells it from the others.
    """
    own = [row for row in distinct_rows(rows) if row.metric.startswith(f"{what}, ")]
    varies = [len(set(words)) > 1 for words in zip(*map(_describe_choices, own), strict=True)]

    def name(row: Row) -> str:
        pooling = label_cell("pooling", row.pooling)
        told = [
            w
            for w, told in zip(_describe_choices(row), varies, strict=True)
            if told or w == pooling
        ]
        return ", ".join(filter(None, told))

    found: dict[str, dict[str, float]] = {}
    for row, network in apart({row: name(row) for row in own}, lambda row: row.metric).items():
        found.setdefault(network, {})[row.metric.removeprefix(f"{what}, ")] = row.mean
    return found


def _describe_choices(row: Row) -> tuple[str, ...]:
    """A row's setting, a word for each of its choices."""
    return (
        label_cell("network", row.network),
        label_cell("data", row.data),
        label_cell("pooling", row.pooling),
        row.layer and f"layer {row.layer}",
        row.placement,
        form(row),
        row.alpha and f"alpha {row.alpha}",
        row.norm,
        components(row),
        row.epochs and f"epochs {row.epochs}",
        row.batch and f"batch {row.batch}",
    )
