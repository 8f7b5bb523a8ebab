"""What a page opens with: the result of a run in words and one chart, and the words it needs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from foveapool.labels import BASELINE, CLOSED_FORM
from foveapool.records import ERROR, Row
from foveapool.report.markup import Markup, make_element
from foveapool.report.page_sections import (
    Chart,
    Named,
    describe_setting,
    draw_errors_chart,
    label_training,
    make_figure,
)
from foveapool.report.run_summary import Family, RunSummary
from foveapool.report.tables import distinct_rows
from foveapool.statistics import compare_pairs

CERTAIN = 0.05  # two errors whose p is above it are not told apart
MOST_LINES = 5  # of the chart beside the words; a run of more settings has a chart of all below

_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_GLOSSARY = {
    "Pooling": "makes a map smaller: each place of the output is a weighted sum over the input "
    "map, and here these weights are computed from labeled images.",
    "A component": "is one such set of weights: the first separates the classes best, each other "
    "one best among what is left.",
    "Alpha": "is the price of looking far: the higher it is, the closer to the place itself the "
    "weights stay.",
}


@dataclass(frozen=True)
class Headline:
    """The result in a few large words, in sentences, and the rows that it is about."""

    verdict: str
    told: tuple[str, ...]
    rows: tuple[Row, ...] = ()


def make_headline(named: Named, drawn: Mapping[str, Chart]) -> list[Markup]:
    """The section that a page opens with."""
    parts: list[Markup] = []
    for name, each in named:
        found = find_headline(each)
        if found is not None:
            parts.append(make_element("p", name + found.verdict, class_="verdict"))
            # Of several runs, what each is and what changes; the tables have the rest.
            told = found.told[:1] if name else found.told
            parts.append(make_element("p", " ".join(told), class_="told"))
    which = "result" if "result" in drawn else "errors"
    figures = make_figure(which, drawn) if parts else []
    words = [
        make_element("li", make_element("b", name), f" {text}") for name, text in _GLOSSARY.items()
    ]
    if any(each.families for _, each in named):
        figures.append(make_element("ul", words, class_="glossary"))
    if not parts and not figures:
        return []
    head = make_element("h2", "The result" if parts else "The words", id="result", class_="unseen")
    kind = "result" if len(named) < 2 else "result several"
    return [make_element("section", head, parts, figures, class_=kind, aria_labelledby="result")]


def draw_result_chart(named: Named, errors: Chart | None) -> Chart | None:
    """The rows that the headlines are about; None where the chart of all errors is small enough."""
    if errors is None:
        return _draw_gain_chart(named)
    if len(errors["lines"]) <= MOST_LINES:
        return None
    told = []
    for name, each in named:
        found = find_headline(each)
        rows = found.rows if found is not None else ()
        told.append((name, RunSummary(each.title, rows=rows)))
    chart = draw_errors_chart(told)
    return chart and {**chart, "title": "test errors of the settings told of"}


def _draw_gain_chart(named: Named) -> Chart | None:
    """How well operators separate the classes against alpha, where there are no errors to show."""
    series = [
        {
            "name": name + family.label,
            "points": [
                [each.settings.alpha, round(float(each.gain()[0].mean()), 4), None]
                for each in family.operators
                if each.settings.alpha > 0
            ],
        }
        for name, summary in named
        for family in summary.families
    ]
    series = [each for each in series if len(each["points"]) > 1]
    if not series:
        return None
    axes = {"x": "alpha", "y": "times average pooling", "logX": True, "logY": False}
    title = "separability of the first component, in units of average pooling's, against alpha"
    return {"kind": "lines", "title": title, **axes, "wholeX": False, "series": series}


def find_headline(summary: RunSummary) -> Headline | None:
    """What came of a run: by its test errors, or else by how well its operators separate."""
    errors = [r for r in distinct_rows(summary.rows) if r.metric == ERROR]
    errors = [row for row in errors if math.isfinite(row.mean)]
    if errors:
        return _compare_errors(_choose_group(errors), len(errors))
    return _describe_gain(summary.families[0]) if summary.families else None


def _choose_group(errors: Sequence[Row]) -> list[Row]:
    """The rows of one network on one data set: of the first that has what there is to compare."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in errors:
        groups.setdefault((row.network, row.data, row.epochs, row.batch), []).append(row)

    def telling(own: list[Row]) -> int:
        return 2 * any(map(_is_closed, own)) + any(row.pooling == BASELINE for row in own)

    return max(groups.values(), key=telling)


