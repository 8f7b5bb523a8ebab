"""Files of trainings and studies: weights, results, notes, tables, and what is asked for."""

from __future__ import annotations

import json
import math
import shutil
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from foveapool.known_trainings import KnownTrainings, read_trainings
from foveapool.records import Row, append_rows, read_rows
from foveapool.report.describe import TrainingFolder, read_curve
from foveapool.report.sources import summarize_run
from foveapool.runs import RESULT, RUNS, TRAINING, Runs, find_result_fault
from foveapool.study.fits import load_kept_weights
from foveapool.study.loading import find_fitted_on, read_run
from foveapool.study.presets import read_preset
from foveapool.study.spec import ExecutionOptions, TrainingSpec, build_job
from foveapool.study.worker import find_fault
from foveapool.training.checkpoint import CHECKPOINT, Position, RunFolder, load_weights
from foveapool.training.metrics import METRICS, EpochRecord
from foveapool.training.recipe import read_recipe

from .kind import FROZEN, Kind, check_tensors, copy_frozen
from .method_kinds import make_network
from .mutations import (
    Mutation,
    inside_gzip,
    mutate_cells,
    mutate_json,
    mutate_json_lines,
    mutate_safetensors,
    mutate_toml,
)

CPU = ExecutionOptions("cpu")
EPOCHS = (EpochRecord(1, 2.5, 0.1, 1.0), EpochRecord(2, 1.5, 0.1, 1.0, 50.0))


def make_checkpoint(folder: Path) -> None:
    state = {f"network/{name}": tensor for name, tensor in make_network().state_dict().items()}
    RunFolder(folder, {"seed": 0}).save(state, Position(2, 3, 1.5, EPOCHS))


def read_checkpoint(folder: Path) -> object:
    network = make_network()
    own = network.state_dict()
    state = {f"network/{name}": tensor.clone() for name, tensor in own.items()}
    with suppress(ValueError):  # load_weights refuses it too, below
        RunFolder(folder, {"seed": 0}).restore(state)
    place = load_weights(network, folder, seed=0)
    assert place.epoch == len(place.history) and place.step >= 0
    return dict(network.state_dict())


def make_runs(folder: Path) -> None:
    """Of the frozen runs those trainings that the search, the trials and others stand for."""
    shutil.copytree(FROZEN / "runs", folder, dirs_exist_ok=True)
    for path in folder.glob("trainings/*-blur-*"):
        shutil.rmtree(path)


def read_runs(folder: Path) -> object:
    """As the engine and the report read it: what is damaged is left out there."""
    results = {}
    for facts, result in Runs(folder).finished():
        assert not find_result_fault(result["training"], result) and isinstance(facts, dict)
        results[result["training"]] = result
    for path in folder.glob(f"trainings/*/{METRICS}"):
        curve = read_curve(path, "x")
        assert curve is None or len(curve.epochs) == len(curve.losses) > 0
    assert summarize_run(folder / "studies" / "frozen").title
    return results


def read_training(folder: Path) -> object:
    """As who opens it alone."""
    found = TrainingFolder(next(folder.glob("trainings/*-a100-l2-seed0-*")))
    assert found.result is None or math.isfinite(found.result["error"])
    assert summarize_run(found.path).title
    before = find_fitted_on(found.path, 3)
    assert TrainingSpec.from_facts(json.loads(json.dumps(before.facts))).name == before.name
    return {"result": found.result} if found.result else {}


def make_training(folder: Path) -> None:
    own = next((FROZEN / "runs" / "trainings").glob("*-closed-form-3-a100-l2-seed0-*"))
    shutil.copytree(own, folder / "trainings" / own.name)


def make_weights(folder: Path) -> None:
    own = next((FROZEN / "runs" / "trainings").glob("*-baseline-seed0-*"))
    shutil.copytree(own, folder, dirs_exist_ok=True)


def read_weights(folder: Path) -> object:
    training = TrainingSpec.from_facts(json.loads((folder / TRAINING).read_text()))
    network = build_job(training, CPU).network({})
    load_kept_weights(network, training, folder)
    return check_tensors(network.state_dict())


