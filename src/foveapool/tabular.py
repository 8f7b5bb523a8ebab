"""A header and lines of cells as text, for whichever room has a table to write."""

from __future__ import annotations

import csv
import io
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
    csv.writer(text, lineterminator="\n").writerows([header, *lines])
    return text.getvalue()
