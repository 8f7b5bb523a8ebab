"""Draws the figures and fills the tables of README and docs from results/*.csv (`make results`).

A table stands between `<!-- table NAME -->` and `<!-- end -->`; what is between is replaced.
"""

from __future__ import annotations

import re
from pathlib import Path

from pictures import draw_pictures
from tables import TABLES

ROOT = Path(__file__).parents[1]


def list_documents() -> list[Path]:
    """README and docs."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def fill_tables(text: str) -> str:
    """A document with its tables as the results have them now."""

    def replacement(match: re.Match[str]) -> str:
        return f"<!-- table {match[1]} -->\n{TABLES[match[1]]()}\n<!-- end -->"

    return re.sub(r"<!-- table (\w+) -->.*?<!-- end -->", replacement, text, flags=re.S)


def main() -> None:
    for document in list_documents():
        document.write_text(fill_tables(document.read_text()))
    draw_pictures(ROOT / "docs/images")


if __name__ == "__main__":
    main()
