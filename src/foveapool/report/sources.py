"""What folders and files hold: run summaries for pages, and what figures are drawn from.

The folders are those of studies, trainings, `foveapool train` and fits; the files hold operators,
scatter or rows. What is missing or cannot be read is said in the summary, and the rest is shown; a
folder that is no run is an error. Where a source has none of what a figure needs, the error says
which source would.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from foveapool._io import read_json
from foveapool.pooling.grid import Center
from foveapool.pooling.operator import PoolingOperator
from foveapool.pooling.scatter import Scatter
from foveapool.pooling.solve import sweep_pooling
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
    TRAIN_NOTE,
    SavedFit,
    find_adapter_folder,
    read_families,
    read_saved_fit,
    read_training_families,
)
from foveapool.report.run_summary import NO_OPERATOR, Curve, Family, RunSummary, make_family
from foveapool.runs import RESULT, RUNS, STEP, STUDY, TRAINING

UNNAMED = "training"  # the curve of such a folder, which is no setting of a study
# benchmarks/assets/example_operator.py made it.
EXAMPLE = Path(__file__).parent / "assets" / "example"


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
    if (path / TRAIN_NOTE).is_file() or (path / FIT_NOTE).is_file() or files:
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
        f"{path}: not a run: got no {STUDY}, {TRAINING}, {TRAIN_NOTE} or operator*.safetensors in "
        "it; wanted a folder that `foveapool study`, `train` or `fit` or ClosedFormPooling.save "
        "wrote, or an operator's file"
    )


def summarize_example() -> RunSummary:
    """The run that comes with the package: operators of a CNN on street digits."""
    summary = summarize_run(EXAMPLE)
    return replace(summary, facts=tuple(f for f in summary.facts if f[0] != "folder"))


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
    for note in (*root.glob(f"trainings/*/{TRAINING}"), *root.glob(f"*/{TRAIN_NOTE}")):
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
    own = (STUDY, TRAINING, RESULT, TRAIN_NOTE, METRICS, "rows.csv", "selection.csv")
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
        return read_rows(path, skip=missing.append)
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
        if fit is not None and not (folder / TRAIN_NOTE).is_file():
            told = list(fit.settings)
        else:
            try:
                note = read_json(folder / TRAIN_NOTE)
                title = str(note.pop("title", title))
                told = [(key.replace("_", " "), str(value)) for key, value in note.items()]
            except (OSError, ValueError):
                missing.append(
                    f"No {TRAIN_NOTE}: data and network of these operators are not known."
                )
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
    columns: dict[str, Any] = {
        **first.columns,
        "seeds": ", ".join(map(str, sorted(errors))),
        **summarize_values([errors[seed] for seed in sorted(errors)]),
    }
    return Row(study=study, metric=ERROR if first.held_out is None else VALIDATION, **columns)


Say = Callable[[str], None]


def _say_nothing(text: str) -> None:
    pass


def read_sweeps(
    sources: Sequence[Path], text: str, say: Say = _say_nothing
) -> dict[str, list[PoolingOperator]]:
    """Operators over alpha by layer: solved for on scatter files, or as runs have them.

    Here and below, `say` takes what is missing in a run, a line at a time.
    """
    try:
        alphas = [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"alphas: got {text!r}, wanted numbers such as 5,25,100") from None
    found: list[tuple[Path, str, list[PoolingOperator]]] = []
    for source in dict.fromkeys(sources):
        fit = read_saved_fit(source)
        scatters = _scatters(source, fit)
        center: Center = "paper" if fit is None else fit.center
        for name, scatter in scatters.items():
            halves = [(size + 1) // 2 for size in scatter.in_shape]
            swept = sweep_pooling(scatter, halves, alphas, center=center, window=scatter.window)
            found.append((source, name, list(swept)))
        for family in () if scatters else _summarize(source, say).families:
            if len(family.operators) > 1:
                found.append((source, family.label, list(family.operators)))
    if not found:
        raise ValueError(
            f"{_listed(sources)}: no operators of several alphas, wanted such ones or "
            "a scatter file, which a study leaves in the folder of its baseline"
        )
    names = [name for _, name, _ in found]
    folders = [source.name for source in dict.fromkeys(source for source, _, _ in found)]

    def named(source: Path, name: str) -> str:
        if names.count(name) == 1:
            return name
        return f"{name}, {source.name if folders.count(source.name) == 1 else source}"

    return {named(source, name): operators for source, name, operators in found}


def _scatters(source: Path, fit: SavedFit | None) -> dict[str, Scatter]:
    """Scatter by what it is called: its layers, or else its file."""
    if fit is not None:
        files = dict.fromkeys(fit.scatters.values())
        return {", ".join(fit.layers(path)): Scatter.load(path) for path in files}
    if source.is_dir():
        found = sorted(source.glob("scatter-*.safetensors"))
        names = [_of_study(path) for path in found]
        # Scatter of one layer may have been summed up in several ways, which the file's name tells.
        return {
            name if names.count(name) == 1 else path.stem: Scatter.load(path)
            for path, name in zip(found, names, strict=True)
        }
    try:
        return {_of_study(source): Scatter.load(source)}
    except ValueError:
        return {}  # an operator's file, or what is neither, as reading it as one will say


def _of_study(scatter: Path) -> str:
    """The layer in the name of a study's scatter file; of another, the name."""
    named = re.fullmatch(r"scatter-(.+)-[0-9a-f]{8}", scatter.stem)
    return named[1] if named else scatter.stem


