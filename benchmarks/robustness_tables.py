"""Tables of docs/robustness.md: parameters from the code, ours against the authors' from rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from corruptions import FACTS, STATISTICS

from foveapool.records import BenchmarkRow, read_benchmark_rows
from foveapool.robustness.corruptions import CORRUPTIONS
from foveapool.tabular import format_markdown

RESULTS = Path(__file__).parents[1] / "results"
SEVERITIES = "12345"


def rows_of(name: str) -> list[BenchmarkRow]:
    """The rows of a results file, the last of each kind; none if it has not been measured yet."""
    path = RESULTS / f"{name}.csv"
    rows = read_benchmark_rows(path) if path.is_file() else []
    return list({(r.case, r.data, r.metric, r.network, r.hardware): r for r in rows}.values())


def table(header: list[str], lines: list[list[str]]) -> str:
    return format_markdown(header, lines) if lines else "*Not measured yet.*"


def corruption_parameters() -> str:
    """What each severity means, as the code has it."""
    lines = []
    for corruption in CORRUPTIONS.values():
        values = [", ".join(map(str, parameters)) for parameters in corruption.severities]
        names = ", ".join(corruption.columns.split()).replace("_", " ")
        lines.append([f"`{corruption.name}`", names, *values, corruption.sizes])
    return table(["name", "parameters", *SEVERITIES, "other sizes"], lines)


def corruptions() -> str:
    """The mean change at each severity, ours and the authors', and the farthest of all figures."""
    facts = json.loads(FACTS.read_text("utf-8"))["corruptions"]
    rows = {(row.case, row.metric): row for row in rows_of("corruptions")}
    lines = []
    for name in CORRUPTIONS:
        own = {metric: row for (case, metric), row in rows.items() if case == name}
        if not any(metric.startswith("severity") for metric in own):
            continue
        theirs = [facts[name]["severity"][severity] for severity in SEVERITIES]
        found = [
            {key: own[f"severity {s}, {words}"].mean for key, words in STATISTICS.items()}
            for s in SEVERITIES
        ]
        off = max(abs(f[key] / t[key] - 1) for f, t in zip(found, theirs, strict=True) for key in f)
        spread = facts[name].get("seed_spread_percent")
        same = [row.mean for metric, row in own.items() if "bytes are the authors'" in metric]
        told = f"{sum(map(int, same))} of 5" if same else "random"
        limit = f"{3 * spread:.1f} %" if same == [] and spread else "-"
        ours = " ".join(f"{each['mae']:.2f}" for each in found)
        printed = " ".join(f"{each['mae']:.2f}" for each in theirs)
        lines.append([f"`{name}`", ours, printed, f"{100 * off:.2f} %", limit, told])
    header = ["name", "mean change, severity 1 to 5", "theirs", "farthest of 25 figures"]
    return table([*header, "three times their seeds", "severities with their bytes"], lines)


def perturbations() -> str:
    """Statistics of the frames, ours and the authors', and whether every byte is theirs."""
    statistics = {
        "change from frame to frame": 3,
        "change from the first frame": 3,
        "mean level": 2,
        "deviation of levels": 2,
    }
    lines = []
    rows = rows_of("perturbations")
    for name in dict.fromkeys(row.case for row in rows):
        own = {row.metric: row for row in rows if row.case == name}
        cells = [f"`{name}`"]
        for what, digits in statistics.items():
            ours, theirs = (own[f"{what}, {whose}"].mean for whose in ("ours", "authors"))
            cells.append(f"{ours:.{digits}f} / {theirs:.{digits}f}")
        same = own.get("every byte as the authors'")
        cells.append("random" if same is None else "yes" if same.mean else "no")
        lines.append(cells)
    header = ["name", *(f"{what}, ours / theirs" for what in statistics), "all bytes theirs"]
    return table(header, lines)


def robustness_speed() -> str:
    """Seconds of whole evaluations, a line a machine and network."""
    rows = [row for row in rows_of("robustness-speed") if row.case.startswith("all ")]
    found: dict[tuple[str, ...], dict[str, str]] = {}
    for row in rows:
        machine = (row.hardware.removeprefix("NVIDIA "), row.network, row.data)
        found.setdefault(machine, {})[row.case] = f"{row.mean:.1f} s"
    parts = ("corruptions", "perturbations")
    lines = [
        [*machine, *(own.get(f"all {part}", "-") for part in parts)]
        for machine, own in found.items()
    ]
    header = ["machine", "network", "images", "15 corruptions x 5 severities"]
    return table([*header, "perturbations, 595 frames an image"], lines)


def image_seconds() -> str:
    """Seconds for 1,000 images of each corruption, a severity, and perturbation, a machine each."""
    kinds = (
        ("corruptions", "seconds for 1,000 images"),
        ("perturbations", "seconds per 1,000 images"),
    )
    lines = []
    for kind, metric in kinds:
        rows = [row for row in rows_of(kind) if row.metric == metric]
        for row in rows:
            lines.append((kind.removesuffix("s"), row.case, row.hardware, f"{row.mean:.3g}"))
    found: dict[tuple[str, str], dict[str, str]] = {}
    for kind, name, machine, seconds in lines:
        found.setdefault((f"`{name}`", kind), {})[machine] = seconds
    machines = dict.fromkeys(machine for _, _, machine, _ in lines)
    header = ["name", "kind", *(machine.removeprefix("NVIDIA ") for machine in machines)]
    cells = [[*key, *(own.get(each, "-") for each in machines)] for key, own in found.items()]
    return table(header, cells)


ROBUSTNESS_TABLES: dict[str, Callable[[], str]] = {
    "corruption_parameters": corruption_parameters,
    "corruptions": corruptions,
    "perturbations": perturbations,
    "robustness_speed": robustness_speed,
    "image_seconds": image_seconds,
}
