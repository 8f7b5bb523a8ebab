"""The default solver: block Krylov-Davidson iteration, batched over output places, CPU and GPU.

Directions are float32: residuals and their Krylov continuations under (B + D_m)^-1 A, through one
float32 factor a place. Answers are float64: Rayleigh-Ritz in the space of all directions so far.
One or two dozen directions a component suffice where a full eigendecomposition finds them all.
On a CPU small maps have an iteration of their own, `lanczos.py`, and large ones another,
`multilevel.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from foveapool.pooling.solvers import lanczos, multilevel
from foveapool.pooling.solvers.pencil import (
    Eigenpairs,
    Pencil,
    Preconditioner,
    compute_relative_error,
    multiply_rows,
    orthonormalize,
    scale_to_unit,
    shift_diagonal_,
    solve_dense,
    solve_ritz,
)

Iteration = Callable[[Pencil, int, float, Tensor], tuple[Eigenpairs, Tensor]]

# cuSOLVER diagonalises a batch of matrices up to this size at once, and one by one above it.
LARGEST_SPACE = {"cuda": 32, "cpu": 48}
# Directions a component in the first round and in the later ones; a GPU spares rounds, not rows.
FIRST_STEPS = 8
LATER_STEPS = {"cuda": 4, "cpu": 2}
ROUNDS = 60
# How much of a random row goes into one of the start.
GRAIN = 0.1
# Up to this size a CPU factors the whole metric of each place.
SMALL = 400


def solve_krylov(
    pencil: Pencil, components: int, tolerance: float = 1e-8, start: Tensor | None = None
) -> Eigenpairs:
    """The top `components` to a residual of `tolerance`, from the rows of `start` (b, j, n).

    Places that do not get there (clustered eigenvalues, say) are handed to the dense solver.
    """
    if pencil.size <= 2 * _count_directions(pencil, components):
        return solve_dense(pencil, components)
    if start is None:
        start = draw_random_rows(pencil, 2 * components)
    missing = components + 1 - start.shape[1]
    if missing > 0:
        start = torch.cat((start, draw_random_rows(pencil, missing)), 1)
    # One row gets a share in every eigenvector. Where places know nothing of each other, a search
    # that starts near the center, or from another answer, would never hear of the others.
    start = scale_to_unit(start)
    start[:, components] += GRAIN * scale_to_unit(draw_random_rows(pencil, 1))[:, 0]
    if multilevel.suits(pencil, components):
        pairs, finished = _try(multilevel.iterate_multilevel, pencil, components, tolerance, start)
        # The other iteration takes more memory for each place.
        parts = (~finished).nonzero().flatten().split(max(1, pencil.batch // 4))
        return _complete(
            pairs, parts, lambda i: _search(pencil.part(i), components, tolerance, start[i])
        )
    return _search(pencil, components, tolerance, start)


def _count_directions(pencil: Pencil, components: int) -> int:
    """The most directions that are searched at once."""
    return max(LARGEST_SPACE.get(pencil.diagonal.device.type, 48), 4 * components)


def _search(pencil: Pencil, components: int, tolerance: float, start: Tensor) -> Eigenpairs:
    """The pairs, by the iteration that suits the size of the maps, or by the dense solver."""
    # Lanczos' first round wants more directions than an A of low rank has.
    rank = pencil.matrices.rank or pencil.size
    plenty = rank >= 2 * lanczos.FIRST_STEPS * start.shape[1]
    is_small = pencil.diagonal.device.type == "cpu" and pencil.size <= SMALL and plenty
    iterate = lanczos.iterate_lanczos if is_small else _iterate
    pairs, finished = _try(iterate, pencil, components, tolerance, start)
    # LAPACK takes ten times the memory of a place, so fewer places at a time.
    parts = (~finished).nonzero().flatten().split(max(1, pencil.batch // 10))
    return _complete(pairs, parts, lambda i: solve_dense(pencil.part(i), components))


def _try(
    iterate: Iteration, pencil: Pencil, components: int, tolerance: float, start: Tensor
) -> tuple[Eigenpairs, Tensor]:
    """The pairs that an iteration finds, and for which places (b,) they are good enough."""
    try:
        return iterate(pencil, components, tolerance, start)
    except torch.linalg.LinAlgError:
        # All directions have become the same: rounding left nothing to search with.
        values = pencil.diagonal.new_zeros(pencil.batch, components + 1)
        vectors = pencil.diagonal.new_zeros(pencil.batch, components, pencil.size)
        finished = torch.zeros(pencil.batch, dtype=torch.bool, device=values.device)
        return Eigenpairs(values, vectors), finished


def _complete(
    pairs: Eigenpairs, parts: Sequence[Tensor], solve: Callable[[Tensor], Eigenpairs]
) -> Eigenpairs:
    """The pairs, those of the places in `parts` found anew."""
    if not sum(map(len, parts)):
        return pairs
    values, vectors = pairs.values.clone(), pairs.vectors.clone()
    for places in parts:
        exact = solve(places)
        values[places], vectors[places] = exact.values, exact.vectors
    return Eigenpairs(values, vectors)


def _iterate(
    pencil: Pencil, components: int, tolerance: float, start: Tensor
) -> tuple[Eigenpairs, Tensor]:
    """The best pairs found, and for which places (b,) they are good enough."""
    largest = _count_directions(pencil, components)
    space = _Space(pencil, largest)
    space.add(start[:, : largest // 2])
    direction, filler = _Directions(pencil), draw_random_rows(pencil, components)
    steps = FIRST_STEPS
    for searched in range(ROUNDS):
        pairs, residual, error = space.rayleigh_ritz(components)
        good = error <= tolerance
        finished = good.all(1)
        # Not before anything was searched: the start may be eigenvectors, but not the largest.
        if searched and bool(finished.all()):
            break
        if space.used + components > largest:
            space.restart(largest // 2)
        steps = min(steps, (largest - space.used) // components)
        # A good component has nothing left to ask for but rounding errors.
        residual = torch.where(good[..., None], filler, residual)
        space.add(direction(residual, pairs.values[:, :components], steps))
        steps = LATER_STEPS.get(pencil.diagonal.device.type, 2)
    return pairs, finished


def draw_random_rows(pencil: Pencil, count: int) -> Tensor:
    """Starting rows for a problem of which nothing is known, the same on every device."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(count, pencil.size, generator=generator, dtype=torch.float64)
    return rows.to(pencil.diagonal).expand(pencil.batch, -1, -1)


