"""How far the passes over the data are: told to a bar, to plain lines, or to a function."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

EVERY_SECONDS = 5.0


@dataclass(frozen=True)
class Progress:
    """After a batch: which pass, how many batches of how many, seconds gone and left.

    Attributes:
        number: The pass, from 1 on.
        batches: The batches of it that are done.
        total: The batches that it has; None while nobody knows.
        seconds: How long the pass has taken.
        seconds_left: How long it is likely to go on; None while nobody knows.
        passes: How many passes there are; mode `mix` may have a third.

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

    def __str__(self) -> str:
        of = "" if self.total is None else f" of {self.total}"
        left = "" if self.seconds_left is None else f", {self.seconds_left:.0f} s left"
        return f"pass {self.number} of {self.passes}: {self.batches}{of} batches{left}"


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
        tasks: dict[int, bars.TaskID] = {}

        def report(now: Progress) -> None:
            if now.number not in tasks:
                title = f"pass {now.number} of {now.passes}"
                tasks[now.number] = display.add_task(title, total=now.total)
            display.update(tasks[now.number], completed=now.batches, total=now.total)

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
    """Times one pass and foretells its end from the batches done since it began or went on."""

    def __init__(self, number: int, total: int | None, done: int = 0, passes: int = 2) -> None:
        self.number, self.total, self.before, self.passes = number, total, done, passes
        self.start = time.monotonic()

    def after(self, batches: int) -> Progress:
        """The state after so many batches."""
        seconds = time.monotonic() - self.start
        fresh = batches - self.before
        left = None
        if self.total is not None and fresh:
            left = seconds / fresh * max(0, self.total - batches)
        return Progress(self.number, batches, self.total, seconds, left, self.passes)
