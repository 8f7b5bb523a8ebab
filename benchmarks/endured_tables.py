"""Tables of docs/results.md: errors under corruption and flips in sequences, in pairs by seed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import mean

from told import BASELINE, CLOSED, rows_of

from foveapool.pairs import by_seed, paired_p_value
from foveapool.records import CE, FLIP_RATE, Row
from foveapool.robustness.compare import CORRUPTION_GROUPS, PERTURBATION_GROUPS
from foveapool.robustness.groups import NOISE_LEVELS, at_level
from foveapool.robustness.paper import paper
from foveapool.tabular import markdown

SEVERITIES = (1, 2, 3, 4, 5)


def _endured() -> list[Row]:
    return rows_of("robustness-resnet18*.csv")


def _by_seed(rows: Iterable[Row], pooling: str, metrics: Sequence[str]) -> dict[int, float]:
    """The mean of some metrics for each seed."""
    own = [by_seed(row) for row in rows if row.pooling == pooling and row.metric in metrics]
    if len(own) != len(metrics):
        raise ValueError(f"{pooling}: got {len(own)} rows of {len(metrics)}: {', '.join(metrics)}")
    return {seed: mean(each[seed] for each in own) for seed in own[0]}


def _line(
    rows: Sequence[Row], name: str, metrics: Sequence[str], ratio: str, printed: float
) -> list[str]:
    """A name, the mean figure of either network, their ratio, its p and the paper's ratio."""
    plain, pooled = (_by_seed(rows, pooling, metrics) for pooling in (BASELINE, CLOSED))
    p = paired_p_value([pooled[seed] - plain[seed] for seed in sorted(pooled)])
    (found,) = (row.mean for row in rows if row.metric == f"{ratio}, {name}")
    figures = (f"{mean(each.values()):.2f}" for each in (plain, pooled))
    return [f"`{name}`", *figures, f"{found:.1f}", f"{p:.2g}", f"{100 * printed:.1f}"]


def endured_corruptions() -> str:
    """CE of each corruption, those that move pixels first, and the paper's."""
    rows, lines = _endured(), []
    for group in ("geometric", "non-geometric"):
        for name in CORRUPTION_GROUPS[group]:
            metrics = [f"error %, {name}, severity {severity}" for severity in SEVERITIES]
            lines.append([group, *_line(rows, name, metrics, CE, paper().ce[name])])
    header = ["kind", "corruption", "strided convolution", "closed form", "CE", "p", "paper's CE"]
    return markdown(header, lines)


def endured_perturbations() -> str:
    """Flip rate of each perturbation, those that move pixels first, and the paper's."""
    rows, lines = _endured(), []
    for group, names in PERTURBATION_GROUPS.items():
        for name in names:
            files = dict.fromkeys(at_level(name, level) for level in NOISE_LEVELS)
            metrics = [f"flip probability %, {file}" for file in files]
            lines.append([group, *_line(rows, name, metrics, FLIP_RATE, paper().rate[name])])
    header = ["kind", "perturbation", "strided convolution", "closed form", "flip rate", "p"]
    return markdown([*header, "paper's flip rate"], lines)


ENDURED_TABLES: dict[str, Callable[[], str]] = {
    "endured_corruptions": endured_corruptions,
    "endured_perturbations": endured_perturbations,
}
