"""Tables from rows: errors beside the paper's, the paper's claims counted for ours, rankings.

A table is plain text in cells, whatever it is written as: Markdown, CSV, LaTeX or a terminal's.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any

from foveapool.labels import BASELINE, CLOSED_FORM, REPLACE, SGD, label_cell
from foveapool.records import CE, ERROR, FLIP_RATE, LESS, P_VALUE, VALIDATION, Row
from foveapool.statistics import compare_pairs, index_by_seed
from foveapool.tabular import Table

Key = tuple[str, ...]
CHOICES = (
    "network",
    "data",
    "pooling",
    "layer",
    "placement",
    "form",
    "alpha",
    "norm",
    "components",
)
_APART = ("study", "epochs", "batch")  # what else has errors of its own
_PAIRED = (LESS, P_VALUE, CE, FLIP_RATE)  # begin what is of two networks, with a baseline's
_OF_PAPER = ("table1-", "sgd-")  # the studies that follow the paper's procedure
_KNOWN = "settings-"  # those at settings that are known, the paper's among them


def latest_rows(rows: Iterable[Row]) -> list[Row]:
    """Of rows that measure the same thing, the last one; in the order of the first.

    An error that was measured again begins its setting anew: what stands between the first and the
    last, but for the search, tells of other trainings. So does a difference from a baseline that
    has since changed, and with it a ratio.
    """
    rows = list(rows)
    last = {(row.metric, *setting_key(row)): number for number, row in enumerate(rows)}
    first: dict[Key, int] = {}
    for number, row in enumerate(rows):
        if row.metric == ERROR:
            first.setdefault(setting_key(row), number)
    found = {
        (metric, *key): rows[number]
        for (metric, *key), number in last.items()
        if metric == VALIDATION
        or not first.get(tuple(key), number) < number < last.get((ERROR, *key), number)
    }
    return [
        row
        for row in found.values()
        if not row.metric.startswith(_PAIRED) or _is_still_true(row, found)
    ]


def _is_still_true(row: Row, found: Mapping[Key, Row]) -> bool:
    """Whether a difference, its p or a ratio is of the errors found; untold, it may be."""
    nowhere = replace(row, layer="", placement="", form="", alpha="", norm="", components="")
    plain = setting_key(replace(nowhere, pooling=BASELINE))
    wanted = ((ERROR, *setting_key(row)), (ERROR, *plain), (LESS, *setting_key(row)))
    own, base, less = (found[key].values.split() if key in found else () for key in wanted)
    if not (own and base and less):
        return True
    # The baseline may have more seeds by now: the pairs are as they were.
    gains = [float(mine) - float(its) for mine, its in zip(own, base, strict=False)]
    return len(gains) == len(less) and all(
        math.isclose(gain, float(told), abs_tol=1e-6)
        for gain, told in zip(gains, less, strict=True)
    )


def distinct_rows(rows: Iterable[Row]) -> list[Row]:
    """Of rows in which several studies tell of the same trainings, the one that has most of them.

    Studies in one folder share trainings, a baseline above all. Rows of one setting that measured
    something else, since their studies differ in what a row does not say, all stay.
    """
    settings: dict[Key, list[Row]] = {}
    for row in latest_rows(rows):
        settings.setdefault((row.metric, row.epochs, row.batch, *choice_key(row)), []).append(row)
    found: list[Row] = []
    for own in settings.values():
        kept: dict[Key, Row] = {}
        for row in sorted(own, key=lambda row: -row.n):
            measured = tuple(row.values.split()) or ("mean", f"{row.mean:.10g}", str(row.n))
            if not any(other[: len(measured)] == measured for other in kept):
                kept[measured] = row
        found += kept.values()
    return found


def choice_key(row: Row) -> Key:
    """Which pooling is where, in which network, and how it was fitted: the columns `CHOICES`."""
    return tuple(getattr(row, name) for name in CHOICES)


def label_column(row: Row, name: str) -> str:
    """A column of a row for a cell: in the words of readers, and a dash where there is none."""
    return label_cell(name, getattr(row, name)) or "-"


def setting_key(row: Row) -> Key:
    """What has errors of its own: choices with their study, epochs and batch size."""
    return (*(getattr(row, name) for name in _APART), *choice_key(row))


def format_spread(mean: float, deviation: float, digits: int = 2) -> str:
    """A mean and its deviation, where there is one."""
    spread = "" if math.isnan(deviation) else f" +- {deviation:.{digits}f}"
    return f"{mean:.{digits}f}{spread}"


@cache
def load_paper_figures() -> dict[str, list[dict[str, Any]]]:
    """The paper's tables."""
    text = (resources.files("foveapool.report") / "paper.toml").read_text("utf-8")
    return tomllib.loads(text)


