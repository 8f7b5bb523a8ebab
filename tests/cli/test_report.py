"""`foveapool report`: a page of the last run, of named ones, of the example; or one line."""

import shutil

import pytest
from typer.testing import CliRunner

from foveapool.cli.main import application
from foveapool.data.user_data import write_npz
from foveapool.pooling.operator import PoolingOperator
from foveapool.report.examples import Examples
from foveapool.runs import Runs
from foveapool.study.engine import order_by_dependency
from foveapool.study.worker import run_training

from ..report.pages import Page
from ..study.small_studies import CPU, training
from ..training.toys import toy_data

CPU_ONLY = ("--device", "cpu")
CLOSED = training(("closed-form", 3), epochs=1)


def told(*words, code=0):
    done = CliRunner().invoke(application(), ["report", *map(str, words)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code == code, done.output
    return " ".join(done.output.split())


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    runs = Runs(tmp_path_factory.mktemp("runs"))
    for level in order_by_dependency([CLOSED]):
        for each in level:
            run_training(each, runs, CPU)
    return runs


@pytest.fixture
def runs(finished, tmp_path):
    return Runs(shutil.copytree(finished.root, tmp_path / "runs"))


def test_the_last_run_without_arguments(runs):
    said = told("--runs", runs.root)
    out = runs.folder(CLOSED.name) / "report.html"
    assert said == f"written to {out}"
    page = Page(out.read_text("utf-8"))
    (family,) = page.data["summaries"][0]["families"]
    assert family["examples"]["count"] == 8
    assert "closed form, layer 3, alpha auto, l2" in page.words


def test_named_runs_stand_side_by_side(runs, tmp_path):
    baseline = CLOSED.fitted_on.name
    out = tmp_path / "both.html"
    said = told(CLOSED.name, baseline, "--runs", runs.root, "--out", out, "--no-maps")
    assert "note: No operator" in said and said.endswith("both.html")
    assert "2 runs side by side" in Page(out.read_text("utf-8")).words
    told(CLOSED.name, runs.folder(baseline), "--runs", runs.root, "--no-maps")
    assert (runs.root / "comparison.html").is_file()


def test_the_example_needs_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert told("--example") == "written to foveapool-example.html"
    page = Page((tmp_path / "foveapool-example.html").read_text("utf-8"))
    alphas = [
        [each["alpha"] for each in family["operators"]]
        for family in page.data["summaries"][0]["families"]
    ]
    assert alphas == [[5, 50, 400], [1, 5, 25, 100, 400]]
    assert "folder" not in page.words


def test_the_browser_is_asked_for_only(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda address: bool(opened.append(address)))
    assert "no browser was found" in told("--example", "--open")
    assert opened == [(tmp_path / "foveapool-example.html").as_uri()]
    told("--example")
    assert len(opened) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing"], "nothing: no such file or folder"),
        (["."], "not a run"),
        (["--example", "x"], "--example: got runs too"),
        ([], "no run in it; name one"),
    ],
)
def test_a_mistake_is_one_line(tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    assert message in told(*words, code=2)
    assert not list(tmp_path.iterdir())


def test_a_folder_is_no_page_and_is_said_before_the_maps_are_made(runs, tmp_path, monkeypatch):
    monkeypatch.setattr("foveapool.cli.report.add_examples", None)
    said = told("--runs", runs.root, "--out", tmp_path, code=2)
    assert said.startswith(f"error: {tmp_path}: got a folder, wanted a file to write")


def test_missing_weights_are_named_and_nothing_is_trained(runs):
    (runs.folder(CLOSED.fitted_on.name) / "weights.safetensors").unlink()
    said = told("--runs", runs.root)
    assert "no example maps" in said and "weights.safetensors: no such file" in said
    assert not (runs.folder(CLOSED.fitted_on.name) / "weights.safetensors").exists()


def test_a_folder_of_train_and_fit_has_maps_too(tmp_path):
    run, images = tmp_path / "first", tmp_path / "toy.npz"
    write_npz(toy_data(), images)
    quick = ["--recipe", "cnn-svhn", "--epochs", "1", "--batch-size", "16", "--width", "4"]
    for words in (
        ["train", "cnn", f"npz:{images}", "--out", str(run), *quick, *CPU_ONLY],
        ["fit", str(run), "--layer", "3", *CPU_ONLY],
    ):
        done = CliRunner().invoke(application(), words)
        assert done.exit_code == 0, done.output
    assert told(run) == f"written to {run / 'report.html'}"
    operator = PoolingOperator.load(run / "operator-3.safetensors")
    kept = Examples.load(run / "examples-3.safetensors")
    assert tuple(kept.maps.shape[2:]) == operator.in_shape
