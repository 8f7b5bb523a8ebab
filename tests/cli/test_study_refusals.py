"""What mistakes in a study get: one line that says what was got and what is wanted."""

import builtins
import shutil

import pytest
from typer.testing import CliRunner

from foveapool.cli.main import application

from ..study.small_studies import TINY
from .commands import QUICK, refused


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("nonsense", "--set: got 'nonsense', wanted TABLE.KEY=VALUE"),
        ("trials.seeds=three", "seeds: got 'three', wanted a whole number, 1 or more"),
        ("trials.seeds=[3", "--set: got 'trials.seeds=[3', wanted TABLE.KEY=VALUE"),
        ("seeds=3", "--set: got 'seeds=3', wanted TABLE.KEY=VALUE"),
        ("trials.sedes=3", "[trials]: got the key 'sedes'"),
        ("trials.seeds=0", "seeds: got 0, wanted a whole number"),
        ("data.name=svhm", "[data]: got 'svhm', wanted one of cifar10"),
        ("data.options.size=3", "no option size"),
        ("network.width=0", "width: got 0, wanted a whole number"),
        ("arm.layer=3", "arm: got {'layer': 3} for what is no table"),
    ],
)
def test_a_wrong_value_is_refused(preset, tmp_path, no_training, change, message):
    line = refused("study", preset, "--runs", tmp_path / "runs", "--set", change, *QUICK)
    assert message in line
    assert not (tmp_path / "runs" / "trainings").exists()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("seeds = 2", "seed = 2", "[trials]: got the key 'seed'"),
        ('[[arm]]\npooling = "closed-form"', "[[am]]", "got the key 'am'"),
        ("layers = [3]", 'placements = ["before"]', "placement: got 'before' for a CNN"),
        (
            "[[search]]",
            "[[search]]\ncomponents = 0",
            "components: got 0, wanted 1 or more, a whole number",
        ),
        (
            '[[arm]]\npooling = "closed-form"',
            '[[arm]]\npooling = "sgd"',
            "arm sgd: got no layer, and no search for it",
        ),
        (
            'pooling = "closed-form"',
            'pooling = "closed-form-trainde"',
            "arm: got the pooling 'closed-form-trainde', wanted one of baseline, closed-form, "
            "closed-form-trained, ",
        ),
        (
            "width = 4",
            'name = "resnet18"\n[[arm]]\npooling = "sgd"\nlayer = 3\ncomponents = 4\n'
            'placement = "shortcut"',
            "components: got 4 for a resnet18 with placement shortcut, wanted 2",
        ),
    ],
)
def test_a_wrong_file_is_refused(preset, tmp_path, no_training, old, new, message):
    preset.write_text(TINY.replace(old, new, 1))
    line = refused("study", preset, "--runs", tmp_path / "runs", *QUICK)
    assert message in line and str(preset) in line


@pytest.mark.parametrize(
    ("table", "line", "message"),
    [
        ("[trials]", "at_once = 2", "'at_once', which no study has; it is the option --jobs"),
        ("[[arm]]", "centre = 'first'", "the key 'centre', which is called 'center' now"),
        ("[recipe]", "optimiser = 'sgd'", "'optimiser', which is called 'optimizer' now"),
    ],
)
def test_a_key_of_an_earlier_version_is_told_its_new_name(
    preset, tmp_path, no_training, table, line, message
):
    preset.write_text(TINY.replace(table, f"{table}\n{line}", 1))
    said = refused("study", preset, "--runs", tmp_path / "runs", *QUICK)
    assert message in said and str(preset) in said


@pytest.mark.parametrize(
    ("given", "new"),
    [(["--at-once", "2"], "--jobs"), (["--at-once=2"], "--jobs"), (["--so-far"], "--partial")],
)
def test_an_option_of_an_earlier_version_is_told_its_new_name(
    preset, tmp_path, no_training, given, new
):
    words = ["study", str(preset), "--runs", str(tmp_path / "runs"), *given]
    done = CliRunner().invoke(application(), words)
    old = given[0].partition("=")[0]
    assert done.exit_code == 2 and done.stdout == ""
    assert done.stderr == f"error: {old}: got an option that is called {new} now\n"


def test_an_unknown_preset_gets_near_names(tmp_path):
    line = refused("study", "tabel1-cnn-svhn", "--runs", tmp_path / "runs")
    assert "did you mean" in line and "table1-cnn-svhn" in line


def test_a_folder_of_another_version_is_refused(preset, tmp_path, no_training):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "runs.json").write_text('{"format_version": 7}')
    line = refused("study", preset, "--runs", tmp_path / "runs", *QUICK)
    assert "format version 7, wanted 1" in line


def test_data_that_are_not_there_are_known_at_once(tmp_path, no_training):
    words = ("--runs", tmp_path / "runs", "--data-root", tmp_path / "nothing", *QUICK)
    line = refused("study", "table1-cnn-svhn", *words)
    assert "nothing" in line and "svhn" in line.lower()
    assert not (tmp_path / "runs" / "trainings").exists()


def test_no_room_is_known_at_once(preset, tmp_path, no_training, monkeypatch):
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    line = refused("study", preset, "--runs", tmp_path / "runs", *QUICK)
    assert "0.0 GB are free, wanted 0.3 GB for tiny" in line


def test_an_engine_that_is_not_there_is_refused(preset, tmp_path, no_training, monkeypatch):
    words = ("study", preset, "--runs", tmp_path / "runs", *QUICK)
    assert "engine: got 'slurm', wanted one of local, ray" in refused(*words, "--engine", "slurm")
    real = builtins.__import__

    def without(name, *rest):
        if name == "ray":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    line = refused(*words, "--engine", "ray")
    assert "ray: not installed; pip install " in line


@pytest.mark.parametrize("name", ["../outside", "a b", "", ".", ".."])
def test_a_name_that_is_none_is_refused(preset, tmp_path, no_training, name):
    said = refused("study", preset, "--runs", tmp_path, "--name", name, *QUICK)
    assert f"name: got {name!r}, wanted " in said


def test_two_files_of_one_name_are_refused(preset, tmp_path, no_training):
    (tmp_path / "other").mkdir()
    other = tmp_path / "other" / preset.name
    other.write_text(preset.read_text())
    said = refused("study", preset, other, "--runs", tmp_path / "runs", *QUICK)
    assert "presets: got 'tiny' 2 times, wanted studies of different names" in said


def test_two_studies_cannot_have_one_name(preset, tmp_path, no_training):
    said = refused("study", preset, "demo", "--runs", tmp_path, "--name", "both", *QUICK)
    assert "name: got 'both' for 2 studies, wanted one study" in said