def _is_closed(row: Row) -> bool:
    return row.pooling.startswith(CLOSED_FORM)  # trained or not


def _compare_errors(own: Sequence[Row], all_errors: int) -> Headline:
    """The baseline and the closed form with the lowest error, and the best of the other poolings.

    Rows of fewer seeds than the others of their kind do not count: the lowest is often one of them.
    """
    base = max((r for r in own if r.pooling == BASELINE), key=lambda r: r.n, default=None)
    closed = [row for row in own if _is_closed(row)]
    rivals = [row for row in own if row.pooling != BASELINE and not _is_closed(row)]
    best, rival = _lowest(closed), _lowest(rivals)
    main = best or rival
    where = label_training(own[0]) if own[0].network and own[0].data else "test set"
    if base is None or main is None:
        only = main or base
        assert only is not None  # a group has a row
        told = f"{describe_setting(only)}: {_spread(only)} of the test images ({where})."
        return Headline(f"{only.mean:.1f} % wrong, {_seeds(only)}", (told,), (only,))
    kind = closed if best is not None else rivals
    one_of = f", the lowest of {len(kind)}" if len(kind) > 1 else ""
    told_of = [
        f"Wrong on the test images ({where}): {_spread(base)} for the network as it is, "
        f"{_spread(main)} with {describe_setting(main)}{one_of}.",
        *_describe_pair(main, base),
    ]
    rows = [base, main]
    if best is not None and rival is not None:
        more = f", the lowest of {len(rivals)}" if len(rivals) > 1 else ""
        told_of.append(f"Of the other poolings, {describe_setting(rival)}{more}: {_spread(rival)}.")
        rows.append(rival)
    if all_errors > len(own):
        told_of.append("Other networks, data and epochs are in the table of errors.")
    seeds = _seeds(main) if base.n == main.n else f"{_count(base.n)} and {_seeds(main)}"
    arrow = f"{base.mean:.1f} % \N{RIGHTWARDS ARROW} {main.mean:.1f} % wrong, {seeds}"
    return Headline(arrow, tuple(told_of), tuple(rows))


def _lowest(rows: Sequence[Row]) -> Row | None:
    most = max((row.n for row in rows), default=0)
    return min((row for row in rows if row.n == most), key=lambda row: row.mean, default=None)


def _describe_pair(row: Row, base: Row) -> list[str]:
    """Whether the two can be told apart, seed by seed; nothing where that cannot be asked."""
    try:
        pair = compare_pairs(row, base)
    except (ValueError, ImportError):
        return []
    more = "fewer" if pair.mean < 0 else "more"
    size = f"{abs(pair.mean):.1f} \N{PLUS-MINUS SIGN} {pair.std:.1f} points {more}"
    if math.isnan(pair.p):
        return [f"Seed by seed that is {size}."]
    apart = "" if pair.p <= CERTAIN else ", which does not tell them apart"
    return [f"Seed by seed that is {size} (paired t-test, p = {pair.p:.2g}){apart}."]


def _describe_gain(family: Family) -> Headline:
    operator = family.operators[(len(family.operators) - 1) // 2]  # what the explorer begins with
    gain = operator.gain()[0]
    verdict = f"Separates the classes {float(gain.mean()):.2g} times as well as average pooling"
    told = (
        f"Component 1 of {family.label}, alpha {operator.settings.alpha:g}: the mean over the "
        f"places of the output map, {float(gain.min()):.2g} to {float(gain.max()):.2g} times at "
        "single places. Its test error is not known here; a study measures it."
    )
    return Headline(verdict, (told,))


def _spread(row: Row) -> str:
    spread = "" if math.isnan(row.std) else f" \N{PLUS-MINUS SIGN} {row.std:.1f}"
    return f"{row.mean:.1f}{spread} %"


def _seeds(row: Row) -> str:
    return f"{_count(row.n)} seed{'' if row.n == 1 else 's'}"


def _count(number: int) -> str:
    """A number in words, as long as that is short.

    >>> _count(3), _count(40)
    ('three', '40')
    """
    return _NUMBERS[number] if number < len(_NUMBERS) else str(number)
