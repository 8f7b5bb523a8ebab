"""About the inverse of each place's metric B + D_m, in float32.

Far from the centre the penalty D_m outweighs B and the diagonal says nearly everything; near it B
is factored. It gives directions, never answers, so float32 is enough; what it costs decides what
solving costs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from foveapool.pooling.solvers.pencil import Pencil

# A place is near if its penalty is below this many times the mean of B's diagonal. From alpha 25
# on, at 32 x 32, a larger share costs more than the steps that it spares.
NEAR = 4.0


class Preconditioner:
    """Multiplies float32 rows (b, j, n) by about (B + D_m)^-1."""

    def __init__(self, pencil: Pencil) -> None:
        self.scale = pencil.metric_diagonal().rsqrt().float()
        own = pencil.matrices.within.diagonal(dim1=-2, dim2=-1)
        near = int((pencil.diagonal < NEAR * own.mean()).sum(1).max())
        # Half of the places or more: then take all, and the inverse is exact but for rounding.
        self.exact = 2 * near >= pencil.size
        self._near = None if self.exact else pencil.diagonal.topk(near, largest=False).indices
        self._factor = self._factored(pencil)
        self._inverse = inverse_factor(self._factor) if self._factor.is_cuda else None

    def _factored(self, pencil: Pencil) -> Tensor:
        matrix = unit_metric(pencil, self.scale, self._near)
        failed = cholesky_(matrix)
        jitter = 1e-6
        while bool(failed.any()):
            if jitter > 1:
                raise torch.linalg.LinAlgError("a metric that no diagonal makes positive")
            # Float32 could not tell this matrix from a singular one; a slightly larger diagonal is
            # still a good direction.
            matrix = matrix.clone()
            again = unit_metric(pencil, self.scale, self._near)[failed]
            again.diagonal(dim1=1, dim2=2).add_(jitter)
            chosen = failed.nonzero().flatten()
            failed[chosen] = cholesky_(again)
            matrix[chosen] = again
            jitter *= 10
        return matrix

    def __call__(self, rows: Tensor) -> Tensor:
        """About (B + D_m)^-1 times the rows, but in scaled coordinates.

        Multiply by `scale` once more to come back from them.
        """
        rows = rows * self.scale[:, None, :]
        if self._near is None:
            return self._solve(rows)
        index = self._near[:, None, :].expand(-1, rows.shape[1], -1)
        return rows.scatter(2, index, self._solve(rows.gather(2, index)))

    def _solve(self, rows: Tensor) -> Tensor:
        if self._inverse is not None:
            return (rows @ self._inverse.mT) @ self._inverse
        half = torch.linalg.solve_triangular(self._factor, rows.mT, upper=False)
        return torch.linalg.solve_triangular(self._factor.mT, half, upper=True).mT


def unit_metric(pencil: Pencil, scale: Tensor, near: Tensor | None = None) -> Tensor:
    """The metrics scaled to a unit diagonal, float32 (b, n, n), or the `near` parts of them.

    Far places weigh thousands of times the near ones; scaled, float32 is enough for them.
    """
    within = pencil.matrices.single[1]
    if near is not None:
        rows, columns = near[:, :, None], near[:, None, :]
        if pencil.matrices.shared:
            within = within[rows, columns]
        else:
            within = within[
                torch.arange(pencil.batch, device=scale.device)[:, None, None], rows, columns
            ]
        scale = scale.gather(1, near)
    shape = (pencil.batch, scale.shape[1], scale.shape[1])
    matrix = pencil.workspace.take("metric", shape, torch.float32, scale.device)
    torch.mul(within, scale[:, :, None], out=matrix)
    matrix *= scale[:, None, :]
    matrix.diagonal(dim1=1, dim2=2).fill_(1.0)
    return matrix


def cholesky_(matrix: Tensor) -> Tensor:
    """Writes the factors over the lower halves of (b, n, n); returns which ones failed, (b,).

    By halves, so that most of the work is matrix products. The upper halves are left as rubbish:
    clearing them would cost as much as factoring.
    """
    size = matrix.shape[-1]
    if size <= (1024 if matrix.is_cuda else 64):
        factor, failed = torch.linalg.cholesky_ex(matrix)
        matrix.copy_(factor)
        return failed > 0
    half = size // 2
    top, left, rest = matrix[:, :half, :half], matrix[:, half:, :half], matrix[:, half:, half:]
    failed = cholesky_(top)
    left.copy_(torch.linalg.solve_triangular(top.mT, left, upper=True, left=False))
    rest.baddbmm_(left, left.mT, alpha=-1)
    return failed | cholesky_(rest)


def inverse_factor(factor: Tensor) -> Tensor:
    """The inverse of lower triangular matrices (b, n, n), by halves: all work is matrix products.

    A GPU multiplies by an inverse many times faster than it solves with a triangle.
    """
    size = factor.shape[-1]
    if size <= 256:
        unit = torch.eye(size, dtype=factor.dtype, device=factor.device).expand_as(factor)
        return torch.linalg.solve_triangular(factor, unit, upper=False)
    half = size // 2
    inverse = torch.zeros_like(factor)
    upper, lower = inverse[:, :half, :half], inverse[:, half:, half:]
    upper.copy_(inverse_factor(factor[:, :half, :half]))
    lower.copy_(inverse_factor(factor[:, half:, half:]))
    inverse[:, half:, :half] = -(lower @ (factor[:, half:, :half] @ upper))
    return inverse