def read_known(folder: Path) -> object:
    path = folder / "trainings.jsonl.gz"
    found = read_trainings(path, find_fault)
    for name, (facts, result) in found.trainings.items():
        assert not find_result_fault(name, result) and not find_fault(name, facts, result)
    assert set(KnownTrainings(path, check=find_fault)) == set(found.trainings)
    return None


def make_rows(folder: Path) -> None:
    rows = [Row("study", "test error %", float(i), 0.5, 2, values="1 2") for i in range(4)]
    append_rows(folder / "rows.csv", rows)


def read_table(folder: Path) -> object:
    left_out: list[str] = []
    some = read_rows(folder / "rows.csv", left_out.append)
    assert all("rows.csv: line" in each for each in left_out)
    assert list(map(str, read_rows(folder / "rows.csv"))) == list(map(str, some))
    assert not left_out
    return None


def make_run(folder: Path) -> None:
    note = {"network": "cnn", "data": "street-digits", "width": 4, "seed": 0, "data_seed": 0}
    (folder / "run.json").write_text(json.dumps(note))
    text = "".join(json.dumps(asdict(each)) + "\n" for each in EPOCHS)
    (folder / METRICS).write_text(text)


def read_train_run(folder: Path) -> object:
    assert summarize_run(folder).title
    return read_run(folder)


def make_study(folder: Path) -> None:
    shutil.copy(FROZEN / "frozen.toml", folder / "study.toml")


def read_study(folder: Path) -> object:
    json.dumps(read_preset(str(folder / "study.toml")).facts())
    return None


def make_recipe(folder: Path) -> None:
    lines = ['optimizer = "sgd"', "lr = 0.1", "epochs = 20", "milestones = [5, 10]"]
    (folder / "recipe.toml").write_text("\n".join([*lines, "batch_size = 32", "gamma = 0.1"]))


def read_own_recipe(folder: Path) -> object:
    assert math.isfinite(read_recipe(folder / "recipe.toml").rate(0))
    return None


def make_runs_without_tables(folder: Path) -> None:
    """A study that is not finished: its tables are made of its trainings."""
    make_runs(folder)
    for path in folder.glob("studies/*/*.csv"):
        path.unlink()


def in_runs(files: str, inside: Mutation) -> Kind:
    return Kind(make_runs, read_runs, files, inside)


def in_training(files: str, inside: Mutation) -> Kind:
    return Kind(make_training, read_training, f"trainings/*/{files}", inside)


KINDS = {
    "checkpoint": Kind(make_checkpoint, read_checkpoint, CHECKPOINT, mutate_safetensors),
    "weights": Kind(make_weights, read_weights, "weights.safetensors", mutate_safetensors),
    "result": in_runs(f"trainings/*/{RESULT}", mutate_json),
    "own-result": in_training(RESULT, mutate_json),
    "facts": in_runs(f"trainings/*/{TRAINING}", mutate_json),
    "facts-without-tables": Kind(
        make_runs_without_tables, read_runs, f"trainings/*/{TRAINING}", mutate_json
    ),
    "result-without-tables": Kind(
        make_runs_without_tables, read_runs, f"trainings/*/{RESULT}", mutate_json
    ),
    "own-facts": in_training(TRAINING, mutate_json),
    "metrics": in_runs(f"trainings/*/{METRICS}", mutate_json_lines),
    "own-metrics": in_training(METRICS, mutate_json_lines),
    "study-note": in_runs("studies/*/*.json", mutate_json),
    "runs-note": in_runs(RUNS, mutate_json),
    "study-operator": in_runs("trainings/*/operator*.safetensors", mutate_safetensors),
    "study-table": in_runs("studies/*/*.csv", mutate_cells),
    "known-trainings": Kind(
        copy_frozen("trainings.jsonl.gz"), read_known, "*.gz", inside_gzip(mutate_json_lines)
    ),
    "rows": Kind(make_rows, read_table, "rows.csv", mutate_cells),
    "old-rows": Kind(copy_frozen("rows.csv"), read_table, "rows.csv", mutate_cells),
    "run": Kind(make_run, read_train_run, "run.json", mutate_json),
    "run-metrics": Kind(make_run, read_train_run, METRICS, mutate_json_lines),
    "study": Kind(make_study, read_study, "study.toml", mutate_toml),
    "recipe": Kind(make_recipe, read_own_recipe, "recipe.toml", mutate_toml),
}
