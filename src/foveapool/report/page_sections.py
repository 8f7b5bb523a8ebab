"""The sections of a page, with their charts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from foveapool.labels import (
    alpha_unit,
    default_components,
    form,
    label_cell,
    last_alpha,
    last_norm,
    where,
)
from foveapool.records import ERROR, LESS, P_VALUE, VALIDATION, Row
from foveapool.report.markup import (
    Markup,
    make_element,
    make_scrolling,
    make_table_element,
    together,
)
from foveapool.report.run_summary import RunSummary
from foveapool.report.tables import (
    error_table,
    format_spread,
    get_paper_error,
    latest_rows,
    selection_table,
)
from foveapool.tabular import Table

Named = Sequence[tuple[str, RunSummary]]

# Metrics that are columns of the table of errors, or cost next to nothing to leave out.
_TOLD = {ERROR, LESS, P_VALUE, "parameters", "multiply-adds an image"}
_TOLD |= {"seconds a training", "seconds to fit"}
_HINT = (
    "Move over the output map, the gray discs: the colored maps show how strongly each place of "
    "the input counts for the chosen one, red for and blue against. The frame is where average "
    "pooling would look. Arrow keys move too; a click holds the place. The address of the page "
    "keeps what you see: copy it to share it."
)
_CAPTIONS = {
    "result": "Each line is a layer, at the alphas it was fitted with.",
    "errors": "Circles are means, bars deviations over the trials.",
    "alpha": "Each line is a layer and a norm; bars are deviations.",
    "loss": "Lines of one color are trainings that differ in their seed.",
    "test": "Lines of one color are trainings that differ in their seed.",
}


def letter(number: int) -> str:
    """What a run is called among several.

    >>> letter(0), letter(2)
    ('A', 'C')
    """
    return chr(ord("A") + number) if number < 26 else str(number + 1)


def make_lead(summaries: Sequence[RunSummary]) -> Markup:
    """In a line what was done; with several runs, which letter is which."""
    if len(summaries) > 1:
        parts = [
            together([make_element("b", letter(i)), f" {each.title}"])
            for i, each in enumerate(summaries)
        ]
    else:
        told = dict(summaries[0].facts)
        names = ("data", "network", "pooling", "recipe")
        parts = [together([told[name]]) for name in names if name in told]
    if not parts:
        return Markup("")
    kind = "lead letters" if len(summaries) > 1 else "lead"
    return make_element("p", Markup(" &middot; ".join(parts)), class_=kind)


def make_sections(named: Named, drawn: Mapping[str, Chart]) -> list[Markup]:
    """All sections that have something to tell."""
    training = [*make_figure("loss", drawn), *make_figure("test", drawn)]
    made = [
        _missing(named),
        _explorers(named),
        _errors(named, drawn),
        _section("training", "Training", make_element("div", training, class_="charts"))
        if training
        else None,
        _done(named),
    ]
    return [each for each in made if each is not None]


def _section(name: str, heading: str, *content: str | Iterable[str], **more: str) -> Markup:
    head = make_element("h2", heading, id=name)
    return make_element("section", head, *content, aria_labelledby=name, **more)


def _missing(named: Named) -> Markup | None:
    said = [make_element("li", name + text) for name, each in named for text in each.missing]
    if not said:
        return None
    return _section("missing", "What is missing", make_element("ul", said), class_="notes")


def _explorers(named: Named) -> Markup | None:
    runs = [
        make_element(
            "div",
            [make_element("h3", f"{letter(i)} {each.title}")] if name else [],
            class_="run",
            data_explorer=str(i),
        )
        for i, (name, each) in enumerate(named)
        if each.families
    ]
    if not runs:
        return None
    kind = "explorers several" if len(runs) > 1 else "explorers"
    hint = make_element("p", _HINT, class_="hint")
    return _section("explore", "Explore the pooling", hint, make_element("div", runs, class_=kind))


def make_figure(name: str, drawn: Mapping[str, Chart]) -> list[Markup]:
    """A place for a chart, if it is to be drawn, with its words."""
    if name not in drawn:
        return []
    chart = drawn[name]
    shown: list[dict[str, Any]] = chart["lines"] if chart["kind"] == "dots" else chart["series"]
    caption = f"{chart['title'][0].upper()}{chart['title'][1:]}."
    if len(shown) > 1:
        caption += f" {_CAPTIONS['errors' if chart['kind'] == 'dots' else name]}"
    if any(each.get("paper") for each in shown):
        caption += " Diamonds are the paper's."
    return [make_element("figure", make_element("figcaption", caption), data_chart=name)]


def _errors(named: Named, drawn: Mapping[str, Chart]) -> Markup | None:
    content: list[Markup] = []
    # A page of few settings opens with the chart of their errors.
    figures = [*(make_figure("errors", drawn) if "result" in drawn else [])]
    figures += make_figure("alpha", drawn)
    if figures:
        content.append(make_element("div", figures, class_="charts"))
    letters = int(len(named) > 1)
    errors = _merged(named, lambda summary: error_table(summary.rows))
    if errors.lines:
        errors, common = _without_common(errors, ("network", "data"))
        caption = f"Test errors{common}: percent with deviation over n trials, and what they cost."
        words = errors.header.index("error %")  # its columns from there on are numbers
        content.append(make_table_element(errors, caption, words))
    others = _merged(named, _other_figures)
    if others.lines:
        table = make_table_element(others, "Figures of other kinds.", 2 + letters)
        content.append(_folded(f"More figures: {len(others.lines)}", table))
    searched = _merged(named, lambda summary: selection_table(summary.selection))
    if searched.lines:
        caption = "Every setting that the search looked at, the best first."
        table = make_table_element(searched, caption, 5 + letters)
        content.append(_folded(f"Settings of the search: {len(searched.lines)}", table))
    return _section("errors", "Errors", content) if content else None


def _folded(summary: str, content: Markup) -> Markup:
    return make_element("details", make_element("summary", summary), content)


def _merged(named: Named, table_of: Callable[[RunSummary], Table]) -> Table:
    """The tables of all runs as one, with the run's letter in front where there are several."""
    tables = [table_of(summary) for _, summary in named]
    if len(tables) == 1:
        return tables[0]
    lines = [(letter(i), *line) for i, each in enumerate(tables) for line in each.lines]
    return Table(("run", *tables[0].header), tuple(lines))


