"""`foveapool study`: a preset or a file of one's own, from search to table."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from foveapool.cli.options import DataRoot, Device, user_errors
from foveapool.cli.results import describe_diverged, show_table
from foveapool.known_trainings import KnownTrainings
from foveapool.labels import label_cell
from foveapool.records import Row, append_rows, check_rows_file, read_rows
from foveapool.report.describe import describe_training
from foveapool.report.tables import list_lacking_rows
from foveapool.runs import Runs
from foveapool.study.engine import (
    Engine,
    ProcessWorkers,
    SerialWorkers,
    Workers,
)
from foveapool.study.preflight import check_disk_space, check_images, make_plan
from foveapool.study.presets import parse_changes, preset_titles, read_preset
from foveapool.study.ray_workers import SEND_SECONDS, RayWorkers, SharedRayWorkers
from foveapool.study.spec import ExecutionOptions
from foveapool.study.study import Study, StudyRun, Tables, make_partial_tables
from foveapool.study.worker import find_fault
from foveapool.training.parallel import choose_device

ENGINES = ("local", "ray")


def study_command(
    presets: Annotated[
        list[str] | None, typer.Argument(help="Presets or TOML files; none lists the presets.")
    ] = None,
    runs: Annotated[
        Path, typer.Option(help="The folder of runs; studies in it share them.")
    ] = Path("runs"),
    engine: Annotated[str, typer.Option(help="local, or ray for a cluster.")] = "local",
    jobs: Annotated[
        int | None,
        typer.Option(help="Trainings at once, a process each; 1 on a GPU if not given.", min=1),
    ] = None,
    cpus: Annotated[float, typer.Option(help="With ray: cores for each training.")] = 1.0,
    gpus: Annotated[float, typer.Option(help="With ray: GPUs for each, such as 0.25.")] = 0.0,
    address: Annotated[str | None, typer.Option(help="With ray: the cluster's address.")] = None,
    shared: Annotated[
        bool, typer.Option(help="With ray: all machines see the folder of runs and write to it.")
    ] = False,
    send_seconds: Annotated[
        float,
        typer.Option(help="With ray, without --shared: how often checkpoints come back.", min=0.1),
    ] = SEND_SECONDS,
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Another value, such as trials.seeds=3 or data.name=svhn; a word needs no quotes.",
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Another name for its tables, with other values, say.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option(help="Only say what would be done, and how long.")
    ] = False,
    partial: Annotated[
        bool, typer.Option(help="Only the table of what is finished by now.")
    ] = False,
    results: Annotated[
        Path | None,
        typer.Option(help="Also add to this CSV file those of the table's rows that it lacks."),
    ] = None,
    known: Annotated[
        Path | None,
        typer.Option(
            envvar="FOVEAPOOL_KNOWN",
            help="A file of finished trainings: they are not done again, and new ones are added.",
        ),
    ] = None,
    data_root: DataRoot = None,
    device: Device = None,
    compile: Annotated[bool, typer.Option(help="Compile the step, for long trainings.")] = False,
    keep: Annotated[bool, typer.Option(help="Keep every network's weights.")] = False,
) -> None:
    """Does a study; the same command goes on after an interruption, and beside another one."""
    if not presets:
        titles = preset_titles()
        longest = max(map(len, titles))
        typer.echo("\n".join(f"{each:{longest}}  {titles[each]}" for each in titles))
        return
    # Names and paths are no markup, whatever is in them.
    console = Console(stderr=True, markup=False, emoji=False)
    with user_errors():
        studies = [read_preset(each, parse_changes(change or [])) for each in presets]
        if name is not None:
            if not re.fullmatch(r"[\w.-]+", name):
                raise ValueError(
                    f"name: got {name!r}, wanted letters, digits, '.', '_' and '-': it becomes the "
                    "name of a folder"
                )
            if len(studies) > 1:
                raise ValueError(
                    f"name: got {name!r} for {len(studies)} studies, wanted one study; name each "
                    "in a command of its own"
                )
            studies = [replace(studies[0], name=name)]
        names = [study.name for study in studies]
        if twice := [each for each in dict.fromkeys(names) if names.count(each) > 1]:
            raise ValueError(
                f"presets: got {twice[0]!r} {names.count(twice[0])} times, wanted studies of "
                "different names: their tables would take each other's place"
            )
        # What is broken into lines, a path above all, cannot be searched for.
        say = functools.partial(console.print, soft_wrap=True)
        finished = None if known is None else KnownTrainings(known, say, find_fault)
        if finished is not None and not (dry_run or partial):
            finished.check_writable()
        folder = Runs(runs, say, finished)
        # A second layer is fitted on networks that the first search trained.
        second = any(search.second_layer for study in studies for search in study.searches)
        means = ExecutionOptions(device, compile, data_root, keep or second)
        if engine not in ENGINES:
            raise ValueError(f"engine: got {engine!r}, wanted one of {', '.join(ENGINES)}")
        count = jobs or (1 if choose_device(device).type == "cuda" else os.cpu_count() or 1)
        if results is not None:
            check_rows_file(results)
            if results.exists() and results.stat().st_size:
                read_rows(results)
        if partial:
            if dry_run:
                raise ValueError("--partial: got --dry-run too, wanted one of them")
            for study in studies:
                _say_partial(study, folder, results, console)
            return
        for study in studies:
            check_disk_space(study, folder, count)
            if dry_run:
                _say_plan(study, folder, means, count)
            else:
                check_images(study, means)
        if dry_run:
            return
        workers: Workers
        if engine == "local":
            workers = SerialWorkers() if count == 1 else ProcessWorkers(count)
        elif shared:
            workers = SharedRayWorkers(cpus, gpus, address)
        else:
            workers = RayWorkers(cpus, gpus, address, send_seconds)
        try:
            for study in studies:
                _conduct(study, folder, means, workers, results, console, finished)
        except KeyboardInterrupt:
            console.print("interrupted: what is finished stays, and the same command goes on")
            raise
        finally:
            try:
                workers.close()
            finally:
                if finished is not None:
                    finished.close()


def _conduct(
    study: Study,
    runs: Runs,
    means: ExecutionOptions,
    workers: Workers,
    results: Path | None,
    console: Console,
    known: KnownTrainings | None,
) -> None:
    name = TextColumn("{task.description}", markup=False)
    columns = (name, BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console) as bar:
        task = bar.add_task(study.name, total=None)
        run = StudyRun(study, Engine(runs, means, workers))
        for done in run:
            training = done.training
            if known is not None:
                known.add(training.name, training.facts, done.result)
            where = f"seed {training.seed}"
            if training.part is not None:
                where = f"held-out part {training.part}"
            what = describe_training(training.facts)
            if training.recipe.epochs != study.recipe.epochs:
                what += f", {training.recipe.epochs} epochs"
            wrong = f"{done.result['error']:.2f} % wrong"
            text = f"{what}, {where}: {done.result.get('diverged', wrong)}"
            console.print(text, soft_wrap=True)
            bar.update(task, completed=done.number, total=done.total)
    _show_tables(run.tables, results, console)
    typer.echo(f"in {runs.study(study.name)}")


def _say_partial(study: Study, runs: Runs, results: Path | None, console: Console) -> None:
    tables = make_partial_tables(study, runs)
    _show_tables(tables, results, console)
    for trials in tables.unfinished:
        done = sum(runs.result(each.name, each.facts) is not None for each in trials.trainings)
        what = describe_training(trials.trainings[0].facts)
        console.print(f"not finished: {what}, {done} of {len(trials.trainings)} seeds")


def _show_tables(tables: Tables, results: Path | None, console: Console) -> None:
    if results is not None:
        _add_rows(results, [*tables.selection, *tables.rows], console)
    show_table(tables.rows, "terminal")
    for text in describe_diverged(tables.rows):
        console.print(text)


def _add_rows(results: Path, rows: Sequence[Row], console: Console) -> None:
    """Adds those rows that the file does not have yet, whoever put them there and when."""
    if known := len(rows) - append_rows(results, rows, list_lacking_rows):
        console.print(f"{results}: {known} of {len(rows)} rows were there already")


def _say_plan(study: Study, runs: Runs, means: ExecutionOptions, jobs: int) -> None:
    found = make_plan(study, runs, means)
    typer.echo(f"{study.name}: {study.title or 'no title'}")
    recipe = study.recipe
    network = label_cell("network", study.network.network)
    typer.echo(
        f"  {network} on {label_cell('data', study.source.name)}, {recipe.epochs} epochs of "
        f"batches of {recipe.batch_size}, {study.seeds} seeds"
    )
    for search in study.searches:
        settings = len(search.settings(study.network))
        halved, shorter = "", ""
        if search.epochs < 1:
            shorter = f", for {100 * search.epochs:g} % of the epochs"
        if search.halving is not None:
            halved = f", the best {search.halving.keep} after {search.halving.parts} of them"
        typer.echo(
            f"  search {label_cell('pooling', search.pooling)}: {settings} settings on "
            f"{search.parts} held-out parts of {100 * search.held_out:g} %{halved}{shorter}"
        )
    compared = dict.fromkeys(label_cell("pooling", arm.pooling) for arm in study.arms)
    typer.echo(f"  compared: {'; '.join(compared)}")
    time = found.describe_time(jobs)
    typer.echo(f"  {len(found.trainings)} trainings, {found.done} of them done; {time}")
