"""Pooled maps of one channel, class by class: the paper's comparison of two poolings.

How close the maps of a class lie to their mean, and how far the means lie apart, is what a pooling
is learned for; both are drawn and told in numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from foveapool.report.style import (
    COLUMN,
    SEQUENTIAL,
    SMALL,
    axes_at,
    new_figure,
    styled,
    tidy,
    without_ticks,
    write_at,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_CLASSES = 10
_NAMES, _BETWEEN, _GAP, _HEAD, _FOOT = 0.7, 0.1, 0.02, 0.3, 0.84  # inches, at most for names


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


@styled
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
    shown = [_shortened(names[label]) for label in classes]
    room = 0.08 + max(map(_length, shown))
    block = (width - room - _BETWEEN - 2 * _GAP) / 2
    cell = block / (count + 1) - _GAP
    tall = max(cell * maps.shape[2] / maps.shape[3] for maps in (default, learned))
    bottom = _HEAD + len(classes) * (tall + _GAP)
    figure = new_figure(width, bottom + _FOOT, laid_out=False)
    for row, name in enumerate(shown):
        top = _HEAD + row * (tall + _GAP) + tall / 2 + 0.03
        write_at(figure, room - 0.05, top, name, ha="right", fontsize=SMALL)
    for side, (maps, found) in enumerate(zip((default, learned), pooled, strict=True)):
        left = room + side * (block + _BETWEEN)
        write_at(figure, left + block / 2, 0.12, titles[side], ha="center")
        write_at(figure, left, 0.26, "mean", fontsize=SMALL)
        beside = left + max(cell + 3 * _GAP, 0.32)  # the word "mean" needs as much
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
                x = left + column * (cell + _GAP) + (2 * _GAP if column else 0)
                axes = axes_at(figure, x, _HEAD + row * (tall + _GAP), cell, tall)
                image = without_ticks(axes).imshow(each, cmap=SEQUENTIAL, vmin=low, vmax=high)
        scale = axes_at(figure, left + 0.1, bottom + 0.04, block - 0.2, 0.07)
        figure.colorbar(image, cax=scale, orientation="horizontal")
        scale.set_xticks([low, high], [f"{low:.2g}", f"{high:.2g}"])
        tidy(scale, grid=False)
        for number, text in enumerate(_told(found)):
            write_at(figure, left, bottom + 0.4 + 0.12 * number, text, fontsize=SMALL)
    return figure


def _length(text: str) -> float:
    """How long a text of small letters is, inches."""
    from matplotlib.textpath import TextPath

    return TextPath((0, 0), text, size=SMALL).get_extents().x1 / 72


def _shortened(name: str) -> str:
    if _length(name) <= _NAMES:
        return name
    name = name[:30]  # more than fit, and few enough to try one after the other
    while _length(f"{name}...") > _NAMES:
        name = name[:-1]
    return f"{name}..."


def _told(maps: ClassMaps) -> tuple[str, ...]:
    """The figures under a block of maps."""
    total = (maps.within + maps.between) or 1.0
    ratio = maps.between / maps.within if maps.within else float("inf")
    return (
        f"within {maps.within / total:.2f}",
        f"between {maps.between / total:.2f}",
        f"between / within {ratio:.2g}",
        f"over all channels {maps.all_channels:.2g}",
    )
