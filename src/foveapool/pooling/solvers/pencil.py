"""The eigenproblems of a block of output places, as every solver gets them and answers them.

With them the two solvers to compare with: LAPACK on the whole matrix, which is also the fastest for
small maps, and the paper's route, ARPACK. That takes one output place after the other, on the CPU,
and needs scipy, which is an extra.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from foveapool._suggest import how_to_install
from foveapool.pooling.gram import Workspace
from foveapool.pooling.solvers.pyramid import Pyramid

# By how much A and F^T F may differ: rounding.
SAME_MATRIX = 1e-12


@dataclass(frozen=True)
class Matrices:
    """A and B, float64: (n, n), shared by all output places, or (b, n, n), one pair for each."""

    between: Tensor
    within: Tensor
    rank: int | None = None  # the most that the rank of A can be, where it is known
    shape: tuple[int, ...] | None = None  # the map's, where rows and columns are all its places

    @property
    def shared(self) -> bool:
        """Whether all output places have the same A and B."""
        return self.between.dim() == 2

    @cached_property
    def single(self) -> tuple[Tensor, Tensor]:
        """A and B in float32, where only a direction is wanted."""
        return self.between.float(), self.within.float()

    @cached_property
    def pyramid(self) -> Pyramid:
        """The blocks of the map, where its shape is known."""
        assert self.shape is not None, "blocks are of a map whose shape is known"
        return Pyramid(self.shape)

    @cached_property
    def joined(self) -> tuple[Tensor, Tensor]:
        """A and B between the blocks of all levels of `pyramid`, float32."""
        return self.pyramid.join(self.between), self.pyramid.join(self.within)

    @cached_property
    def root(self) -> Tensor | None:
        """F (r, n), A = F^T F but for rounding, where A has so low a rank that it spares work."""
        size, rank = len(self.between), self.rank
        if rank is None or 3 * rank > size:
            return None
        generator = torch.Generator().manual_seed(0)
        random = torch.randn(size, rank, generator=generator, dtype=self.between.dtype)
        basis, _ = torch.linalg.qr(self.between @ random)
        values, vectors = torch.linalg.eigh(basis.mT @ self.between @ basis)
        root = (basis @ (vectors * values.clamp(min=0).sqrt())).mT.contiguous()
        # Answers are measured with it, so that a rank that was told wrong must not pass.
        probe = torch.randn(8, size, generator=generator, dtype=root.dtype)
        image = probe @ self.between
        lost = image - (probe @ root.mT) @ root
        return root if bool(lost.norm() <= SAME_MATRIX * image.norm()) else None

    @cached_property
    def single_root(self) -> tuple[Tensor, Tensor] | None:
        """The same and its transpose, each contiguous, in float32."""
        if self.root is None:
            return None
        single = self.root.float()
        return single, single.mT.contiguous()

    def prepare(self) -> None:
        """Computes what solvers of large maps share, with all threads, before they share it."""
        for name in ("single", "joined", "single_root"):
            getattr(self, name)

    def times_between_by_root(self, rows: Tensor) -> Tensor:
        """A v for each row v, float32 or float64, by `root` where it spares work."""
        is_single = rows.dtype == torch.float32
        if self.root is None or self.single_root is None:
            return multiply_rows(rows, self.single[0] if is_single else self.between)
        root, transposed = self.single_root if is_single else (self.root, self.root.mT)
        return multiply_linear(multiply_linear(rows, root), transposed)


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
        return multiply_rows(rows, self.matrices.between)

    def times_metric(self, rows: Tensor) -> Tensor:
        """(B + D_m) v for each row v."""
        return self.times_within(rows).addcmul_(rows, self.diagonal[:, None, :])

    def times_within(self, rows: Tensor) -> Tensor:
        """B v for each row v."""
        return multiply_rows(rows, self.matrices.within)

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

    A solver that computed them gives A p and B p of the vectors too, (2, b, k, n).
    """

    values: Tensor
    vectors: Tensor
    images: Tensor | None = None

    def residuals(self, image: Tensor, metric: Tensor) -> Tensor:
        """||A p - mu (B + D) p|| / ||A p||, (b, k), from A p and (B + D) p for each vector p."""
        values = self.values[:, : self.vectors.shape[1], None]
        return compute_relative_error(image - values * metric, image)


def compute_relative_error(residual: Tensor, image: Tensor) -> Tensor:
    """The length of each row of `residual` in units of that of `image`."""
    return residual.norm(dim=-1) / image.norm(dim=-1).clamp(min=torch.finfo(image.dtype).tiny)


def multiply_rows(rows: Tensor, matrix: Tensor) -> Tensor:
    """Rows (b, j, n) times a symmetric matrix (n, n), as one product, or times (b, n, n)."""
    if matrix.dim() == 3:
        return rows @ matrix
    return multiply_linear(rows, matrix)


