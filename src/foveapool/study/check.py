"""Checking a folder of runs: every file in it is read as those read it who need it.

What was written with a SHA-256 of its contents is whole or told of; of what earlier versions wrote
it is only known that it can be read and belongs where it lies.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, get_type_hints

from foveapool._io import parse_json, read_json, read_sealed_json, read_text
from foveapool.pooling.operator import PoolingOperator
from foveapool.pooling.scatter import Scatter
from foveapool.pooling.storage import check_types, explain_damage, load_tensors
from foveapool.records import read_rows
from foveapool.robustness.result import RobustnessResult
from foveapool.runs import RESULT, RUNS, STUDY, TRAINING, Runs, digest_facts, find_result_fault
from foveapool.study.fits import AGAIN, WEIGHTS, read_weights
from foveapool.study.loading import RUN_NOTE, read_run
from foveapool.study.robustness import RESULT as ROBUSTNESS
from foveapool.study.worker import find_fault
from foveapool.training.checkpoint import CHECKPOINT, read_checkpoint
from foveapool.training.metrics import METRICS, EpochRecord


@dataclass(frozen=True)
class CheckedFile:
    """A file of a folder of runs, and what is wrong with it; nothing where it is whole."""

    path: Path
    faults: tuple[str, ...]


def check_runs(root: str | os.PathLike[str]) -> Iterator[CheckedFile]:
    """Reads all that studies and `foveapool train` wrote into a folder of runs.

    Args:
        root: The folder. Processes may go on working in it.

    Yields:
        Each file.

    Raises:
        FileNotFoundError: If there is no folder of runs.
    """
    root = Path(root)
    if not (root / RUNS).is_file() and not any(root.glob(f"*/{RUN_NOTE}")):
        raise FileNotFoundError(
            f"{root}: got neither {RUNS} nor a folder of `foveapool train` in it, wanted a folder "
            "of runs; name one"
        )
    runs = [note.parent for note in root.glob(f"*/{RUN_NOTE}")]
    kept = [folder for each in ("trainings/*", "studies/*") for folder in root.glob(each)]
    again = list(root.glob(f"trainings/*/{AGAIN}"))
    for folder in [root, *sorted(runs + kept + again)]:
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if (read := _find_reader(path.name)) and path.is_file():
                try:
                    faults = tuple(read(path))
                except FileNotFoundError:
                    continue  # who works in the folder has just removed it
                except (OSError, ValueError) as error:
                    faults = (str(error).removeprefix(f"{path}: "),)
                yield CheckedFile(path, faults)


def _find_reader(name: str) -> Callable[[Path], Iterator[str]] | None:
    """Who tells what is wrong with a file of that name; None for those of others."""
    return next((read for pattern, read in _READERS.items() if fnmatchcase(name, pattern)), None)


def _check_training(path: Path) -> Iterator[str]:
    facts, name = read_json(path), path.parent.name
    if not name.endswith(f"-{digest_facts(facts)}"):
        yield "got facts that do not belong to the name of the folder"


def _check_result(path: Path) -> Iterator[str]:
    result, name = read_sealed_json(path), path.parent.name
    fault = find_result_fault(name, result)
    if not fault and (path.parent / TRAINING).is_file():
        fault = find_fault(name, read_json(path.parent / TRAINING), result)
    elif not fault:
        fault = f"got no {TRAINING} beside it, which says what was trained"
    if fault:
        yield fault


def _check_metrics(path: Path) -> Iterator[str]:
    *lines, last = read_text(path).split("\n")
    if last and (path.parent / RESULT).exists():
        yield f"line {len(lines) + 1}: is cut off"
    for number, line in enumerate(lines, 1):
        try:
            with explain_damage(f"line {number}", "its epoch is drawn in no curve"):
                facts = parse_json(line, "its JSON")
                EpochRecord(**facts)
                check_types(facts, get_type_hints(EpochRecord))
        except ValueError as error:
            yield str(error)


def _read_note(path: Path) -> None:
    with explain_damage(path, "start the study again, which writes it anew"):
        note = read_json(path)
        check_types(note, {"name": str, "facts": dict[str, Any], "trainings": list[dict[str, str]]})


def _check_rows(path: Path) -> Iterator[str]:
    faults: list[str] = []
    read_rows(path, faults.append)
    yield from (fault.removeprefix(f"{path}: ") for fault in faults)


def _read_robustness(path: Path) -> None:
    with explain_damage(path, "measure again, which writes it anew"):
        note = read_sealed_json(path)
        check_types(note, {"asked": dict[str, Any], "seconds": float, "result": dict[str, Any]})
        RobustnessResult.from_dict(note["result"])


def _read_times(path: Path) -> None:
    check_types({"seconds": read_sealed_json(path)}, {"seconds": dict[str, float]})


def _reading(load: Callable[[Path], object]) -> Callable[[Path], Iterator[str]]:
    """Tells nothing of a file but what reading it raises."""

    def read(path: Path) -> Iterator[str]:
        load(path)
        yield from ()

    return read


_READERS: Mapping[str, Callable[[Path], Iterator[str]]] = {
    RUNS: _reading(lambda path: Runs(path.parent)),
    TRAINING: _check_training,
    RESULT: _check_result,
    METRICS: _check_metrics,
    WEIGHTS: _reading(lambda path: read_weights(path.parent.name, path)),
    CHECKPOINT: _reading(read_checkpoint),
    ROBUSTNESS: _reading(_read_robustness),
    "operator*.safetensors": _reading(PoolingOperator.load),
    "scatter-*.safetensors": _reading(Scatter.load),
    "examples-*.safetensors": _reading(lambda path: load_tensors(path, "examples")),
    "operator-*.json": _reading(_read_times),
    "scatter-*.json": _reading(_read_times),
    STUDY: _reading(_read_note),
    "rows.csv": _check_rows,
    "selection.csv": _check_rows,
    RUN_NOTE: _reading(lambda path: read_run(path.parent)),
}
