"""`foveapool robustness`: corrupted sets on disk, and how trained networks fare on them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from foveapool._io import check_folder_place, write_text
from foveapool.cli.options import DataRoot, Device, user_errors
from foveapool.data.registry import NAMES, load_data
from foveapool.records import append_rows, check_rows_file, collect_provenance
from foveapool.robustness.evaluate import Progress
from foveapool.robustness.names import check_severities, corruption_names, perturbation_names
from foveapool.robustness.result import average_results
from foveapool.robustness.sets import generate_corruptions, generate_perturbations
from foveapool.robustness.tables import make_tables
from foveapool.study.loading import TrainedNetwork, load_trained_network
from foveapool.study.robustness import (
    MeasuredNetwork,
    RobustnessRequest,
    check_alike,
    make_rows,
    measure_network,
)
from foveapool.tabular import Table
from foveapool.training.metrics import open_bar
from foveapool.training.parallel import choose_device

NONE = "none"
EVERY_SEVERITY = "1,2,3,4,5"
WIDTH = 110  # of the widest table

app = typer.Typer(
    help="Corrupted images: make sets of them, measure networks on them.", no_args_is_help=True
)

Severities = Annotated[str, typer.Option(help="Some of 1 to 5, such as 1,3,5.")]
Seed = Annotated[int, typer.Option(help="For what is random in corruptions.")]
FrostFolder = Annotated[
    Path | None, typer.Option(help="Pictures of ice for frost; drawn if there are none.")
]


@app.command()
def generate(
    data: Annotated[str, typer.Argument(help=f"Whose test images: {', '.join(NAMES)}.")],
    out: Annotated[Path, typer.Option(help="The folder for the files, such as CIFAR-10-C.")],
    kind: Annotated[str, typer.Option(help="c for corruptions, p for perturbations.")] = "c",
    names: Annotated[
        str, typer.Option(help="standard or all for c, all for p, or names with commas.")
    ] = "",
    severities: Severities = EVERY_SEVERITY,
    seed: Seed = 0,
    reproduce: Annotated[
        bool, typer.Option(help="Black frames where spatter has no drop, as its authors' code.")
    ] = False,
    frost_folder: FrostFolder = None,
    data_root: DataRoot = None,
    device: Device = None,
) -> None:
    """Writes the test images, corrupted, in the published layout; goes on if it was killed."""
    with user_errors(), _notes():
        # Names are looked at before the data is.
        chosen, strengths = _split(names), _numbers(severities)
        if kind == "c":
            _refuse(reproduce, "--reproduce", "--kind c", "only --kind p has such frames")
            wanted = corruption_names(chosen or "standard")
        elif kind == "p":
            some = severities != EVERY_SEVERITY
            _refuse(some, "--severities", "--kind p", "perturbations have none")
            _refuse(frost_folder, "--frost-folder", "--kind p", "no perturbation has frost")
            wanted = perturbation_names(chosen or "all")
        else:
            raise ValueError(f"kind: got {kind!r}, wanted c or p")
        check_folder_place(out)
        place = choose_device(device)
        test = load_data(data, data_root).test
        images = test.images.permute(0, 2, 3, 1).contiguous()
        with _bar(f"{data}, {len(wanted)} files") as progress:
            if kind == "c":
                made = generate_corruptions(
                    out,
                    images,
                    test.labels,
                    wanted,
                    strengths,
                    seed=seed,
                    frost_folder=frost_folder,
                    device=place,
                    progress=progress,
                )
            else:
                made = generate_perturbations(
                    out,
                    images,
                    wanted,
                    seed=seed,
                    reproduce=reproduce,
                    device=place,
                    progress=progress,
                )
    there = len(wanted) - len(made)
    typer.echo(f"{out}: {len(made)} files made" + (f", {there} were there" if there else ""))


@app.command("evaluate")
def evaluate_command(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Folders of `foveapool train` or of a study's trainings, the trials."),
    ],
    baseline: Annotated[
        list[Path] | None,
        typer.Option(help="A folder of the baseline's trials; once for each."),
    ] = None,
    corruptions: Annotated[
        str, typer.Option(help="standard (15), all (19), none, or names with commas.")
    ] = "standard",
    severities: Severities = EVERY_SEVERITY,
    perturbations: Annotated[
        str, typer.Option(help="all (14, noises at 3 levels), none, or names with commas.")
    ] = NONE,
    folder: Annotated[
        Path | None,
        typer.Option(help="Published sets, CIFAR-10-C or -P or both in it, instead of our own."),
    ] = None,
    images: Annotated[
        int | None, typer.Option(help="The first so many test images; all if not given.", min=1)
    ] = None,
    seed: Seed = 0,
    frost_folder: FrostFolder = None,
    results: Annotated[Path, typer.Option(help="The CSV file to add rows to.")] = Path(
        "results/robustness.csv"
    ),
    tables_folder: Annotated[
        Path | None, typer.Option("--tables", help="Also write the tables there, .md and .csv.")
    ] = None,
    data_root: DataRoot = None,
    device: Device = None,
) -> None:
    """Errors under corruption and flips in sequences; trials are averaged.

    The paper's figures stand beside them where the data are its own, CIFAR-10.
    A network that was measured the same way before is not measured again.
    """
    with user_errors(), _notes():
        if folder is not None:
            _refuse(frost_folder, "--frost-folder", "--folder", "a set on disk has its frost")
            _refuse(seed, "--seed", "--folder", "a set on disk is drawn already")
        asked = RobustnessRequest(
            corruption_names(_split(corruptions)),
            check_severities(_numbers(severities)),
            perturbation_names(_split(perturbations)),
            images,
            seed,
            folder,
            frost_folder,
            device,
        )
        check_rows_file(results)
        if tables_folder is not None:
            check_folder_place(tables_folder)
        ours = [load_trained_network(run, data_root) for run in runs]
        theirs = [load_trained_network(run, data_root) for run in baseline or ()]
        check_alike(ours, theirs)
        base, found = _all_measured(theirs, asked), _all_measured(ours, asked)
        against = average_results([each.result for each in base]) if base else None
        where = collect_provenance(device)
        rows = make_rows(base, None, where) if base else []
        append_rows(results, [*rows, *make_rows(found, against, where)])
        data = ours[0].columns["data"]
        drawn = make_tables(average_results([each.result for each in found]), against, data)
        if tables_folder is not None:
            tables_folder.mkdir(parents=True, exist_ok=True)
            for table in drawn:
                text = f"# {table.title}\n\n{table.markdown()}\n"
                write_text(tables_folder / f"{table.name}.md", text)
                write_text(tables_folder / f"{table.name}.csv", f"{table.csv()}\n")
    for table in drawn:
        _print(table)
    typer.echo(f"rows added to {results}")


def _all_measured(
    trials: Sequence[TrainedNetwork], asked: RobustnessRequest
) -> list[MeasuredNetwork]:
    found = []
    for trained in trials:
        with _bar(str(trained.folder)) as progress:
            found.append(measure_network(trained, asked, progress))
    return found


def _refuse(given: object, option: str, other: str, why: str) -> None:
    """ValueError for an option that would change nothing beside another, if it is given."""
    if given:
        raise ValueError(f"{option}: got it with {other}, wanted one of them: {why}; leave it out")


def _split(names: str) -> list[str]:
    """The names between commas; "none" is no name."""
    return [name.strip() for name in names.split(",") if name.strip() not in ("", NONE)]


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise ValueError(f"severities: got {text!r}, wanted some of 1,2,3,4,5") from None


def _print(table: Table) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table as Drawn
    from rich.text import Text

    drawn = Drawn(*table.header, box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 0, 0, 1))
    for column in drawn.columns[1:]:
        column.justify = "right"
    before = table.lines[0][0] if table.lines else ""
    for row in table.lines:
        # A model's name once for its rows, as the paper has it.
        drawn.add_row("" if row[0] == before and drawn.rows else row[0], *row[1:])
        before = row[0]
    # Wider than a narrow terminal, or than a pipe, rather than with digits cut off.
    console = Console(highlight=False, markup=False, width=max(Console().width, WIDTH))
    console.print(Text(table.title, "bold"), "", drawn, "", *table.notes, "", sep="\n")


@contextmanager
def _notes() -> Iterator[None]:
    """Warnings as one line each, once, after the work."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        yield
    for text in dict.fromkeys(str(each.message) for each in caught):
        typer.echo(f"note: {text}", err=True)


@contextmanager
def _bar(title: str) -> Iterator[Progress]:
    """A bar on the error stream with the time left, and the function that moves it."""
    with open_bar(title) as move:
        yield lambda done, total, what: move(done, total, f"{title}: {what}")
