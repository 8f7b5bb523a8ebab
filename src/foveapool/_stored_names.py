"""Names in files: what finished trainings, operators and fits are found by does not change.

Names in Python are spelled as PyTorch spells them; files and digests of before keep the spelling
that they began with, so that whatever was written stays readable and keeps its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

STORED = {
    "center": "centre",
    "normalize": "normalise",
    "optimizer": "optimiser",
    "neighbor_flips": "neighbour_flips",
}
_NAMES = {stored: name for name, stored in STORED.items()}
# What users write themselves, options and keys of studies: as it was called, and as it is now.
RENAMED = {**_NAMES, "at_once": "jobs", "so_far": "partial", "neighbour": "neighbor"}
# The one value that is spelled in two ways, by the key that it stands under.
_SIGN, _STORED_SIGN = "neighbor", "neighbour"


def explain_renamed(names: Iterable[str]) -> str:
    """What to add to the refusal of names: how those that have another name by now are called.

    >>> explain_renamed(["centre", "alpha"])
    "; 'centre' is called 'center' now"
    """
    return "".join(f"; {n!r} is called {RENAMED[n]!r} now" for n in names if n in RENAMED)


def to_stored(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values under the names that files have for them.

    >>> to_stored({"center": "paper", "sign": "neighbor", "alpha": 25})
    {'centre': 'paper', 'sign': 'neighbour', 'alpha': 25}
    """
    found = {STORED.get(name, name): value for name, value in values.items()}
    return found | ({"sign": _STORED_SIGN} if found.get("sign") == _SIGN else {})


def from_stored(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a file under the names of today.

    >>> from_stored({"centre": "paper", "sign": "neighbour"})
    {'center': 'paper', 'sign': 'neighbor'}
    """
    found = {_NAMES.get(name, name): value for name, value in values.items()}
    return found | ({"sign": _SIGN} if found.get("sign") == _STORED_SIGN else {})
