"""Small dense algebra on batches of rows (b, j, n), shared by the iterative solvers."""

from __future__ import annotations

import torch
from torch import Tensor


def unit(rows: Tensor) -> Tensor:
    """The rows with unit length."""
    return rows / rows.norm(dim=-1, keepdim=True).clamp(min=torch.finfo(rows.dtype).tiny)


def orthonormal(rows: Tensor) -> Tensor:
    """The rows, each less what it has of those before it, and of unit length."""
    rows = unit(rows)
    # Unchecked, because a check would make the GPU wait; what fails here shows in the next round.
    factor, _ = torch.linalg.cholesky_ex(shift_(rows @ rows.mT))
    return torch.linalg.solve_triangular(factor, rows, upper=False)


def shift_(gram: Tensor) -> Tensor:
    """Changes a Gram matrix of unit rows so that it can be factored, and returns it.

    Where rows are the same to the last digit, what comes of it is noise, but finite.
    """
    gram.diagonal(dim1=-2, dim2=-1).add_(64 * gram.shape[-1] * torch.finfo(gram.dtype).eps)
    return gram


def ritz(between: Tensor, factor: Tensor) -> tuple[Tensor, Tensor]:
    """All eigenvalues (b, m), falling, of small symmetric matrices, and a row for each.

    In the metric with that Cholesky factor; rows are coefficients.
    """
    half = torch.linalg.solve_triangular(factor, between, upper=False)
    reduced = torch.linalg.solve_triangular(factor, half.mT, upper=False)
    values, vectors = torch.linalg.eigh((reduced + reduced.mT) / 2)
    basis = torch.linalg.solve_triangular(factor.mT, vectors.flip(-1), upper=True).mT
    return values.flip(-1), basis
