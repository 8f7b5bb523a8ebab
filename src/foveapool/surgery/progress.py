"""What a fit tells: users how far it is, and its processes each other.

How far passes over the data and solving are goes to a bar, to plain lines, or to a function.
Processes that fit together see that they agree, and that one of them failed.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import nn

from foveapool.pooling.storage import digest_tensors
from foveapool.pooling.validation import gather_from_processes, is_distributed
from foveapool.surgery.forward import unwrap

EVERY_SECONDS = 5.0


@dataclass(frozen=True)
class Progress:
    """After a batch: which pass, how many batches of how many, seconds gone and left.

    While a layer is solved for, its places are counted instead, as they come.

    Attributes:
        number: The pass, from 1 on.
        batches: The batches of it that are done.
        total: The batches that it has; None while nobody knows.
        seconds: How long the pass has taken.
        seconds_left: How long it is likely to go on; None while nobody knows.
        passes: How many passes there are; mode `mix` may have a third.
        layer: The layer that is solved for, after the pass; None in the pass.

    Example:
        >>> print(Progress(number=1, batches=3, total=12, seconds=2.0, seconds_left=6.0))
        pass 1 of 2: 3 of 12 batches, 6 s left
    """

    number: int
    batches: int
    total: int | None
    seconds: float
    seconds_left: float | None
    passes: int = 2
    layer: str | None = None

    @property
    def title(self) -> str:
        """What is done: a pass, or solving for a layer.

        Example:
            >>> Progress(number=1, batches=3, total=12, seconds=2.0, seconds_left=6.0).title
            'pass 1 of 2'
        """
        if self.layer is not None:
            return f"solving {self.layer}"
        return f"pass {self.number} of {self.passes}"

    def __str__(self) -> str:
        of = "" if self.total is None else f" of {self.total}"
        left = "" if self.seconds_left is None else f", {self.seconds_left:.0f} s left"
        what = "batches" if self.layer is None else "places"
        return f"{self.title}: {self.batches}{of} {what}{left}"


Report = Callable[[Progress], None]


@contextmanager
def open_reporter(progress: bool | Report | None) -> Iterator[Report]:
    """The function to tell: one's own, a bar (rich) or lines on stderr for True, or nobody."""
    if callable(progress):
        yield progress
        return
    if not isinstance(progress, (bool, type(None))):
        raise ValueError(
            f"progress: got {progress!r}, wanted True, False or a function of a Progress"
        )
    if not progress:
        yield lambda _: None
        return
    try:
        import rich.progress as bars
        from rich.console import Console
    except ImportError:
        yield _report_lines()
        return
    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TimeRemainingColumn(),
    )
    with bars.Progress(*columns, console=Console(stderr=True)) as display:
        tasks: dict[str, bars.TaskID] = {}

        def report(now: Progress) -> None:
            if now.title not in tasks:
                tasks[now.title] = display.add_task(now.title, total=now.total)
            display.update(tasks[now.title], completed=now.batches, total=now.total)

        yield report


def _report_lines() -> Report:
    told = time.monotonic()

    def report(now: Progress) -> None:
        nonlocal told
        if now.batches == now.total or time.monotonic() - told >= EVERY_SECONDS:
            told = time.monotonic()
            print(now, file=sys.stderr, flush=True)

    return report


class Clock:
    """Times one pass, or solving, and foretells its end from what is done since it began."""

    def __init__(
        self,
        number: int,
        total: int | None,
        done: int = 0,
        passes: int = 2,
        layer: str | None = None,
    ) -> None:
        self.number, self.total, self.before, self.passes = number, total, done, passes
        self.layer = layer
        self.start = time.monotonic()

    def after(self, batches: int) -> Progress:
        """The state after so many batches."""
        seconds = time.monotonic() - self.start
        fresh = batches - self.before
        left = None
        if self.total is not None and fresh:
            left = seconds / fresh * max(0, self.total - batches)
        return Progress(self.number, batches, self.total, seconds, left, self.passes, self.layer)


T = TypeVar("T")
_SILENT = (
    "fit: got no answer from another process, which ended without a word (killed, or out of "
    "memory?), wanted all of them to the end; see its output and start all of them again"
)


@contextmanager
def telling_failures() -> Iterator[None]:
    """A part of the work in which no process waits for another; one that fails tells the others.

    Raises:
        RuntimeError: In the processes that did not fail, naming the one that did and why.
    """
    if not is_distributed():
        yield
        return
    try:
        yield
    except Exception as error:
        with suppress(RuntimeError):  # its own failure is worth more than that nobody listens
            gather_from_processes(f"{type(error).__name__}: {error}")
        raise
    try:
        told = gather_from_processes(None)
    except RuntimeError as error:
        raise RuntimeError(_SILENT) from error
    failed = {rank: each for rank, each in enumerate(told) if each is not None}
    if failed:
        named = "; ".join(f"rank {rank} failed with {each}" for rank, each in failed.items())
        raise RuntimeError(f"fit: {named}; mend it there and start all processes again")


def check_same_settings(settings: Mapping[str, Any]) -> None:
    """Raises unless every process was given the same settings."""
    for rank, theirs in enumerate(_gather({k: str(v) for k, v in settings.items()})):
        for name, value in settings.items():
            if theirs.get(name) != str(value):
                raise ValueError(
                    f"{name}: got {value} here and {theirs.get(name)} on rank {rank}, wanted the "
                    "same in every process"
                )


def check_same_network(model: nn.Module) -> None:
    """Raises unless every process has the same weights: sums over maps of several belong to none.

    Buffers may differ a little, as the statistics of batch norm do behind DistributedDataParallel;
    this is a warning.
    """
    if not is_distributed():
        return
    network = unwrap(model)
    mine = digest_tensors(network.named_parameters()), digest_tensors(network.named_buffers())
    for rank, (weights, buffers) in enumerate(_gather(mine)):
        if weights != mine[0]:
            raise ValueError(
                f"model: got other weights on rank {rank} than here, wanted the same network in "
                "every process; load the same checkpoint everywhere, or broadcast rank 0's"
            )
        if buffers != mine[1]:
            warnings.warn(
                f"model: buffers, such as the statistics of batch norm, differ on rank {rank}; "
                "broadcast rank 0's first, so that all read maps of one network",
                stacklevel=5,
            )
            return


def _gather(value: T) -> list[T]:
    return gather_from_processes(value) if is_distributed() else [value]
