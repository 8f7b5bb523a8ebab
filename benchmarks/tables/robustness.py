"""What does the closed form endure: errors under corruption, flips in sequences, by seed?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import geometric_mean, mean, stdev

from scipy import stats

from foveapool.labels import BASELINE, CLOSED_FORM
from foveapool.records import CE, FLIP_RATE, Row
from foveapool.robustness.names import SEVERITIES, is_noise, list_files
from foveapool.robustness.result import CORRUPTION_GROUPS, PERTURBATION_GROUPS, load_paper
from foveapool.statistics import index_by_seed, paired_p_value
from foveapool.tabular import format_markdown
from tables.rows import read_trainings

MEASURED = "robustness-resnet18-short.csv"


def _by_seed(rows: Iterable[Row], pooling: str, metrics: Sequence[str]) -> dict[int, float]:
    """The mean of some metrics for each seed."""
    own = [index_by_seed(row) for row in rows if row.pooling == pooling and row.metric in metrics]
    if len(own) != len(metrics):
        raise ValueError(f"{pooling}: got {len(own)} rows of {len(metrics)}: {', '.join(metrics)}")
    return {seed: mean(each[seed] for each in own) for seed in own[0]}


def _interval(ratios: Sequence[float]) -> str:
    """Where the mean of such ratios lies with 95 %, by Student's t of their logarithms."""
    logarithms = [math.log(ratio) for ratio in ratios]
    half = stats.t.ppf(0.975, len(ratios) - 1) * stdev(logarithms) / math.sqrt(len(ratios))
    low, high = (100 * math.exp(mean(logarithms) + side * half) for side in (-1, 1))
    return f"{low:.1f} to {high:.1f}"


def _lines(
    groups: Mapping[str, Sequence[str]],
    metrics: Callable[[str], Sequence[str]],
    ratio: str,
    printed: Mapping[str, float],
) -> list[list[str]]:
    """A line for each name and one for each group: both networks' figures, their ratio, its p."""
    rows, lines = read_trainings(MEASURED), []
    for group, names in groups.items():
        ratios = []
        for name in names:
            plain, pooled = (
                _by_seed(rows, each, metrics(name)) for each in (BASELINE, CLOSED_FORM)
            )
            ratios.append([pooled[seed] / plain[seed] for seed in sorted(plain)])
            p = paired_p_value([pooled[seed] - plain[seed] for seed in sorted(plain)])
            (found,) = (row.mean for row in rows if row.metric == f"{ratio}, {name}")
            figures = [f"{mean(each.values()):.2f}" for each in (plain, pooled)]
            theirs = f"{100 * printed[name]:.1f}"
            # The paper's flips under noise are of another kind; see docs/robustness.md.
            theirs = f"({theirs})" if ratio == FLIP_RATE and is_noise(name) else theirs
            cells = [f"{found:.1f}", _interval(ratios[-1]), f"{p:.2g}", theirs]
            lines.append([group, f"`{name}`", *figures, *cells])
        together = [geometric_mean(each) for each in zip(*ratios, strict=True)]
        p = paired_p_value([math.log(each) for each in together])
        theirs = f"{100 * geometric_mean(printed[name] for name in names):.1f}"
        theirs = f"({theirs})" if ratio == FLIP_RATE and any(map(is_noise, names)) else theirs
        cells = [f"{100 * geometric_mean(together):.1f}", _interval(together), f"{p:.2g}", theirs]
        lines.append([group, f"*all {len(names)}*", "", "", *cells])
    return lines


def tabulate_endured_corruptions() -> str:
    """CE of each corruption, those that move pixels first, and the paper's."""
    groups = {group: CORRUPTION_GROUPS[group] for group in ("geometric", "non-geometric")}

    def metrics(name: str) -> list[str]:
        return [f"error %, {name}, severity {severity}" for severity in SEVERITIES]

    header = ["kind", "corruption", "strided convolution", "closed form", "CE", "95 %", "p"]
    return format_markdown([*header, "paper's CE"], _lines(groups, metrics, CE, load_paper().ce))


def tabulate_endured_perturbations() -> str:
    """Flip rate of each perturbation, those that move pixels first, and the paper's."""

    def metrics(name: str) -> list[str]:
        return [f"flip probability %, {file}" for file in list_files(name)]

    lines = _lines(PERTURBATION_GROUPS, metrics, FLIP_RATE, load_paper().rate)
    header = ["kind", "perturbation", "strided convolution", "closed form", "flip rate", "95 %"]
    return format_markdown([*header, "p", "paper's flip rate"], lines)


TABLES: dict[str, Callable[[], str]] = {
    "endured_corruptions": tabulate_endured_corruptions,
    "endured_perturbations": tabulate_endured_perturbations,
}
