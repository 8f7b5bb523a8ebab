"""The page: one HTML file that holds everything, for one run or for several side by side.

Tables and facts are written here; the explorer and the charts are drawn by the scripts in
`assets` from data that is packed into the page. Nothing is loaded from anywhere.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from foveapool._io import write_text
from foveapool.pooling.operator import PoolingOperator
from foveapool.records import Row
from foveapool.report.examples import Examples
from foveapool.report.headline import draw_result_chart, make_headline
from foveapool.report.markup import make_data_element, pack_examples, pack_operator, together
from foveapool.report.page_sections import letter, make_charts, make_lead, make_sections
from foveapool.report.run_summary import Curve, RunSummary, group_operators

# In the order in which they may know each other.
SCRIPTS = (
    "numbers",
    "elements",
    "unpack",
    "colors",
    "pad",
    "readings",
    "overview",
    "explorer",
    "address",
    "scales",
    "charts",
    "page",
)


def write_page(
    operators: PoolingOperator | Iterable[PoolingOperator] | Mapping[str, PoolingOperator],
    out: str | os.PathLike[str],
    *,
    title: str = "A learned pooling",
    facts: Mapping[str, str] | None = None,
    rows: Sequence[Row] = (),
    selection: Sequence[Row] = (),
    curves: Sequence[Curve] = (),
    examples: Examples | None = None,
) -> Path:
    """Writes a page about operators in memory, and about rows and curves if there are any.

    Args:
        operators: One or several. Those that differ in alpha alone share a slider; names tell the
            others apart.
        out: The HTML file to write.
        title: What the page is headed by.
        facts: What else there is to know, by name.
        rows: Measured figures, for tables and charts.
        selection: The figures by which settings were chosen.
        curves: Trainings, epoch by epoch.
        examples: Images and maps to lay under the weights, see `choose_examples`.

    Returns:
        The path of the page.

    Example:
        >>> import tempfile, torch
        >>> from foveapool import compute_scatter, solve_pooling
        >>> scatter = compute_scatter(torch.randn(40, 3, 8, 8), torch.arange(40) % 4)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_page(solve_pooling(scatter, (4, 4)), f"{folder}/page.html").name
        'page.html'
    """
    summary = RunSummary(
        title,
        tuple((facts or {}).items()),
        group_operators(operators, examples),
        tuple(rows),
        tuple(selection),
        tuple(curves),
    )
    return write_summaries([summary], out)


def write_summaries(
    summaries: Sequence[RunSummary], out: str | os.PathLike[str], title: str | None = None
) -> Path:
    """Writes a page about one run, or about several side by side, and returns its path."""
    path = Path(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, make_page(summaries, title))
    return path


def make_page(summaries: Sequence[RunSummary], title: str | None = None) -> str:
    """The whole page as text."""
    if not summaries:
        raise ValueError("summaries: got none, wanted at least one run to tell of")
    several = len(summaries) > 1
    title = title or (f"{len(summaries)} runs side by side" if several else summaries[0].title)
    named = [(f"{letter(i)}: " if several else "", each) for i, each in enumerate(summaries)]
    drawn = make_charts(named)
    result = draw_result_chart(named, drawn.get("errors"))
    drawn |= {} if result is None else {"result": result}
    # With the line breaks beside the tags, since they count in the hashes.
    style = f"\n{_asset('page.css')}"
    script = "\n" + "\n".join(_asset(f"{name}.js") for name in SCRIPTS)
    policy = "; ".join(
        [
            "default-src 'none'",
            f"script-src {_hash(script)}",
            f"style-src {_hash(style)}",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    data = {"summaries": [_packed(each) for each in summaries], "charts": drawn}
    return Template(_asset("page.html")).substitute(
        policy=together([policy]),
        title=together([title]),
        style=style,
        script=script,
        lead=make_lead(summaries),
        main=together([*make_headline(named, drawn), *make_sections(named, drawn)]),
        data=make_data_element("page-data", data),
    )


def _asset(name: str) -> str:
    return (resources.files("foveapool.report") / "assets" / name).read_text("utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _packed(summary: RunSummary) -> dict[str, Any]:
    return {
        "families": [
            {
                "label": family.label,
                "operators": [pack_operator(each) for each in family.operators],
                "examples": None if family.examples is None else pack_examples(family.examples),
            }
            for family in summary.families
        ]
    }
