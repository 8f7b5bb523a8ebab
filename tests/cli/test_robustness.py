"""`foveapool robustness`: sets are made and read, networks measured, the paper beside CIFAR-10."""

import csv
import shutil
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from foveapool.cli.main import application
from foveapool.data.user_data import write_npz
from foveapool.records import read_rows
from foveapool.runs import Runs
from foveapool.study import robustness as measured
from foveapool.study.setting import Pool, Setting
from foveapool.study.spec import ExecutionOptions, Source, TrainingSpec
from foveapool.study.worker import run_training
from foveapool.training.recipe import Recipe

from ..training.toys import toy_data

ASKED = ["--corruptions", "fog,gaussian_noise", "--severities", "1,5", "--device", "cpu"]


PERTURB = ["generate", "svhn", "--out", "x", "--kind", "p"]
QUICK = ("--recipe", "cnn-svhn", "--epochs", 1, "--batch-size", 16, "--width", 4, "--device", "cpu")


def foveapool(*words, code=0):
    environment = {"COLUMNS": "200", "TERM": "dumb"}
    done = CliRunner().invoke(application(), list(map(str, words)), env=environment)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code == code, done.output
    return done


@pytest.fixture(scope="module")
def trained(tmp_path_factory, data):
    """Two trials of `foveapool train`."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in (0, 1):
        foveapool("train", "cnn", data, "--out", folder / f"{seed}", "--seed", seed, *QUICK)
    return folder


@pytest.fixture
def runs(trained, tmp_path):
    """Copies, since what was measured is kept beside a network."""
    return [shutil.copytree(trained / seed, tmp_path / seed) for seed in ("0", "1")]


def test_trials_are_measured_averaged_and_told_as_rows(runs, tmp_path):
    results = tmp_path / "results" / "robustness.csv"
    words = [*ASKED, "--perturbations", "translate", "--images", 20, "--results", results]
    done = foveapool("robustness", "evaluate", *runs, *words)
    assert "Corruptions, non-geometric: error % by severity" in done.stdout
    assert "paper" not in done.stdout
    rows = {row.metric: row for row in read_rows(results)}
    assert rows.keys() >= {
        "error %, clean",
        "error %, fog, severity 1",
        "error %, gaussian_noise, severity 5",
        "flip probability %, translate",
        "Zipf distance, translate",
    }
    row = rows["error %, fog, severity 5"]
    assert (row.n, row.seeds, row.network, row.pooling) == (2, "0, 1", "cnn, width 4", "baseline")
    assert row.mean % 2.5 == 0  # of twice 20 images
    assert row.epochs == "1" and row.data.startswith("npz:") and row.study == "robustness"


def test_a_network_is_measured_once_for_each_question(runs, tmp_path, monkeypatch):
    words = [runs[0], *ASKED, "--results", tmp_path / "rows.csv"]
    first = foveapool("robustness", "evaluate", *words)
    asked = []

    def again(*given, **more):
        asked.append(more["seed"])
        return evaluate(*given, **more)

    evaluate = measured.evaluate
    monkeypatch.setattr(measured, "evaluate", again)
    assert foveapool("robustness", "evaluate", *words).stdout == first.stdout
    assert asked == []
    foveapool("robustness", "evaluate", *words, "--seed", 1)
    (runs[0] / "robustness.json").write_text("{")
    foveapool("robustness", "evaluate", *words)
    # A result that another version wrote.
    kept = runs[0] / "robustness.json"
    kept.write_text(kept.read_text().replace('"flip_probability"', '"flips"'))
    foveapool("robustness", "evaluate", *words)
    kept.write_text(kept.read_text().replace('"neighbour_flips"', '"of_before"'))
    foveapool("robustness", "evaluate", *words)
    # Other weights, another network.
    for name in ("checkpoint.safetensors", "run.json"):
        shutil.copy(runs[1] / name, runs[0])
    foveapool("robustness", "evaluate", *words)
    assert asked == [1, 0, 0, 0, 0]


def test_a_baseline_brings_ratios_and_counts(runs, tmp_path):
    results, folder = tmp_path / "rows.csv", tmp_path / "tables"
    words = [*ASKED, "--results", results, "--tables", folder]
    done = foveapool("robustness", "evaluate", runs[0], "--baseline", runs[1], *words)
    assert "of 2 non-geometric corruptions." in done.stdout
    rows = read_rows(results)
    mine = {row.metric: row.mean for row in rows if row.seeds == "0"}
    base = {row.metric: row.mean for row in rows if row.seeds == "1"}
    ratio = sum(mine[f"error %, fog, severity {s}"] for s in (1, 5))
    ratio /= sum(base[f"error %, fog, severity {s}"] for s in (1, 5))
    assert mine["CE %, fog"] == pytest.approx(100 * ratio)
    assert "CE %, fog" not in base
    with open(folder / "corruptions-non-geometric.csv", newline="") as file:
        written = list(csv.reader(file))
    assert written[0] == ["", "severity", "Gauss", "Fog"]
    assert "| CE |" in (folder / "corruptions-non-geometric.md").read_text()


def test_on_the_papers_data_its_figures_stand_beside(tmp_path):
    root, run = tmp_path / "data", tmp_path / "run"
    root.mkdir()
    write_npz(toy_data(), root / "cifar10-0.npz")
    foveapool("train", "cnn", "cifar10", "--out", run, "--data-root", root, *QUICK)
    words = [*ASKED, "--data-root", root, "--results", tmp_path / "rows.csv"]
    done = foveapool("robustness", "evaluate", run, "--baseline", run, *words)
    assert "paper, ResNet" in done.stdout and "(64.3)" not in done.stdout  # severity 4
    assert "in the paper 1 of 2" in done.stdout  # fog is better there, Gaussian noise is not


def test_gray_images_are_refused_in_words(tmp_path):
    color = toy_data()
    train, test = (replace(part, images=part.images[:, :1]) for part in (color.train, color.test))
    gray = replace(color, train=train, test=test)
    write_npz(gray, tmp_path / "gray.npz")
    words = ["robustness", "generate", f"npz:{tmp_path / 'gray.npz'}", "--out", tmp_path / "out"]
    done = foveapool(*words, code=2)
    assert "got gray ones" in done.stderr and "robustness needs color images" in done.stderr
    run = tmp_path / "run"
    foveapool("train", "cnn", f"npz:{tmp_path / 'gray.npz'}", "--out", run, *QUICK)
    done = foveapool("robustness", "evaluate", run, *ASKED, "--device", "cpu", code=2)
    assert "robustness needs color images" in done.stderr


def test_a_generated_set_is_evaluated_from_its_folder(runs, data, tmp_path):
    out, results = tmp_path / "toy-C", [tmp_path / "flying.csv", tmp_path / "disk.csv"]
    words = ["robustness", "generate", data, "--out", out, "--names", "fog,gaussian_noise"]
    assert "2 files made" in foveapool(*words, "--device", "cpu").stdout
    assert "0 files made, 2 were there" in foveapool(*words, "--device", "cpu").stdout
    assert np.load(out / "fog.npy").shape == (5 * 40, 16, 16, 3)
    flips = ["--kind", "p", "--names", "translate", "--device", "cpu"]
    foveapool("robustness", "generate", data, "--out", tmp_path / "toy-P", *flips)
    words = ["robustness", "evaluate", runs[0], *ASKED, "--perturbations", "translate"]
    foveapool(*words, "--results", results[0])
    foveapool(*words, "--results", results[1], "--folder", tmp_path)
    flying, disk = ({row.metric: row.mean for row in read_rows(path)} for path in results)
    assert flying == disk


def test_drawn_ice_is_said_once(data, tmp_path, monkeypatch):
    monkeypatch.setattr("foveapool.robustness.weather._find_installed", lambda: None)
    words = ["--out", tmp_path / "toy-C", "--names", "frost", "--device", "cpu"]
    done = foveapool("robustness", "generate", data, *words)
    (note,) = [line for line in done.stderr.splitlines() if line.startswith("note: ")]
    assert note.startswith("note: frost: no pictures of ice")


def test_a_network_of_a_study_is_measured_with_its_pooling(data, tmp_path):
    means, recipe = (
        ExecutionOptions(device="cpu", keep=True),
        Recipe("adam", 1e-3, 1, batch_size=16),
    )
    plain = TrainingSpec(Setting(width=4), Source(data), recipe)
    pooled = TrainingSpec(Setting((Pool("closed-form", 3, 5.0),), width=4), Source(data), recipe)
    runs = Runs(tmp_path / "runs")
    for training in (plain, pooled):
        run_training(training, runs, means)
    results = tmp_path / "rows.csv"
    folders = [runs.folder(pooled.name), "--baseline", runs.folder(plain.name)]
    foveapool("robustness", "evaluate", *folders, *ASKED, "--results", results)
    rows = [row for row in read_rows(results) if row.metric == "error %, clean"]
    found = {row.pooling: row for row in rows}
    assert (found["closed-form"].layer, found["closed-form"].alpha) == ("3", "5")
    for training, pooling in ((plain, "baseline"), (pooled, "closed-form")):
        error = runs.result(training.name, training.facts)["error"]
        assert found[pooling].mean == pytest.approx(error)
    (runs.folder(pooled.name) / "weights.safetensors").unlink()
    done = foveapool("robustness", "evaluate", *folders, *ASKED, "--results", results, code=2)
    assert "only with --keep" in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["evaluate", "nowhere"], "wanted a run folder of `foveapool train`"),
        (["evaluate", "0", "--corruptions", "fogg"], "did you mean 'fog'"),
        (["evaluate", "0", "--perturbations", "standard"], "perturbation: got 'standard'"),
        (["evaluate", "0", "--severities", "1,6"], "severities: got [1, 6]"),
        (["evaluate", "0", "--severities", "a"], "severities: got 'a'"),
        (["evaluate", "0", "--folder", "nowhere"], "nowhere: no such folder"),
        (["evaluate", "0", "--device", "tpu"], "device: got 'tpu'"),
        (["generate", "svhm", "--out", "x"], "no such data set"),
        (["generate", "svhm", "--out", "0/run.json"], "got a file, wanted a folder"),
        (["generate", "svhn", "--out", "x", "--kind", "q"], "kind: got 'q', wanted c or p"),
        (["generate", "svhn", "--out", "x", "--names", "fogg"], "did you mean 'fog'"),
        (["generate", "svhn", "--out", "x", "--reproduce"], "--reproduce: got it with --kind c"),
        ([*PERTURB, "--severities", "1"], "--severities: got it with --kind p"),
        ([*PERTURB, "--frost-folder", "0"], "--frost-folder: got it with --kind p"),
        (["evaluate", "0", "--folder", "0", "--seed", "1"], "--seed: got it with --folder"),
        (["evaluate", "0", "--folder", "0", "--frost-folder", "0"], "a set on disk has its frost"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(runs, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    done = foveapool("robustness", *words, code=2)
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert message in line
    assert not (tmp_path / "x").exists() and not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("option", "place", "message"),
    [
        ("--results", "", "got a folder, wanted a CSV file"),
        ("--tables", "run.json", "got a file, wanted a folder"),
    ],
)
def test_a_place_for_no_results_is_known_before_measuring(
    runs, monkeypatch, option, place, message
):
    monkeypatch.setattr(measured, "evaluate", None)
    done = foveapool("robustness", "evaluate", runs[0], *ASKED, option, runs[0] / place, code=2)
    assert done.stderr.startswith(f"error: {runs[0] / place}: {message}")


def test_trials_of_several_kinds_are_not_averaged(runs, data, tmp_path):
    other = tmp_path / "wide"
    foveapool("train", "cnn", data, "--out", other, *QUICK, "--epochs", 2)
    done = foveapool("robustness", "evaluate", *runs, other, *ASKED, code=2)
    assert "runs: got epochs 1 and 2 among trials that are averaged" in done.stderr
