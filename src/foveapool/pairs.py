"""Two measurements of the same seeds: their difference seed by seed, and whether it is chance.

Trials of one seed share what chance decides, so a difference in pairs says more than two means.
The test is Student's, two-sided.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from foveapool.records import Row


@dataclass(frozen=True)
class Pair:
    """The mean difference, its deviation, and how probable one as large is if there is none."""

    mean: float
    deviation: float
    p: float


def compare(one: Row, other: Row) -> Pair:
    """How much the first is above the second, from the measurements that both rows hold."""
    mine, its = _values(one), _values(other)
    if one.seeds != other.seeds or len(mine) != len(its) or len(mine) < 2:
        raise ValueError(
            f"rows: got {len(mine)} measurements of {one.pooling} (seeds {one.seeds or 'unknown'}) "
            f"and {len(its)} of {other.pooling} (seeds {other.seeds or 'unknown'}), wanted two or "
            "more of the same seeds"
        )
    differences = [a - b for a, b in zip(mine, its, strict=True)]
    spread = statistics.stdev(differences)
    return Pair(statistics.mean(differences), spread, paired_p_value(differences))


def _values(row: Row) -> list[float]:
    return [float(value) for value in row.values.split()]


def paired_p_value(differences: Sequence[float]) -> float:
    """Student's two-sided test that the differences of pairs have mean zero.

    >>> round(paired_p_value([1.0, 2.0, 3.0]), 3)
    0.074
    """
    try:
        from scipy import stats
    except ImportError as error:
        raise ImportError(
            "scipy: not installed; pip install 'foveapool[study]' for the paired test"
        ) from error
    if len(set(differences)) == 1:
        # No spread at all: either nothing differs or there is nothing to be in doubt about.
        return 1.0 if differences[0] == 0 else 0.0
    return float(stats.ttest_1samp(differences, 0.0).pvalue)
