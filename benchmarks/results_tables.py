"""The tables of docs/results.md: the paper's procedure on real data, and every pooling beside it.

Everything comes from results/*.csv; what is not measured yet is not in them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from told import (
    BASELINE,
    CLOSED,
    NAMES,
    NETWORKS,
    POOLINGS,
    TRAINED,
    best_bold,
    errors_of,
    rows_of,
    setting,
    told,
)

from foveapool.records import ERROR, LESS, P_VALUE, VALIDATION, Row
from foveapool.report.tables import (
    Table,
    claims_table,
    format_spread,
    get_paper_error,
    load_paper_figures,
    place_key,
)
from foveapool.statistics import compare_pairs

PARAMETERS = "parameters"


def _of_procedure() -> list[Row]:
    return rows_of("table1-*.csv") + rows_of("sgd-*.csv")


def _papers(row: Row) -> str:
    """The paper's figure and the setting that it chose."""
    found = get_paper_error(row.network, row.data, row.pooling)
    if found is None:
        return "-"
    text = format_spread(*found)
    for each in load_paper_figures()["sgd" if row.pooling == "sgd" else "table1"]:
        if (each["network"], each["data"]) == (row.network, row.data) and row.layer:
            alpha = f", alpha {each['alpha']}, {each['norm']}" if "alpha" in each else ""
            return f"{text} (layer {each['layer']}{alpha})"
    return text


def procedure() -> str:
    """The paper's procedure beside the paper: settings by cross-validation, errors by test."""
    own = _of_procedure()
    starts = [row for row in rows_of("trained-cnn-*.csv") if row.pooling == TRAINED]
    lines = []
    for network, data in dict.fromkeys((row.network, row.data) for row in own):
        for pooling in (BASELINE, CLOSED, TRAINED, "sgd"):
            lines += _lines(own, (network, data, pooling))[:1]
            if pooling == TRAINED:
                lines += _lines(starts, (network, data, pooling), ", searched as such")
    return Table(_header("chosen"), tuple(lines)).markdown()


def known_settings() -> str:
    """All of a data set, without a search: the paper's setting and the default one."""
    own = sorted(rows_of("settings-*.csv"), key=_order)
    keys = dict.fromkeys((row.network, row.data, row.pooling) for row in own)
    lines = [line for key in keys for line in _lines(own, key)]
    return Table(_header("setting"), tuple(lines)).markdown()


def _header(where: str) -> tuple[str, ...]:
    shown = ("error %", "paper", "less baseline, in pairs", "p", "10^6 parameters")
    return ("", "pooling", where, *shown)


def _lines(rows: Sequence[Row], at: tuple[str, str, str], more: str = "") -> list[tuple[str, ...]]:
    """A line for each setting of a pooling, in one network on one data set."""
    found = {(place_key(row), row.metric): row for row in rows}
    lines = []
    for row in (r for r in rows if (r.network, r.data, r.pooling) == at and r.metric == ERROR):
        less, p = (found.get((place_key(row), metric)) for metric in (LESS, P_VALUE))
        lines.append(
            (
                f"{NETWORKS[row.network]}, {NAMES[row.data]}",
                POOLINGS[row.pooling] + more,
                setting(row) or "-",
                format_spread(row.mean, row.std),
                _papers(row),
                format_spread(less.mean, less.std) if less else "-",
                f"{p.mean:.2g}" if p else "-",
                f"{found[(place_key(row), PARAMETERS)].mean / 1e6:.2f}",
            )
        )
    return lines


def claims() -> str:
    """What the paper says of all its rows, counted for the paper and for ours."""
    return claims_table([*_of_procedure(), *rows_of("settings-*.csv")]).markdown()


def searches() -> str:
    """The best settings of each search, of those that were tried on all parts: five at most."""
    lines = []
    searched = [*_of_procedure(), *rows_of("trained-cnn-*.csv")]
    for study in dict.fromkeys(row.study for row in searched):
        own = [r for r in rows_of(f"{study}.csv") if r.metric == VALIDATION]
        full = max(row.n for row in own)
        best = sorted((row for row in own if row.n == full), key=lambda row: row.mean)[:5]
        for row in best:
            where = f"{NETWORKS[row.network]}, {NAMES[row.data]}"
            error = format_spread(row.mean, row.std)
            lines.append((where, POOLINGS[row.pooling], setting(row), error, str(row.n)))
    header = ("", "pooling", "setting", "validation error %", "parts")
    return Table(header, tuple(lines)).markdown()


def trained_on() -> str:
    """What training on from the closed form changes, in pairs with the closed form alone."""
    rows = sorted(errors_of("replaced*.csv table1-*.csv settings-*.csv"), key=_order)
    frozen = {_place(row): row for row in rows if row.pooling == CLOSED}
    lines = []
    for row in (row for row in rows if row.pooling == TRAINED):
        start = frozen[_place(row)]
        pair = compare_pairs(row, start)
        lines.append(
            (
                f"{NETWORKS[row.network]}, {NAMES[row.data]}",
                setting(row),
                format_spread(start.mean, start.std),
                format_spread(row.mean, row.std),
                *told(pair),
                str(row.n),
            )
        )
    header = ("", "setting", "closed form", "then trained", "difference, in pairs", "p", "seeds")
    return Table(header, tuple(lines)).markdown()


def _order(row: Row) -> tuple[int, int]:
    """Networks and data sets as they are named, reduced SVHN first."""
    return list(NETWORKS).index(row.network), list(NAMES).index(row.data)


