"""What several commands share: their options, and errors that users can act on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from typer.core import TyperGroup

from foveapool import __version__
from foveapool._stored_names import RENAMED

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


def _tell_version(asked: bool) -> None:
    if asked:
        typer.echo(f"foveapool {__version__}")
        raise typer.Exit


def general_options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_tell_version, is_eager=True, help="Tell the version."),
    ] = False,
) -> None:
    """Learned pooling for convolutional networks, in closed form."""


class CommandGroup(TyperGroup):
    """Commands that say how an option of an earlier version is called now."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Finds the command that the words name; refuses its options of before."""
        name, command, rest = super().resolve_command(ctx, args)
        known = {option for each in command.params for option in each.opts} if command else set()
        with user_errors():
            for word in rest:
                old = word.partition("=")[0]
                key = old.removeprefix("--").replace("-", "_")
                new = f"--{RENAMED.get(key, key).replace('_', '-')}"
                if old.startswith("--") and old not in known and new in known:
                    raise ValueError(f"{old}: got an option that is called {new} now")
        return name, command, rest


@contextmanager
def user_errors() -> Iterator[None]:
    """Turns what a user can mend into one line and exit code 2."""
    try:
        yield
    except (ValueError, OSError, ImportError, ArithmeticError, torch.OutOfMemoryError) as error:
        typer.echo(f"error: {' '.join(str(error).split())}", err=True)
        raise typer.Exit(2) from None
