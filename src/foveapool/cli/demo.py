"""`foveapool demo`: the whole experiment in a few minutes on two cores."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foveapool.cli.options import user_errors
from foveapool.demo import Demo, main


def demo_command(
    out: Annotated[Path, typer.Option(help="The folder of runs.")] = Path("runs"),
    seeds: Annotated[int, typer.Option(help="How many seeds, from 0 on.", min=1)] = 3,
    images: Annotated[int, typer.Option(help="Training images.", min=100)] = 3000,
    epochs: Annotated[int, typer.Option(help="Epochs of each training.", min=1)] = 15,
) -> None:
    """Strided convolution against learned pooling on street digits; goes on if it was killed."""
    with user_errors():
        main(Demo(out, seeds, images, epochs=epochs))
