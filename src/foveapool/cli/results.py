"""`foveapool results`: what was measured, as a table, beside the paper's figures."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foveapool._io import read_json
from foveapool.cli.options import user_errors
from foveapool.labels import label_cell
from foveapool.records import ERROR, VALIDATION, Row, read_rows
from foveapool.report.tables import (
    CHOICES,
    claims_table,
    error_table,
    find_differing_columns,
    latest_rows,
    ranking_table,
    selection_table,
)
from foveapool.runs import STUDY
from foveapool.study.rows import DIVERGED
from foveapool.tabular import Table

if TYPE_CHECKING:
    from rich.table import Table as Drawn

FORMATS = ("terminal", "markdown", "csv", "latex")
ROWS = "rows.csv"
# What a narrow terminal does without, in this order: what a training costs, then what is in the
# spread already.
SPARED = ("s", "10^6 mult-adds", "10^6 parameters", "n", "p")
# What tells its meaning without the head of its column.
PLAIN = ("study", "network", "data", "pooling", "form", "norm")


def results_command(
    sources: Annotated[
        list[Path] | None,
        typer.Argument(
            help="CSV files of rows or folders of studies; all of runs/studies if none."
        ),
    ] = None,
    form: Annotated[
        str, typer.Option("--format", help="terminal, markdown, csv or latex.")
    ] = "terminal",
    selection: Annotated[
        bool, typer.Option(help="Show the searches instead: every setting looked at.")
    ] = False,
    ranking: Annotated[
        bool, typer.Option(help="Show who wins instead: the best first, the others against it.")
    ] = False,
    claims: Annotated[bool, typer.Option(help="Also count the paper's claims.")] = False,
    wide: Annotated[
        bool, typer.Option("--wide", help="Show all columns, however narrow the terminal is.")
    ] = False,
    runs: Annotated[Path, typer.Option(help="The folder of runs.")] = Path("runs"),
) -> None:
    """Prints errors with their spread, the paper's beside them."""
    with user_errors():
        if form not in FORMATS:
            raise ValueError(f"format: got {form!r}, wanted one of {', '.join(FORMATS)}")
        if ranking and selection:
            raise ValueError(
                "ranking, selection: got both, wanted one of them; --ranking orders test errors, "
                "--selection the validation errors of a search"
            )
        given = sources or sorted(path.parent for path in runs.glob(f"studies/*/{STUDY}"))
        if not given:
            raise FileNotFoundError(f"{runs}: no studies in it, wanted one, or name a CSV file")
        name = "selection.csv" if selection else ROWS
        rows = [row for each in given for row in _rows(each, name)]
        if not rows:
            named = ", ".join(map(str, given))
            if selection and all(map(_searches_nothing, given)):
                raise ValueError(
                    f"{named}: got no [[search]], wanted a study that has one; its arms say their "
                    "places themselves: leave out --selection to see their errors"
                )
            raise ValueError(f"{named}: no finished table in it yet")
        metric = VALIDATION if selection else ERROR
        if all(row.metric != metric for row in rows):
            raise ValueError(f"rows: got none of {metric!r} among {len(rows)}, wanted some to show")
        if selection:
            _print(selection_table(row for row in rows if row.metric == VALIDATION), form, wide)
        elif ranking:
            _print(ranking_table(rows), form, wide)
        else:
            show_table(rows, form, wide)
        if not selection:
            for text in describe_diverged(rows):
                _note(text)
        if claims:
            if selection:  # claims are of test errors, which are not among the rows of a search
                rows = [row for each in given for row in _rows(each)]
            _print(claims_table(rows), form, wide)


def show_table(rows: Iterable[Row], form: str, wide: bool = False) -> None:
    """Prints the table of errors; where there are several studies, each line names its own."""
    rows = list(rows)
    _print(error_table(rows, find_differing_columns(rows)), form, wide)


def describe_diverged(rows: Iterable[Row]) -> list[str]:
    """A line for each error that holds trainings which came to no numbers."""
    lines = []
    for row in (row for row in latest_rows(rows) if row.metric == DIVERGED):
        where = " at layer ".join(filter(None, (label_cell("pooling", row.pooling), row.layer)))
        text = f"{where}: {row.mean:g} of {row.n} trainings diverged"
        lines.append(f"{text}, which its error counts as all wrong")
    return lines


