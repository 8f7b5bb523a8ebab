"""The page's sections as HTML: what is missing, explorers, errors, training, what was done.

Accounts come with a name to put before what is theirs: nothing for a single run, a letter where
several are told of side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from foveapool.records import ERROR, LESS, P_VALUE
from foveapool.report.accounts import Account
from foveapool.report.markup import Markup, element, scrolling, table_element, together
from foveapool.report.page_charts import Chart, setting_words
from foveapool.report.tables import Table, error_table, latest, selection_table, with_spread

Named = Sequence[tuple[str, Account]]

# Metrics that are columns of the table of errors, or cost next to nothing to leave out.
_TOLD = {ERROR, LESS, P_VALUE, "parameters", "multiply-adds an image"}
_TOLD |= {"seconds a training", "seconds to fit"}
_HINT = (
    "Move over the output map: the other maps show how strongly each place of the input counts for "
    "the chosen one, red for and blue against. The frame is where average pooling would look. "
    "Arrow keys move too; a click holds the place."
)
_CAPTIONS = {
    "errors": "Circles are means, bars deviations over the trials.",
    "alpha": "Each line is a layer and a norm; bars are deviations.",
    "loss": "Lines of one colour are trainings that differ in their seed.",
    "test": "Lines of one colour are trainings that differ in their seed.",
}


def letter(number: int) -> str:
    """What a run is called among several.

    >>> letter(0), letter(2)
    ('A', 'C')
    """
    return chr(ord("A") + number) if number < 26 else str(number + 1)


def lead(accounts: Sequence[Account]) -> Markup:
    """In a line what was done; with several runs, which letter is which."""
    if len(accounts) > 1:
        parts = [
            together([element("b", letter(i)), f" {each.title}"]) for i, each in enumerate(accounts)
        ]
    else:
        told = dict(accounts[0].facts)
        names = ("data", "network", "pooling", "recipe")
        parts = [together([told[name]]) for name in names if name in told]
    return element("p", Markup(" &middot; ".join(parts)), class_="lead") if parts else Markup("")


def sections(named: Named, drawn: Mapping[str, Chart]) -> list[Markup]:
    """All sections that have something to tell."""
    training = [*_figure("loss", drawn), *_figure("test", drawn)]
    made = [
        _missing(named),
        _explorers(named),
        _errors(named, drawn),
        _section("training", "Training", element("div", training, class_="charts"))
        if training
        else None,
        _done(named),
    ]
    return [each for each in made if each is not None]


def _section(name: str, heading: str, *content: str | Iterable[str], **more: str) -> Markup:
    head = element("h2", heading, id=name)
    return element("section", head, *content, aria_labelledby=name, **more)


def _missing(named: Named) -> Markup | None:
    said = [element("li", name + text) for name, each in named for text in each.missing]
    if not said:
        return None
    return _section("missing", "What is missing", element("ul", said), class_="notes")


def _explorers(named: Named) -> Markup | None:
    runs = [
        element(
            "div",
            [element("h3", f"{letter(i)} {each.title}")] if name else [],
            class_="run",
            data_explorer=str(i),
        )
        for i, (name, each) in enumerate(named)
        if each.families
    ]
    if not runs:
        return None
    kind = "explorers several" if len(runs) > 1 else "explorers"
    hint = element("p", _HINT, class_="hint")
    return _section("explore", "Explore the pooling", hint, element("div", runs, class_=kind))


def _figure(name: str, drawn: Mapping[str, Chart]) -> list[Markup]:
    """A place for a chart, if it is to be drawn, with its words."""
    if name not in drawn:
        return []
    chart = drawn[name]
    shown: list[dict[str, Any]] = chart["lines"] if chart["kind"] == "dots" else chart["series"]
    caption = f"{chart['title'][0].upper()}{chart['title'][1:]}."
    if len(shown) > 1:
        caption += f" {_CAPTIONS[name]}"
    if any(each.get("paper") for each in shown):
        caption += " Diamonds are the paper's."
    return [element("figure", element("figcaption", caption), data_chart=name)]


def _errors(named: Named, drawn: Mapping[str, Chart]) -> Markup | None:
    content: list[Markup] = []
    figures = [*_figure("errors", drawn), *_figure("alpha", drawn)]
    if figures:
        content.append(element("div", figures, class_="charts"))
    letters = int(len(named) > 1)
    errors = _merged(named, lambda account: error_table(account.rows))
    if errors.lines:
        errors, common = _without_common(errors, ("network", "data"))
        caption = f"Test errors{common}: percent with deviation over n trials, and what they cost."
        words = errors.header.index("error %")  # its columns from there on are numbers
        content.append(table_element(errors, caption, words))
    others = _merged(named, _other_figures)
    if others.lines:
        table = table_element(others, "Figures of other kinds.", 2 + letters)
        content.append(_folded(f"More figures: {len(others.lines)}", table))
    searched = _merged(named, lambda account: selection_table(account.selection))
    if searched.lines:
        caption = "Every setting that the search looked at, the best first."
        table = table_element(searched, caption, 5 + letters)
        content.append(_folded(f"Settings of the search: {len(searched.lines)}", table))
    return _section("errors", "Errors", content) if content else None


def _folded(summary: str, content: Markup) -> Markup:
    return element("details", element("summary", summary), content)


def _merged(named: Named, table_of: Callable[[Account], Table]) -> Table:
    """The tables of all runs as one, with the run's letter in front where there are several."""
    tables = [table_of(account) for _, account in named]
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


def _other_figures(account: Account) -> Table:
    """What has no column in the table of errors: robustness, for example."""
    rows = [row for row in latest(account.rows) if row.metric not in _TOLD]
    lines = [(setting_words(r), r.metric, str(r.n), with_spread(r.mean, r.deviation)) for r in rows]
    return Table(("setting", "figure", "n", "value"), tuple(lines))


def _done(named: Named) -> Markup | None:
    """What was done: a list for one run, a column a run for several."""
    told = [dict(account.facts) for _, account in named]
    if not any(told):
        return None
    if len(told) == 1:
        pairs = [(element("dt", name), element("dd", text)) for name, text in told[0].items()]
        facts = element("dl", *pairs, class_="facts")
        return _section("done", "What was done", facts)
    titles = [f"{letter(i)} {account.title}" for i, (_, account) in enumerate(named)]
    head = [element("th", each, scope="col") for each in ("fact", *titles)]
    lines = []
    for name in dict.fromkeys(name for each in told for name in each):
        values = [each.get(name, "\N{EN DASH}") for each in told]
        cells = [element("td", value) for value in values]
        kind = "differs" if len(set(values)) > 1 else None
        lines.append(element("tr", element("th", name, scope="row"), cells, class_=kind))
    caption = "What was done, run by run; shaded lines differ."
    return _section("done", "What was done", scrolling(head, lines, caption, "compared"))
