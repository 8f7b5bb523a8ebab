"""Maps at the edges of what numbers can say, and what long doubles and scipy make of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from torch import Tensor

from foveapool.pooling.accumulate import ScatterAccumulator
from foveapool.pooling.moments import ChannelMoments
from foveapool.pooling.operator import PoolingOperator
from foveapool.pooling.solve import solve_pooling

from .oracles import class_maps

Array = NDArray[np.float64]
SIZES = (14, 11, 8)
# Closer eigenvalues than this share of the first: which vector is which, rounding decides.
OPEN = 1e-4


@dataclass(frozen=True)
class Extreme:
    """Maps in batches, how to solve on them, and what has to be said of them, if anything.

    Without any of the three words the answer has to be right, and nothing said.

    refused: What the refusal says.
    warned: What a warning says, before an answer that has to be right for what is not left out.
    noise: What a warning says, before an answer that nobody can get right from such numbers.
    """

    batches: Sequence[tuple[Tensor, Tensor]]
    refused: str = ""
    warned: str = ""
    noise: str = ""
    left_out: Sequence[int] = ()  # channels
    sums: dict[str, Any] = field(default_factory=dict)
    solving: dict[str, Any] = field(default_factory=dict)
    out_shape: tuple[int, ...] = (2, 2)
    alpha: float = 0.5


def base(
    sizes: Sequence[int] = SIZES, shape: Sequence[int] = (4, 4), channels: int = 3, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Maps of variance one about zero in each channel, float64."""
    maps, labels = class_maps(sizes, shape, channels, seed)
    axes = (0, *range(2, maps.dim()))
    maps = maps - maps.mean(axes, keepdim=True)
    return maps / maps.square().mean(axes, keepdim=True).sqrt(), labels


def fit(case: Extreme) -> PoolingOperator:
    """What the package makes of a case."""
    classes = max(int(labels.max()) for _, labels in case.batches if len(labels)) + 1
    moments = ChannelMoments(max(classes, 2), class_cap=None, dead_channels="ignore")
    for maps, labels in case.batches:
        moments.update(maps, labels)
    sums = ScatterAccumulator(moments.compute(), **case.sums)
    for maps, labels in case.batches:
        sums.update(maps, labels)
    settings = {"alpha_unit": "trace", "components": 2, "alpha": case.alpha, **case.solving}
    return solve_pooling(sums.compute(), case.out_shape, **settings)


def long_scatter(case: Extreme) -> tuple[Array, Array]:
    """A and B in units of trace(B)/N, every sum in long double."""
    maps = np.concatenate([m.detach().double().flatten(2).numpy() for m, _ in case.batches])
    labels = np.concatenate([labels.numpy() for _, labels in case.batches])
    maps = np.delete(maps, list(case.left_out), 1).astype(np.longdouble)
    maps = maps - maps.mean((0, 2), keepdims=True)
    deviation = np.sqrt((maps**2).mean((0, 2), keepdims=True))
    if case.sums.get("normalize", True):
        maps = np.divide(maps, deviation, out=np.zeros_like(maps), where=deviation > 0)
    else:
        maps = maps / deviation.max()
    classes, counts = np.unique(labels, return_counts=True)
    weights = np.ones(len(classes), np.longdouble)
    if case.sums.get("weighting") == "frequency":
        weights = counts * np.longdouble(len(classes)) / counts.sum()
    means = np.stack([maps[labels == q].mean(0) for q in classes])
    means_off = means - np.tensordot(weights, means, 1) / weights.sum()
    between = np.einsum("q,qcn,qcm->nm", weights, means_off, means_off)
    within = np.zeros_like(between)
    for q, weight, count in zip(classes, weights, counts, strict=True):
        off = maps[labels == q] - means[q == classes][0]
        within += weight / count * np.einsum("kcn,kcm->nm", off, off)
    unit = np.trace(within) / len(within)
    return (between / unit).astype(np.float64), (within / unit).astype(np.float64)


def penalties(in_shape: Sequence[int], out_shape: Sequence[int]) -> Array:
    """Squared distances of the places of a map from s * coord(m), (M, N)."""
    ins, outs = (
        np.stack(np.meshgrid(*(np.arange(1, n + 1) for n in shape), indexing="ij"), -1)
        for shape in (in_shape, out_shape)
    )
    axes = len(in_shape)
    scale = np.array(in_shape) / np.array(out_shape)
    away = (scale * outs.reshape(-1, 1, axes)) - ins.reshape(1, -1, axes)
    found: Array = (away**2).sum(-1)
    return found


def compare(case: Extreme, operator: PoolingOperator) -> list[float]:
    """The cosine of each row with scipy's eigenvector, where that is one beyond doubt."""
    between, within = long_scatter(case)
    found = []
    for m, own in enumerate(penalties(operator.in_shape, operator.out_shape)):
        metric = within + np.diag(case.alpha * own)
        if metric.diagonal().min() == 0:  # a constant place in the center: the answer is a limit
            metric = metric + 1e-8 * np.eye(len(metric))
        values, vectors = scipy.linalg.eigh(between, metric)
        values, vectors = values[::-1], vectors.T[::-1]
        distances = np.abs(np.subtract.outer(values, values)) / values[0]
        np.fill_diagonal(distances, np.inf)
        for i, row in enumerate(operator.weight[:, m].numpy()):
            if distances[i].min() > OPEN:
                right = vectors[i]
                found.append(float(abs(row @ right) / np.linalg.norm(row) / np.linalg.norm(right)))
    return found
