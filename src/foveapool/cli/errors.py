"""A user's mistake as one line and exit code 2; what is our mistake keeps its traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import typer


@contextmanager
def user_errors() -> Iterator[None]:
    """Turns what a user can mend into one line and exit code 2."""
    try:
        yield
    except (ValueError, OSError, ImportError, ArithmeticError, torch.OutOfMemoryError) as error:
        typer.echo(f"error: {' '.join(str(error).split())}", err=True)
        raise typer.Exit(2) from None
