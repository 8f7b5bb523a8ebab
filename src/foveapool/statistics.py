"""Two measurements of the same seeds: their difference seed by seed, and whether it is chance.

Trials of one seed share what chance decides, so a difference in pairs says more than two means.
The test is Student's, two-sided.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from foveapool._suggest import how_to_install
from foveapool.records import Row

# Two errors less the same two errors may differ in the last digit.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Pair:
    """The mean difference, its deviation, and how probable one as large is if there is none.

    `n` is the number of seeds that both have.
    """

    mean: float
    std: float
    p: float
    n: int


def compare_pairs(one: Row, other: Row) -> Pair:
    """How much the first is above the second, over the seeds that both were measured with."""
    mine, its = index_by_seed(one), index_by_seed(other)
    common = sorted(mine.keys() & its.keys())
    if one.metric != other.metric or len(common) < 2:
        raise ValueError(
            f"rows: got {_told(one, mine)} and {_told(other, its)}, wanted one metric and two "
            "seeds or more in common"
        )
    differences = [mine[seed] - its[seed] for seed in common]
    spread = statistics.stdev(differences)
    return Pair(statistics.mean(differences), spread, paired_p_value(differences), len(common))


def _told(row: Row, values: Mapping[int, float]) -> str:
    return f"{row.metric!r} of {row.pooling or 'no pooling'} with the seeds {list(values)}"


def index_by_seed(row: Row) -> dict[int, float]:
    """The measurements of a row by their seed; none where it does not hold them.

    >>> index_by_seed(Row("s", "error", 2.0, 1.0, 3, seeds="0-1, 5", values="1 2 3"))
    {0: 1.0, 1: 2.0, 5: 3.0}
    """
    if not row.values or not row.seeds:
        return {}
    seeds: list[int] = []
    for part in row.seeds.split(", "):
        first, _, last = part.partition("-")
        seeds += range(int(first), int(last or first) + 1)
    values = [float(value) for value in row.values.split()]
    if len(values) != len(seeds):
        raise ValueError(
            f"row of {row.study}: got {len(values)} measurements for the seeds {row.seeds}, wanted "
            "one for each; the file was changed by hand"
        )
    return dict(zip(seeds, values, strict=True))


def paired_p_value(differences: Sequence[float]) -> float:
    """Student's two-sided test that the differences of pairs have mean zero.

    nan where it cannot be asked: for less than two, and for equal ones that are not zero, since a
    few seeds without any spread do not make a certainty.

    >>> round(paired_p_value([1.0, 2.0, 3.0]), 3)
    0.074
    """
    try:
        from scipy import stats
    except ImportError as error:
        raise ImportError(
            f"scipy: not installed; {how_to_install('study')} for the paired test"
        ) from error
    if len(differences) < 2:
        return math.nan
    if not any(differences):
        return 1.0
    low, high = min(differences), max(differences)
    if high - low <= ROUNDING * max(abs(low), abs(high)):
        return math.nan
    return float(stats.ttest_1samp(differences, 0.0).pvalue)


def adjust_by_holm(p_values: Sequence[float]) -> list[float]:
    """The p of several comparisons, so that all of them together are wrong as rarely as one.

    Args:
        p_values: One for each comparison; nan where a comparison could not be made.

    Returns:
        Holm's step-down adjustment of each, in the same order: at most 1, nan for nan, which does
        not count among the comparisons.

    >>> adjust_by_holm([0.01, 0.04, 0.02])
    [0.03, 0.04, 0.04]
    """
    order = sorted((p, at) for at, p in enumerate(p_values) if not math.isnan(p))
    adjusted = [math.nan] * len(p_values)
    so_far = 0.0
    for rank, (p, at) in enumerate(order):
        so_far = max(so_far, min(1.0, (len(order) - rank) * p))
        adjusted[at] = so_far
    return adjusted
