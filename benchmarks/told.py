"""What the tables of docs share: where rows are found, and how things are called in them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from foveapool.records import ERROR, Row, read_rows
from foveapool.report.tables import format_spread, latest_rows
from foveapool.statistics import Pair, compare_pairs

RESULTS = Path(__file__).parents[1] / "results"
NAMES = {
    "svhn-reduced": "reduced SVHN",
    "svhn": "SVHN",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "street-digits": "street digits",
}
NETWORKS = {"cnn": "CNN", "resnet18": "ResNet-18"}
DOUBT = 0.05  # two errors whose p is above it are not told apart
BASELINE, CLOSED, TRAINED = "baseline", "closed-form", "closed-form-trained"
POOLINGS = {
    BASELINE: "strided convolution",
    CLOSED: "closed form",
    TRAINED: "closed form, then trained",
    "sgd": "P by SGD",
    "sgd-local": "P by SGD, locality penalised",
    "average": "average",
    "max": "max",
    "blur": "BlurPool",
    "blur-5": "BlurPool 5 x 5",
    "max-blur": "max pooling, then BlurPool",
    "mixed": "mixed",
    "gated": "gated",
    "soft": "SoftPool",
    "lip": "LIP",
    "spectral": "spectral",
    "diffstride": "DiffStride",
    "aps": "APS",
    "lps": "LPS",
    "resnet-d": "ResNet-D shortcut",
    "lrlc": "LRLC",
    "coordconv": "CoordConv",
    "fconv": "F-Conv",
}


def rows_of(pattern: str) -> list[Row]:
    """The rows of those files of results/, the last where one was measured again."""
    found = [path for part in pattern.split() for path in sorted(RESULTS.glob(part))]
    return latest_rows(row for path in found for row in read_rows(path))


def errors_of(pattern: str) -> list[Row]:
    """Their test errors."""
    return [row for row in rows_of(pattern) if row.metric == ERROR]


def setting(row: Row) -> str:
    """Where a pooling is and how it was fitted."""
    parts = [
        f"layer {row.layer}" if row.layer else "",
        row.placement,
        f"alpha {row.alpha}" if row.alpha else "",
        row.norm,
    ]
    return ", ".join(part for part in parts if part)


def told(pair: Pair) -> tuple[str, str]:
    """A difference in pairs and its p, for two cells."""
    return f"{pair.mean:+.2f} +- {pair.std:.2f}", f"{pair.p:.2g}"


def best_bold(rows: Sequence[Row], digits: int = 1) -> list[str]:
    """Errors for cells; bold: the lowest, and those that pairs cannot tell from it."""
    best = min(rows, key=lambda row: row.mean)

    def cell(row: Row) -> str:
        text = format_spread(row.mean, row.std, digits)
        # Written so that no p, of equal differences, counts as not told apart.
        return f"**{text}**" if row is best or not compare_pairs(row, best).p <= DOUBT else text

    return [cell(row) for row in rows]
