"""What do the choices matter: those of the method, of the training, of the data?"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Sequence

from foveapool.labels import BASELINE, CLOSED_FORM, POOLINGS, SGD, TRAINED
from foveapool.records import Row
from foveapool.report.study_figures import parse_share
from foveapool.report.tables import format_spread, get_paper_error
from foveapool.statistics import compare_pairs, index_by_seed
from foveapool.study.rows import DIVERGED, LOSS
from foveapool.tabular import format_markdown
from foveapool.training.recipe import get_paper_recipe
from tables.rows import describe_fit, format_pair, mark_best, read_errors, read_trainings

CHOICES = {
    "": "l2, as it is by default",
    "normalize False": "channels not normalized",
    "weighting frequency": "classes weighted by their frequency",
    "center aligned": "centers in the middle of blocks",
    "sign sum": "signs by the sum of a row",
}
AUTO = "auto"


def tabulate_ablations() -> str:
    """Each choice against the default, in pairs."""
    rows = [
        row
        for row in read_errors("ablations.csv")
        if (row.alpha, row.components) == (AUTO, "2") and row.pooling != TRAINED
    ]
    usual = next(row for row in rows if (row.pooling, row.norm) == (CLOSED_FORM, "l2"))
    lines = []
    for row in rows:
        cells = ("-", "-") if row is usual else format_pair(compare_pairs(row, usual))
        lines.append((_choice(row), format_spread(row.mean, row.std), *cells))
    header = ("choice", "error %", "less the default, in pairs", "p")
    return format_markdown(header, lines)


def tabulate_components() -> str:
    """Error by the number of components, a column a pooling; those of SGD as far as measured."""
    rows = [
        row
        for row in read_errors("ablations.csv replaced.csv")
        if row.layer == "3" and row.norm in ("", "l2") and row.alpha in ("", AUTO)
    ]
    names = (SGD, CLOSED_FORM, TRAINED)
    found = {(row.components, row.pooling): row for row in rows}
    lines = []
    for count in sorted({row.components for row in rows if row.pooling in names}, key=int):
        own = [found[(count, name)] for name in names if (count, name) in found]
        cells = dict(zip([row.pooling for row in own], mark_best(own), strict=True))
        lines.append((count, *(cells.get(name, "-") for name in names)))
    return format_markdown(("components", *(POOLINGS[name] for name in names)), lines)


def _choice(row: Row) -> str:
    choice = row.pooling.partition(", ")[2]
    if choice.startswith("class_cap"):
        return f"{choice.split()[-1]} images a class to fit on"
    if choice.startswith("window"):
        width = 2 * int(choice.split()[-1]) + 1
        return f"a place sees {width} x {width} of the 8 x 8 map"
    return row.norm if row.norm != "l2" else CHOICES[choice]


def tabulate_alphas_and_norms() -> str:
    """Error by alpha and norm at the third layer."""
    rows = [
        r for r in read_errors("ablations.csv") if r.pooling == CLOSED_FORM and r.components == "2"
    ]
    norms = sorted({row.norm for row in rows})
    found = {(row.alpha, row.norm): row for row in rows}
    lines = []
    for alpha in dict.fromkeys(row.alpha for row in rows):
        one, other = (found[(alpha, norm)] for norm in norms)
        cells = [format_spread(row.mean, row.std) for row in (one, other)]
        lines.append((alpha, *cells, *format_pair(compare_pairs(one, other))))
    header = ("alpha", *norms, f"{norms[0]} less {norms[1]}, in pairs", "p")
    return format_markdown(header, lines)


def tabulate_batch_sizes() -> str:
    """Error by batch size, baseline and poolings; 128 is the recipe's, from the other studies."""
    rows = [*read_errors("batch-size.csv"), *read_errors("ablations.csv")]
    wanted = (
        (BASELINE, "", ""),
        (CLOSED_FORM, "5", "l1"),
        (CLOSED_FORM, AUTO, "l2"),
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
        lines.append((batch, *cells, *format_pair(gain), str(gain.n)))
    paper = [get_paper_error("cnn", "svhn-reduced", pooling) for pooling in (BASELINE, CLOSED_FORM)]
    lines.append(("paper", *(format_spread(*each, 1) for each in paper if each), *["-"] * 5))
    names = (
        POOLINGS[BASELINE],
        "closed form, alpha 5, l1, the paper's",
        "closed form, alpha auto",
        "then trained",
    )
    header = ("batch", *names, "closed form, auto, less strided", "p", "seeds")
    return format_markdown(header, lines)


def tabulate_rates() -> str:
    """The ResNet's closed form trained on at several rates, in pairs with it and the baseline."""
    rows = read_errors("table1-resnet18-svhn-reduced.csv trained-resnet18-svhn-reduced.csv")
    frozen = next(row for row in rows if row.pooling == CLOSED_FORM)
    plain = next(row for row in rows if row.pooling == BASELINE)
    moved = sorted((row for row in rows if row.pooling.startswith(TRAINED)), key=_rate)
    lines = []
    for row in (frozen, *moved):
        rate = "0, P is fixed" if row is frozen else f"{_rate(row):g}"
        against = ("-", "-") if row is frozen else format_pair(compare_pairs(row, frozen))
        error = format_spread(row.mean, row.std)
        lines.append((rate, error, *against, *format_pair(compare_pairs(row, plain))))
    header = ("rate of P, times all others'", "error %", "less P fixed", "p", "less baseline", "p")
    return format_markdown(header, lines)


def _rate(row: Row) -> float:
    found = re.search(r"pooling rate ([0-9.e-]+)", row.pooling)
    return float(found[1]) if found else 1.0


def tabulate_final_norm() -> str:
    """The ResNet without its last batch-norm at two rates, and how many trainings diverged."""
    files = "final-norm.csv final-norm-rate-*.csv"
    found = {(_where(row), row.metric): row for row in read_trainings(files)}
    lines = []
    for row in read_errors(files):
        diverged, loss = (found.get((_where(row), metric)) for metric in (DIVERGED, LOSS))
        count = f"{diverged.mean:.0f} of {row.n}" if diverged else f"none of {row.n}"
        others = [value for value in row.values.split() if float(value) < 100]
        cells = (_listed(others, ".1f"), _listed(loss.values.split(), ".2g") if loss else "-")
        lines.append(
            (_recipe_rate(row), POOLINGS[row.pooling], describe_fit(row) or "-", count, *cells)
        )
    header = ("rate", "pooling", "setting", "diverged", "error % of the others", "their loss")
    return format_markdown(header, lines)


def _recipe_rate(row: Row) -> str:
    """All weights' learning rate: the recipe's, unless the command set another."""
    found = re.search(r"recipe\.lr=([\d.]+)", row.command)
    return found[1] if found else f"{get_paper_recipe('resnet18', row.data).lr:g}"


def _listed(values: Sequence[str], form: str) -> str:
    return ", ".join(f"{float(value):{form}}" for value in values) or "-"


def _where(row: Row) -> tuple[str, ...]:
    return row.study, row.pooling, row.layer, row.placement


def tabulate_shares() -> str:
    """Error by the share of SVHN; bold: the best of a line and what is not told apart from it."""
    rows = read_errors("shares.csv")
    names = (BASELINE, SGD, CLOSED_FORM, TRAINED)
    found = {(parse_share(row)[1], row.pooling): row for row in rows}
    lines = []
    for percent in sorted({parse_share(row)[1] for row in rows}):
        own = [found[(percent, name)] for name in names]
        pairs = [format_pair(compare_pairs(own[3], own[i])) for i in (0, 1)]
        lines.append((f"{percent:g} %", *mark_best(own), *(" p ".join(each) for each in pairs)))
    against = (f"trained less {POOLINGS[BASELINE]}", "trained less SGD")
    header = ("of SVHN", *(POOLINGS[name] for name in names), *against)
    return format_markdown(header, lines)


def tabulate_repeats() -> str:
    """The same images, recipe and seeds trained twice: 5 % of SVHN is reduced SVHN."""
    once = [row for row in read_errors("replaced.csv") if row.layer in ("", "3")]
    lines = []
    for row in (row for row in read_errors("shares.csv") if parse_share(row)[1] == 5):
        same = next(r for r in once if (r.pooling, r.alpha) == (row.pooling, row.alpha))
        one, other = index_by_seed(same), index_by_seed(row)
        apart = [one[seed] - other[seed] for seed in other]
        typical = math.sqrt(statistics.mean(each**2 for each in apart))
        cells = [_listed([str(run[seed]) for seed in other], ".1f") for run in (one, other)]
        largest = max(map(abs, apart))
        lines.append((POOLINGS[row.pooling], *cells, f"{typical:.1f}", f"{largest:.1f}"))
    header = ("pooling, layer 3", "one run's errors %", "another's", "apart, rms", "at most")
    return format_markdown(header, lines)


TABLES: dict[str, Callable[[], str]] = {
    "ablations": tabulate_ablations,
    "components": tabulate_components,
    "alphas_and_norms": tabulate_alphas_and_norms,
    "batch_sizes": tabulate_batch_sizes,
    "rates": tabulate_rates,
    "final_norm": tabulate_final_norm,
    "shares": tabulate_shares,
    "repeats": tabulate_repeats,
}
