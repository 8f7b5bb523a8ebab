"""What several commands share: their options, and errors that users can act on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import torch
import typer

DataRoot = Annotated[
    Path | None,
    typer.Option("--data-root", help="Where the files lie; ~/.cache/foveapool if not given."),
]
OWN_DATA = (
    "folder:PATH has image files in PATH/train/CLASS/ and PATH/test/CLASS/. npz:PATH has the "
    "arrays train_images, train_labels, test_images and test_labels: images uint8 (n, H, W, C), "
    "labels (n,) from 0 on, without gaps."
)
Device = Annotated[str | None, typer.Option(help="cpu or cuda; a GPU if there is one.")]


@contextmanager
def user_errors() -> Iterator[None]:
    """Turns what a user can mend into one line and exit code 2."""
    try:
        yield
    except (ValueError, OSError, ImportError, ArithmeticError, torch.OutOfMemoryError) as error:
        typer.echo(f"error: {' '.join(str(error).split())}", err=True)
        raise typer.Exit(2) from None