def read_curves(sources: Sequence[Path], say: Say = _say_nothing) -> list[Curve]:
    """The curves of runs; one that is no setting of a study is named by its folder.

    Studies share trainings, and those are drawn once. Where two studies call different trainings
    the same, each line says whose it is.
    """
    found = {source: _summarize(source, say).curves for source in sources}
    if not any(found.values()):
        raise ValueError(
            f"{_listed(sources)}: got no finished epoch, wanted a study, a training of one or a "
            "folder of `foveapool train` that has one; wait for it, or name another"
        )
    studies = [source for source in found if (source / STUDY).is_file()]
    meant: dict[str, set[tuple[Curve, ...]]] = {}
    for study in studies:
        for label in {curve.label for curve in found[study]}:
            own = tuple(curve for curve in found[study] if curve.label == label)
            meant.setdefault(label, set()).add(own)

    def named(source: Path, curve: Curve) -> Curve:
        if curve.label == UNNAMED:
            return replace(curve, label=str(source))
        if source in studies and len(meant[curve.label]) > 1:
            alone = [study.name for study in studies].count(source.name) == 1
            return replace(curve, label=f"{curve.label}, {source.name if alone else source}")
        return curve

    every = [named(source, curve) for source, curves in found.items() for curve in curves]
    return list(dict.fromkeys(every))


def read_all_rows(sources: Sequence[Path], say: Say = _say_nothing) -> list[Row]:
    """The rows of CSV files and studies; of one that is not finished, those so far."""
    found: list[Row] = []
    for source in sources:
        if source.is_file():
            found += read_rows(source, skip=say)
        else:
            summary = _summarize(source, say)
            found += [*summary.selection, *summary.rows]
    if not found:
        raise ValueError(
            f"{_listed(sources)}: got no row of results, wanted the folder of a study with a "
            "finished training, or a CSV file of rows; `foveapool train` and `fit` write none"
        )
    return found


def read_ratio_rows(sources: Sequence[Path], what: str, say: Say = _say_nothing) -> list[Row]:
    """The rows that hold CE or flip rates, as `what` says."""
    found = [row for row in read_all_rows(sources, say) if row.metric.startswith(f"{what}, ")]
    if not found:
        raise ValueError(
            f"{_listed(sources)}: got no row of {what!r}, wanted some, such as `foveapool "
            "robustness evaluate RUN --baseline RUN` adds to results/robustness.csv"
        )
    return found


def _listed(sources: Sequence[Path]) -> str:
    return ", ".join(map(str, sources))


def _summarize(source: Path, say: Say) -> RunSummary:
    """What is known of a run; says what is missing.

    Not that an operator is: figures of operators say so themselves, others need none.
    """
    summary = summarize_run(source)
    for text in summary.missing:
        if not text.startswith(NO_OPERATOR):
            say(text)
    return summary
