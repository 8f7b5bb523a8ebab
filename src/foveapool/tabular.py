"""A header and lines of cells as text, for whichever room has a table to write."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence


def format_markdown(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """As a document takes it.

    >>> print(format_markdown(["a", "b"], [["1", "2"]]))
    | a | b |
    | --- | --- |
    | 1 | 2 |
    """
    rows = [header, ["---"] * len(header), *lines]
    # A bar in a cell would end it.
    cells = ([cell.replace("|", r"\|") for cell in row] for row in rows)
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def format_csv(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """As a spreadsheet takes it, a line feed behind each line."""
    text = io.StringIO()
    guarded = ([guard_cell(cell) for cell in line] for line in (header, *lines))
    csv.writer(text, lineterminator="\n").writerows(guarded)
    return text.getvalue()


# What a spreadsheet would run when it opens the file; and a cell that was guarded before.
_FORMULA = re.compile(r"'*[=+\-@\t\r].", re.S)


def guard_cell(text: str) -> str:
    """A cell that a spreadsheet shows as it is, with an apostrophe before what it would run.

    >>> [guard_cell(text) for text in ("=1+1", "-2.5", "-", "-1.0 +- 0.5")]
    ["'=1+1", '-2.5', '-', "'-1.0 +- 0.5"]
    """
    return f"'{text}" if _FORMULA.match(text) and not _is_number(text) else text


def unguard_cell(text: str) -> str:
    """The text of a guarded cell, and of any other.

    >>> [unguard_cell(text) for text in ("'=1+1", "-2.5", "'twas")]
    ['=1+1', '-2.5', "'twas"]
    """
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
