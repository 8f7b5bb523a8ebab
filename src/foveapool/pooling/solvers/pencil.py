"""The eigenproblems of a block of output places, as every solver gets them and answers them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from foveapool.pooling.workspace import Workspace


@dataclass(frozen=True)
class Matrices:
    """A and B, float64: (n, n), shared by all output places, or (b, n, n), one pair for each."""

    between: Tensor
    within: Tensor
    rank: int | None = None  # the most that the rank of A can be, where it is known

    @property
    def shared(self) -> bool:
        """Whether all output places have the same A and B."""
        return self.between.dim() == 2

    @cached_property
    def single(self) -> tuple[Tensor, Tensor]:
        """A and B in float32, where only a direction is wanted."""
        return self.between.float(), self.within.float()


@dataclass(frozen=True)
class Pencil:
    """A p = mu (B + D_m) p for a block of output places m; D_m = alpha C_m + ridge is diagonal.

    Vectors are rows, (b, j, n): with shared matrices all products of a block are then one.
    """

    matrices: Matrices
    diagonal: Tensor  # (b, n)
    workspace: Workspace = field(default_factory=Workspace)

    @property
    def batch(self) -> int:
        """The number of output places."""
        return self.diagonal.shape[0]

    @property
    def size(self) -> int:
        """The number of input places that have a weight."""
        return self.diagonal.shape[1]

    def times_between(self, rows: Tensor) -> Tensor:
        """A v for each row v."""
        return times(rows, self.matrices.between)

    def times_metric(self, rows: Tensor) -> Tensor:
        """(B + D_m) v for each row v."""
        return times(rows, self.matrices.within).addcmul_(rows, self.diagonal[:, None, :])

    def metric(self) -> Tensor:
        """B + D_m written out, (b, n, n)."""
        full = self.matrices.within.expand(self.batch, -1, -1).clone()
        full.diagonal(dim1=1, dim2=2).add_(self.diagonal)
        return full

    def metric_diagonal(self) -> Tensor:
        """The diagonal of B + D_m, (b, n)."""
        return self.matrices.within.diagonal(dim1=-2, dim2=-1) + self.diagonal

    def part(self, chosen: Tensor | slice) -> Pencil:
        """The problems at the places `chosen`, (c,) of int64 or a slice, in the same workspace."""
        both = self.matrices
        if not both.shared:
            both = Matrices(both.between[chosen], both.within[chosen], both.rank)
        return Pencil(both, self.diagonal[chosen], self.workspace)


@dataclass(frozen=True)
class Eigenpairs:
    """The largest eigenvalues (b, k + 1), falling, and the vectors (b, k, n) of the first k.

    One eigenvalue more than vectors, because the gap behind the last vector says how far it can
    be trusted; it is 0 where the problem has no more, and the iterative solver leaves it
    up to a few hundredths of the first value too small.
    """

    values: Tensor
    vectors: Tensor

    def residuals(self, image: Tensor, metric: Tensor) -> Tensor:
        """||A p - mu (B + D) p|| / ||A p||, (b, k), from A p and (B + D) p for each vector p."""
        values = self.values[:, : self.vectors.shape[1], None]
        return relative(image - values * metric, image)


def relative(residual: Tensor, image: Tensor) -> Tensor:
    """The length of each row of `residual` in units of that of `image`."""
    return residual.norm(dim=-1) / image.norm(dim=-1).clamp(min=torch.finfo(image.dtype).tiny)


def times(rows: Tensor, matrix: Tensor) -> Tensor:
    """Rows (b, j, n) times a symmetric matrix (n, n), as one product, or times (b, n, n)."""
    if matrix.dim() == 3:
        return rows @ matrix
    # Said outright, because matmul would repeat the matrix for rows that are not contiguous.
    return (rows.reshape(-1, rows.shape[-1]) @ matrix).view(rows.shape)
