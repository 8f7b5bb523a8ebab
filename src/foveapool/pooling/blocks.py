"""Works through the output places block by block: on a CPU one block a thread, on a GPU in turn.

Eigenproblems of this size do not fill two cores from within; one problem a core does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

from foveapool.pooling.grid import is_number
from foveapool.pooling.workspace import Workspace

T = TypeVar("T")
# More places at once do not make a CPU faster, only its working set larger; small matrices may be
# as many as fill the cache, because each block has to get through Python once.
MOST_ON_CPU, ENTRIES_ON_CPU = 16, 2**21


def share_out(
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


def map_blocks(
    work: Callable[[slice, Workspace], T], outputs: int, step: int, threads: int
) -> list[T]:
    """`work` on each block of `step` places, in order; each thread has a workspace of its own."""
    blocks = [slice(first, min(first + step, outputs)) for first in range(0, outputs, step)]
    threads = min(threads, len(blocks))
    if threads == 1:
        workspace = Workspace()
        return [work(block, workspace) for block in blocks]
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
            return list(pool.map(job, blocks))
    finally:
        torch.set_num_threads(before)


@contextmanager
def one_thread(size: int) -> Iterator[None]:
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
