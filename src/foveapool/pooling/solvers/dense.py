"""LAPACK on the whole matrix: the reference on any device, and the fastest for small maps."""

from __future__ import annotations

import torch
from torch import Tensor

from foveapool.pooling.solvers.pencil import Eigenpairs, Pencil


def solve(
    pencil: Pencil, components: int, tolerance: float = 1e-9, start: Tensor | None = None
) -> Eigenpairs:
    """All eigenpairs through the Cholesky factor of the metric; keeps the largest.

    `tolerance` and `start` are for iterative solvers; this one is as exact as float64 allows.
    """
    factor = torch.linalg.cholesky(pencil.metric())
    between = pencil.matrices.between.expand_as(factor)
    half = torch.linalg.solve_triangular(factor, between, upper=False)
    reduced = torch.linalg.solve_triangular(factor, half.mT, upper=False)
    values, vectors = torch.linalg.eigh((reduced + reduced.mT) / 2)
    top = vectors[:, :, -components:].flip(-1)
    rows = torch.linalg.solve_triangular(factor.mT, top, upper=True).mT
    values = values[:, -components - 1 :].flip(-1)
    if values.shape[1] == components:
        values = torch.nn.functional.pad(values, (0, 1))
    return Eigenpairs(values, rows)
