"""From folders to run summaries: studies, trainings, `foveapool train`, fits, operator files.

What is missing or cannot be read is said in the summary, and the rest is shown; a folder that is
no run at all is an error.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from foveapool.labels import label_columns, label_data
from foveapool.pooling.storage import FIT_NOTE
from foveapool.records import ERROR, VALIDATION, Row, read_rows, summarize_values
from foveapool.report.describe import (
    METRICS,
    TrainingFolder,
    describe_data,
    describe_results,
    read_curve,
)
from foveapool.report.operator_files import (
    SavedFit,
    find_adapter_folder,
    read_families,
    read_saved_fit,
    read_training_families,
)
from foveapool.report.run_summary import NO_OPERATOR, Family, RunSummary, make_family
from foveapool.runs import RESULT, RUNS, STEP, STUDY, TRAINING, read_json

NOTE = "run.json"  # what `foveapool train` leaves in its folder
UNNAMED = "training"  # the curve of such a folder, which is no setting of a study
EXAMPLE = Path(__file__).parent / "assets" / "example"  # scripts/make_example_operator.py made it


def summarize_run(path: Path) -> RunSummary:
    """What is known of the run at a path: a study, a training, or a folder or file of operators."""
    if path.is_file() and find_adapter_folder(path) is None:
        return _summarize_files(path.name, [path])
    if (path / STUDY).is_file():
        return _summarize_study(path)
    if (path / TRAINING).is_file():
        return _summarize_training(path)
    if (path / RUNS).is_file():
        return summarize_run(find_last_run(path))
    files = sorted(path.glob("operator*.safetensors"))
    if (path / NOTE).is_file() or (path / FIT_NOTE).is_file() or files:
        return _summarize_files(path.absolute().name, files, path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file or folder, wanted a run")
    if find_adapter_folder(path) is not None:
        raise ValueError(
            f"{path}: not a run: got an adapter, whose poolings have weights but no eigenvalues "
            f"and no separability; `foveapool figures operator {path} --out FILE` draws the "
            "weights, and what ClosedFormPooling.save wrote has all of it"
        )
    raise ValueError(
        f"{path}: not a run: got no {STUDY}, {TRAINING}, {NOTE} or operator*.safetensors in it; "
        "wanted a folder that `foveapool study`, `train` or `fit` or ClosedFormPooling.save "
        "wrote, or an operator's file"
    )


def summarize_example() -> RunSummary:
    """The run that comes with the package: operators of a CNN on street digits."""
    account = summarize_run(EXAMPLE)
    return replace(account, facts=tuple(f for f in account.facts if f[0] != "folder"))


def find_last_run(root: Path) -> Path:
    """The study or training of a folder of runs in which something was written last.

    A training that a study asked for is part of the study.
    """
    times: dict[Path, float] = {}
    taken: set[Path] = set()
    for study in root.glob(f"studies/*/{STUDY}"):
        own = [root / "trainings" / name for name in _asked(study.parent)]
        taken.update(own)
        times[study.parent] = max(_changed(folder) for folder in (study.parent, *own))
    for note in (*root.glob(f"trainings/*/{TRAINING}"), *root.glob(f"*/{NOTE}")):
        if note.parent not in taken:
            times[note.parent] = _changed(note.parent)
    if not times:
        raise FileNotFoundError(
            f"{root}: no run in it; name one, make one with `foveapool demo` or `foveapool study`, "
            "or see `foveapool report --example`"
        )
    return max(times, key=lambda path: times[path])


def _changed(folder: Path) -> float:
    """When a run last wrote something; a page that is written later does not make it newer."""
    own = (STUDY, TRAINING, RESULT, NOTE, METRICS, "rows.csv", "selection.csv")
    files = [path for name in own if (path := folder / name).is_file()]
    return max((path.stat().st_mtime for path in files), default=0.0)


def _asked(study: Path) -> list[str]:
    try:
        return [str(each["name"]) for each in read_json(study / STUDY)["trainings"]]
    except (ValueError, KeyError, TypeError):
        return []


def _summarize_study(folder: Path) -> RunSummary:
    try:
        note = read_json(folder / STUDY)
        facts: dict[str, Any] = note["facts"]
        done_with = describe_data(facts)
        name = str(note["name"])
        asked = {str(each["name"]): each.get("stage") for each in note["trainings"]}
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        why = error if type(error) is ValueError else repr(error)
        raise ValueError(
            f"{folder / STUDY}: {why}; wanted the note of a study, which writes it anew when it is "
            "started again"
        ) from error
    trainings, missing = _trainings(folder.parents[1] / "trainings", asked)
    done = [each for each in trainings if each.result is not None]
    rows = _rows(folder / "rows.csv", missing)
    selection = _rows(folder / "selection.csv", missing)
    if not rows:
        missing.insert(0, _why_no_rows(folder, len(done), len(asked)))
        lines = [each for each in done if asked[each.path.name] != STEP]
        rows = make_partial_rows(name, [each for each in lines if each.held_out is None])
        searched = [each for each in lines if each.held_out is not None]
        selection = selection or make_partial_rows(name, searched)
    curves = [each.curve() for each in trainings if each.held_out is None]
    # The other held-out parts have the same grid of operators once more.
    shown = [each for each in trainings if each.held_out in (None, 0)]
    told = [
        *done_with,
        ("seeds", str(facts.get("seeds", "unknown"))),
        ("trainings", f"{len(done)} finished of {len(asked)}"),
        *describe_results([each.result for each in done if each.result is not None]),
        ("folder", str(folder)),
    ]
    return RunSummary(
        title=note.get("title") or name,
        facts=tuple(told),
        families=read_training_families(shown, missing),
        rows=tuple(rows),
        selection=tuple(selection),
        curves=tuple(curve for curve in curves if curve is not None),
        missing=tuple(missing),
    )


def _why_no_rows(study: Path, done: int, asked: int) -> str:
    why = "The study is not finished"
    if (study / "rows.csv").is_file():
        why = "No row of rows.csv can be read (start the study again, which writes it anew)"
    return (
        f"{why}: {done} of the {asked} trainings it has asked for so far are done. The tables are "
        "of those."
    )


def _trainings(folder: Path, names: Iterable[str]) -> tuple[list[TrainingFolder], list[str]]:
    found, missing = [], []
    for name in names:
        try:
            found.append(TrainingFolder(folder / name))
        except FileNotFoundError:
            continue  # not begun, which the count of finished ones tells
        except (OSError, ValueError) as error:
            missing.append(f"{name}: {error}")
    return found, missing


def _rows(path: Path, missing: list[str]) -> list[Row]:
    if not path.is_file():
        return []
    try:
        return read_rows(path)
    except (ValueError, OSError) as error:
        missing.append(str(error))
        return []


def _summarize_training(folder: Path) -> RunSummary:
    try:
        training = TrainingFolder(folder)
    except ValueError as error:
        raise ValueError(
            f"{folder}: {error}; start its study again, which does it anew, or name another run"
        ) from error
    missing: list[str] = []
    if training.result is None:
        missing.append("The training is not finished: it has no error yet.")
    curve = training.curve()
    if curve is None:
        missing.append(f"No epoch of it is over: {METRICS} has no line yet.")
    part = training.held_out
    told_rows = make_partial_rows(folder.name, [training])
    told = [
        *training.told,
        ("pooling", training.words),
        ("seed", str(training.seed)),
        ("measured on", "test images" if part is None else f"held-out part {part}"),
        *describe_results([training.result] if training.result is not None else []),
        ("folder", str(folder)),
    ]
    return RunSummary(
        title=f"{training.words}, seed {training.seed}",
        facts=tuple(told),
        families=read_training_families([training], missing),
        rows=tuple(told_rows if part is None else ()),
        selection=tuple(told_rows if part is not None else ()),
        curves=() if curve is None else (curve,),
        missing=tuple(missing),
    )


def _summarize_files(title: str, files: Sequence[Path], folder: Path | None = None) -> RunSummary:
    """Operators as files, perhaps in a folder of `foveapool train` or of a fit."""
    missing: list[str] = []
    fit = read_saved_fit(folder or files[0].parent)
    if folder is not None and fit is not None:
        files = list(dict.fromkeys((*fit.operators.values(), *files)))  # as the layers come
    found = read_families(files, missing)
    if folder is None and not found:
        raise ValueError(missing[0])
    if fit is not None:
        found = tuple(_by_layers(each, fit) for each in found)
    told: list[tuple[str, str]] = []
    curve = None
    if folder is not None:
        if fit is not None and not (folder / NOTE).is_file():
            told = list(fit.settings)
        else:
            try:
                note = read_json(folder / NOTE)
                title = str(note.pop("title", title))
                told = [(key.replace("_", " "), str(value)) for key, value in note.items()]
            except (OSError, ValueError):
                missing.append(f"No {NOTE}: data and network of these operators are not known.")
        curve = read_curve(folder / METRICS, UNNAMED)
        if not found:
            missing.append(f"{NO_OPERATOR}: fit one with `foveapool fit`.")
    told.append(("folder" if folder else "file", str(folder or files[0])))
    curves = () if curve is None else (curve,)
    return RunSummary(title, tuple(told), found, curves=curves, missing=tuple(missing))


def _by_layers(each: Family, fit: SavedFit) -> Family:
    """The family under the names that the fit knows; a file that is not of it keeps its own."""
    if each.path is None:
        return each
    names = fit.layers(each.path)
    name = f"layer{'s' if names[1:] else ''} {', '.join(names)}" if names else each.path.stem
    return make_family(name, each.operators, each.examples, each.path)


def make_partial_rows(study: str, trainings: Iterable[TrainingFolder]) -> list[Row]:
    """A row for each setting among finished trainings, for a study that has no table yet."""
    found: dict[str, list[TrainingFolder]] = {}
    for each in trainings:
        same = {key: value for key, value in each.facts.items() if key not in ("seed", "held_out")}
        stage = "trials" if each.held_out is None else "search"
        if each.result is not None:
            found.setdefault(json.dumps([stage, same], sort_keys=True), []).append(each)
    return [_row(study, own) for own in found.values()]


def _row(study: str, trainings: Sequence[TrainingFolder]) -> Row:
    errors = {each.seed: float(each.result["error"]) for each in trainings if each.result}
    first = trainings[0]
    recipe = first.facts["recipe"]
    columns: dict[str, Any] = {
        **label_columns(first.facts["setting"], recipe.get("pooling_rate")),
        "data": label_data(first.facts["data"]),
        "seeds": ", ".join(map(str, sorted(errors))),
        "epochs": str(recipe["epochs"]),
        "batch": str(recipe["batch_size"]),
        **summarize_values([errors[seed] for seed in sorted(errors)]),
    }
    return Row(study=study, metric=ERROR if first.held_out is None else VALIDATION, **columns)