def get_paper_error(network: str, data: str, pooling: str) -> tuple[float, float] | None:
    """The paper's error for a pooling, wherever it put it, and its deviation; None if none."""
    key = SGD if pooling == SGD else "table1"
    column = "baseline" if pooling == BASELINE else "error"
    if pooling not in (BASELINE, CLOSED_FORM, SGD):
        return None
    for each in load_paper_figures()[key]:
        if (each["network"], each["data"]) == (network, data):
            mean, deviation = each[column]
            return mean, deviation
    return None


def _is_papers(row: Row) -> bool:
    """Whether a setting is the one that the paper chose, or the baseline, which has no choice."""
    if row.pooling == BASELINE:
        return True
    if row.form not in ("", REPLACE):
        return False
    for each in load_paper_figures()[SGD if row.pooling == SGD else "table1"]:
        if (each["network"], each["data"]) == (row.network, row.data):
            chosen = (each["layer"], each.get("alpha", ""), each.get("norm", ""))
            return chosen == (row.layer, row.alpha, row.norm)
    return False


def find_differing_columns(rows: Iterable[Row]) -> tuple[str, ...]:
    """Which of study, epochs and batch differ among the errors: columns that a table then needs."""
    errors = [row for row in rows if row.metric == ERROR]
    return tuple(name for name in _APART if len({getattr(row, name) for row in errors}) > 1)


def error_table(rows: Iterable[Row], first: Sequence[str] = ()) -> Table:
    """A line for each setting: error, the paper's, the gain over the baseline, what it costs.

    `first` are columns of a row to begin with, such as `find_differing_columns` finds.
    """
    rows = latest_rows(rows)
    errors = {setting_key(row): row for row in rows if row.metric == ERROR}
    own = {(*setting_key(row), row.metric): row for row in rows}
    lines = []
    for key, error in errors.items():

        def cell(metric: str, show: Callable[[Row], str], key: Key = key) -> str:
            row = own.get((*key, metric))
            return "-" if row is None else show(row)

        paper = None
        if error.study.startswith(_OF_PAPER) or _is_papers(error):
            paper = get_paper_error(error.network, error.data, error.pooling)
        lines.append(
            (
                *(label_column(error, name) for name in (*first, *CHOICES)),
                format_spread(error.mean, error.std),
                "-" if paper is None else format_spread(*paper),
                cell(LESS, lambda row: format_spread(row.mean, row.std)),
                cell(P_VALUE, lambda row: f"{row.mean:.2g}"),
                str(error.n),
                cell("parameters", lambda row: f"{row.mean / 1e6:.3f}"),
                cell("multiply-adds an image", lambda row: f"{row.mean / 1e6:.1f}"),
                cell("seconds a training", lambda row: f"{row.mean:.1f}"),
            )
        )
    more = ("paper", "less baseline", "p", "n", "10^6 parameters", "10^6 mult-adds", "s")
    return Table((*first, *CHOICES, "error %", *more), tuple(lines))


def _order_by_stage(row: Row) -> tuple[str, int, int, float]:
    return row.study, -int(row.epochs or 0), -row.n, row.mean


def selection_table(rows: Iterable[Row]) -> Table:
    """Every setting that a search looked at, the best first."""
    ordered = sorted(latest_rows(rows), key=_order_by_stage)
    columns = CHOICES[2:]  # behind network and data, which a search has one of
    lines = [
        (
            row.study,
            *(label_column(row, name) for name in columns),
            row.epochs,
            str(row.n),
            format_spread(row.mean, row.std),
        )
        for row in ordered
    ]
    return Table(("study", *columns, "epochs", "parts", "validation error %"), tuple(lines))


@dataclass(frozen=True)
class _Figures:
    """The mean errors of one network on one data set, by pooling."""

    network: str
    errors: dict[str, float]

    def better(self, one: str, other: str) -> bool | None:
        """Whether the first has the lower error; None where one was not measured."""
        if one not in self.errors or other not in self.errors:
            return None
        return self.errors[one] < self.errors[other]


# What the paper counts or says of all rows: which rows, and which pooling is the better one.
_CLAIMS: tuple[tuple[str, str, str, str], ...] = (
    ("ResNet: closed form below the baseline", "resnet18", CLOSED_FORM, BASELINE),
    ("CNN: closed form below the baseline", "cnn", CLOSED_FORM, BASELINE),
    ("closed form below P by SGD", "", CLOSED_FORM, SGD),
    ("P by SGD below the baseline", "", SGD, BASELINE),
)