def multiply_linear(rows: Tensor, matrix: Tensor) -> Tensor:
    """Rows (b, j, n) times the transpose of a matrix (m, n), as one product."""
    # Said outright, because matmul would repeat the matrix for rows that are not contiguous.
    flat = rows.reshape(-1, rows.shape[-1])
    is_single = flat.dtype == torch.float32 and flat.device.type == "cpu"
    if is_single and torch.backends.mkldnn.is_available():
        # oneDNN uses all that the CPU has, where MKL leaves AVX-512 idle on other makers' CPUs.
        product = functional.linear(flat.to_mkldnn(), matrix).to_dense()
    else:
        product = flat @ matrix.mT
    return product.view(*rows.shape[:-1], len(matrix))


def scale_to_unit(rows: Tensor) -> Tensor:
    """The rows with unit length."""
    return rows / rows.norm(dim=-1, keepdim=True).clamp(min=torch.finfo(rows.dtype).tiny)


def orthonormalize(rows: Tensor) -> Tensor:
    """The rows, each less what it has of those before it, and of unit length."""
    rows = scale_to_unit(rows)
    # Unchecked, because a check would make the GPU wait; what fails here shows in the next round.
    factor, _ = torch.linalg.cholesky_ex(shift_diagonal_(rows @ rows.mT))
    return torch.linalg.solve_triangular(factor, rows, upper=False)


def shift_diagonal_(gram: Tensor) -> Tensor:
    """Changes a Gram matrix of unit rows so that it can be factored, and returns it.

    Where rows are the same to the last digit, what comes of it is noise, but finite.
    """
    gram.diagonal(dim1=-2, dim2=-1).add_(64 * gram.shape[-1] * torch.finfo(gram.dtype).eps)
    return gram


def solve_ritz(between: Tensor, factor: Tensor) -> tuple[Tensor, Tensor]:
    """All eigenvalues (b, m), falling, of small symmetric matrices, and a row for each.

    In the metric with that Cholesky factor; rows are coefficients.
    """
    half = torch.linalg.solve_triangular(factor, between, upper=False)
    reduced = torch.linalg.solve_triangular(factor, half.mT, upper=False)
    values, vectors = torch.linalg.eigh((reduced + reduced.mT) / 2)
    basis = torch.linalg.solve_triangular(factor.mT, vectors.flip(-1), upper=True).mT
    return values.flip(-1), basis


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
        matrix = scale_metric_to_unit(pencil, self.scale, self._near)
        failed = cholesky_(matrix)
        jitter = 1e-6
        while bool(failed.any()):
            if jitter > 1:
                raise torch.linalg.LinAlgError("a metric that no diagonal makes positive")
            # Float32 could not tell this matrix from a singular one; a slightly larger diagonal is
            # still a good direction.
            matrix = matrix.clone()
            again = scale_metric_to_unit(pencil, self.scale, self._near)[failed]
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


def scale_metric_to_unit(pencil: Pencil, scale: Tensor, near: Tensor | None = None) -> Tensor:
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


def solve_dense(
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
        values = functional.pad(values, (0, 1))
    return Eigenpairs(values, rows)


def solve_arpack(
    pencil: Pencil, components: int, tolerance: float = 1e-9, start: Tensor | None = None
) -> Eigenpairs:
    """ARPACK's implicitly restarted Arnoldi iteration, to machine precision.

    `tolerance` is not handed on: ARPACK measures in another norm, and its default is the safe one.
    """
    try:
        from scipy.linalg import eigh
        from scipy.sparse.linalg import eigs
    except ImportError as error:
        raise ValueError(
            f"solver: got 'arpack', which needs scipy; {how_to_install('arpack')}, or take "
            "'krylov' or 'dense'"
        ) from error
    wanted = components + 1
    if wanted > pencil.size - 2:
        raise ValueError(
            f"solver: got 'arpack' for {components} components of {pencil.size} places, wanted "
            f"{components + 3} places or more; take solver='dense'"
        )
    values = np.empty((pencil.batch, wanted))
    vectors = np.empty((pencil.batch, components, pencil.size))
    matrices = pencil.matrices
    metric = pencil.metric().cpu().numpy()
    for place in range(pencil.batch):
        between = (matrices.between if matrices.shared else matrices.between[place]).cpu().numpy()
        # A fixed start makes the answer the same every time.
        begin = np.random.default_rng(0).standard_normal(pencil.size)
        found, columns = eigs(between, k=wanted, M=metric[place], which="LR", v0=begin)
        order = np.argsort(-found.real)
        rows = columns.real.T[order]
        if _has_parallel_rows(rows, metric[place]):
            # Of equal eigenvalues the iteration can give one vector twice.
            last = pencil.size - 1
            top = {"subset_by_index": (last - components, last)}
            found, columns = eigh(between, metric[place], **top)
            order, rows = np.argsort(-found), columns.T[::-1]
        values[place] = found.real[order]
        vectors[place] = rows[:components]
    return Eigenpairs(
        torch.from_numpy(values).to(pencil.diagonal), torch.from_numpy(vectors).to(pencil.diagonal)
    )


def _has_parallel_rows(rows: np.ndarray, metric: np.ndarray) -> bool:
    """Whether two of the rows are not orthogonal in the metric, as eigenvectors would be."""
    products = rows @ metric @ rows.T
    lengths = np.sqrt(products.diagonal())
    return bool(np.abs(np.triu(products, 1) / np.outer(lengths, lengths)).max() > 1e-6)
