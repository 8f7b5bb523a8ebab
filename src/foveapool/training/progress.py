"""How far a training is, for whoever watches it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from foveapool.training.metrics import EpochRecord


@dataclass(frozen=True)
class Progress:
    """The steps done of all steps of a training, and the last epoch that is complete."""

    done: int
    total: int
    epochs: int
    last: EpochRecord | None


@contextmanager
def bar(title: str) -> Iterator[Callable[[int, int, str], None]]:
    """A bar on the error stream with the time left; takes what is done, of how much, and a text."""
    try:
        from rich import progress as rich
        from rich.console import Console
    except ImportError as error:
        raise ImportError(
            "rich: not installed; pip install 'foveapool[cli]' for a progress bar"
        ) from error
    columns = (
        # Names of folders are no markup, whatever is in them.
        rich.TextColumn("{task.description}", markup=False),
        rich.BarColumn(),
        rich.TaskProgressColumn(),
        rich.TimeRemainingColumn(),
    )
    with rich.Progress(*columns, console=Console(stderr=True)) as shown:
        task = shown.add_task(title, total=None)

        def move(done: int, total: int, text: str) -> None:
            shown.update(task, completed=done, total=total, description=text)

        yield move


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[Progress], None]]:
    """A bar for a training; gives what `train` takes as `progress`."""
    with bar(title) as move:

        def show(progress: Progress) -> None:
            text = title
            if progress.last is not None:
                text += f", epoch {progress.last.epoch} of {progress.epochs}"
                text += f", loss {progress.last.loss:.3f}"
                if progress.last.test_error is not None:
                    text += f", error {progress.last.test_error:.2f} %"
            move(progress.done, progress.total, text)

        yield show
