"""Names that were nearly right: the end of an error for whichever room has names to choose from."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(name: object, known: Iterable[str], most: int = 1) -> str:
    """A question with the nearest known names, to end an error with; nothing if none is near.

    >>> did_you_mean("resnet8", ["cnn", "resnet18"])
    "; did you mean 'resnet18'?"
    >>> did_you_mean("vgg", ["cnn", "resnet18"])
    ''
    """
    near = difflib.get_close_matches(str(name), list(known), n=most)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
