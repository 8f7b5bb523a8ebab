"""Are the corruptions and perturbations the authors', and how long do they take?"""

from __future__ import annotations

import json
from collections.abc import Callable

from corruptions import FACTS, STATISTICS

from foveapool.robustness.corruptions import CORRUPTIONS
from foveapool.robustness.names import SEVERITIES
from foveapool.tabular import format_markdown
from tables.rows import name_machine, read_measurements


def tabulate_corruption_parameters() -> str:
    """What each severity means, as the code has it."""
    lines = []
    for corruption in CORRUPTIONS.values():
        values = [", ".join(map(str, parameters)) for parameters in corruption.severities]
        names = ", ".join(corruption.columns.split()).replace("_", " ")
        lines.append([f"`{corruption.name}`", names, *values, corruption.sizes])
    return format_markdown(["name", "parameters", *map(str, SEVERITIES), "other sizes"], lines)


def tabulate_corruptions() -> str:
    """The mean change at each severity, ours and the authors', and the farthest of all figures."""
    facts = json.loads(FACTS.read_text("utf-8"))["corruptions"]
    rows = {(row.case, row.metric): row for row in read_measurements("corruptions")}
    lines = []
    for name in CORRUPTIONS:
        own = {metric: row for (case, metric), row in rows.items() if case == name}
        if not any(metric.startswith("severity") for metric in own):
            continue
        theirs = [facts[name]["severity"][str(severity)] for severity in SEVERITIES]
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
    return format_markdown(
        [*header, "three times their seeds", "severities with their bytes"], lines
    )


def tabulate_perturbations() -> str:
    """Statistics of the frames, ours and the authors', and whether every byte is theirs."""
    statistics = {
        "change from frame to frame": 3,
        "change from the first frame": 3,
        "mean level": 2,
        "deviation of levels": 2,
    }
    lines = []
    rows = read_measurements("perturbations")
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
    return format_markdown(header, lines)


def tabulate_robustness_speed() -> str:
    """Seconds of whole evaluations, a line a machine and network."""
    rows = [row for row in read_measurements("robustness-speed") if row.case.startswith("all ")]
    found: dict[tuple[str, ...], dict[str, str]] = {}
    for row in rows:
        machine = (name_machine(row), row.network, row.data)
        found.setdefault(machine, {})[row.case] = f"{row.mean:.1f} s"
    parts = ("corruptions", "perturbations")
    lines = [
        [*machine, *(own.get(f"all {part}", "-") for part in parts)]
        for machine, own in found.items()
    ]
    header = ["machine", "network", "images", "15 corruptions x 5 severities"]
    return format_markdown([*header, "perturbations, 595 frames an image"], lines)


def tabulate_image_seconds() -> str:
    """Seconds for 1,000 images of each corruption, a severity, and perturbation, a machine each."""
    kinds = (
        ("corruptions", "seconds for 1,000 images"),
        ("perturbations", "seconds per 1,000 images"),
    )
    lines = []
    for kind, metric in kinds:
        rows = [row for row in read_measurements(kind) if row.metric == metric]
        for row in rows:
            seconds = f"{row.mean:.3g}"
            lines.append((kind.removesuffix("s"), row.case, name_machine(row), seconds))
    found: dict[tuple[str, str], dict[str, str]] = {}
    for kind, name, machine, seconds in lines:
        found.setdefault((f"`{name}`", kind), {})[machine] = seconds
    machines = dict.fromkeys(machine for _, _, machine, _ in lines)
    header = ["name", "kind", *machines]
    cells = [[*key, *(own.get(each, "-") for each in machines)] for key, own in found.items()]
    return format_markdown(header, cells)


TABLES: dict[str, Callable[[], str]] = {
    "corruption_parameters": tabulate_corruption_parameters,
    "corruptions": tabulate_corruptions,
    "perturbations": tabulate_perturbations,
    "robustness_speed": tabulate_robustness_speed,
    "image_seconds": tabulate_image_seconds,
}
