"""`foveapool runs check`: what is broken in a folder of runs is listed, and nothing else."""

import json
import random
import shutil
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from foveapool._io import read_sealed_json, write_sealed_json
from foveapool.cli.main import application
from foveapool.pooling.operator import PoolingOperator
from foveapool.pooling.scatter import Scatter
from foveapool.pooling.storage import load_tensors, save_tensors

FROZEN = Path(__file__).parents[1] / "frozen" / "runs"


def check(runs):
    done = CliRunner().invoke(application(), ["runs", "check", str(runs)])
    assert done.exception is None or done.exit_code in (1, 2), done.exception
    return done


@pytest.fixture
def runs(tmp_path):
    """A folder that an earlier version wrote, its files written again by this one."""
    shutil.copytree(FROZEN, tmp_path / "runs")
    for path in (tmp_path / "runs").glob("trainings/*/*"):
        if path.suffix == ".json" and path.name != "training.json":
            write_sealed_json(path, read_sealed_json(path))
        elif path.name == "weights.safetensors":
            tensors, facts = load_tensors(path, "weights")
            save_tensors(path, "weights", tensors, {"training": facts["training"]})
        elif path.suffix == ".safetensors":
            kind = PoolingOperator if path.name.startswith("operator") else Scatter
            kind.load(path).save(path)
    return tmp_path / "runs"


def find(runs, name):
    return sorted(runs.glob(f"*/*/{name}"))[0]


def test_whole_folders_of_before_and_of_today_have_nothing_broken(runs):
    for each in (FROZEN, runs):
        done = check(each)
        assert (done.exit_code, done.output) == (0, f"{each}: 48 files, all of them whole\n")


@pytest.mark.parametrize(
    "name",
    [
        "result.json",
        "weights.safetensors",
        "operator-3.json",
        "operator-3.safetensors",
        "scatter-*.safetensors",
    ],
)
def test_any_bit_that_was_flipped_is_told_with_its_file(runs, name):
    path = find(runs, name)
    whole = path.read_bytes()
    begin = 8 + int.from_bytes(whole[:8], "little") if path.suffix == ".safetensors" else 0
    for place in random.Random(0).sample(range(begin, len(whole) - 2), 5):
        content = bytearray(whole)
        content[place] ^= 1
        if path.suffix == ".json" and json.loads(whole) == parse(content):
            continue  # one blank for another
        if b'"sha256"' in whole and b'"sha256"' not in content:
            continue  # the contents are right, and nobody says so
        path.write_bytes(content)
        done = check(runs)
        assert done.exit_code == 1
        told, summary = done.output.splitlines()
        assert told.startswith(f"{path}: ") and "1 of 48 files are broken" in summary


def parse(content):
    try:
        return json.loads(content)
    except ValueError:
        return None


def edit(path, was, now):
    text = path.read_text()
    assert was in text
    path.write_text(text.replace(was, now, 1))


@pytest.mark.parametrize(
    ("name", "damage", "told"),
    [
        ("result.json", lambda p: edit(p, '"error": ', '"error": 1'), "not those of its SHA-256"),
        ("result.json", lambda p: p.write_text("[" * 100_000), "nested too deeply"),
        ("result.json", lambda p: write_sealed_json(p, {}), "is not of this training"),
        ("training.json", lambda p: edit(p, '"seed": 0', '"seed": 1'), "do not belong to the name"),
        ("training.json", lambda p: p.unlink(), "result.json: got no training.json beside it"),
        ("metrics.jsonl", lambda p: edit(p, '"epoch"', '"epoch'), "line 1: its JSON is not whole"),
        ("metrics.jsonl", lambda p: edit(p, '"loss": ', '"loss": "1", "x": '), "line 1: "),
        ("metrics.jsonl", lambda p: p.write_text(p.read_text()[:-1]), "is cut off"),
        ("operator-3.json", lambda p: p.write_text('{"solving": "x"}'), "seconds: got"),
        ("study.json", lambda p: edit(p, '"trainings"', '"training"'), "got no 'trainings'"),
        ("rows.csv", lambda p: p.write_text(p.read_text()[:-90]), "line "),
        ("weights.safetensors", lambda p: p.write_bytes(b""), "not a whole safetensors file"),
    ],
)
def test_what_is_broken_is_told_with_its_file(runs, name, damage, told):
    path = find(runs, name)
    damage(path)
    done = check(runs)
    assert done.exit_code == 1
    lines = done.output.splitlines()
    assert any(line.startswith(f"{path.parent}/") and told in line for line in lines)


def test_weights_of_another_training_are_told(runs):
    one, other = sorted(runs.glob("trainings/*/weights.safetensors"))[:2]
    one.write_bytes(other.read_bytes())
    assert f"{one}: holds the weights of {other.parent.name}" in check(runs).output


def test_checkpoints_and_runs_of_train_are_read_too(runs):
    folder = runs / "mine"
    folder.mkdir()
    (folder / "run.json").write_text('{"network": "cnn"}')
    save_tensors(folder / "checkpoint.safetensors", "checkpoint", {"x": torch.ones(1)}, {})
    done = check(runs)
    assert "run.json: got no data, no width" in done.output
    assert "checkpoint.safetensors: got no 'configuration'" in done.output


def test_others_files_are_none_of_its_business(runs):
    find(runs, "result.json").with_name("notes.json").write_text("{")
    (runs / "studies" / "readme").write_text("mine")
    assert check(runs).exit_code == 0


def test_a_folder_of_something_else_is_refused(tmp_path):
    done = check(tmp_path)
    assert done.exit_code == 2 and "got neither runs.json nor" in done.stderr
    (tmp_path / "runs.json").write_text("{")
    done = check(tmp_path)
    assert done.exit_code == 1 and "runs.json: not a results folder" in done.output