def _without_common(table: Table, names: Sequence[str]) -> tuple[Table, str]:
    """The table without those of the named columns that say the same in every line, and that."""
    common = {}
    for name in names:
        values = {line[table.header.index(name)] for line in table.lines}
        if len(values) == 1:
            common[name] = values.pop()
    kept = [i for i, name in enumerate(table.header) if name not in common]
    lines = tuple(tuple(line[i] for i in kept) for line in table.lines)
    words = f" of {' on '.join(common.values())}" if common else ""
    return Table(tuple(table.header[i] for i in kept), lines), words


def _other_figures(summary: RunSummary) -> Table:
    """What has no column in the table of errors: robustness, for example."""
    rows = [row for row in latest_rows(summary.rows) if row.metric not in _TOLD]
    lines = [(describe_setting(r), r.metric, str(r.n), format_spread(r.mean, r.std)) for r in rows]
    return Table(("setting", "figure", "n", "value"), tuple(lines))


def _done(named: Named) -> Markup | None:
    """What was done: a list for one run, a column a run for several."""
    told = [dict(summary.facts) for _, summary in named]
    if not any(told):
        return None
    if len(told) == 1:
        pairs = [
            (make_element("dt", name), make_element("dd", text)) for name, text in told[0].items()
        ]
        facts = make_element("dl", *pairs, class_="facts")
        return _section("done", "What was done", facts)
    titles = [f"{letter(i)} {summary.title}" for i, (_, summary) in enumerate(named)]
    head = [make_element("th", each, scope="col") for each in ("fact", *titles)]
    lines = []
    for name in dict.fromkeys(name for each in told for name in each):
        values = [each.get(name, "\N{EN DASH}") for each in told]
        cells = [make_element("td", value) for value in values]
        kind = "differs" if len(set(values)) > 1 else None
        lines.append(make_element("tr", make_element("th", name, scope="row"), cells, class_=kind))
    caption = "What was done, run by run; shaded lines differ."
    return _section("done", "What was done", make_scrolling(head, lines, caption, "compared"))


Chart = dict[str, Any]


def make_charts(summaries: Sequence[tuple[str, RunSummary]]) -> dict[str, Chart]:
    """All charts that the named summaries have something to show in."""
    made = {
        "errors": draw_errors_chart(summaries),
        "alpha": draw_alpha_chart(summaries),
        "loss": losses_by_epoch(summaries),
        "test": errors_by_epoch(summaries),
    }
    return {name: chart for name, chart in made.items() if chart is not None}


def describe_setting(row: Row) -> str:
    """A row's setting in words.

    >>> describe_setting(Row("s", ERROR, 20.0, 1.0, 5, pooling="closed-form", layer="3", norm="l1"))
    'closed form, layer 3, l1'
    >>> mixed = dict(form="mix", components="9")
    >>> describe_setting(Row("s", ERROR, 20.0, 1.0, 5, pooling="sgd", layer="3", **mixed))
    'P by SGD, layer 3, mix'
    """
    words = [
        label_cell("pooling", row.pooling),
        f"layer {row.layer}" if row.layer else "",
        row.placement,
    ]
    words.append(form(row))
    words += [f"alpha {row.alpha}" if row.alpha else "", row.norm]
    usual = default_components({"pooling": row.pooling.split(", ")[0], "form": row.form})
    if set(row.components.split(", ")) - {"", str(usual)}:
        words.append(f"components {row.components}")
    return ", ".join(word for word in words if word)