def _place(row: Row) -> tuple[str, ...]:
    return (row.network, row.data, row.layer, row.placement, row.alpha, row.norm, row.components)


def poolings() -> str:
    """Every pooling at each layer of the CNN."""
    return _beside(errors_of("replaced.csv"))


def poolings_resnet18() -> str:
    """Some poolings at each place of the ResNet."""
    return _beside(errors_of("replaced-resnet18.csv"))


def _beside(rows: Sequence[Row]) -> str:
    """Error by pooling and place; bold: the best of a place and what is not told apart from it."""
    places = sorted({_spot(row) for row in rows if row.layer})
    plain = next(row for row in rows if row.pooling == BASELINE)
    lines = [(POOLINGS[BASELINE], *[format_spread(plain.mean, plain.std, 1)] * len(places))]
    cells: dict[tuple[str, str], str] = {}
    for spot in places:
        own = [row for row in rows if _spot(row) == spot]
        named = [(_named(row), spot) for row in own]
        cells |= dict(zip(named, best_bold(own), strict=True))
    lowest: dict[str, float] = {}
    for row in (row for row in rows if row.layer):
        lowest[_named(row)] = min(row.mean, lowest.get(_named(row), row.mean))
    for name in sorted(lowest, key=lambda name: -lowest[name]):
        lines.append((name, *(cells.get((name, spot), "-") for spot in places)))
    return Table(("pooling", *places), tuple(lines)).markdown()


def _spot(row: Row) -> str:
    return f"layer {row.layer}, {row.placement}" if row.placement else f"layer {row.layer}"


def _named(row: Row) -> str:
    """A pooling in words; a closed form with its alpha, where "auto" is what users get."""
    if not row.alpha:
        return POOLINGS[row.pooling]
    return f"{POOLINGS[row.pooling]}, alpha {row.alpha}"


def rivals() -> str:
    """Each pooling less ours, in the same layer, in pairs."""
    rows = [row for row in errors_of("replaced.csv") if row.layer]
    layers = sorted({row.layer for row in rows})
    ours = {row.layer: row for row in rows if (row.pooling, row.alpha) == (TRAINED, "auto")}

    def cell(own: Sequence[Row]) -> str:
        if not own:
            return "-"
        pair = compare_pairs(own[0], ours[own[0].layer])
        return f"{pair.mean:+.1f} (p {pair.p:.2g})"

    lines = []
    for name in dict.fromkeys(_named(row) for row in rows if row not in ours.values()):
        cells = [cell([r for r in rows if (_named(r), r.layer) == (name, n)]) for n in layers]
        lines.append((name, *cells))
    return Table(("pooling", *(f"layer {n}" for n in layers)), tuple(lines)).markdown()


def paper_rows() -> str:
    """The paper's rows: our error with the paper's in brackets; bold: the lowest of a line.

    What is searched as in the paper goes before what stands at known settings, and both before
    the forms; what a paired test does not tell from the lowest is bold too.
    """
    rows = errors_of("table1-*.csv sgd-*.csv") + errors_of("settings-*.csv forms-*.csv")
    header, lines = ("error %", *_COLUMNS), []
    for each in sorted(load_paper_figures()["table1"], key=_by_size):
        at = each["network"], each["data"]
        here = [row for row in rows if (row.network, row.data) == at]
        found = [next(filter(wanted, here), None) for wanted, _ in _COLUMNS.values()]
        measured = [row for row in found if row]
        texts = iter(best_bold(measured)) if measured else iter(())
        cells = [next(texts) if row else "-" for row in found]
        papers = [name and get_paper_error(*at, name) for _, name in _COLUMNS.values()]
        shown = zip(cells, papers, strict=True)
        errors = (f"{text} ({paper[0]:.1f})" if paper else text for text, paper in shown)
        lines.append((_where(*at), *errors))
    return Table(header, tuple(lines)).markdown()


def _by_size(row: Mapping[str, Any]) -> tuple[int, int]:
    return list(NETWORKS).index(row["network"]), list(NAMES).index(row["data"])


def _where(network: str, data: str) -> str:
    return f"{NETWORKS[network]}, {NAMES[data]}"


def _instead(row: Row) -> bool:
    """Closed form as in the paper: searched where there was a search, else as it is by default."""
    chosen = row.study.startswith("table1-") or row.alpha == "auto"
    return row.pooling == CLOSED and row.form == "replace" and chosen


def _behind_all(row: Row, pooling: str) -> bool:
    """Whether a pooling stands behind every convolution, its norm and its activation."""
    name = row.pooling.partition(",")[0]
    return (name, row.layer, row.form) == (pooling, "1, 2, 3", "after-activation")


# The columns: which rows are meant, and which pooling of the paper's is the same.
_COLUMNS: dict[str, tuple[Callable[[Row], bool], str]] = {
    POOLINGS[BASELINE]: (lambda row: row.pooling == BASELINE, BASELINE),
    "closed form instead of it": (_instead, CLOSED),
    POOLINGS["sgd"]: (lambda row: row.pooling == "sgd" and row.form == "replace", "sgd"),
    "closed form behind every convolution": (lambda row: _behind_all(row, CLOSED), ""),
    "BlurPool as published": (lambda row: _behind_all(row, "blur"), ""),
}


RESULTS_TABLES: dict[str, Callable[[], str]] = {
    "procedure": procedure,
    "known_settings": known_settings,
    "claims": claims,
    "searches": searches,
    "trained_on": trained_on,
    "poolings": poolings,
    "poolings_resnet18": poolings_resnet18,
    "rivals": rivals,
    "paper_rows": paper_rows,
}
