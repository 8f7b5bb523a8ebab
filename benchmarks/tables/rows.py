"""The rows of results/*.csv, and what the cells of several tables have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from foveapool.labels import DATA, NETWORKS
from foveapool.records import ERROR, BenchmarkRow, Row, read_benchmark_rows, read_rows
from foveapool.report.tables import format_spread, latest_rows
from foveapool.statistics import Pair, compare_pairs

RESULTS = Path(__file__).parents[2] / "results"
DOUBT = 0.05  # two errors whose p is above it are not told apart


def read_trainings(pattern: str) -> list[Row]:
    """The rows of trainings in those files of results/, the last where one was measured again."""
    found = [path for part in pattern.split() for path in sorted(RESULTS.glob(part))]
    return latest_rows(row for path in found for row in read_rows(path))


def read_errors(pattern: str) -> list[Row]:
    """Their test errors."""
    return [row for row in read_trainings(pattern) if row.metric == ERROR]


def read_measurements(name: str) -> list[BenchmarkRow]:
    """The rows of a benchmark, the last where one was measured again; none without its file."""
    path = RESULTS / f"{name}.csv"
    rows = read_benchmark_rows(path) if path.is_file() else []
    # What was measured, and on which machine: all but the figures, and where they come from.
    figures = {"mean": 0.0, "std": 0.0, "n": 0, "values": "", "seconds": "", "seeds": ""}
    origin = dict.fromkeys(("command", "commit", "torch", "date"), "")
    return list({replace(row, **figures, **origin): row for row in rows}.values())


def name_machine(row: BenchmarkRow) -> str:
    """The machine, as a head of a column takes it."""
    return row.hardware.removeprefix("NVIDIA ")


def name_task(network: str, data: str) -> str:
    """A network on its data, as readers know them."""
    return f"{NETWORKS[network]}, {DATA[data]}"


def order_tasks(network: str, data: str) -> tuple[int, int]:
    """Networks and data sets as their labels come, reduced SVHN first."""
    return list(NETWORKS).index(network), list(DATA).index(data)


def describe_fit(row: Row) -> str:
    """At which layer a pooling is and how it was fitted."""
    parts = [
        f"layer {row.layer}" if row.layer else "",
        row.placement,
        f"alpha {row.alpha}" if row.alpha else "",
        row.norm,
    ]
    return ", ".join(part for part in parts if part)


def format_pair(pair: Pair) -> tuple[str, str]:
    """A difference in pairs and its p, for two cells."""
    return f"{pair.mean:+.2f} +- {pair.std:.2f}", f"{pair.p:.2g}"


def mark_best(rows: Sequence[Row], digits: int = 1) -> list[str]:
    """Errors for cells; bold: the lowest, and those that pairs cannot tell from it."""
    best = min(rows, key=lambda row: row.mean)

    def cell(row: Row) -> str:
        text = format_spread(row.mean, row.std, digits)
        # Written so that no p, of equal differences, counts as not told apart.
        return f"**{text}**" if row is best or not compare_pairs(row, best).p <= DOUBT else text

    return [cell(row) for row in rows]
