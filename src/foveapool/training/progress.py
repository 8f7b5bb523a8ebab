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
def progress_bar(title: str) -> Iterator[Callable[[Progress], None]]:
    """A bar on the error stream with the time left; gives what `train` takes as `progress`."""
    try:
        from rich import progress as rich
        from rich.console import Console
    except ImportError as error:
        raise ImportError(
            "rich: not installed; pip install 'foveapool[cli]' for a progress bar"
        ) from error
    columns = (
        rich.TextColumn("{task.description}"),
        rich.BarColumn(),
        rich.TaskProgressColumn(),
        rich.TimeRemainingColumn(),
    )
    with rich.Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=None)

        def show(progress: Progress) -> None:
            text = title
            if progress.last is not None:
                text += f", epoch {progress.last.epoch} of {progress.epochs}"
                text += f", loss {progress.last.loss:.3f}"
                if progress.last.test_error is not None:
                    text += f", error {progress.last.test_error:.2f} %"
            bar.update(task, completed=progress.done, total=progress.total, description=text)

        yield show
