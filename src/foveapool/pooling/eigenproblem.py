"""The eigenproblems of all output places: what `solve.py` asks, in the form that solvers take.

Places are solved in blocks, on a CPU one block a thread, on a GPU as many at once as the memory
bound allows: eigenproblems of this size do not fill two cores from within, one problem a core does.
Which eigensolver does it is `solvers/`'s business.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from foveapool.pooling.gram import Workspace, float32_products
from foveapool.pooling.grid import (
    Center,
    average_blocks,
    centers,
    check_shapes,
    coordinates,
    is_number,
    is_whole,
    offsets,
    penalty,
    windows,
)
from foveapool.pooling.scatter import Scatter
from foveapool.pooling.solvers import SOLVERS, Eigenpairs, Matrices, Pencil
from foveapool.pooling.solvers.multilevel import plan_batch, suits

# Below this share of the mean of B's diagonal a place counts as constant; the ridge lifts it.
CONSTANT, RIDGE = 1e-10, 1e-8


@dataclass(frozen=True)
class Solution:
    """What was found for the M output places, k + 1 eigenvalues and k rows each."""

    values: Tensor  # (M, k + 1)
    vectors: Tensor  # (M, k, n)
    residuals: Tensor  # (M, k)
    separability: Tensor  # (M, k)


@dataclass(frozen=True)
class Eigenproblem:
    """All that does not depend on alpha. Matrices are in units of trace(B)/N."""

    scatter: Scatter
    in_shape: tuple[int, ...]
    out_shape: tuple[int, ...]
    components: int
    center: Center
    unit: float
    matrices: Matrices | None  # None with a window: then each place has its own
    index: Tensor | None  # (M, n) with a window
    average_separability: Tensor

    @classmethod
    def of(
        cls,
        scatter: Scatter,
        out_shape: Sequence[int],
        components: int,
        center: Center,
        window: int | None,
    ) -> Eigenproblem:
        in_shape, target = check_shapes(scatter.in_shape, out_shape)
        index = None if window is None else windows(in_shape, target, window, center)
        if index is None and scatter.window is not None:
            raise ValueError(
                f"window: got None for a scatter accumulated with window {scatter.window}, wanted "
                f"at most {scatter.window}; pass window={scatter.window}, or accumulate without one"
            )
        places = torch.Size(in_shape).numel() if index is None else index.shape[1]
        most = min(places, scatter.rank_bound)
        if not is_whole(components) or not 1 <= components <= most:
            raise ValueError(
                f"components: got {components!r}, wanted 1 to {most}: "
                f"{places} places have a weight, and A has rank {scatter.rank_bound} at most, "
                "(classes - 1) * channels that vary; ask for fewer"
            )
        with limit_threads(places):
            total = scatter.between.sum() + scatter.within.sum()
        if not bool(total.isfinite()):
            raise ValueError(
                "scatter: got NaN or infinity in A or B, wanted finite numbers; accumulate it anew"
            )
        unit = float(scatter.within_diagonal().mean())
        if not unit > 0:
            raise ValueError(
                f"within: got a mean diagonal of {unit}, wanted more than 0; the maps do not vary "
                "within the classes"
            )
        matrices = None
        if index is not None:
            index = index.to(scatter.within.device)
        with limit_threads(places):
            if index is None:
                matrices = Matrices(
                    scatter.between / unit, scatter.within / unit, scatter.rank_bound, in_shape
                )
            average = _average_separability(scatter, in_shape, target, window)
        return cls(scatter, in_shape, target, components, center, unit, matrices, index, average)

    def choose(self, solver: str) -> str:
        """The solver that `auto` stands for: LAPACK where maps are small."""
        if solver != "auto":
            return solver
        places = torch.Size(self.in_shape).numel() if self.index is None else self.index.shape[1]
        return "dense" if places <= 96 else "krylov"

    def ridge(self, strength: float) -> float:
        """0, or what it takes to keep B + alpha C_m regular where maps are constant.

        C_m is zero at one place at most, so the metric is singular only if B is zero there.
        """
        own = self.scatter.within_diagonal() / self.unit
        return RIDGE if strength < CONSTANT or float(own.min()) < CONSTANT else 0.0

    def count_lifted(self, strength: float) -> int:
        """How many places do vary, but so little that the ridge outweighs them at some center."""
        own = self.scatter.within_diagonal() / self.unit
        places, middles = (
            coordinates(self.in_shape),
            centers(self.in_shape, self.out_shape, self.center),
        )
        nearest = sum(
            (place[:, None] - middle.unique()).square().amin(1)
            for place, middle in zip(places.unbind(1), middles.unbind(1), strict=True)
        )
        weighed = own + strength * torch.as_tensor(nearest, device=own.device)
        return int(((own > 0) & (weighed < CONSTANT)).sum())

    def block(self, rows: slice, strength: float, ridge: float, workspace: Workspace) -> Pencil:
        """The eigenproblems of some output places."""
        device = self.scatter.within.device
        places = None if self.index is None else self.index.cpu()
        diagonal = penalty(self.in_shape, self.out_shape, self.center, rows, places)
        diagonal = diagonal.to(device).mul_(strength).add_(ridge)
        if self.matrices is not None:
            return Pencil(self.matrices, diagonal, workspace)
        assert self.index is not None
        index = self.index[rows]
        between, within = self.scatter.blocks(index)
        both = Matrices(between.div_(self.unit), within.div_(self.unit), self.scatter.rank_bound)
        return Pencil(both, diagonal, workspace)

    def start(self, rows: slice, before: Tensor | None) -> Tensor:
        """Rows near enough to the answer: bumps at the center, a ramp along each axis, a plain."""
        device = self.scatter.within.device
        places = None if self.index is None else self.index.cpu()
        away = offsets(self.in_shape, self.out_shape, self.center, rows, places).to(device)
        bump = (-away.square().sum(-1) / 18).exp()
        # An axis of one place has no ramp: a row of zeros is no direction.
        steps = [
            step for step, size in zip(away.unbind(-1), self.in_shape, strict=True) if size > 1
        ]
        guess = torch.stack((bump, *(bump * step for step in steps), torch.ones_like(bump)), 1)
        return guess if before is None else torch.cat((before[rows], guess), 1)

    def solve(
        self,
        strength: float,
        ridge: float,
        solver: str,
        tolerance: float,
        memory: int | None,
        before: Tensor | None,
        progress: Progress | None = None,
    ) -> Solution:
        """The eigenpairs of all output places; `progress` is told how many are done, and of all."""
        outputs = torch.Size(self.out_shape).numel()
        size = torch.Size(self.in_shape).numel() if self.index is None else self.index.shape[1]
        device = self.scatter.within.device

        def one(rows: slice, workspace: Workspace) -> tuple[Tensor, ...]:
            pencil, start = self.block(rows, strength, ridge, workspace), self.start(rows, before)
            try:
                pairs = SOLVERS[solver](pencil, self.components, tolerance, start)
            except torch.linalg.LinAlgError as error:
                raise ValueError(
                    f"alpha: got {strength:.1g} of trace(B)/N, wanted more: the samples are too "
                    "few for so little locality, B + alpha C is singular to rounding; raise alpha "
                    "(in units of trace(B)/N with alpha_unit='trace') or give more samples"
                ) from error
            return (pairs.values, pairs.vectors, *_measure_rows(pencil, pairs))

        own, whole = self.index is not None, solver != "krylov"
        parallel = device.type == "cpu" and solver != "arpack"
        middle = self.block(slice(outputs // 2, outputs // 2 + 1), strength, ridge, Workspace())
        if not whole and suits(middle, self.components):
            step, threads = plan_large(outputs, middle, self.components, memory)
            middle.matrices.prepare()
        else:
            step, threads = plan_blocks(outputs, size, own, device, memory, whole, parallel)
        with torch.no_grad(), float32_products("ieee"):
            parts = map_blocks(one, outputs, step, threads, progress)
        return Solution(*(torch.cat(part) for part in zip(*parts, strict=True)))


def _measure_rows(pencil: Pencil, pairs: Eigenpairs) -> tuple[Tensor, Tensor]:
    """The residuals, and S_b / S_w of each pooled value, both (b, k)."""
    rows = pairs.vectors
    if pairs.images is None:
        image, spread = pencil.times_between(rows), pencil.times_within(rows)
    else:
        image, spread = pairs.images
    metric = spread.addcmul(rows, pencil.diagonal[:, None])
    between = (rows * image).sum(-1)
    # Of B alone: what the metric has beside its diagonal keeps no digits at a large alpha.
    within = (rows * spread).sum(-1)
    ratio = between / within.clamp(min=torch.finfo(rows.dtype).tiny)
    return pairs.residuals(image, metric), ratio


def _average_separability(
    scatter: Scatter, in_shape: tuple[int, ...], out_shape: tuple[int, ...], window: int | None
) -> Tensor:
    """S_b / S_w of average pooling at each output place, (M,)."""
    device = scatter.within.device
    # The places of each block and no others: a narrow band holds little more than those.
    line = torch.Size(in_shape[1:]).numel()
    weight, index = (each.to(device) for each in average_blocks(in_shape, out_shape))
    parts = []
    for rows in torch.arange(len(index), device=device).split(256):
        try:
            pair = scatter.blocks(index[rows])
        except ValueError as error:
            lines = index // line
            reach = int((lines.amax(1) - lines.amin(1)).max())
            raise ValueError(
                f"window: got a scatter accumulated with window {scatter.window}, wanted "
                f"{max(-(-reach // 2), window or 0)}: average pooling, which is measured too, has "
                f"wider blocks; accumulate with that, and solve with window={window}"
            ) from error
        one = weight[rows][:, None]
        parts.append(torch.stack([(one @ both @ one.mT).flatten() for both in pair]))
    between, within = torch.cat(parts, 1)
    return between / within.clamp(min=torch.finfo(within.dtype).tiny)


T = TypeVar("T")
# Takes how many places are done, and how many there are.
Progress = Callable[[int, int], None]
# More places at once do not make a CPU faster, only its working set larger; small matrices may be
# as many as fill the cache, because each block has to get through Python once.
MOST_ON_CPU, ENTRIES_ON_CPU = 16, 2**21


def plan_blocks(
    outputs: int,
    size: int,
    own_matrices: bool,
    device: torch.device,
    memory: int | None,
    whole: bool = False,
    parallel: bool = True,
) -> tuple[int, int]:
    """How many output places to solve at once, and on how many threads, under `memory` bytes.

    whole: whether the solver decomposes whole matrices, in float64. parallel: whether it may have
    more threads than one. There is one place at least, however little memory.
    """
    if memory is not None and not (is_number(memory) and memory > 0):
        raise ValueError(f"memory: got {memory!r}, wanted a positive number of bytes")
    # Factor, its inverse, a copy (float32), or what LAPACK takes (float64, as measured); the search
    # space (float64); A and B if they are own.
    each = size * size * ((128 if whole else 12) + 32 * own_matrices) + size * 8 * 3 * 64
    # A and B once more, in units of their own, and in float32.
    copies = 0 if own_matrices or memory is None else size * size * 24
    if device.type == "cuda":
        bound = (memory or torch.cuda.mem_get_info(device)[0] // 2) - copies
        return max(1, int(min(outputs, bound // each))), 1
    bound = (memory or 2**31) - copies
    threads = torch.get_num_threads() if parallel else 1
    if memory is not None:
        threads = max(1, int(min(threads, bound // each)))
    fair = -(-outputs // threads)
    most = max(MOST_ON_CPU, ENTRIES_ON_CPU // size**2)
    return max(1, int(min(most, fair, bound // threads // each))), threads


def plan_large(outputs: int, one: Pencil, components: int, memory: int | None) -> tuple[int, int]:
    """The same where the iteration for large maps suits, as it does for `one` place."""
    most, each = plan_batch(one, components)
    # A and B in units of their own, in float32, between blocks of all sizes, and A's root.
    bound = 2**31 if memory is None else memory - 46 * one.size**2
    threads = max(1, int(min(torch.get_num_threads(), bound // each)))
    # Blocks of one size: the last one should not be waited for alone.
    rounds = -(-outputs // (most * threads))
    fair = -(-outputs // (rounds * threads))
    return max(1, int(min(most, fair, bound // threads // each))), threads


def map_blocks(
    work: Callable[[slice, Workspace], T],
    outputs: int,
    step: int,
    threads: int,
    progress: Progress | None = None,
) -> list[T]:
    """`work` on each block of `step` places, in order; each thread has a workspace of its own."""

    def tell(found: Iterator[T]) -> Iterator[T]:
        for block, part in zip(blocks, found, strict=True):
            if progress is not None:
                progress(block.stop, outputs)
            yield part

    blocks = [slice(first, min(first + step, outputs)) for first in range(0, outputs, step)]
    threads = min(threads, len(blocks))
    if threads == 1:
        workspace = Workspace()
        return list(tell(work(block, workspace) for block in blocks))
    own = threading.local()

    def begin() -> None:
        # Threads that share the cores must not each start a team of their own.
        torch.set_num_threads(1)
        own.workspace = Workspace()

    def job(block: slice) -> T:
        with torch.no_grad():
            return work(block, own.workspace)

    before = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(threads, initializer=begin) as pool:
            return list(tell(pool.map(job, blocks)))
    finally:
        torch.set_num_threads(before)


@contextmanager
def limit_threads(size: int) -> Iterator[None]:
    """Within it torch works on one thread, if maps have few places.

    Products that take a tenth of a millisecond gain nothing from a second thread, and wait a
    hundred times as long for it where another program has the other core.
    """
    before = torch.get_num_threads()
    try:
        if size <= 512:
            torch.set_num_threads(1)
        yield
    finally:
        torch.set_num_threads(before)