def label_training(row: Row) -> str:
    """The network of a row on its data.

    >>> label_training(Row("s", ERROR, 20.0, 1.0, 5, network="cnn", data="cifar10"))
    'CNN on CIFAR-10'
    """
    return f"{label_cell('network', row.network)} on {label_cell('data', row.data)}"


def draw_errors_chart(summaries: Sequence[tuple[str, RunSummary]]) -> Chart | None:
    """Test errors, a line each, the paper's where it has one for this network and data."""
    lines = []
    for number, (name, summary) in enumerate(summaries):
        rows = [r for r in latest_rows(summary.rows) if r.metric == ERROR and math.isfinite(r.mean)]
        several = len({(row.network, row.data) for row in rows}) > 1
        for row in rows:
            replaces = not form(row)  # as in the paper
            paper = get_paper_error(row.network, row.data, row.pooling) if replaces else None
            where = f"{label_training(row)}: " if several else ""
            lines.append(
                {
                    "name": name + where + describe_setting(row),
                    "hue": number,
                    "mean": row.mean,
                    "deviation": _known(row.std),
                    "paper": None if paper is None else dict(mean=paper[0], deviation=paper[1]),
                }
            )
    if not lines:
        return None
    title = "Test errors of all settings"
    return {"kind": "dots", "title": title, "x": ERROR, "lines": lines}


def draw_alpha_chart(summaries: Sequence[tuple[str, RunSummary]]) -> Chart | None:
    """Error against alpha by layer and norm: of a search if there was one, else of the trials."""
    for metric in (VALIDATION, ERROR):
        series = []
        for name, summary in summaries:
            rows = [r for r in (*summary.selection, *summary.rows) if r.metric == metric]
            series += _over_alpha(name, rows)
        if series:
            title = f"{metric} against alpha, by layer and norm"
            axes = {"x": "alpha", "y": metric, "logX": True, "wholeX": False, "logY": False}
            return {"kind": "lines", "title": title, **axes, "series": series}
    return None


def _over_alpha(name: str, rows: Iterable[Row]) -> list[dict[str, Any]]:
    found: dict[str, dict[float, Row]] = {}
    # A search that first looks briefly has some settings twice: the longest and last look counts.
    for row in sorted(latest_rows(rows), key=lambda row: int(row.epochs or 0)):
        alpha = last_alpha(row)
        if alpha is None or not math.isfinite(row.mean):
            continue
        line = replace(row, layer=where(row), alpha="", norm=last_norm(row))
        words = [name + describe_setting(line), alpha_unit(row)]
        found.setdefault(", ".join(filter(None, words)), {})[alpha] = row
    return [
        {
            "name": label,
            "points": [[a, r.mean, _known(r.std)] for a, r in sorted(own.items())],
        }
        for label, own in sorted(found.items())
        if len(own) > 1
    ]


def losses_by_epoch(summaries: Sequence[tuple[str, RunSummary]]) -> Chart | None:
    """Training loss by epoch; trainings of one setting share a color."""
    series = [
        {"name": name + curve.label, "points": _points(curve.epochs, curve.losses)}
        for name, summary in summaries
        for curve in summary.curves
    ]
    return _by_epoch("training loss", series, log=True)


def errors_by_epoch(summaries: Sequence[tuple[str, RunSummary]]) -> Chart | None:
    """Test error by epoch, for trainings that took it more than once."""
    series = [
        {"name": name + curve.label, "points": _points(curve.epochs, curve.errors)}
        for name, summary in summaries
        for curve in summary.curves
    ]
    return _by_epoch(ERROR, [each for each in series if len(each["points"]) > 1], log=False)


def _by_epoch(what: str, series: list[dict[str, Any]], log: bool) -> Chart | None:
    series = [each for each in series if each["points"]]
    if not series:
        return None
    axes = {"x": "epoch", "y": what, "logX": False, "wholeX": True, "logY": log}
    return {"kind": "lines", "title": f"{what} by epoch", **axes, "series": series}


def _points(epochs: Sequence[int], values: Sequence[float | None]) -> list[list[float]]:
    pairs = zip(epochs, values, strict=True)
    return [[x, _short(y)] for x, y in pairs if y is not None and math.isfinite(y)]


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _short(value: float) -> float:
    return float(f"{value:.5g}")
