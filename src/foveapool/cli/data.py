"""`foveapool data`: which sets there are, whether their files are whole, and downloading them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from foveapool._io import check_file_place
from foveapool.cli.options import OWN_DATA, DataRoot, user_errors
from foveapool.data.download import (
    Progress,
    check_classes,
    check_counts,
    check_files,
    count_labels,
    download,
)
from foveapool.data.images import Images
from foveapool.data.official import OfficialSet, find_files
from foveapool.data.registry import (
    OFFICIAL,
    REDUCED,
    get_official_set,
    get_packed_path,
    load_data,
    resolve_root,
)
from foveapool.data.user_data import write_npz

app = typer.Typer(
    help=f"Data sets: list, check and download them.\n\nOf your own: {OWN_DATA}",
    no_args_is_help=True,
)


@app.command("list")
def list_sets(data_root: DataRoot = None) -> None:
    """Shows every data set: how large it is, whether its files are there, what to download."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    root = resolve_root(data_root)
    names = ("name", "train", "test", "classes", "there", "download", "where")
    table = Table(*names, box=box.SIMPLE_HEAD)
    for name, official in OFFICIAL.items():
        train, test = sum(official.train_counts), sum(official.test_counts)
        if name == "svhn-reduced":
            train = round(REDUCED * train)
        sizes = (f"{train:,}", f"{test:,}", str(len(official.classes)))
        table.add_row(name, *sizes, *_where(name, official, root))
    table.add_row("street-digits", "any", "any", "10", "yes", "-", "drawn when asked for")
    for name in ("folder:PATH", "npz:PATH"):
        table.add_row(name, "", "", "", "", "-", "files of your own: foveapool data --help")
    console = Console(markup=False, emoji=False)
    # A line a set, however wide: paths are there to be copied.
    whole = console.measure(table, options=console.options.update(width=1000)).maximum
    console.width = max(console.width, whole)
    console.print(table)


def _where(name: str, official: OfficialSet, root: Path) -> tuple[str, str, str]:
    size = f"{sum(remote.size for remote in official.editions[0].remotes) / 1e6:.0f} MB"
    if (packed := get_packed_path(name, root)).is_file():
        return "packed", size, str(packed)
    found = find_files(official, root)
    there = "no" if found is None else "in part" if found.missing else "yes"
    return there, size, str(found.folder if found else root / official.name)


@app.command()
def check(
    names: Annotated[
        list[str] | None, typer.Argument(help="Which sets; those that are there if none is named.")
    ] = None,
    data_root: DataRoot = None,
) -> None:
    """Compares files with the published checksums, reads them and counts the classes."""
    root = resolve_root(data_root)
    if not names:
        names = [
            name
            for name, official in OFFICIAL.items()
            if get_packed_path(name, root).is_file()
            or (official.name == name and find_files(official, root))
        ]
        if not names:
            typer.echo(f"nothing in {root}: foveapool data download NAME, or name a --data-root")
    failed = False
    for name in names:
        try:
            with user_errors():
                _check(name, root)
        except typer.Exit:
            failed = True
    if failed:
        raise typer.Exit(2)


def _check(name: str, root: Path) -> None:
    official = OFFICIAL.get(name)
    if official and get_packed_path(name, root).is_file():
        typer.echo(f"{get_packed_path(name, root)}: read instead of the published files")
    elif official:
        for file in check_files(official, root):
            verdict = "as published" if file.published else "not the published bytes"
            typer.echo(f"{file.path}: {file.size:,} bytes, {verdict}")
    data = load_data(name, root)
    if official and official.name == name:
        check_counts(official, data)
    for part, images in (("train", data.train), ("test", data.test)):
        typer.echo(f"{name}: {part} {_summary(images)}")
    if not official:
        check_classes(data)
    typer.echo(f"{name}: reads well")


def _summary(images: Images) -> str:
    counts = count_labels(images)
    if len(set(counts)) == 1:
        by_class = f"{counts[0]:,} in each of {len(counts)} classes"
    else:
        by_class = ", ".join(
            f"{name}: {count:,}" for name, count in zip(images.classes, counts, strict=True)
        )
    channels, height, width = images.images.shape[1:]
    return f"{len(images):,} images of {channels} x {height} x {width}; {by_class}"


@app.command("download")
def download_sets(
    names: Annotated[list[str], typer.Argument(help=f"Which sets: {', '.join(OFFICIAL)}.")],
    data_root: DataRoot = None,
) -> None:
    """Fetches published files, goes on where a download broke off, verifies and unpacks them."""
    root = resolve_root(data_root)
    with user_errors():
        sets = {official.name: official for official in map(get_official_set, names)}
        for name, official in sets.items():
            with _bar() as progress:
                folder = download(official, root, progress)
            typer.echo(f"{name}: in {folder}")


@app.command()
def pack(
    name: Annotated[str, typer.Argument(help=f"Which set: {', '.join(OFFICIAL)}.")],
    to: Annotated[Path, typer.Argument(help="The --data-root of the machine it goes to.")],
    data_root: DataRoot = None,
    data_seed: Annotated[int, typer.Option(help="For subsets of the data.")] = 0,
) -> None:
    """Copies a set, or the part of it that a seed draws, into one file for another machine."""
    with user_errors():
        path = get_packed_path(name, to, data_seed)
        check_file_place(path)
        write_npz(load_data(name, data_root, data_seed), path)
    typer.echo(f"{name}: in {path}, {path.stat().st_size / 1e6:.0f} MB")


@contextmanager
def _bar() -> Iterator[Progress]:
    """A bar on the terminal's error stream, one line a file, and the function that moves it."""
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=Console(stderr=True)) as bar:
        tasks: dict[str, progress.TaskID] = {}

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total or None)
            bar.update(tasks[what], completed=done)

        yield show