def _rows(source: Path, name: str = ROWS) -> list[Row]:
    if source.is_file():
        return read_rows(source, _note)
    if not (source / STUDY).is_file():
        raise FileNotFoundError(f"{source}: got no CSV file and no study's folder, wanted one")
    path = source / name
    return read_rows(path, _note) if path.is_file() else []


def _note(text: str) -> None:
    typer.echo(f"note: {text}", err=True)


def _searches_nothing(study: Path) -> bool:
    """Whether the note of a study says that it has no search; one that tells nothing may have."""
    try:
        return read_json(study / STUDY)["facts"]["searches"] == []
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _print(table: Table, form: str, wide: bool = False) -> None:
    if form != "terminal":
        typer.echo(getattr(table, form)())
        return
    from rich.console import Console

    # Names of studies and data are no markup, whatever is in them.
    console = Console(markup=False, emoji=False)
    told, same = _told(table)
    # A file or another command takes all columns.
    narrow = not wide and (console.is_terminal or "COLUMNS" in os.environ)
    spared = [i for name in SPARED for i in told if table.header[i] == name] if narrow else []
    left_out: list[str] = []
    drawn = _draw(table, told, same)
    while (width := _measure(drawn)) > console.width and spared:
        left_out.append(table.header[spared[0]])
        told.remove(spared.pop(0))
        drawn = _draw(table, told, same)
    if narrow and width > console.width:
        joined = _join_settings(table, told)
        drawn = _draw(joined, range(len(joined.header)), same)
        drawn.columns[0].no_wrap, drawn.columns[0].min_width = False, None
        width = _measure(drawn, least=True)
    # A table cut short tells less than one that runs beyond the window.
    columns, console.width = console.width, max(console.width, width)
    console.print(drawn)
    if left_out:
        _note(f"{', '.join(left_out)}: left out on {columns} columns; --wide shows all")


def _join_settings(table: Table, columns: Sequence[int]) -> Table:
    """The columns with all that was set in the first of them, in words that may be broken."""
    names = (*CHOICES, "study", "epochs", "batch")
    set_there = [i for i in columns if table.header[i] in names]
    others = [i for i in columns if i not in set_there]

    def describe(line: Sequence[str]) -> str:
        told = ((table.header[i], line[i]) for i in set_there if line[i] not in ("", "-"))
        return ", ".join(cell if name in PLAIN else f"{name} {cell}" for name, cell in told)

    lines = ((describe(line), *(line[i] for i in others)) for line in table.lines)
    return Table(("setting", *(table.header[i] for i in others)), tuple(lines))


def _draw(table: Table, columns: Sequence[int], caption: str) -> Drawn:
    from rich import box
    from rich.cells import cell_len
    from rich.table import Table as Drawn

    drawn = Drawn(*(table.header[i] for i in columns), caption=caption, box=box.SIMPLE_HEAD)
    for i, column in zip(columns, drawn.columns, strict=True):
        column.no_wrap = True
        column.min_width = max(map(cell_len, (table.header[i], *(line[i] for line in table.lines))))
    for line in table.lines:
        drawn.add_row(*(line[i] for i in columns))
    return drawn


def _measure(drawn: Drawn, least: bool = False) -> int:
    """How wide a table is where nothing is cut, or broken; or how narrow it can be."""
    from rich.console import Console

    found = Console(width=1000, markup=False).measure(drawn)
    return found.minimum if least else found.maximum


def _told(table: Table) -> tuple[list[int], str]:
    """The columns to draw, and in words those that say one thing in every line."""
    values = [[line[i] for line in table.lines] for i, _ in enumerate(table.header)]
    several = [i for i, own in enumerate(values) if len(set(own)) > 1]
    if len(table.lines) < 2:
        several = [i for i, own in enumerate(values) if own != ["-"]]
    alike = [i for i, own in enumerate(values) if i not in several and set(own) != {"-"}]
    return several, ", ".join(f"{table.header[i]} {values[i][0]}" for i in alike)
