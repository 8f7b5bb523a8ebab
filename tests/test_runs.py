"""The folder of runs: what it holds is checked, what is not its own is put aside."""

import json
import math
import os

import pytest

from foveapool._io import read_json, read_sealed_json, write_sealed_json
from foveapool.runs import RESULT, TRAINING, Runs

FACTS = {"setting": {"width": 4, "pools": (1, 2)}, "seed": 0}
NUMBERS = ("error", "loss", "seconds", "fit_seconds", "parameters", "multiply_adds")
MACHINE = {"commit": "abc", "hardware": "here", "torch": "2"}
FOUND = {**dict.fromkeys(NUMBERS, 1.5), "alphas": {}, **MACHINE}


def finished(runs, name="a"):
    with runs.claimed(name, FACTS):
        runs.finish(name, FOUND)


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_result_comes_back_once_it_is_written(tmp_path):
    runs = Runs(tmp_path / "runs")
    assert runs.result("a", FACTS) is None
    with runs.claimed("a", FACTS) as folder:
        assert files(folder) == [TRAINING]
        assert runs.result("a", FACTS) is None
        runs.finish("a", FOUND)
    assert Runs(tmp_path / "runs").result("a", FACTS) == {**FOUND, "training": "a"}
    assert list(runs.finished()) == [(json.loads(json.dumps(FACTS)), runs.result("a", FACTS))]


def test_looking_makes_no_folder(tmp_path):
    runs = Runs(tmp_path / "runs")
    assert runs.result("a", FACTS) is None and list(runs.finished()) == []
    assert not runs.root.exists()
    runs.make()
    assert files(runs.root) == ["runs.json"]
    Runs(runs.root)


def test_a_folder_that_is_whole_is_left_as_it_is(tmp_path):
    said = []
    runs = Runs(tmp_path, said.append)
    finished(runs)

    def written(folder):
        stats = {name: os.stat(folder / name) for name in files(folder)}
        return {name: (stat.st_ino, stat.st_mtime_ns) for name, stat in stats.items()}

    before = written(runs.folder("a"))
    with runs.claimed("a", FACTS) as folder:
        assert written(folder) == before
    assert said == []


def test_one_process_at_a_time_has_a_training(tmp_path):
    runs = Runs(tmp_path)
    with (
        runs.claimed("a", FACTS),
        pytest.raises(BlockingIOError, match=f"process {os.getpid()} works"),
        Runs(tmp_path).claimed("a", FACTS),
    ):
        pass
    with runs.claimed("a", FACTS), runs.claimed("b", FACTS):
        pass


@pytest.mark.parametrize(
    ("file", "content", "why"),
    [
        (RESULT, "", "result.json is not whole"),
        (RESULT, '{"error": 1.0, "lo', "result.json is not whole"),
        (RESULT, "\0" * 300, "result.json is not whole"),
        (RESULT, "[1]", "result.json: got list, wanted an object"),
        (RESULT, json.dumps({**FOUND, "training": "b"}), "result.json is not of this training"),
        (RESULT, json.dumps({**MACHINE, "training": "a"}), "result.json: got None for error"),
        (RESULT, json.dumps({**FOUND, "training": "a", "error": "1"}), "got '1' for error"),
        (RESULT, json.dumps({**FOUND, "training": "a", "error": math.nan}), "got nan for error"),
        (RESULT, json.dumps({**FOUND, "training": "a", "error": 250.0}), "got 250.0 for error"),
        (RESULT, json.dumps({**FOUND, "training": "a", "error": True}), "got True for error"),
        (TRAINING, "{", "training.json is not whole"),
        (TRAINING, json.dumps({**FACTS, "seed": 1}), "training.json is not of this training"),
    ],
)
def test_a_damaged_or_foreign_folder_is_set_aside_with_a_message(tmp_path, file, content, why):
    said = []
    runs = Runs(tmp_path, said.append)
    finished(runs)
    (runs.folder("a") / "other").write_text("kept")
    (runs.folder("a") / file).write_text(content)
    assert runs.result("a", FACTS) is None
    with runs.claimed("a", FACTS) as folder:
        assert files(folder) == [TRAINING]
    aside = tmp_path / "aside" / "a.1"
    assert (aside / "other").read_text() == "kept" and (aside / file).read_text() == content
    assert said[0].startswith("a: set aside as aside/a.1 and done again: ") and why in said[0]
    # A second time it gets a name of its own.
    finished(runs)
    (runs.folder("a") / file).write_text(content)
    with runs.claimed("a", FACTS):
        assert (tmp_path / "aside" / "a.2").is_dir() and len(said) == 2


def test_results_that_cannot_be_read_are_passed_over(tmp_path):
    runs = Runs(tmp_path)
    for name in "abcd":
        finished(runs, name)
    (runs.folder("a") / RESULT).write_text("{")
    (runs.folder("b") / RESULT).write_text("{}")
    (runs.folder("c") / TRAINING).unlink()
    assert [result["training"] for _, result in runs.finished()] == ["d"]


