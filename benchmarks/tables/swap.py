"""What does a swap do to a trained network: right after it, and fine-tuned?"""

from __future__ import annotations

from collections.abc import Callable

from foveapool.records import ERROR, BenchmarkRow
from foveapool.report.tables import format_spread
from foveapool.tabular import format_markdown
from tables.rows import read_measurements

SWAPPED = "right after the swap"


def tabulate_swap() -> str:
    """What each mode does to a trained network, right after the swap and fine-tuned."""
    rows = read_measurements("swap")
    plain = {row.case: row for row in rows if not row.options}
    found = {(_swapped(row), row.metric, row.case): row for row in rows if row.options}
    lines = [("untouched", "-", "-", _error(plain["before"]), "-", "-")]
    for own in dict.fromkeys(key[0] for key in found):
        after, tuned = (found[(own, ERROR, stage)] for stage in (SWAPPED, "fine-tuned"))
        given = found.get((own, "explained variance %", SWAPPED))
        lines.append((*own, _error(after), _error(tuned), f"{given.mean:.0f}" if given else "-"))
    lines.append(
        (
            "untouched, trained as long",
            "-",
            "-",
            "-",
            _error(plain["untouched, trained on as long"]),
            "-",
        )
    )
    header = (
        "mode",
        "layers",
        "alpha, components",
        "error % right after the swap",
        "fine-tuned",
        "output's variance given back, %",
    )
    return format_markdown(header, lines)


def _swapped(row: BenchmarkRow) -> tuple[str, str, str]:
    """A line's mode with what is unusual about it, its layers, and alpha with components."""
    mode, *unusual = row.options.split(", ")
    # "auto" was half of trace(B)/N in every mode when these were measured.
    alpha = row.alpha.replace("auto", "0.5 traces").replace(" traces", " trace(B)/N")
    return ", ".join([f"`{mode}`", *unusual]), row.layer, f"{alpha}, {row.components}"


def _error(row: BenchmarkRow) -> str:
    return format_spread(row.mean, row.std, 1)


def tabulate_after() -> str:
    """The tutorial's network in mode `after`, by alpha."""
    return format_markdown(
        ["network", "alpha", "test accuracy %"],
        [[r.case, r.alpha or "-", _error(r)] for r in read_measurements("after")],
    )


def tabulate_answers() -> str:
    """How many of a pretrained network's answers are left right after the swap, by alpha."""
    rows = read_measurements("agreement")
    alphas = sorted({row.alpha for row in rows}, key=lambda each: float(each.split()[0]))
    found = {(row.case, row.maps, row.alpha): f"{row.mean:.0f}" for row in rows}
    lines = [
        [case.replace("mode ", "`") + "`", maps, *(found.get((case, maps, a), "-") for a in alphas)]
        for case, maps in dict.fromkeys((row.case, row.maps) for row in rows)
    ]
    return format_markdown(["mode", "maps", *alphas], lines)


TABLES: dict[str, Callable[[], str]] = {
    "swap": tabulate_swap,
    "after": tabulate_after,
    "answers": tabulate_answers,
}
