"""HTML that cannot be broken by what is written into it: text is escaped unless it is markup.

Only elements, tables among them; what a page consists of is told in `page.py`.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping
from typing import Any

from foveapool.report.tables import Table

_VOID = {"br", "meta", "hr"}
# A script element ends at the first "</script", and "<!--" changes how it is read; inside of JSON
# both can be written without their first character.
_UNSAFE_IN_SCRIPT = {"<": r"\u003c", ">": r"\u003e", "&": r"\u0026"}


class Markup(str):
    """HTML as it is to stand in the page; every other string is text and is escaped."""


def element(tag: str, *children: str | Iterable[str], **attributes: str | bool | None) -> Markup:
    """An element; a trailing underscore is dropped from attribute names, others become dashes.

    >>> element("p", "a < b", Markup("<br>"), class_="note")
    '<p class="note">a &lt; b<br></p>'
    """
    given = "".join(_attribute(name, value) for name, value in attributes.items())
    if tag in _VOID:
        return Markup(f"<{tag}{given}>")
    inside = "".join(
        together(child if not isinstance(child, str) else [child]) for child in children
    )
    return Markup(f"<{tag}{given}>{inside}</{tag}>")


def _attribute(name: str, value: str | bool | None) -> str:
    name = name.rstrip("_").replace("_", "-")
    if value is None or value is False:
        return ""
    return f" {name}" if value is True else f' {name}="{html.escape(value)}"'


def together(parts: Iterable[str]) -> Markup:
    """Markup as it is and text escaped, one after the other."""
    return Markup("".join(p if isinstance(p, Markup) else html.escape(p) for p in parts))


def data_element(name: str, value: Mapping[str, Any]) -> Markup:
    """JSON for the page's script, in an element that no text in it can end."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    for plain, written in _UNSAFE_IN_SCRIPT.items():
        text = text.replace(plain, written)
    return Markup(f'<script type="application/json" id="{html.escape(name)}">{text}</script>')


def table_element(table: Table, caption: str, names: int = 1) -> Markup:
    """A table that scrolls sideways on its own; the first `names` columns are words, not numbers.

    Columns that have no entry in any line are left out.
    """
    told = [i for i, _ in enumerate(table.header) if any(line[i] != "-" for line in table.lines)]

    def kind(i: int) -> str | None:
        return None if i < names else "number"

    head = [element("th", _typeset(table.header[i]), scope="col", class_=kind(i)) for i in told]
    lines = [
        element(
            "tr",
            *(
                element("th", _typeset(line[i]), scope="row")
                if i == told[0]
                else element("td", _typeset(line[i]), class_=kind(i))
                for i in told
            ),
        )
        for line in table.lines
    ]
    return scrolling(head, lines, caption)


def scrolling(
    head: Iterable[str], lines: Iterable[str], caption: str, kind: str | None = None
) -> Markup:
    """A table of header cells and lines, in a box that the mouse and the keyboard can scroll."""
    body = (element("thead", element("tr", head)), element("tbody", lines))
    table = element("table", *body, class_=kind, aria_label=caption)
    # Focusable, so that the keyboard can scroll it; the caption stays where it is.
    box = element("div", table, class_="scrolls", tabindex="0", role="region", aria_label=caption)
    return element("figure", element("figcaption", caption), box, class_="tabled")


def _typeset(cell: str) -> str:
    if cell == "-":
        return "\N{EN DASH}"
    cell = cell.replace(" +- ", " \N{PLUS-MINUS SIGN} ").replace("10^6", "10\N{SUPERSCRIPT SIX}")
    is_negative = cell[:1] == "-" and cell[1:2].isdigit()
    return f"\N{MINUS SIGN}{cell[1:]}" if is_negative else cell
