"""Options that several commands have, said once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

DataRoot = Annotated[
    Path | None,
    typer.Option("--data-root", help="Where the files lie; ~/.cache/foveapool if not given."),
]
Device = Annotated[str | None, typer.Option(help="cpu or cuda; a GPU if there is one.")]