def claims_table(rows: Iterable[Row]) -> Table:
    """The paper's claims over its settings, counted for the paper and for ours."""
    paper = []
    for each in load_paper_figures()["table1"]:
        names = (BASELINE, CLOSED_FORM, SGD)
        found = {name: get_paper_error(each["network"], each["data"], name) for name in names}
        errors = {name: error[0] for name, error in found.items() if error is not None}
        paper.append(_Figures(each["network"], errors))
    ours = _collect_errors(rows)
    lines = [
        (
            claim,
            _count_verdicts(paper, network, one, other),
            _count_verdicts(ours, network, one, other),
        )
        for claim, network, one, other in _CLAIMS
    ]
    return Table(("claim", "paper", "ours"), tuple(lines))


def _collect_errors(rows: Iterable[Row]) -> list[_Figures]:
    """The errors of the studies that follow the paper's tables; others vary what it fixed.

    Where the procedure was not followed, those of its own settings, which need no search.
    """
    errors = [row for row in latest_rows(rows) if row.metric == ERROR]
    known = [row for row in errors if row.study.startswith(_KNOWN) and _is_papers(row)]
    found: dict[Key, dict[str, float]] = {}
    for row in (*known, *(row for row in errors if row.study.startswith(_OF_PAPER))):
        found.setdefault((row.network, row.data), {})[row.pooling] = row.mean
    return [_Figures(network, errors) for (network, _), errors in found.items()]


def _count_verdicts(figures: Sequence[_Figures], network: str, one: str, other: str) -> str:
    asked = [each for each in figures if network in ("", each.network)]
    verdicts = [v for each in asked if (v := each.better(one, other)) is not None]
    return f"{sum(verdicts)} of {len(verdicts)}" if verdicts else "not measured"


def ranking_table(rows: Iterable[Row]) -> Table:
    """The settings by test error, the best first, and how far each is behind the best.

    Each network and data set, number of epochs and batch size is a ranking of its own. Trainings
    that several studies share stand in one line; the study named is one that has them all. Pairs
    are the seeds that a setting has in common with the best; where there are not two, difference
    and p are left open. p is that of one comparison; of many, some are small by chance.
    """
    rows = list(rows)
    sizes = {setting_key(row): row.mean for row in rows if row.metric == "parameters"}
    rankings: dict[Key, list[Row]] = {}
    for row in distinct_rows(row for row in rows if row.metric == ERROR):
        rankings.setdefault((row.network, row.data, row.epochs, row.batch), []).append(row)
    if not rankings:
        raise ValueError(f"rows: got none of {ERROR!r} among {len(rows)}, wanted some to rank")
    lines = []
    for own in rankings.values():
        # What is no number comes last; by itself it would come anywhere.
        ranked = sorted(own, key=lambda row: (math.isnan(row.mean), row.mean))
        for row in ranked:
            size = sizes.get(setting_key(row))
            lines.append(
                (
                    *(label_column(row, name) for name in CHOICES),
                    format_spread(row.mean, row.std),
                    *_compare_with_best(row, ranked[0]),
                    str(row.n),
                    "-" if size is None else f"{size / 1e6:.3f}",
                    row.study,
                )
            )
    more = ("error %", "behind the best", "p", "n", "10^6 parameters", "study")
    return Table((*CHOICES, *more), tuple(lines))


def _compare_with_best(row: Row, best: Row) -> tuple[str, str]:
    """The paired difference and its p, or what stands for two rows that are no pairs."""
    if row is best or len(index_by_seed(row).keys() & index_by_seed(best).keys()) < 2:
        return "-", "-"
    pair = compare_pairs(row, best)
    p = "-" if math.isnan(pair.p) else f"{pair.p:.2g}"
    return format_spread(pair.mean, pair.std), p


def list_lacking_rows(rows: list[Row], there: list[Row]) -> list[Row]:
    """Those of the first rows that the others lack, so that they have to be added.

    Of rows that measure the same thing the last counts: one with other numbers behind it has to be
    added again.
    """
    measured = _describe_measurement
    told, ever = ({measured(row) for row in each} for each in (latest_rows(there), there))
    taken = {measured(row) for row in latest_rows(rows)}

    def lacks(row: Row) -> bool:
        it = measured(row)
        return it not in (told if it in taken else ever)

    # What stands before the last of a setting's errors is taken for that of an older one.
    begun = {setting_key(row) for row in rows if row.metric in (ERROR, LESS) and lacks(row)}
    return [
        row
        for row in rows
        if lacks(row) or (row.metric != VALIDATION and setting_key(row) in begun)
    ]


def _describe_measurement(row: Row) -> str:
    """What a row says but for command and date; as text, since nan does not equal itself."""
    return str(replace(row, mean=float(row.mean), std=float(row.std), command="", date=""))
