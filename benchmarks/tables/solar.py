"""Does a pooling help a pretrained network to tell the damage of solar cells apart?"""

from __future__ import annotations

from collections.abc import Callable

from foveapool.labels import BASELINE, POOLINGS
from foveapool.records import ERROR, Row
from foveapool.report.tables import format_spread
from foveapool.statistics import adjust_by_holm, compare_pairs
from foveapool.tabular import format_markdown
from tables.rows import format_pair, read_trainings

STRIDED = POOLINGS[BASELINE]
BALANCED = "balanced test error %"


def tabulate_frozen() -> str:
    """The network stays as it is and a linear layer reads it, the lowest error first."""
    rows = read_trainings("solar-cells-frozen.csv")
    errors = sorted((row for row in rows if row.metric == ERROR), key=lambda row: row.mean)
    balanced = {_key(row): row for row in rows if row.metric == BALANCED}
    (plain,) = (row for row in errors if row.pooling == "strided")
    pairs = {_key(row): compare_pairs(plain, row) for row in errors if row is not plain}
    adjusted = dict(zip(pairs, adjust_by_holm([pair.p for pair in pairs.values()]), strict=True))
    lines = []
    for row in errors:
        key, less, p = _key(row), "-", "-"
        if row is not plain:
            less, p = format_pair(pairs[key])[0], f"{adjusted[key]:.2g}"
        cells = [format_spread(each.mean, each.std) for each in (row, balanced[key])]
        alpha = row.alpha.replace(" trace", " trace(B)/N") or "-"
        name = STRIDED if row is plain else POOLINGS.get(row.pooling, row.pooling)
        lines.append((name, f"`{row.form}`" if row.form else "-", alpha, *cells, less, p))
    header = ("pooling", "form", "alpha", "error %", "balanced error %", "less strided, in pairs")
    return format_markdown((*header, f"p, Holm, {plain.n} splits"), lines)


def _key(row: Row) -> tuple[str, str]:
    return row.pooling, row.form


TABLES: dict[str, Callable[[], str]] = {"solar_cells_frozen": tabulate_frozen}
