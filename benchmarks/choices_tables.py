"""The tables of docs/results.md about choices: those of the method, of the training, of the data.

Everything comes from results/*.csv; what is not measured yet is not in them.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Sequence

from told import (
    BASELINE,
    CLOSED,
    POOLINGS,
    TRAINED,
    best_bold,
    errors_of,
    rows_of,
    setting,
    told,
)

from foveapool.records import Row
from foveapool.report.study_figures import parse_share
from foveapool.report.tables import Table, format_spread, get_paper_error
from foveapool.statistics import compare_pairs, index_by_seed
from foveapool.study.rows import DIVERGED, LOSS
from foveapool.training.recipe import get_paper_recipe

CHOICES = {
    "": "l2, as it is by default",
    "normalize False": "channels not normalized",
    "weighting frequency": "classes weighted by their frequency",
    "center aligned": "centers in the middle of blocks",
    "sign sum": "signs by the sum of a row",
}
AUTO = "auto"


def ablations() -> str:
    """Each choice against the default, in pairs."""
    rows = [
        row
        for row in errors_of("ablations.csv")
        if (row.alpha, row.components) == (AUTO, "2") and row.pooling != TRAINED
    ]
    usual = next(row for row in rows if (row.pooling, row.norm) == (CLOSED, "l2"))
    lines = []
    for row in rows:
        cells = ("-", "-") if row is usual else told(compare_pairs(row, usual))
        lines.append((_choice(row), format_spread(row.mean, row.std), *cells))
    header = ("choice", "error %", "less the default, in pairs", "p")
    return Table(header, tuple(lines)).markdown()


def components() -> str:
    """Error by the number of components, a column a pooling; those of SGD as far as measured."""
    rows = [
        row
        for row in errors_of("ablations.csv replaced.csv")
        if row.layer == "3" and row.norm in ("", "l2") and row.alpha in ("", AUTO)
    ]
    names = ("sgd", CLOSED, TRAINED)
    found = {(row.components, row.pooling): row for row in rows}
    lines = []
    for count in sorted({row.components for row in rows if row.pooling in names}, key=int):
        own = [found[(count, name)] for name in names if (count, name) in found]
        cells = dict(zip([row.pooling for row in own], best_bold(own), strict=True))
        lines.append((count, *(cells.get(name, "-") for name in names)))
    return Table(("components", *(POOLINGS[name] for name in names)), tuple(lines)).markdown()


def _choice(row: Row) -> str:
    choice = row.pooling.partition(", ")[2]
    if choice.startswith("class_cap"):
        return f"{choice.split()[-1]} images a class to fit on"
    if choice.startswith("window"):
        width = 2 * int(choice.split()[-1]) + 1
        return f"a place sees {width} x {width} of the 8 x 8 map"
    return row.norm if row.norm != "l2" else CHOICES[choice]


def alphas_and_norms() -> str:
    """Error by alpha and norm at the third layer."""
    rows = [r for r in errors_of("ablations.csv") if r.pooling == CLOSED and r.components == "2"]
    norms = sorted({row.norm for row in rows})
    found = {(row.alpha, row.norm): row for row in rows}
    lines = []
    for alpha in dict.fromkeys(row.alpha for row in rows):
        one, other = (found[(alpha, norm)] for norm in norms)
        cells = [format_spread(row.mean, row.std) for row in (one, other)]
        lines.append((alpha, *cells, *told(compare_pairs(one, other))))
    header = ("alpha", *norms, f"{norms[0]} less {norms[1]}, in pairs", "p")
    return Table(header, tuple(lines)).markdown()


def batch_sizes() -> str:
    """Error by batch size, baseline and poolings; 128 is the recipe's, from the other studies."""
    rows = [*errors_of("batch-size.csv"), *errors_of("ablations.csv")]
    wanted = (
        (BASELINE, "", ""),
        (CLOSED, "5", "l1"),
        (CLOSED, AUTO, "l2"),
        (TRAINED, AUTO, "l2"),
    )
    found = {
        (row.batch, row.pooling, row.alpha, row.norm): row
        for row in rows
        if row.components in ("", "2")
    }
    lines = []
    for batch in sorted({row.batch for row in rows}, key=int):
        own = [found[(batch, *each)] for each in wanted]
        gain = compare_pairs(own[2], own[0])
        cells = [format_spread(row.mean, row.std, 1) for row in own]
        lines.append((batch, *cells, *told(gain), str(gain.n)))
    paper = [get_paper_error("cnn", "svhn-reduced", pooling) for pooling in (BASELINE, CLOSED)]
    lines.append(("paper", *(format_spread(*each, 1) for each in paper if each), *["-"] * 5))
    names = (
        POOLINGS[BASELINE],
        "closed form, alpha 5, l1, the paper's",
        "closed form, alpha auto",
        "then trained",
    )
    header = ("batch", *names, "closed form, auto, less strided", "p", "seeds")
    return Table(header, tuple(lines)).markdown()