class _Directions:
    """Where to look next, in float32."""

    def __init__(self, pencil: Pencil) -> None:
        self._pencil = pencil
        self._precondition = Preconditioner(pencil)
        self._diagonal = pencil.diagonal.float()[:, None, :]

    def __call__(self, residual: Tensor, values: Tensor, steps: int) -> Tensor:
        """The preconditioned residuals and what comes of them, rows (b, steps * k, n), float64.

        Each further step is A - mu (B + D) and the preconditioner.
        """
        batch, components, size = residual.shape
        rows = residual.new_empty(batch, steps * components, size, dtype=torch.float32)
        scale = self._precondition.scale[:, None, :]
        between, within = self._pencil.matrices.single
        image = scale_to_unit(residual).float()
        for step in range(steps):
            first, last = step * components, (step + 1) * components
            # Rows are kept in the preconditioner's coordinates, in which the metric is near enough
            # to the plain one that orthogonal rows stay far from dependent.
            fresh = scale_to_unit(self._precondition(image))
            if first:
                before = rows[:, :first]
                fresh = orthonormalize(fresh - (fresh @ before.mT) @ before)
            rows[:, first:last] = fresh
            if step < steps - 1:
                fresh = fresh * scale
                image = multiply_rows(fresh, between)
                # An exact inverse would give (B + D) fresh back as the row it came from.
                if not self._precondition.exact:
                    metric = multiply_rows(fresh, within).addcmul_(fresh, self._diagonal)
                    image -= values[..., None].float() * metric
        return rows.double() * scale


class _Space:
    """A growing space of rows with their images under A and the metric, and all inner products."""

    def __init__(self, pencil: Pencil, largest: int) -> None:
        self.pencil = pencil
        shape = (3, pencil.batch, largest, pencil.size)
        diagonal = pencil.diagonal
        # Rows, A rows, metric rows. Images are only ever computed, never combined from others, as
        # long as the space grows: combining loses digits where rows are nearly dependent.
        self.memory = pencil.workspace.take("space", shape, diagonal.dtype, diagonal.device)
        # In units of the metric's diagonal the plain inner product comes near to the metric's.
        self.weight = pencil.metric_diagonal().sqrt()[:, None, :]
        self.gram = diagonal.new_zeros(2, pencil.batch, largest, largest)
        self.used = self.rounds = 0

    def add(self, rows: Tensor) -> None:
        """Takes new directions in, less what the space has of them already."""
        first, pencil = self.used, self.pencil
        known = self.memory[:, :, :first]
        # Twice: a direction that is nearly known comes out small, and dirty, the first time. What
        # is left of several is often the same, so they are taken apart in the cheap norm too.
        # The first directions of all have little to do with the start: once will do.
        for _ in range(min(self.rounds, 2)):
            overlap = (rows @ known[2].mT).mT
            rows = rows - torch.cholesky_solve(overlap, self.factor).mT @ known[0]
            rows = orthonormalize(rows * self.weight) / self.weight
        self.rounds += 1
        self.used = last = first + rows.shape[1]
        fresh = self.memory[:, :, first:last]
        fresh[0], fresh[1], fresh[2] = rows, pencil.times_between(rows), pencil.times_metric(rows)
        fresh /= (fresh[0] * fresh[2]).sum(-1, keepdim=True).sqrt()
        part = fresh[0] @ self.memory[1:, :, :last].mT
        self.gram[:, :, first:last, :last] = part
        self.gram[:, :, :last, first:last] = part.mT

    def rayleigh_ritz(self, components: int) -> tuple[Eigenpairs, Tensor, Tensor]:
        """The best pairs in the space, their residuals (b, k, n), and how large these are."""
        between, metric = self.gram[:, :, : self.used, : self.used]
        self.factor = torch.linalg.cholesky(shift_diagonal_(metric.clone()))
        values, self.basis = solve_ritz(between, self.factor)
        values = values[:, : components + 1]
        rows, image, metric = self.basis[:, :components] @ self.memory[:, :, : self.used]
        residual = image - values[:, :components, None] * metric
        return Eigenpairs(values, rows), residual, compute_relative_error(residual, image)

    def restart(self, keep: int) -> None:
        """Shrinks the space to its best `keep` rows."""
        self.memory[:, :, :keep] = self.basis[:, :keep] @ self.memory[:, :, : self.used]
        self.used = keep
        rows = self.memory[0, :, :keep]
        self.gram[:, :, :keep, :keep] = rows @ self.memory[1:, :, :keep].mT
        self.factor = torch.linalg.cholesky(shift_diagonal_(self.gram[1, :, :keep, :keep].clone()))
