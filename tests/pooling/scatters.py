"""Scatter of smooth maps to solve on, and how scatters and answers to them are compared."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import scipy.linalg
import torch
from numpy.typing import NDArray
from torch import Tensor

from foveapool.pooling.accumulate import compute_scatter
from foveapool.pooling.operator import PoolingOperator
from foveapool.pooling.scatter import Scatter
from foveapool.pooling.solvers import SOLVERS

from .oracles import distance

Array = NDArray[np.float64]
Shape = tuple[int, ...]
Maps = tuple[Tensor, Tensor]

NAMES = sorted(SOLVERS)
solvers = pytest.mark.parametrize("solver", NAMES)


def smooth(count: int, channels: int, shape: Shape, generator: torch.Generator) -> Tensor:
    """White noise, blurred: neighboring pixels agree, as in feature maps."""
    maps = torch.randn(count, channels, *shape, generator=generator, dtype=torch.float64)
    for axis in [*range(2, 2 + len(shape))] * 2:
        maps = maps + 0.3 * (maps.roll(-1, axis) + maps.roll(1, axis))
    return maps / maps.std()


@cache
def smooth_maps(shape: Shape, classes: int = 10, channels: int = 8, seed: int = 0) -> Maps:
    """Maps around a mean for each class, classes of unequal size, channels of unequal scale."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.cat([torch.full((14 + 2 * q,), q) for q in range(classes)])
    means = smooth(classes, channels, shape, generator)
    maps = smooth(len(labels), channels, shape, generator) + 0.5 * means[labels]
    scale = torch.arange(1, channels + 1).reshape(-1, *[1] * len(shape))
    return maps * scale + 3 * scale, labels


@cache
def smooth_scatter(shape: Shape, classes: int = 10, channels: int = 8) -> Scatter:
    return compute_scatter(*smooth_maps(shape, classes, channels))


def scatter_of(between: Tensor, within: Tensor, shape: Shape, rank: int = 16) -> Scatter:
    """A scatter from A and B alone."""
    blank = torch.zeros(rank, dtype=torch.float64)
    return Scatter(between.double(), within.double(), blank, blank + 1, torch.tensor([9, 9]), shape)


def white(shape: Shape) -> Tensor:
    return torch.eye(torch.Size(shape).numel(), dtype=torch.float64)


def assert_equal(
    scatter: Scatter, wanted: tuple[object, object] | Scatter, tolerance: float = 1e-10
) -> None:
    """A and B are those that were wanted, but for so small a part of them."""
    if isinstance(wanted, Scatter):
        wanted = wanted.between, wanted.within
    assert distance(scatter.between, wanted[0]) < tolerance
    assert distance(scatter.within, wanted[1]) < tolerance


def up_to_sign(one: Tensor, other: Tensor, chosen: Tensor | None = None) -> float:
    """The largest difference between rows of which only the direction means something."""
    one, other = (rows / rows.norm(dim=-1, keepdim=True) for rows in (one, other))
    error = torch.minimum((one - other).abs().amax(-1), (one + other).abs().amax(-1))
    return float((error if chosen is None else error[chosen]).max())


def open_gaps(operator: PoolingOperator) -> Tensor:
    """Which rows, (k, M), are eigenvectors that nothing near can be mistaken for."""
    gaps = operator.gaps
    before = torch.cat((torch.full_like(gaps[:1], 2.0), gaps[:-1]))
    return (gaps > 1e-3) & (before > 1e-3)


def top_pairs(
    between: Tensor, within: Tensor, diagonal: Tensor, components: int
) -> tuple[Tensor, Tensor]:
    """scipy's largest eigenvalues (k + 1, M), falling, and eigenvectors (k, M, N)."""
    A, B, count = between.numpy(), within.numpy(), min(components + 1, len(between))
    values = np.zeros((components + 1, len(diagonal)))
    vectors = np.zeros((components, *diagonal.shape))
    for m, own in enumerate(diagonal.numpy()):
        found, columns = scipy.linalg.eigh(A, B + np.diag(own))
        values[:count, m] = found[::-1][:count]
        vectors[:, m] = columns.T[::-1][:components]
    return torch.from_numpy(values), torch.from_numpy(vectors)
