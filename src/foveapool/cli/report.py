"""`foveapool report`: a page about a run, or about several side by side."""

from __future__ import annotations

import webbrowser
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from foveapool._io import check_file_place
from foveapool.cli.options import DataRoot, user_errors
from foveapool.report.operator_files import add_examples, has_network
from foveapool.report.page import write_summaries
from foveapool.report.run_summary import RunSummary
from foveapool.report.sources import find_last_run, summarize_example, summarize_run
from foveapool.study.loading import load_fit_maps
from foveapool.study.spec import ExecutionOptions

PAGE = "report.html"
NO_NETWORK = (
    "No example maps: the network is not known here; write_page of foveapool.report.page takes "
    "`examples` of your own."
)


def report_command(
    names: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[RUN]...",
            help="Folders of runs or names in runs/, operators' files, folders of "
            "ClosedFormPooling.save; the last run if none. Several stand side by side.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help=f"The page; {PAGE} in the run's folder if not given.")
    ] = None,
    example: Annotated[
        bool, typer.Option("--example", help="Show the operators that come with the package.")
    ] = False,
    runs: Annotated[Path, typer.Option(help="The folder of runs.")] = Path("runs"),
    maps: Annotated[
        bool, typer.Option(help="Lay maps of example images under the weights.")
    ] = True,
    open_it: Annotated[
        bool, typer.Option("--open", help="Open the page in the browser when it is written.")
    ] = False,
    data_root: DataRoot = None,
) -> None:
    """Writes one HTML file that tells of a run, and opens without a network.

    It opens with the result in words and a chart; an explorer of the fitted operators, all errors
    beside the paper's and what was done follow.
    """
    with user_errors():
        if example and names:
            raise ValueError("--example: got runs too, wanted one or the other")
        if example:
            summaries, page = [summarize_example()], Path("foveapool-example.html")
        else:
            found = [resolve_run(name, runs) for name in names or [find_last_run(runs)]]
            summaries = [summarize_run(path) for path in found]
            page = found[0] / PAGE if found[0].is_dir() else found[0].with_suffix(".html")
            page = page if len(found) == 1 else runs / "comparison.html"
        page = out or page
        check_file_place(page)
        if maps:
            summaries = [_with_maps(summary, data_root) for summary in summaries]
        written = write_summaries(summaries, page)
    for summary in summaries:
        for text in summary.missing:
            typer.echo(f"note: {text}", err=True)
    typer.echo(f"written to {written}")
    if open_it and not webbrowser.open(written.absolute().as_uri()):
        typer.echo("note: no browser was found to open it in; open the file in one", err=True)


def resolve_run(name: Path, runs: Path) -> Path:
    """A path as it is, or the study or training of that name in the folder of runs."""
    for path in (name, runs / "studies" / name, runs / "trainings" / name, runs / name):
        if path.exists():
            return path
    raise FileNotFoundError(
        f"{name}: no such file or folder, and no study or training in {runs}; wanted a run"
    )


def _with_maps(summary: RunSummary, data_root: Path | None) -> RunSummary:
    bare = [each.path for each in summary.families if each.path and each.examples is None]
    if not all(map(has_network, bare)):
        return replace(summary, missing=(*summary.missing, NO_NETWORK))

    means = ExecutionOptions("cpu", data_root=data_root)
    return add_examples(summary, partial(load_fit_maps, means=means))
