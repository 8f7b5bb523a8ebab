"""`foveapool fit`: mistakes are known before data are read, and half a training is told of."""

import json

import pytest
from typer.testing import CliRunner

from foveapool.cli import fit, train
from foveapool.cli.main import application
from foveapool.study import spec

from ..training.toys import toy_data
from .stopped_training import killed_after_an_epoch

NOTE = {"network": "cnn", "data": "svhn", "width": 4, "seed": 0, "data_seed": 0}


def run(*words):
    return CliRunner().invoke(application(), [*map(str, words), "--device", "cpu"])


@pytest.fixture
def noted(tmp_path, monkeypatch):
    """A run folder with a note alone; its data must not be asked for."""
    monkeypatch.setattr(fit, "load_trained_network", None)
    (tmp_path / "run.json").write_text(json.dumps(NOTE))
    return tmp_path


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--layer", 4), "layer: got 4, wanted 1, 2 or 3"),
        (("--norm", "l3"), "norm: got 'l3'"),
        (("--alpha", "half"), "alpha: got 'half', wanted a positive number or auto"),
        (("--alpha", -1), "alpha: got -1.0, wanted a positive number"),
        (("--components", 0), "components: got 0, wanted 1 or more"),
        (("--placement", "both"), "placement: got 'both' for a CNN, wanted none"),
        (("--report", "5,x"), "alpha: got 'x', wanted a positive number"),
        (("--report", "5,0"), "alpha: got 0.0, wanted a positive number"),
        (("--device", "tpu"), "device: got 'tpu'"),
    ],
)
def test_a_wrong_choice_is_known_before_the_data_are_read(noted, words, message):
    done = CliRunner().invoke(application(), ["fit", str(noted), *map(str, words)])
    assert done.exit_code == 2, done.output
    assert done.stderr.startswith(f"error: {message}")


def test_a_place_for_no_file_is_known_before_the_data_are_read(noted):
    done = run("fit", noted, "--out", noted)
    assert done.exit_code == 2, done.output
    assert done.stderr.startswith(f"error: {noted}: got a folder, wanted a file to write")
    done = run("fit", noted, "--out", noted / "run.json" / "x")
    assert done.exit_code == 2 and "run.json is no folder that you may write to" in done.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"network": "cnn",', "run.json is not whole"),
        ("[]", "run.json: got list, wanted an object"),
        ('{"network": "cnn", "data": "svhn"}', "got no width, no seed, no data_seed"),
    ],
)
def test_a_broken_note_is_named(noted, text, message):
    (noted / "run.json").write_text(text)
    done = run("fit", noted)
    assert done.exit_code == 2, done.output
    assert done.stderr.startswith(f"error: {noted / 'run.json'}: {message}")


@pytest.mark.parametrize("name", ["mynet.py:Net", "mynet.py", "."])
def test_a_network_of_ones_own_is_pointed_to_the_library(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mynet.py").write_text("from torch.nn import Linear as Net\n")
    done = run("fit", name)
    assert done.exit_code == 2, done.output
    assert done.stderr.startswith(f"error: {name}: no run.json there, wanted a run folder of ")
    assert "by foveapool.ClosedFormPooling().fit(model, loader, layer)" in done.stderr


@pytest.fixture
def toys(monkeypatch):
    """Toy images under whatever name is asked for."""
    spec._load_source.cache_clear()
    for module in (spec, train):
        monkeypatch.setattr(module, "load_data", lambda *given: toy_data())
    yield
    spec._load_source.cache_clear()


@pytest.mark.usefixtures("toys")
def test_half_a_training_is_told_of(tmp_path):
    words = ("train", "cnn", "svhn", "--out", tmp_path, "--epochs", 2, "--batch-size", 16)
    with killed_after_an_epoch():
        assert run(*words, "--width", 4).exit_code != 0
    half = run("fit", tmp_path)
    assert half.exit_code == 0, half.output
    assert half.stderr == f"note: {tmp_path} is trained for 1 of 2 epochs\n"
    assert run(*words, "--width", 4).exit_code == 0
    assert run("fit", tmp_path).stderr == ""
