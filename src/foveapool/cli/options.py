"""Options that several commands have, said once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

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