def rates() -> str:
    """The ResNet's closed form trained on at several rates, in pairs with it and the baseline."""
    rows = errors_of("table1-resnet18-svhn-reduced.csv trained-resnet18-svhn-reduced.csv")
    frozen = next(row for row in rows if row.pooling == CLOSED)
    plain = next(row for row in rows if row.pooling == BASELINE)
    moved = sorted((row for row in rows if row.pooling.startswith(TRAINED)), key=_rate)
    lines = []
    for row in (frozen, *moved):
        rate = "0, P is fixed" if row is frozen else f"{_rate(row):g}"
        against = ("-", "-") if row is frozen else told(compare_pairs(row, frozen))
        error = format_spread(row.mean, row.std)
        lines.append((rate, error, *against, *told(compare_pairs(row, plain))))
    header = ("rate of P, times all others'", "error %", "less P fixed", "p", "less baseline", "p")
    return Table(header, tuple(lines)).markdown()


def _rate(row: Row) -> float:
    found = re.search(r"pooling rate ([0-9.e-]+)", row.pooling)
    return float(found[1]) if found else 1.0


def final_norm() -> str:
    """The ResNet without its last batch-norm at two rates, and how many trainings diverged."""
    files = "final-norm.csv final-norm-rate-*.csv"
    found = {(_where(row), row.metric): row for row in rows_of(files)}
    lines = []
    for row in errors_of(files):
        diverged, loss = (found.get((_where(row), metric)) for metric in (DIVERGED, LOSS))
        count = f"{diverged.mean:.0f} of {row.n}" if diverged else f"none of {row.n}"
        others = [value for value in row.values.split() if float(value) < 100]
        cells = (_listed(others, ".1f"), _listed(loss.values.split(), ".2g") if loss else "-")
        lines.append((_recipe_rate(row), POOLINGS[row.pooling], setting(row) or "-", count, *cells))
    header = ("rate", "pooling", "setting", "diverged", "error % of the others", "their loss")
    return Table(header, tuple(lines)).markdown()


def _recipe_rate(row: Row) -> str:
    """All weights' learning rate: the recipe's, unless the command set another."""
    found = re.search(r"recipe\.lr=([\d.]+)", row.command)
    return found[1] if found else f"{get_paper_recipe('resnet18', row.data).lr:g}"


def _listed(values: Sequence[str], form: str) -> str:
    return ", ".join(f"{float(value):{form}}" for value in values) or "-"


def _where(row: Row) -> tuple[str, ...]:
    return row.study, row.pooling, row.layer, row.placement


def shares() -> str:
    """Error by the share of SVHN; bold: the best of a line and what is not told apart from it."""
    rows = errors_of("shares.csv")
    names = (BASELINE, "sgd", CLOSED, TRAINED)
    found = {(parse_share(row)[1], row.pooling): row for row in rows}
    lines = []
    for percent in sorted({parse_share(row)[1] for row in rows}):
        own = [found[(percent, name)] for name in names]
        pairs = [told(compare_pairs(own[3], own[i])) for i in (0, 1)]
        lines.append((f"{percent:g} %", *best_bold(own), *(" p ".join(each) for each in pairs)))
    against = (f"trained less {POOLINGS[BASELINE]}", "trained less SGD")
    header = ("of SVHN", *(POOLINGS[name] for name in names), *against)
    return Table(header, tuple(lines)).markdown()


def repeats() -> str:
    """The same images, recipe and seeds trained twice: 5 % of SVHN is reduced SVHN."""
    once = [row for row in errors_of("replaced.csv") if row.layer in ("", "3")]
    lines = []
    for row in (row for row in errors_of("shares.csv") if parse_share(row)[1] == 5):
        same = next(r for r in once if (r.pooling, r.alpha) == (row.pooling, row.alpha))
        one, other = index_by_seed(same), index_by_seed(row)
        apart = [one[seed] - other[seed] for seed in other]
        typical = math.sqrt(statistics.mean(each**2 for each in apart))
        cells = [_listed([str(run[seed]) for seed in other], ".1f") for run in (one, other)]
        largest = max(map(abs, apart))
        lines.append((POOLINGS[row.pooling], *cells, f"{typical:.1f}", f"{largest:.1f}"))
    header = ("pooling, layer 3", "one run's errors %", "another's", "apart, rms", "at most")
    return Table(header, tuple(lines)).markdown()


CHOICES_TABLES: dict[str, Callable[[], str]] = {
    "ablations": ablations,
    "components": components,
    "alphas_and_norms": alphas_and_norms,
    "batch_sizes": batch_sizes,
    "rates": rates,
    "final_norm": final_norm,
    "shares": shares,
    "repeats": repeats,
}
