"""Draws the figures and fills the tables of README and docs from results/*.csv (`make results`).

A table stands between `<!-- table NAME -->` and `<!-- end -->`; what is between is replaced.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from choices_tables import CHOICES_TABLES
from endured_tables import ENDURED_TABLES
from forms_tables import FORMS_TABLES
from matplotlib.figure import Figure
from pictures import draw
from results_tables import RESULTS_TABLES
from robustness_tables import ROBUSTNESS_TABLES
from study_tables import STUDY_TABLES

from foveapool.records import BenchmarkRow, read_benchmark_rows
from foveapool.tabular import format_markdown

ROOT = Path(__file__).parents[1]
FIT, FORWARD = ROOT / "results/fit.csv", ROOT / "results/forward.csv"


def places(row: BenchmarkRow) -> int:
    """The N of a row whose maps read 'N=1024 M=256'."""
    return int(re.findall(r"N=(\d+)", row.maps)[0])


def machine(row: BenchmarkRow) -> str:
    return row.hardware.removeprefix("NVIDIA ")


def latest(rows: list[BenchmarkRow]) -> list[BenchmarkRow]:
    """The last row of each kind on each machine; for studies, `foveapool.report.tables` has one."""
    found = {(r.case, r.layer, r.maps, r.metric, r.alpha, r.options, r.hardware): r for r in rows}
    return list(found.values())


def peers() -> str:
    rows = latest(read_benchmark_rows(FIT))
    lines = []
    for ours in (r for r in rows if (r.case, r.metric) == ("krylov", "seconds a place")):
        cells = [ours.maps, ours.alpha, f"{1e3 * ours.mean:.2f} ms"]
        for name in ("scipy eigh", "scipy eigs"):
            here = [r for r in rows if r.maps == ours.maps and r.alpha == ours.alpha]
            other = next(r for r in here if r.case == name)
            ratio = next(r for r in here if r.case == f"krylov / {name}")
            cells.append(f"{1e3 * other.mean:.1f} ms, **{ratio.mean:.1f} times**")
        lines.append(cells)
    header = [
        "map",
        "alpha",
        "foveapool, a place",
        "`scipy.linalg.eigh`",
        "`eigs`, the paper's way",
    ]
    return format_markdown(header, lines)


def growth() -> str:
    rows = [r for r in latest(read_benchmark_rows(FIT)) if r.metric == "seconds to solve"]
    layers = sorted(
        {r.maps for r in rows}, key=lambda maps: (len(maps) > 20, int(maps[2:].split()[0]))
    )
    machines = sorted({machine(r) for r in rows}, key=len)
    lines = []
    for layer in layers:
        cells = [layer]
        for name in machines:
            here = [r for r in rows if r.maps == layer and machine(r) == name]
            cells.append(f"{here[0].mean:.3g} s" if here else "-")
        lines.append(cells)
    return format_markdown(["map", *machines], lines)


def gram() -> str:
    rows = latest(read_benchmark_rows(FIT))
    shares = [r for r in rows if r.metric == "share of matmul's rate"]
    cells: dict[tuple[str, str, str], dict[str, str]] = {}
    for row in shares:
        cells.setdefault((machine(row), row.maps, row.batch), {})[row.case] = f"{row.mean:.2f}"
    lines = [[*key, each["products"], each["ScatterAccumulator"]] for key, each in cells.items()]
    return format_markdown(["machine", "maps", "batch", "products summed", "the whole pass"], lines)


def agreement() -> str:
    rows = [r for r in latest(read_benchmark_rows(FIT)) if r.metric == "largest difference CPU-GPU"]
    return format_markdown(
        ["map", "alpha", "largest difference of a weight"],
        [[r.maps, r.alpha, f"{r.mean:.1e}"] for r in rows],
    )


def forward() -> str:
    rows = latest(read_benchmark_rows(FORWARD))
    keys = dict.fromkeys((r.hardware, r.maps, r.batch, r.options) for r in rows)
    names = list(dict.fromkeys(r.case for r in rows))
    lines = []
    for key in keys:
        here = [r for r in rows if (r.hardware, r.maps, r.batch, r.options) == key]
        cells = [machine(here[0]), key[1], key[2], key[3].split(",")[0]]
        for name in names:
            of = {r.metric: r.mean for r in here if r.case == name}
            share = of["share of the convolution's time"]
            cells.append(f"{of['milliseconds']:.3g} ms ({share:.2f})")
        lines.append(cells)
    return format_markdown(["machine", "maps", "batch", "precision", *names], lines)


def growth_figure() -> Figure:
    """Seconds against N, a line a machine."""
    rows = [r for r in latest(read_benchmark_rows(FIT)) if r.metric == "seconds to solve"]
    rows = [r for r in rows if "window" not in r.maps]
    figure = Figure(figsize=(4.6, 3.0), layout="constrained")
    axis = figure.subplots()
    for name, mark in zip(sorted({machine(r) for r in rows}, key=len), "os^", strict=False):
        points = sorted((places(r), r.mean) for r in rows if machine(r) == name)
        axis.loglog(*zip(*points, strict=True), f"{mark}-", label=name, markersize=4)
    axis.set_xlabel("places of the input map, N (output N/4, two components)")
    axis.set_ylabel("seconds to solve, all places")
    axis.legend(frameon=False, fontsize=8)
    axis.grid(alpha=0.3, which="both")
    return figure


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def training() -> str:
    rows = read_benchmark_rows(ROOT / "results/train.csv")
    names = {"seconds an epoch of 50,000 images": "s an epoch", "images a second": "images / s"}
    header = list(dict.fromkeys(r.metric for r in rows))
    lines = []
    for key in dict.fromkeys((r.network, r.options) for r in rows):
        own = {r.metric: r for r in rows if (r.network, r.options) == key}
        lines.append([*key, *(_digits(own[m].mean) if m in own else "-" for m in header)])
    return format_markdown(["network", "loop", *(names.get(m, m) for m in header)], lines)


def passes() -> str:
    rows = latest(read_benchmark_rows(ROOT / "results/passes.csv"))
    return format_markdown(
        ["layer", "what", "median"],
        [[r.layer, r.metric, f"{r.mean:.2f} +- {r.std:.2f}"] for r in rows],
    )


def after() -> str:
    rows = latest(read_benchmark_rows(ROOT / "results/after.csv"))
    return format_markdown(
        ["network", "alpha", "test accuracy %"],
        [[r.case, r.alpha or "-", f"{r.mean:.1f} +- {r.std:.1f}"] for r in rows],
    )


TABLES: dict[str, Callable[[], str]] = {
    "peers": peers,
    "growth": growth,
    "gram": gram,
    "agreement": agreement,
    "forward": forward,
    "training": training,
    "passes": passes,
    "after": after,
    **CHOICES_TABLES,
    **ENDURED_TABLES,
    **FORMS_TABLES,
    **RESULTS_TABLES,
    **ROBUSTNESS_TABLES,
    **STUDY_TABLES,
}


def documents() -> list[Path]:
    """README and docs."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def filled(text: str) -> str:
    """A document with its tables as the results have them now."""

    def replacement(match: re.Match[str]) -> str:
        return f"<!-- table {match[1]} -->\n{TABLES[match[1]]()}\n<!-- end -->"

    return re.sub(r"<!-- table (\w+) -->.*?<!-- end -->", replacement, text, flags=re.S)


def main() -> None:
    for document in documents():
        document.write_text(filled(document.read_text()))
    images = ROOT / "docs/images"
    growth_figure().savefig(images / "scaling.png", dpi=110)
    draw(images)


if __name__ == "__main__":
    main()
