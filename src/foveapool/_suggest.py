"""What to do about it, at the end of an error: the name that was meant, what is to be installed."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Iterable
from pathlib import Path


def did_you_mean(name: object, known: Iterable[str], most: int = 1) -> str:
    """A question with the nearest known names, to end an error with; nothing if none is near.

    >>> did_you_mean("resnet8", ["cnn", "resnet18"])
    "; did you mean 'resnet18'?"
    >>> did_you_mean("vgg", ["cnn", "resnet18"])
    ''
    """
    near = difflib.get_close_matches(str(name), list(known), n=most)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""


def how_to_install(extra: str) -> str:
    """The command that brings what an extra needs: of the clone that this runs from, if it is one.

    >>> how_to_install("plot").endswith("[plot]'")
    True
    """
    clone = Path(__file__).resolve().parents[2]
    if (clone / "pyproject.toml").is_file():
        return f"pip install -e {shlex.quote(f'{clone}[{extra}]')}"
    return f"pip install 'foveapool[{extra}]'"
