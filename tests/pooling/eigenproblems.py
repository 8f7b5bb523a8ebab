"""Blocks of eigenproblems A p = mu (B + alpha C_m) p for the solvers, and what scipy says of them.

Maps have more places than the iterative solver hands to LAPACK at once, so that it does the work.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
import scipy.linalg
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from foveapool.pooling import grid
from foveapool.pooling.accumulate import compute_scatter
from foveapool.pooling.scatter import Scatter
from foveapool.pooling.solvers import SOLVERS, Eigenpairs, Matrices, Pencil, Solver, krylov

Array = NDArray[np.float64]
Shape = tuple[int, ...]


def krylov_of_large_maps(
    pencil: Pencil, components: int, tolerance: float = 1e-8, start: Tensor | None = None
) -> Eigenpairs:
    """The default solver without its own way with small maps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(krylov, "SMALL", 0)
        return krylov.solve_krylov(pencil, components, tolerance, start)


def multilevel(
    pencil: Pencil, components: int, tolerance: float = 1e-8, start: Tensor | None = None
) -> Eigenpairs:
    """The default solver's way with the largest maps, where they share A and B."""
    shape = {144: (12, 12), 200: (20, 10), 256: (16, 16)}.get(pencil.size)
    both = replace(pencil.matrices, shape=shape if pencil.matrices.shared else None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(krylov.multilevel, "SMALLEST", 0)
        patch.setattr(krylov.multilevel, "NEAREST", (2, 5))
        return krylov_of_large_maps(replace(pencil, matrices=both), components, tolerance, start)


ROUTES: dict[str, Solver] = {
    **SOLVERS,
    "krylov of large maps": krylov_of_large_maps,
    "multilevel": multilevel,
}
NAMES = sorted(ROUTES)
iterative = pytest.mark.parametrize("route", ["krylov", "krylov of large maps", "multilevel"])
# In shape, out shape, window: shared matrices twice, matrices of its own for each place once.
CASES: dict[str, tuple[Shape, Shape, int | None]] = {
    "square": ((12, 12), (4, 3), None),
    "oblong": ((20, 10), (4, 3), None),
    "windowed": ((20, 10), (5, 2), 6),
}
ALPHAS = (1.0, 25.0, 400.0, 5000.0)

solvers = pytest.mark.parametrize("solver", NAMES)
cases = pytest.mark.parametrize("case", list(CASES))
alphas = pytest.mark.parametrize("alpha", ALPHAS)


def smooth(count: int, channels: int, shape: Shape, generator: torch.Generator) -> Tensor:
    """White noise, blurred: neighboring pixels agree, as in feature maps."""
    maps = torch.randn(count, channels, *shape, generator=generator, dtype=torch.float64)
    for _ in range(2):
        maps = functional.avg_pool2d(maps, 3, stride=1, padding=1)
    return maps / maps.std()


@cache
def smooth_scatter(shape: Shape, classes: int = 10, channels: int = 8) -> Scatter:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(20 * classes) % classes
    means = smooth(classes, channels, shape, generator)
    maps = smooth(len(labels), channels, shape, generator)
    return compute_scatter(maps + 0.5 * means[labels], labels)


@dataclass(frozen=True)
class Case:
    """A block of eigenproblems, and what scipy says of them, largest eigenvalue first."""

    pencil: Pencil
    between: list[Array]
    metric: list[Array]
    values: Array
    vectors: Array  # (b, n, n), one vector a row


def posed(between: Tensor, within: Tensor, diagonal: Tensor) -> Case:
    """The problems with A and B, (n, n) or (b, n, n), and the diagonals D (b, n)."""
    A = [one.numpy() for one in between.expand(len(diagonal), *between.shape[-2:])]
    B = [one.numpy() for one in within.expand(len(diagonal), *within.shape[-2:])]
    metric = [b + np.diag(d) for b, d in zip(B, diagonal.numpy(), strict=True)]
    exact = [scipy.linalg.eigh(a, b) for a, b in zip(A, metric, strict=True)]
    values = np.stack([w[::-1] for w, _ in exact])
    vectors = np.stack([v.T[::-1] for _, v in exact])
    return Case(Pencil(Matrices(between, within), diagonal), A, metric, values, vectors)


@cache
def realistic(case: str, alpha: float) -> Case:
    in_shape, out_shape, window = CASES[case]
    scatter = smooth_scatter(in_shape)
    penalty = grid.penalty(in_shape, out_shape)
    if window is None:
        return posed(scatter.between, scatter.within, alpha * penalty)
    index = grid.windows(in_shape, out_shape, window)
    return posed(*scatter.blocks(index), alpha * penalty.gather(1, index))


def residuals(case: Case, pairs: Eigenpairs) -> Array:
    """||A p - mu (B + D) p|| / ||A p||, written out."""
    found = np.zeros(pairs.vectors.shape[:2])
    for (m, i), _ in np.ndenumerate(found):
        p, mu = pairs.vectors[m, i].numpy(), float(pairs.values[m, i])
        image = case.between[m] @ p
        found[m, i] = np.linalg.norm(image - mu * (case.metric[m] @ p)) / np.linalg.norm(image)
    return found


def zeros(*shape: int) -> Tensor:
    return torch.zeros(*shape, dtype=torch.float64)
