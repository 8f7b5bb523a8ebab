"""Tables: a header and lines of cells, as text in the formats that readers want."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """A header and lines of cells, whatever they are written as.

    Attributes:
        header: The cells of the head.
        lines: The cells of each line.
        name: Fit for a file; empty where the table is not to be one.
        title: What stands above the table.
        notes: Sentences below the table.

    Example:
        >>> table = Table(("corruption", "ours"), (("fog", "12.5"),))
        >>> print(table.csv())
        corruption,ours
        fog,12.5
    """

    header: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    name: str = ""
    title: str = ""
    notes: tuple[str, ...] = ()

    def markdown(self) -> str:
        """Writes the table as a document takes it, its notes below.

        Returns:
            Markdown, without the title.

        Example:
            >>> print(Table(("a", "b"), (("1", "2"),), notes=("Measured once.",)).markdown())
            | a | b |
            | --- | --- |
            | 1 | 2 |
            <BLANKLINE>
            Measured once.
        """
        return "\n\n".join([format_markdown(self.header, self.lines), *self.notes])

    def csv(self) -> str:
        """Writes head and lines as comma-separated values, as a spreadsheet takes them.

        Returns:
            The lines of a CSV file; what a spreadsheet would run has an apostrophe before it.
        """
        text = io.StringIO()
        guarded = ([guard_cell(cell) for cell in line] for line in (self.header, *self.lines))
        csv.writer(text, lineterminator="\n").writerows(guarded)
        return text.getvalue().removesuffix("\n")

    def latex(self) -> str:
        r"""Writes head and lines as a `tabular`; needs the package booktabs.

        Returns:
            LaTeX, without title and notes.

        Example:
            >>> print(Table(("error %",), (("12.5 +- 0.3",),)).latex())
            \begin{tabular}{l}
            \toprule
            error \% \\
            \midrule
            12.5 $\pm$ 0.3 \\
            \bottomrule
            \end{tabular}
        """
        lines = [" & ".join(map(_for_latex, line)) + r" \\" for line in (self.header, *self.lines)]
        columns = "l" * len(self.header)
        body = [lines[0], r"\midrule", *lines[1:]]
        parts = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", *body, r"\bottomrule"]
        return "\n".join([*parts, r"\end{tabular}"])


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


_FOR_LATEX = {
    **{char: f"\\{char}" for char in "%&_#${}"},
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
}


def _for_latex(text: str) -> str:
    parts = ["".join(_FOR_LATEX.get(char, char) for char in part) for part in text.split("+-")]
    return r"$\pm$".join(parts)


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
