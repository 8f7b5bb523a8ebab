"""Who wins, and whether that is chance: settings ranked by test error, compared with the best.

Comparisons are in pairs, seed by seed, from the measurements that the rows hold; nothing is
trained or measured here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from foveapool.pairs import by_seed, compare
from foveapool.records import ERROR, Row
from foveapool.report.tables import PLACE, Key, Table, distinct, place, setting, with_spread


def ranking_table(rows: Iterable[Row]) -> Table:
    """The settings by test error, the best first, and how far each is behind the best.

    Each network and data set, number of epochs and batch size is a ranking of its own. Trainings
    that several studies share stand in one line; the study named is one that has them all. Pairs
    are the seeds that a setting has in common with the best; where there are not two, difference
    and p are left open. p is that of one comparison; of many, some are small by chance.
    """
    rows = list(rows)
    sizes = {setting(row): row.mean for row in rows if row.metric == "parameters"}
    rankings: dict[Key, list[Row]] = {}
    for row in distinct(row for row in rows if row.metric == ERROR):
        rankings.setdefault((row.network, row.data, row.epochs, row.batch), []).append(row)
    if not rankings:
        raise ValueError(f"rows: got none of {ERROR!r} among {len(rows)}, wanted some to rank")
    lines = []
    for own in rankings.values():
        # What is no number comes last; by itself it would come anywhere.
        ranked = sorted(own, key=lambda row: (math.isnan(row.mean), row.mean))
        for row in ranked:
            size = sizes.get(setting(row))
            lines.append(
                (
                    *(each or "-" for each in place(row)),
                    with_spread(row.mean, row.deviation),
                    *_behind(row, ranked[0]),
                    str(row.n),
                    "-" if size is None else f"{size / 1e6:.3f}",
                    row.study,
                )
            )
    more = ("error %", "behind the best", "p", "n", "10^6 parameters", "study")
    return Table((*PLACE, *more), tuple(lines))


def _behind(row: Row, best: Row) -> tuple[str, str]:
    """The paired difference and its p, or what stands for two rows that are no pairs."""
    if row is best or len(by_seed(row).keys() & by_seed(best).keys()) < 2:
        return "-", "-"
    pair = compare(row, best)
    p = "-" if math.isnan(pair.p) else f"{pair.p:.2g}"
    return with_spread(pair.mean, pair.deviation), p
