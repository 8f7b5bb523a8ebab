"""What a page is written in: HTML elements, and arrays packed as text for its script."""

from __future__ import annotations

import base64
import html
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from foveapool.pooling.operator import PoolingOperator
from foveapool.report.examples import Examples
from foveapool.tabular import Table

_VOID = {"br", "meta", "hr"}
# A script element ends at the first "</script", and "<!--" changes how it is read; inside of JSON
# both can be written without their first character.
_UNSAFE_IN_SCRIPT = {"<": r"\u003c", ">": r"\u003e", "&": r"\u0026"}


class Markup(str):
    """HTML as it is to stand in the page; every other string is text and is escaped."""


def make_element(
    tag: str, *children: str | Iterable[str], **attributes: str | bool | None
) -> Markup:
    """An element; a trailing underscore is dropped from attribute names, others become dashes.

    >>> make_element("p", "a < b", Markup("<br>"), class_="note")
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


def make_data_element(name: str, value: Mapping[str, Any]) -> Markup:
    """JSON for the page's script, in an element that no text in it can end."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    for plain, written in _UNSAFE_IN_SCRIPT.items():
        text = text.replace(plain, written)
    return Markup(f'<script type="application/json" id="{html.escape(name)}">{text}</script>')


def make_table_element(table: Table, caption: str, names: int = 1) -> Markup:
    """A table that scrolls sideways on its own; the first `names` columns are words, not numbers.

    Columns that have no entry in any line are left out.
    """
    told = [i for i, _ in enumerate(table.header) if any(line[i] != "-" for line in table.lines)]

    def kind(i: int) -> str | None:
        return None if i < names else "number"

    head = [
        make_element("th", _typeset(table.header[i]), scope="col", class_=kind(i)) for i in told
    ]
    lines = [
        make_element(
            "tr",
            *(
                make_element("th", _typeset(line[i]), scope="row")
                if i == told[0]
                else make_element("td", _typeset(line[i]), class_=kind(i))
                for i in told
            ),
        )
        for line in table.lines
    ]
    return make_scrolling(head, lines, caption)


def make_scrolling(
    head: Iterable[str], lines: Iterable[str], caption: str, kind: str | None = None
) -> Markup:
    """A table of header cells and lines, in a box that the mouse and the keyboard can scroll."""
    body = (make_element("thead", make_element("tr", head)), make_element("tbody", lines))
    table = make_element("table", *body, class_=kind, aria_label=caption)
    # Focusable, so that the keyboard can scroll it; the caption stays where it is.
    box = make_element(
        "div", table, class_="scrolls", tabindex="0", role="region", aria_label=caption
    )
    return make_element("figure", make_element("figcaption", caption), box, class_="tabled")


def _typeset(cell: str) -> str:
    if cell == "-":
        return "\N{EN DASH}"
    cell = cell.replace(" +- ", " \N{PLUS-MINUS SIGN} ").replace("10^6", "10\N{SUPERSCRIPT SIX}")
    is_negative = cell[:1] == "-" and cell[1:2].isdigit()
    return f"\N{MINUS SIGN}{cell[1:]}" if is_negative else cell


LEVELS = 127
# One weight in a thousand may be stronger than the strongest color.
CLIPPED = 0.999


def pack_array(values: npt.NDArray[Any]) -> str:
    """The bytes of an array, little-endian, deflated, in base64."""
    little = values.astype(values.dtype.newbyteorder("<"), copy=False)
    return base64.b64encode(zlib.compress(little.tobytes(), 9)).decode("ascii")


def quantize_to_bytes(weight: Tensor) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]]:
    """Weights (k, M, N) as whole numbers from -127 to 127, and the weight (k, M) that 127 is.

    >>> rows, scales = quantize_to_bytes(torch.tensor([[[0.5, -1.0, 0.0]]]))
    >>> rows.tolist(), scales.tolist()
    ([[[64, -127, 0]]], [[1.0]])
    """
    values = weight.detach().cpu().double()
    scales = values.abs().amax(-1)
    steps = torch.where(scales > 0, scales, 1.0)[..., None] / LEVELS
    rows = (values / steps).round().to(torch.int8)
    return rows.numpy(), scales.float().numpy()


def pack_operator(operator: PoolingOperator) -> dict[str, Any]:
    """What the page needs of an operator; on a line (N,) the map is one row high."""
    # In half precision squares of weights vanish, and with them the radius.
    operator = replace(operator, rows=operator.rows.detach().double())
    weight = operator.weight
    rows, scales = quantize_to_bytes(weight)
    strength = weight.abs().flatten().cpu().numpy()
    height, width = flat_shape(operator.in_shape)
    out_height, out_width = flat_shape(operator.out_shape)
    settings = operator.settings
    return {
        "alpha": settings.alpha,
        "unit": settings.alpha_unit,
        "norm": settings.norm,
        "components": operator.components,
        "height": height,
        "width": width,
        "outHeight": out_height,
        "outWidth": out_width,
        "limit": float(np.quantile(strength, CLIPPED)) or 1.0,
        "rows": pack_array(rows),
        "scales": pack_array(scales),
        "separability": pack_array(_floats(operator.separability)),
        "average": pack_array(_floats(operator.average_separability)),
        "radius": pack_array(_floats(operator.radius())),
        "gaps": pack_array(_floats(operator.gaps)),
        "mean": pack_array(_floats(operator.mean)),
    }


def flat_shape(shape: tuple[int, ...]) -> tuple[int, int]:
    """Rows and columns of a map that can be drawn; ValueError for three axes."""
    if len(shape) > 2:
        raise ValueError(f"shape: got {shape}, wanted one or two axes: a volume cannot be drawn")
    return (1, shape[0]) if len(shape) == 1 else (shape[0], shape[1])


def pack_examples(examples: Examples) -> dict[str, Any]:
    """Images as they are, maps in 8 bits between the least and the largest value of each."""
    maps = examples.maps.double()
    least = maps.amin((2, 3), keepdim=True)
    step = (maps.amax((2, 3), keepdim=True) - least) / 255
    levels = ((maps - least) / torch.where(step > 0, step, 1.0)).round().to(torch.uint8)
    return {
        "count": len(examples.labels),
        "labels": list(examples.labels),
        "channels": list(examples.channels),
        "height": maps.shape[2],
        "width": maps.shape[3],
        "imageChannels": examples.images.shape[1],
        "imageHeight": examples.images.shape[2],
        "imageWidth": examples.images.shape[3],
        "images": pack_array(examples.images.numpy()),
        "maps": pack_array(levels.numpy()),
        "least": pack_array(_floats(least)),
        "step": pack_array(_floats(step)),
    }


def _floats(values: Tensor) -> npt.NDArray[np.float32]:
    return values.detach().cpu().float().contiguous().numpy()
