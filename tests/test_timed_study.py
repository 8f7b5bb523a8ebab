"""benchmarks/timed_study.sh and parcels.py: what ends in time is kept, the rest goes on."""

import gzip
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from foveapool.data.images import Augmentation, DataSet, Images
from foveapool.data.registry import load_data
from foveapool.data.user_data import write_npz
from foveapool.known_trainings import read_trainings, write_lines

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import parcels

ROOT = Path(__file__).parents[1]
STUDY = """
[data]
name = "street-digits"
options = { train_size = 100, test_size = 50 }
[network]
name = "cnn"
width = 4
[recipe]
optimizer = "adam"
lr = 0.001
epochs = 1
batch_size = 50
[trials]
seeds = 2
[[arm]]
pooling = "baseline"
[[arm]]
pooling = "closed-form"
layer = 3
"""

pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, ("bash", "timeout"))), reason="needs bash and timeout"
)


def run_for(seconds, folder, text=STUDY, runs="runs"):
    """Runs the script on the study; gives its exit code and what it printed."""
    study = folder / "tiny.toml"
    study.write_text(text, "utf-8")
    command = [ROOT / "benchmarks" / "timed_study.sh", seconds, folder / "out", study]
    places = {"RUNS": str(folder / runs), "LEFT": str(folder / "out")}
    environment = {**os.environ, "PYTHON": sys.executable, **places}
    done = subprocess.run(
        [*map(str, command), "--jobs", "1", "--device", "cpu"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def test_trainings_that_end_in_time_join_those_of_results(tmp_path):
    before = read_trainings(ROOT / "results" / "trainings.jsonl.gz").trainings
    code, said = run_for(100, tmp_path)
    assert code == 0, said
    after = read_trainings(tmp_path / "out" / "trainings.jsonl.gz").trainings
    added = after.keys() - before.keys()
    assert before.keys() <= after.keys()
    assert sorted(after[name].facts["seed"] for name in added) == [0, 0, 1, 1]


def test_another_machine_needs_no_baseline_for_what_is_fitted_on_it(tmp_path):
    assert run_for(100, tmp_path)[0] == 0
    code, said = run_for(100, tmp_path, STUDY + "alpha = 50\n", runs="elsewhere")
    assert code == 0 and "alpha 50" in said
    assert "trained again" not in said
    for piece in (tmp_path / "out").glob("left.tar.*"):
        piece.unlink()
    code, said = run_for(100, tmp_path, STUDY + "alpha = 60\n", runs="without")
    assert code == 0 and "trained again" in said


def test_time_that_is_up_is_no_fault(tmp_path):
    code, said = run_for(0.1, tmp_path)
    assert code == 0 and "time is up after 0.1 s" in said


def test_a_study_that_fails_fails(tmp_path):
    code, said = run_for(100, tmp_path, "[nothing]\n")
    assert code not in (0, 124) and "nothing" in said


@pytest.fixture
def packed(tmp_path):
    """A folder of parcels of 60 images that pass for CIFAR-10, a sheet each."""
    parts = [
        Images(
            torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8),
            torch.arange(count) % 10,
            tuple("abcdefghij"),
        )
        for count in (40, 20)
    ]
    data = DataSet("cifar10", *parts, "channel", Augmentation(4, True))
    write_npz(data, tmp_path / "cifar10-0.npz")
    found = parcels.pack("cifar10", tmp_path, tmp_path / "parcels", most=0.01)
    assert [each.name for each in found] == ["cifar10-0", "cifar10-1"]
    return tmp_path


def test_what_is_unpacked_is_what_was_packed(packed):
    (made,) = parcels.unpack(packed / "parcels", packed / "there")
    before, after = (load_data("cifar10", root) for root in (packed, made.parent))
    for part in ("train", "test"):
        one, other = getattr(before, part), getattr(after, part)
        assert torch.equal(one.images, other.images) and torch.equal(one.labels, other.labels)
        assert one.classes == other.classes
    assert (after.normalization, after.augmentation) == ("channel", Augmentation(4, True))
    assert parcels.unpack(packed / "parcels", packed / "there") == []


def test_a_parcel_that_is_missing_is_named(packed):
    shutil.rmtree(packed / "parcels" / "cifar10-1")
    with pytest.raises(FileNotFoundError, match=r"got 0 sheets of test .*, wanted 1; bring the"):
        parcels.unpack(packed / "parcels", packed / "there")


def test_what_took_most_time_a_byte_is_left_first(tmp_path):
    def note(name, seconds, **files):
        folder = tmp_path / "trainings" / name
        folder.mkdir(parents=True)
        (folder / "metrics.jsonl").write_text(f'{{"seconds": {seconds}}}\n')
        for file, size in files.items():
            (folder / file.replace("_", ".", 1)).write_bytes(b"0" * size)
        return name

    weights, checkpoint = "weights_safetensors", "checkpoint_safetensors"
    long = note("long", 100, result_json=2, **{weights: 400_000})
    large = note(
        "large", 100, result_json=2, **{weights: 900_000, "scatter-down3_safetensors": 1_000}
    )
    note("short", 1, result_json=2, **{weights: 400_000})
    cut = note("cut", 90, **{checkpoint: 400_000})
    note("nothing", 90, result_json=2)
    found = {(each.parent.name, each.name) for each in parcels.list_left(tmp_path, 0.9)}
    assert {name for name, _ in found} == {long, large, cut}
    assert (large, "scatter-down3.safetensors") in found
    assert (large, "weights.safetensors") not in found
    assert (cut, "checkpoint.safetensors") in found and (cut, "metrics.jsonl") in found


def test_what_came_back_joins_what_is_known_and_changes_none_of_it(tmp_path, monkeypatch, capsys):
    folder, known = tmp_path / "back", tmp_path / "known" / "trainings.jsonl.gz"
    folder.mkdir()
    known.parent.mkdir()
    monkeypatch.setattr(parcels, "KNOWN", known)
    monkeypatch.setattr(parcels, "PARCELS", tmp_path / "parcels")
    monkeypatch.setattr(parcels.subprocess, "run", lambda *_, **__: None)
    with pytest.raises(SystemExit, match=r"got no trainings.jsonl.gz, wanted"):
        parcels.keep(folder, ["tiny"])
    whole = read_trainings(ROOT / "results" / "trainings.jsonl.gz")
    header, *lines = gzip.decompress(
        (ROOT / "results" / "trainings.jsonl.gz").read_bytes()
    ).splitlines()[:4]
    (folder / "left.tar.00").write_bytes(b"left")
    write_lines(known, [header, *lines[:2]])
    error = json.loads(lines[0])["result"]["error"]
    other = lines[0].replace(f'"error":{error}'.encode(), b'"error":50.0')
    write_lines(folder / known.name, [header, other, *lines[1:]])
    parcels.keep(folder, ["tiny"])
    assert "came with another result" in capsys.readouterr().out
    kept = read_trainings(known).trainings
    assert len(kept) == 3 and all(whole.trainings[name] == kept[name] for name in kept)
    assert (tmp_path / "parcels" / "left" / "left.tar.00").read_bytes() == b"left"
