"""How a training goes: a line for each epoch on disk, and a bar for whoever waits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from foveapool._io import write_text
from foveapool._suggest import how_to_install

METRICS = "metrics.jsonl"


@dataclass(frozen=True)
class EpochRecord:
    """One epoch, the first being 1; the error in percent, where it was asked for.

    `seconds` is the time of its steps, evaluation and checkpoints apart.
    """

    epoch: int
    loss: float
    lr: float
    seconds: float
    test_error: float | None = None


class Metrics:
    """Writes a line an epoch; begins with those that a checkpoint remembers, and no others."""

    def __init__(self, folder: Path, history: Sequence[EpochRecord], tensorboard: bool) -> None:
        self.path = folder / METRICS
        self._writer = _open_summary_writer(folder, len(history) + 1) if tensorboard else None
        # What a killed process wrote beyond its last checkpoint will happen again.
        write_text(self.path, "".join(_format_line(record) for record in history))

    def add(self, record: EpochRecord) -> None:
        """Adds an epoch."""
        with open(self.path, "a") as file:
            file.write(_format_line(record))
        if self._writer is not None:
            self._writer.add_scalar("loss/train", record.loss, record.epoch)
            self._writer.add_scalar("learning rate", record.lr, record.epoch)
            if record.test_error is not None:
                self._writer.add_scalar("error/test", record.test_error, record.epoch)
            self._writer.flush()

    def close(self) -> None:
        """Lets TensorBoard's file go."""
        if self._writer is not None:
            self._writer.close()


def _format_line(record: EpochRecord) -> str:
    return json.dumps(asdict(record)) + "\n"


def _open_summary_writer(folder: Path, first_epoch: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ImportError(
            f"tensorboard: not installed; {how_to_install('tensorboard')}, or train without it and "
            f"read {METRICS}"
        ) from error
    return SummaryWriter(str(folder / "tensorboard"), purge_step=first_epoch)


@dataclass(frozen=True)
class Progress:
    """The steps done of all steps of a training, and the last epoch that is complete."""

    done: int
    total: int
    epochs: int
    last: EpochRecord | None


@contextmanager
def open_bar(title: str) -> Iterator[Callable[[int, int, str], None]]:
    """A bar on the error stream with the time left; takes what is done, of how much, and a text."""
    try:
        from rich import progress as rich
        from rich.console import Console
    except ImportError as error:
        raise ImportError(
            f"rich: not installed; {how_to_install('cli')} for a progress bar"
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
def open_progress_bar(title: str) -> Iterator[Callable[[Progress], None]]:
    """A bar for a training; gives what `train` takes as `progress`."""
    with open_bar(title) as move:

        def show(progress: Progress) -> None:
            text = title
            if progress.last is not None:
                text += f", epoch {progress.last.epoch} of {progress.epochs}"
                text += f", loss {progress.last.loss:.3f}"
                if progress.last.test_error is not None:
                    text += f", error {progress.last.test_error:.2f} %"
            move(progress.done, progress.total, text)

        yield show
