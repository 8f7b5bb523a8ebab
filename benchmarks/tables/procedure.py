"""What does the paper's procedure come to on its data, and what does the paper say of it?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from foveapool.labels import BASELINE, CLOSED_FORM, POOLINGS, SGD, TRAINED
from foveapool.records import ERROR, LESS, P_VALUE, VALIDATION, Row
from foveapool.report.tables import (
    choice_key,
    claims_table,
    format_spread,
    get_paper_error,
    load_paper_figures,
)
from foveapool.tabular import format_markdown
from tables.rows import (
    describe_fit,
    mark_best,
    name_task,
    order_tasks,
    read_errors,
    read_trainings,
)

PARAMETERS = "parameters"


def _of_procedure() -> list[Row]:
    return read_trainings("table1-*.csv") + read_trainings("sgd-*.csv")


def _papers(row: Row) -> str:
    """The paper's figure and the setting that it chose."""
    found = get_paper_error(row.network, row.data, row.pooling)
    if found is None:
        return "-"
    text = format_spread(*found)
    for each in load_paper_figures()[SGD if row.pooling == SGD else "table1"]:
        if (each["network"], each["data"]) == (row.network, row.data) and row.layer:
            alpha = f", alpha {each['alpha']}, {each['norm']}" if "alpha" in each else ""
            return f"{text} (layer {each['layer']}{alpha})"
    return text


def tabulate_procedure() -> str:
    """The paper's procedure beside the paper: settings by cross-validation, errors by test."""
    own = _of_procedure()
    starts = [row for row in read_trainings("trained-cnn-*.csv") if row.pooling == TRAINED]
    lines = []
    for network, data in dict.fromkeys((row.network, row.data) for row in own):
        for pooling in (BASELINE, CLOSED_FORM, TRAINED, SGD):
            lines += _lines(own, (network, data, pooling))[:1]
            if pooling == TRAINED:
                lines += _lines(starts, (network, data, pooling), ", searched as such")
    return format_markdown(_header("chosen"), lines)


def tabulate_known_settings() -> str:
    """All of a data set, without a search: the paper's setting and the default one."""
    own = read_trainings("settings-*.csv")
    own.sort(key=lambda row: order_tasks(row.network, row.data))
    keys = dict.fromkeys((row.network, row.data, row.pooling) for row in own)
    lines = [line for key in keys for line in _lines(own, key)]
    return format_markdown(_header("setting"), lines)


def _header(where: str) -> tuple[str, ...]:
    shown = ("error %", "paper", "less baseline, in pairs", "p", "10^6 parameters")
    return ("", "pooling", where, *shown)


def _lines(rows: Sequence[Row], at: tuple[str, str, str], more: str = "") -> list[tuple[str, ...]]:
    """A line for each setting of a pooling, in one network on one data set."""
    found = {(choice_key(row), row.metric): row for row in rows}
    lines = []
    for row in (r for r in rows if (r.network, r.data, r.pooling) == at and r.metric == ERROR):
        less, p = (found.get((choice_key(row), metric)) for metric in (LESS, P_VALUE))
        lines.append(
            (
                name_task(row.network, row.data),
                POOLINGS[row.pooling] + more,
                describe_fit(row) or "-",
                format_spread(row.mean, row.std),
                _papers(row),
                format_spread(less.mean, less.std) if less else "-",
                f"{p.mean:.2g}" if p else "-",
                f"{found[(choice_key(row), PARAMETERS)].mean / 1e6:.2f}",
            )
        )
    return lines


def tabulate_claims() -> str:
    """What the paper says of all its rows, counted for the paper and for ours."""
    return claims_table([*_of_procedure(), *read_trainings("settings-*.csv")]).markdown()


def tabulate_searches() -> str:
    """The best settings of each search, of those that were tried on all parts: five at most."""
    lines = []
    searched = [*_of_procedure(), *read_trainings("trained-cnn-*.csv")]
    for study in dict.fromkeys(row.study for row in searched):
        own = [r for r in read_trainings(f"{study}.csv") if r.metric == VALIDATION]
        full = max(row.n for row in own)
        best = sorted((row for row in own if row.n == full), key=lambda row: row.mean)[:5]
        for row in best:
            where = name_task(row.network, row.data)
            error = format_spread(row.mean, row.std)
            lines.append((where, POOLINGS[row.pooling], describe_fit(row), error, str(row.n)))
    header = ("", "pooling", "setting", "validation error %", "parts")
    return format_markdown(header, lines)


def tabulate_paper_rows() -> str:
    """The paper's rows: our error with the paper's in brackets; bold: the lowest of a line.

    What is searched as in the paper goes before what stands at known settings, and both before
    the forms; what a paired test does not tell from the lowest is bold too.
    """
    rows = read_errors("table1-*.csv sgd-*.csv") + read_errors("settings-*.csv forms-*.csv")
    header, lines = ("error %", *_COLUMNS), []
    for at in sorted(_list_tasks(), key=lambda at: order_tasks(*at)):
        here = [row for row in rows if (row.network, row.data) == at]
        found = [next(filter(wanted, here), None) for wanted, _ in _COLUMNS.values()]
        measured = [row for row in found if row]
        texts = iter(mark_best(measured)) if measured else iter(())
        cells = [next(texts) if row else "-" for row in found]
        papers = [name and get_paper_error(*at, name) for _, name in _COLUMNS.values()]
        shown = zip(cells, papers, strict=True)
        errors = (f"{text} ({paper[0]:.1f})" if paper else text for text, paper in shown)
        lines.append((name_task(*at), *errors))
    return format_markdown(header, lines)


def _list_tasks() -> list[tuple[str, str]]:
    """The networks and data sets of the paper's rows."""
    return [(each["network"], each["data"]) for each in load_paper_figures()["table1"]]


def _instead(row: Row) -> bool:
    """Closed form as in the paper: searched where there was a search, else as it is by default."""
    chosen = row.study.startswith("table1-") or row.alpha == "auto"
    return row.pooling == CLOSED_FORM and row.form == "replace" and chosen


def _behind_all(row: Row, pooling: str) -> bool:
    """Whether a pooling stands behind every convolution, its norm and its activation."""
    name = row.pooling.partition(",")[0]
    return (name, row.layer, row.form) == (pooling, "1, 2, 3", "after-activation")


# The columns: which rows are meant, and which pooling of the paper's is the same.
_COLUMNS: dict[str, tuple[Callable[[Row], bool], str]] = {
    POOLINGS[BASELINE]: (lambda row: row.pooling == BASELINE, BASELINE),
    "closed form instead of it": (_instead, CLOSED_FORM),
    POOLINGS[SGD]: (lambda row: row.pooling == SGD and row.form == "replace", SGD),
    "closed form behind every convolution": (lambda row: _behind_all(row, CLOSED_FORM), ""),
    "BlurPool as published": (lambda row: _behind_all(row, "blur"), ""),
}


TABLES: dict[str, Callable[[], str]] = {
    "procedure": tabulate_procedure,
    "known_settings": tabulate_known_settings,
    "claims": tabulate_claims,
    "searches": tabulate_searches,
    "paper_rows": tabulate_paper_rows,
}
