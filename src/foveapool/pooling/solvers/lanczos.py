"""The iteration for small maps on a CPU: block Lanczos in float32, corrected in float64.

With the whole metric factored, B + D_m = L L^T, the problem is that of C = L^-1 A L^-T. Float32
finds the answer to its own precision; the residual of that, computed in float64, starts the search
for what is missing, again in float32 but relative to the residual's own size.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from foveapool.pooling.solvers.pencil import (
    Eigenpairs,
    Pencil,
    compute_relative_error,
    multiply_rows,
    orthonormalize,
    scale_metric_to_unit,
    scale_to_unit,
    solve_ritz,
)

# Directions a starting row in the first round, and a component in the later ones.
FIRST_STEPS = 6
LATER_STEPS = 3
# Rows beside the components that outlive a round.
SPARE = 4
# As many matrices as stay in a core's own cache are written and factored at a time.
CACHED = 4
ROUNDS = 20
# Above this cosine two components are no longer two, and values that fall by more have fallen.
SAME = 1e-3


def iterate_lanczos(
    pencil: Pencil, components: int, tolerance: float, start: Tensor
) -> tuple[Eigenpairs, Tensor]:
    """The best pairs found, and for which places (b,) they are good enough."""
    start = start[:, : components + 2]
    space = Space(pencil, components, start.shape[1])
    space.grow(multiply_rows(start.float(), pencil.matrices.single[0]), FIRST_STEPS)
    values = pencil.diagonal.new_zeros(pencil.batch, components + 1)
    rows = pencil.diagonal.new_empty(pencil.batch, components + 1, pencil.size)
    finished = torch.zeros(pencil.batch, dtype=torch.bool)
    left = torch.arange(pencil.batch)
    for _ in range(ROUNDS):
        found = space.answer()
        # A growing space has ever larger values. Where one falls, A had fewer directions than the
        # space has rows, and the others are rounding errors.
        fallen = values[left, :components] - found.values[..., 0] > SAME * values[left, :1]
        sound, good = ~fallen.any(1), found.good(tolerance)
        values[left, :components] = found.values[..., 0]
        rows[left, :components], rows[left, components:] = found.rows, space.following(found)
        finished[left[sound & good]] = True
        chosen = (sound & ~good).nonzero().flatten()
        if len(chosen) < len(left):
            left = left[chosen]
            if len(left) == 0:
                break
            found = space.keep(chosen)
        space.grow(scale_to_unit(found.residual).float(), LATER_STEPS)
    last = rows[:, components:]
    length = (last * pencil.times_metric(last)).sum(-1)
    values[:, components:] = (last * pencil.times_between(last)).sum(-1) / length
    return Eigenpairs(values, rows[:, :components]), finished


@dataclass(frozen=True)
class _Found:
    """The components so far, in float64, of unit length in the metric."""

    values: Tensor  # (b, k, 1)
    rows: Tensor  # (b, k, n), as the others
    image: Tensor  # A rows
    metric: Tensor  # (B + D) rows
    residual: Tensor

    @classmethod
    def of(cls, rows: Tensor, pencil: Pencil) -> _Found:
        image, metric = pencil.times_between(rows), pencil.times_metric(rows)
        length = (rows * metric).sum(-1, keepdim=True).rsqrt()
        rows, image, metric = rows * length, image * length, metric * length
        values = (rows * image).sum(-1, keepdim=True)
        return cls(values, rows, image, metric, image - values * metric)

    def good(self, tolerance: float) -> Tensor:
        """For which places (b,) the components are eigenvectors, and not the same one twice."""
        double = (self.rows @ self.metric.mT).tril(-1).abs() > SAME
        return (compute_relative_error(self.residual, self.image) <= tolerance).all(
            1
        ) & ~double.any((1, 2))

    def part(self, chosen: Tensor) -> _Found:
        return _Found(*(one[chosen] for one in vars(self).values()))


class Space:
    """Float32 rows with their coordinates L^T p and their images A p; the components come first."""

    def __init__(
        self, pencil: Pencil, components: int, width: int, steps: int = FIRST_STEPS
    ) -> None:
        self.pencil, self.components = pencil, components
        scale = pencil.metric_diagonal().rsqrt().float()
        self.factor = _factor(pencil, scale)
        self.scale = scale[:, None, :]
        later = components + SPARE + LATER_STEPS * components
        shape = (3, pencil.batch, max(steps * width, later), pencil.size)
        self.memory = pencil.workspace.take("space", shape, torch.float32, scale.device)
        self.used = 0
        self.found: _Found | None = None

    def grow(self, image: Tensor, steps: int) -> None:
        """Adds (B + D)^-1 times the image, then what (B + D)^-1 A makes of it, step by step."""
        for _ in range(steps):
            first, last = self.used, self.used + image.shape[1]
            fresh = (image * self.scale).mT
            fresh = torch.linalg.solve_triangular(self.factor, fresh, upper=False).mT
            if first:
                known = self.memory[0, :, :first]
                fresh = torch.baddbmm(fresh, fresh @ known.mT, known, alpha=-1)
            fresh = orthonormalize(fresh)
            rows = torch.linalg.solve_triangular(self.factor.mT, fresh.mT, upper=True).mT
            rows = rows * self.scale
            image = multiply_rows(rows, self.pencil.matrices.single[0])
            part = self.memory[:, :, first:last]
            part[0], part[1], part[2] = fresh, rows, image
            self.used = last

    def answer(self) -> _Found:
        """The best components in the space, which shrinks to them and a few spare rows."""
        k, rows = self.components, self.memory[1, :, : self.used]
        _, basis = solve_ritz(*self.products())
        basis = basis[:, : k + SPARE]
        single = basis.float()
        if self.found is None:
            best = (single[:, :k] @ rows).double()
        else:
            best = basis[:, :k, :k] @ self.found.rows + single[:, :k, k:] @ rows[:, k:]
        self.memory[:, :, : basis.shape[1]] = single @ self.memory[:, :, : self.used]
        self.used = basis.shape[1]
        self.found = _Found.of(best, self.pencil)
        return self.found

    def following(self, found: _Found) -> Tensor:
        """The best row behind the components, (b, 1, n).

        Where there is no further eigenvalue it is a remainder, and must have no share in them.
        """
        rows = self.memory[1, :, self.components : self.components + 1].double()
        return torch.baddbmm(rows, rows @ found.metric.mT, found.rows, alpha=-1)

    def products(self) -> tuple[Tensor, Tensor]:
        """Of all rows in A, and the Cholesky factor of those in the metric."""
        k, found = self.components, self.found
        coordinates, rows, images = self.memory[:, :, : self.used]
        metric, between = (coordinates @ coordinates.mT).double(), (rows @ images.mT).double()
        # Rows that float32 cannot tell apart are noise, but must not stop the others.
        metric.diagonal(dim1=1, dim2=2).add_(1e-6)
        if found is not None:
            between[:, :k, :k] = found.rows @ found.image.mT
            metric[:, :k, :k] = found.rows @ found.metric.mT
            # A p = mu (B + D) p + residual: whatever float32 makes of the metric, what counts is
            # the difference, and that is right to seven digits of the residual. Below the diagonal,
            # because that is where Cholesky reads, and rounding is not symmetric.
            across = metric[:, k:, :k] * found.values.mT + rows[:, k:] @ found.residual.mT.float()
            between[:, k:, :k], between[:, :k, k:] = across, across.mT
        return (between + between.mT) / 2, torch.linalg.cholesky(metric)

    def keep(self, chosen: Tensor) -> _Found:
        """Forgets all output places but the chosen ones; returns what was found for these."""
        assert self.found is not None
        self.pencil, self.found = self.pencil.part(chosen), self.found.part(chosen)
        self.factor, self.scale = self.factor[chosen], self.scale[chosen]
        self.memory = self.memory[:, chosen]
        return self.found


def _factor(pencil: Pencil, scale: Tensor) -> Tensor:
    """Lower Cholesky factors of the scaled metrics, (b, n, n)."""
    size, take = pencil.size, pencil.workspace.take
    # Columns a power of two apart share few lines of the cache, which takes LAPACK twice as long;
    # rows and columns of the identity behind the metric change nothing else.
    wide = size + 8 if size % 128 == 0 else size
    padded = take("padded", (CACHED, wide, wide), torch.float32, scale.device)
    padded[:] = torch.eye(wide)
    # Columns first, as LAPACK writes them.
    found = take("padded factor", padded.shape, torch.float32, scale.device).mT
    factor = take("factor", (pencil.batch, size, size), torch.float32, scale.device).mT
    for first in range(0, pencil.batch, CACHED):
        part = pencil.part(slice(first, first + CACHED))
        places = slice(first, first + part.batch)
        matrix, failed = padded[: part.batch], torch.empty(part.batch, dtype=torch.int32)
        matrix[:, :size, :size] = scale_metric_to_unit(part, scale[places])
        jitter = 1e-6
        while True:
            torch.linalg.cholesky_ex(matrix, out=(found[: part.batch], failed))
            if not bool(failed.any()):
                break
            if jitter > 1:
                raise torch.linalg.LinAlgError("a metric that no diagonal makes positive")
            # Float32 could not tell this matrix from a singular one; with a slightly larger
            # diagonal corrections are a little worse, and the answer is the same.
            matrix[failed > 0] += jitter * torch.eye(wide)
            jitter *= 10
        factor[places] = found[: part.batch, :size, :size]
    return factor
