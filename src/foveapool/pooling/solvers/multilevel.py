"""The iteration for large maps on a CPU: Davidson's, preconditioned on grids that coarsen outwards.

Far from its center an eigenvector is small and smooth. So the problem of a place is first solved on
single pixels near the center, blocks of two pixels a side around them and of four beyond: some
hundred unknowns instead of thousands. The factor of that small metric, with the eigenvectors found
there taken out of the way of others, says where to look next on the whole map.

Rows and their images are float32. Once the answer is good to some digits its images are computed in
float64; what is added from then on is so small that float32 is enough for it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from foveapool.pooling.solvers import lanczos
from foveapool.pooling.solvers.pencil import (
    Eigenpairs,
    Matrices,
    Pencil,
    compute_relative_error,
    multiply_rows,
    orthonormalize,
    scale_to_unit,
    shift_diagonal_,
    solve_ritz,
)
from foveapool.pooling.solvers.pyramid import Pyramid

# Of the largest blocks so many, the nearest to the center, are taken apart into pixels; those after
# them, up to the second number, into blocks of the second level.
NEAREST = (9, 25)
# Beyond these the penalty is at least so many times the mean of B's diagonal: where it is less,
# eigenvectors are not yet small and smooth there.
LOCAL = 0.5
# Eigenvectors of the small problem that are taken out, and Krylov steps to find them.
TAKEN_OUT, STEPS = 8, 6
# Of these eigenvalues and the one that is looked for, so near that neither is before the other.
SAME = 0.02
# Below this residual the images of the answer are computed in float64.
SETTLED = 1e-3
# Rows a component that go on from there; all others would only make every round longer.
KEPT = 3
# What float32 leaves of a residual, in units of that for which images were computed last.
ROUNDING = 1e-5
# What float32 leaves of an eigenvalue, in units of the first.
SLACK = 1e-6
# How much of a random row goes into one of the start.
GRAIN = 0.1
ROUNDS, EARLY = 40, 4
# Smaller maps have an iteration of their own, `lanczos.py`.
SMALLEST = 400


class _SmallProblem:
    """The problems of some places on grids that coarsen away from their centers."""

    def __init__(self, pencil: Pencil, components: int, start: Tensor) -> None:
        pyramid = pencil.matrices.pyramid
        self._lay_out(pencil.diagonal, pyramid)
        between, within = (self._cut(matrix) for matrix in pencil.matrices.joined)
        diagonal = self.restrict((pencil.diagonal.float() * self._unit)[:, None])[:, 0]
        diagonal[self._unknowns == pyramid.none] = 1
        small = Pencil(Matrices(between, within), diagonal)
        width = min(components + 2, self.size // STEPS)
        space = lanczos.Space(small, components, width, STEPS)
        random = torch.randn(width, self.size, generator=torch.Generator().manual_seed(0)).expand(
            pencil.batch, -1, -1
        )
        rows = torch.cat((self.restrict(start.float())[:, : components + 1], random), 1)[:, :width]
        space.grow(multiply_rows(scale_to_unit(rows), between), STEPS)
        values, basis = solve_ritz(*space.products())
        self.values = values[:, : components + TAKEN_OUT].float()
        self.vectors = basis[:, : components + TAKEN_OUT].float() @ space.memory[1, :, : space.used]
        self._factor, self._scale = space.factor, space.scale
        self._rest = pencil.metric_diagonal().reciprocal().float()[:, None]

    def _lay_out(self, diagonal: Tensor, pyramid: Pyramid) -> None:
        """Says for each place which unknowns it has, and which of them each pixel belongs to."""
        batch, blocks = len(diagonal), len(pyramid.size)
        fine, middle = (min(count, blocks) for count in NEAREST)
        order = pyramid.average(diagonal).argsort(1)
        parts = (order[:, :fine], order[:, fine:middle], order[:, middle:])
        chosen = [
            children[part].flatten(1)
            for children, part in zip(pyramid.children, parts, strict=True)
        ]
        self._unknowns = torch.cat(chosen, 1)
        self.size = self._unknowns.shape[1]
        numbers = torch.arange(blocks).expand(batch, -1)
        rank = torch.empty_like(order).scatter_(1, order, numbers)[:, pyramid.parent]
        self._member = torch.empty_like(rank)
        self._unit = torch.empty(rank.shape)
        first = begin = 0
        for part, children, inside, unit in zip(
            parts, pyramid.children, pyramid.order, pyramid.unit, strict=True
        ):
            width, end = children.shape[1], begin + part.shape[1]
            here = (rank >= begin) & (rank < end)
            self._member = torch.where(here, first + width * (rank - begin) + inside, self._member)
            self._unit = torch.where(here, unit.float(), self._unit)
            first, begin = first + width * part.shape[1], end

    def _cut(self, matrix: Tensor) -> Tensor:
        """Of a matrix between all blocks, for each place what is between its unknowns."""
        found = matrix.new_empty(len(self._unknowns), self.size, self.size)
        for own, unknowns in zip(found, self._unknowns, strict=True):
            own.copy_(matrix.index_select(0, unknowns).index_select(1, unknowns))
        return found

    def restrict(self, rows: Tensor) -> Tensor:
        """Rows (b, j, n) on the small grid."""
        index = self._member[:, None].expand(-1, rows.shape[1], -1)
        small = rows.new_zeros(*rows.shape[:2], self.size)
        return small.scatter_add_(2, index, rows * self._unit[:, None])

    def prolong(self, rows: Tensor) -> Tensor:
        """Rows of the small grid on the whole map, (b, j, n)."""
        index = self._member[:, None].expand(-1, rows.shape[1], -1)
        return rows.gather(2, index) * self._unit[:, None]

    def correct(self, residual: Tensor, values: Tensor, which: Tensor) -> Tensor:
        """About (B + D - A / mu)^-1 times the residuals of the components `which`, both (b, j)."""
        small = self.restrict(residual)
        half = torch.linalg.solve_triangular(self._factor, (small * self._scale).mT, upper=False)
        found = torch.linalg.solve_triangular(self._factor.mT, half, upper=True).mT * self._scale
        values, own = values[:, :, None], self.values[:, None]
        away = values - own
        gain = torch.where(away.abs() < SAME * values, 0.0, own / away)
        # The vector that is looked for is there already; of it more is not wanted.
        gain.scatter_(2, which[:, :, None], 0.0)
        found = found + ((small @ self.vectors.mT) * gain) @ self.vectors
        return self.prolong(found) + (residual - self.prolong(small)) * self._rest

    def keep(self, chosen: Tensor) -> None:
        """Forgets all places but the chosen ones."""
        for name in ("_member", "_unit", "_factor", "_scale", "_rest", "values", "vectors"):
            setattr(self, name, getattr(self, name)[chosen])


class _Space:
    """A growing space of float32 rows with their images under A and the metric.

    Once `settle` was called the first of them are the answer at that time, in float64 too.
    """

    def __init__(self, pencil: Pencil, components: int, largest: int) -> None:
        self.pencil, self.components, self.largest = pencil, components, largest
        shape = (3, pencil.batch, largest, pencil.size)
        self.memory = pencil.workspace.take("rows", shape, torch.float32, pencil.diagonal.device)
        self.gram = pencil.diagonal.new_zeros(2, pencil.batch, largest, largest)
        # In units of the metric's diagonal the plain inner product comes near to the metric's.
        self.weight = pencil.metric_diagonal().sqrt().float()[:, None]
        self.diagonal = pencil.diagonal.float()[:, None]
        self.answer: Tensor | None = None
        self.used = 0

    def add(self, rows: Tensor) -> None:
        """Takes new directions in, less what the space has of them already."""
        first = self.used
        known = self.memory[:, :, :first]
        rows = scale_to_unit(rows * self.weight) / self.weight
        if first:
            overlap = (rows @ known[2].mT).double()
            share = torch.cholesky_solve(overlap.mT, self.factor).mT.float()
            rows = torch.baddbmm(rows, share, known[0], alpha=-1)
        rows = orthonormalize(rows * self.weight) / self.weight
        self.used = last = first + rows.shape[1]
        fresh = self.memory[:, :, first:last]
        matrices = self.pencil.matrices
        fresh[0] = rows
        fresh[1] = matrices.times_between_by_root(rows)
        fresh[2] = multiply_rows(rows, matrices.single[1]).addcmul_(rows, self.diagonal)
        fresh /= (fresh[0] * fresh[2]).sum(-1, keepdim=True).sqrt()
        self._multiply(first, last)

    def _multiply(self, first: int, last: int) -> None:
        """Writes the products of some rows with all before them and with each other."""
        rows = self.memory[0, :, first:last]
        part = (rows @ self.memory[1:, :, :last].mT).double()
        if self.answer is not None:
            k = self.components
            part[..., :k] = rows.double() @ self.answer[1:].mT
            if not first:
                part[..., :k, :] = part[..., :k].mT
        self.gram[:, :, first:last, :last] = part
        self.gram[:, :, :last, first:last] = part.mT

    def rayleigh_ritz(self, more: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        """The best values in the space, the residuals (b, k, n), and how large these are.

        The residuals of as many `more` pairs behind them come with these.
        """
        wanted = self.components + more
        between, metric = self.gram[:, :, : self.used, : self.used]
        self.factor = torch.linalg.cholesky(shift_diagonal_(metric.clone()))
        values, self.basis = solve_ritz(between, self.factor)
        image, metric = self._combine(wanted, slice(1, 3))
        residual = image - values[:, :wanted, None] * metric
        values = values[:, : self.components + 1]
        return values, residual, compute_relative_error(residual, image)

    def vectors(self) -> Tensor:
        """The best rows in the space, (b, k, n), as `rayleigh_ritz` found them."""
        return self._combine(self.components, slice(1))[0]

    def _combine(self, count: int, parts: slice) -> Tensor:
        """Of the `count` best rows and their images those `parts`, float64."""
        k, share = self.components if self.answer is not None else 0, self.basis[:, :count]
        found = (share[:, :, k:].float() @ self.memory[parts, :, k : self.used]).double()
        return found if self.answer is None else found + share[:, :, :k] @ self.answer[parts]

    def settle(self) -> None:
        """Computes the images of the answer in float64, from which it goes on."""
        rows = self.vectors()
        between = self.pencil.matrices.times_between_by_root(rows)
        images = between, self.pencil.times_metric(rows)
        self._restart(torch.stack((rows, *images)), min(self.used, KEPT * self.components))

    def shrink(self) -> None:
        """Keeps the best half of the space."""
        answer = None if self.answer is None else self._combine(self.components, slice(3))
        self._restart(answer, self.largest // 2)

    def _restart(self, answer: Tensor | None, keep: int) -> None:
        k = self.components
        self.memory[:, :, :keep] = self.basis[:, :keep].float() @ self.memory[:, :, : self.used]
        self.answer, self.used = answer, keep
        if answer is not None:
            self.memory[:, :, :k] = answer
        self._multiply(0, keep)
        if answer is not None:
            exact = answer[0] @ answer[1:].mT
            self.gram[:, :, :k, :k] = (exact + exact.mT) / 2
        metric = self.gram[1, :, :keep, :keep]
        self.factor = torch.linalg.cholesky(shift_diagonal_(metric.clone()))

    def keep(self, chosen: Tensor) -> None:
        """Forgets all places but the chosen ones."""
        self.pencil = self.pencil.part(chosen)
        self.memory, self.gram = self.memory[:, chosen], self.gram[:, chosen]
        for name in ("weight", "diagonal", "factor", "basis"):
            setattr(self, name, getattr(self, name)[chosen])
        if self.answer is not None:
            self.answer = self.answer[:, chosen]


def suits(pencil: Pencil, components: int) -> bool:
    """Whether the problems are ones for this iteration: large, of one map, with near answers."""
    matrices = pencil.matrices
    if pencil.diagonal.device.type != "cpu" or matrices.shape is None or not matrices.shared:
        return False
    # The first steps want more directions than an A of low rank has.
    rank = matrices.rank or pencil.size
    if pencil.size <= SMALLEST or rank < 2 * STEPS * (components + 2):
        return False
    away, _ = matrices.pyramid.average(pencil.diagonal).sort(1)
    least = LOCAL * matrices.within.diagonal().mean()
    return away.shape[1] > NEAREST[1] and bool((away[:, NEAREST[1]] > least).all())


def plan_batch(pencil: Pencil, components: int) -> tuple[int, int]:
    """How many such places to solve at once, and the bytes that each takes.

    Enough for products that are fast, and not more: rows should stay in the cache.
    """
    pyramid = pencil.matrices.pyramid
    fine, middle, coarse = (children.shape[1] for children in pyramid.children)
    small = fine * NEAREST[0] + middle * (NEAREST[1] - NEAREST[0]) + coarse * len(pyramid.size)
    rows = 12 * _count_rows(components) + 160 * components
    return max(8, 128 // components), rows * pencil.size + 12 * small**2


def _count_rows(components: int) -> int:
    """The most rows that are searched at once."""
    return max(48, 9 * components)


def iterate_multilevel(
    pencil: Pencil, components: int, tolerance: float, start: Tensor
) -> tuple[Eigenpairs, Tensor]:
    """The best pairs found, and for which places (b,) they are good enough."""
    small = _SmallProblem(pencil, components, start)
    space = _Space(pencil, components, _count_rows(components))
    rows = small.prolong(small.vectors[:, : components + 1])
    # One row gets a share in every eigenvector: the small problem knows of smooth ones alone.
    rows = scale_to_unit(rows * space.weight)
    grain = torch.randn(pencil.size, generator=torch.Generator().manual_seed(0))
    rows[:, components] += GRAIN * grain / grain.norm()
    space.add(rows / space.weight)
    found = _Found(pencil, components)
    left = torch.arange(pencil.batch)
    trusted = pencil.diagonal.new_zeros(pencil.batch)  # what float32 leaves of the residual
    for number in range(ROUNDS):
        # At first one pair more is looked for, so that what the start did not know of comes forth.
        more = int(number < EARLY)
        values, residual, error = space.rayleigh_ritz(more)
        worst = error[:, :components].amax(1)
        done = worst <= tolerance
        stuck = ~done & (worst <= trusted)
        if 4 * int(done.sum()) >= len(left):
            done = found.take(left, space, values, done, tolerance)
            stuck |= ~done & (worst <= tolerance)
            if bool(done.all()):
                break
            kept = (~done).nonzero().flatten()
            left, values, residual, error, worst, trusted, stuck = (
                each[kept] for each in (left, values, residual, error, worst, trusted, stuck)
            )
            small.keep(kept)
            space.keep(kept)
        wanted = max(1, round(float((error > tolerance).sum(1).double().mean())))
        fresh = space.answer is None and float(worst.median()) < SETTLED
        if fresh or 2 * int(stuck.sum()) > len(left):
            space.settle()
            trusted = ROUNDING * worst
        elif space.used + wanted > space.largest:
            space.shrink()
        which = error.topk(wanted).indices
        residual = residual.gather(1, which[:, :, None].expand(-1, -1, pencil.size))
        values = values.gather(1, which).float()
        space.add(small.correct(scale_to_unit(residual).float(), values, which))
    return Eigenpairs(found.values, found.vectors, found.images), found.finished


class _Found:
    """What was found at each place, once that was seen in float64."""

    def __init__(self, pencil: Pencil, components: int) -> None:
        zeros = pencil.diagonal.new_zeros
        self.values = zeros(pencil.batch, components + 1)
        self.vectors = zeros(pencil.batch, components, pencil.size)
        self.images = zeros(2, *self.vectors.shape)
        self.finished = torch.zeros(pencil.batch, dtype=torch.bool)

    def take(
        self, left: Tensor, space: _Space, values: Tensor, done: Tensor, tolerance: float
    ) -> Tensor:
        """Takes from the places `left` those that are done; returns which ones are indeed."""
        chosen = done.nonzero().flatten()
        part, rows = space.pencil.part(chosen), space.vectors()[chosen]
        images = torch.stack((part.matrices.times_between_by_root(rows), part.times_within(rows)))
        metric = torch.addcmul(images[1], rows, part.diagonal[:, None])
        values = values[chosen]
        values[:, :-1] = (rows * images[0]).sum(-1) / (rows * metric).sum(-1)
        # What float32 leaves must not make a gap smaller than it is.
        values[:, -1] -= SLACK * values[:, 0]
        seen = Eigenpairs(values, rows)
        sure = (seen.residuals(images[0], metric) <= tolerance).all(1)
        chosen, places = chosen[sure], left[chosen[sure]]
        self.values[places], self.vectors[places] = seen.values[sure], rows[sure]
        self.images[:, places], self.finished[places] = images[:, sure], True
        return torch.zeros_like(done).index_fill_(0, chosen, True)
