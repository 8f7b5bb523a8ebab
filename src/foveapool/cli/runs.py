"""`foveapool runs`: whether the files of a folder of runs are whole."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foveapool.cli.options import user_errors
from foveapool.study.check import check_runs

app = typer.Typer(help="Folders of runs: check them.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Folders of runs: check them."""


@app.command()
def check(
    runs: Annotated[Path, typer.Argument(help="The folder of runs.")] = Path("runs"),
) -> None:
    """Reads every file of trainings and studies, and lists what is broken; exit code 1 if any is.

    Contents are compared with the SHA-256 that they were written with. Nothing is changed.
    """
    files, broken = 0, 0
    with user_errors():
        for file in check_runs(runs):
            files, broken = files + 1, broken + bool(file.faults)
            for fault in file.faults:
                typer.echo(f"{file.path}: {' '.join(fault.split())}")
    if not broken:
        typer.echo(f"{runs}: {files} files, all of them whole")
        return
    typer.echo(
        f"{runs}: {broken} of {files} files are broken; the study they belong to does them again "
        "when it is started, and keeps what it sets aside"
    )
    raise typer.Exit(1)