def test_what_a_killed_process_was_writing_is_swept_away(tmp_path):
    runs = Runs(tmp_path)
    runs.begin("a", FACTS)
    for name in ("operator-3.safetensors", "operator-3.json", "weights.safetensors", RESULT):
        begun = runs.folder("a") / f".{name}.k9"
        begun.mkdir()
        (begun / name).write_text("half")
    (runs.folder("a") / "checkpoint.safetensors").write_text("whole")
    with runs.claimed("a", FACTS) as folder:
        assert files(folder) == ["checkpoint.safetensors", TRAINING]


def test_hidden_files_and_folders_of_others_stay(tmp_path):
    runs = Runs(tmp_path)
    runs.begin("a", FACTS)
    (runs.folder("a") / ".ipynb_checkpoints").mkdir()
    (runs.folder("a") / ".notes").write_text("a user's")
    with runs.claimed("a", FACTS) as folder:
        assert files(folder) == [".ipynb_checkpoints", ".notes", TRAINING]


@pytest.mark.parametrize("key", FOUND)
def test_a_result_that_lacks_something_is_not_finished(tmp_path, key):
    said = []
    runs = Runs(tmp_path, said.append)
    finished(runs)
    runs.finish("a", {name: value for name, value in FOUND.items() if name != key})
    assert runs.result("a", FACTS) is None and not list(runs.finished())
    finished(runs)
    assert runs.result("a", FACTS) and f"result.json: got None for {key}" in said[0]


def test_a_result_without_a_loss_is_one_that_diverged(tmp_path):
    runs = Runs(tmp_path)
    finished(runs)
    runs.finish("a", {**FOUND, "loss": None, "diverged": "loss: got nan"})
    assert runs.result("a", FACTS)["diverged"] == "loss: got nan"


@pytest.mark.parametrize(
    ("was", "now"), [('"error": 1.5', '"error": 1.4'), ('"commit": "abc"', '"commit": "abd"')]
)
def test_a_result_that_was_edited_does_not_count(tmp_path, was, now):
    said = []
    runs = Runs(tmp_path, said.append)
    finished(runs)
    path = runs.folder("a") / RESULT
    path.write_text(path.read_text().replace(was, now))
    assert runs.result("a", FACTS) is None and list(runs.finished()) == []
    finished(runs)
    assert "result.json: got contents that are not those of its SHA-256" in said[0]


def test_a_result_of_before_has_no_sha256_and_counts(tmp_path):
    runs = Runs(tmp_path)
    finished(runs)
    (runs.folder("a") / RESULT).write_text(json.dumps({**FOUND, "training": "a"}))
    assert runs.result("a", FACTS) == {**FOUND, "training": "a"}


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_sealed_file_gives_back_what_it_was_given(tmp_path, loss):
    path = tmp_path / "some.json"
    write_sealed_json(path, {"b": {2: "two", 10: "ten"}, "a": (1, "ü"), "loss": loss})
    found = read_sealed_json(path)
    assert repr(found) == repr({"b": {"2": "two", "10": "ten"}, "a": [1, "ü"], "loss": loss})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"format_version": 2}', "a results folder of format version 2, wanted 1"),
        ("{}", "a results folder of format version None, wanted 1"),
        ("[]", "runs.json: not a results folder of foveapool"),
        ('{"format', "runs.json: not a results folder of foveapool"),
    ],
)
def test_a_folder_of_another_version_is_refused(tmp_path, content, message):
    (tmp_path / "runs.json").write_text(content)
    with pytest.raises(ValueError, match=message):
        Runs(tmp_path)
    assert (tmp_path / "runs.json").read_text() == content


def test_json_is_read_whole_or_not_at_all(tmp_path):
    path = tmp_path / "some.json"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"some.json is not whole"):
        read_json(path)


@pytest.mark.parametrize("inside", ["", "x", "x/y"])
def test_a_file_is_no_folder_of_runs(tmp_path, inside):
    (tmp_path / "note.txt").write_text("a note")
    with pytest.raises(
        NotADirectoryError, match=r"got .*note.txt, which is a file, wanted a folder"
    ):
        Runs(tmp_path / "note.txt" / inside)
    assert files(tmp_path) == ["note.txt"]


@pytest.mark.parametrize("file", [TRAINING, RESULT])
def test_what_is_nested_without_end_is_set_aside(tmp_path, file):
    runs = Runs(tmp_path)
    runs.begin("a", {"x": 1})
    (runs.folder("a") / file).write_text("[" * 100_000)
    assert runs.result("a", {"x": 1}) is None and list(runs.finished()) == []
    with runs.claimed("a", {"x": 1}) as folder:
        assert [path.name for path in folder.iterdir()] == [TRAINING]
    assert (tmp_path / "aside" / "a.1" / file).is_file()
