"""Trained networks from their folders: only as they were trained, and nothing is trained for it."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from typer.testing import CliRunner

from foveapool.cli.main import application
from foveapool.data.user_data import write_npz
from foveapool.pooling.storage import load_tensors, save_tensors
from foveapool.runs import Runs
from foveapool.study import robustness as measuring
from foveapool.study import spec as study_training
from foveapool.study.loading import load_trained_network
from foveapool.study.robustness import RobustnessRequest, measure_network
from foveapool.study.setting import Pool, Setting
from foveapool.study.spec import ExecutionOptions, Source, TrainingSpec
from foveapool.study.worker import run_training
from foveapool.training.recipe import Recipe

from ..training.toys import toy_data, toy_images

QUICK = ["--recipe", "cnn-svhn", "--epochs", 1, "--batch-size", 16, "--width", 4, "--device", "cpu"]

OPERATOR, WEIGHTS = "operator-3.safetensors", "weights.safetensors"
SETTING = Setting((Pool("max", 1), Pool("closed-form", 3), Pool("closed-form", 2)), width=4)
SOURCE = Source("street-digits", options={"train_size": 200, "test_size": 20})


def training_of(count):
    """The training with that many of the poolings."""
    setting = replace(SETTING, pools=SETTING.pools[:count])
    return TrainingSpec(setting, SOURCE, Recipe("adam", 1e-3, 1, batch_size=32), 0)


@pytest.fixture(scope="module")
def trainings(tmp_path_factory):
    """A study's trainings with no pooling, and with one after another."""
    root = tmp_path_factory.mktemp("runs")
    for count in range(4):
        run_training(training_of(count), Runs(root), ExecutionOptions("cpu", keep=True))
    return root / "trainings"


@pytest.fixture
def run(tmp_path):
    """A run folder of `foveapool train`, and the file with its images."""
    write_npz(toy_data(), tmp_path / "own.npz")
    words = ["train", "cnn", f"npz:{tmp_path / 'own.npz'}", "--out", tmp_path / "run", *QUICK]
    assert CliRunner().invoke(application(), list(map(str, words))).exit_code == 0
    yield tmp_path / "run", tmp_path / "own.npz"
    study_training._load_source.cache_clear()


@pytest.mark.parametrize("count", [2, 3])
def test_a_network_of_a_study_comes_back_with_its_poolings(trainings, count):
    folder = trainings / training_of(count).name
    before = sorted(trainings.rglob("*"))
    network = load_trained_network(folder).network
    weights, _ = load_tensors(folder / WEIGHTS, "weights")
    found = network.state_dict()
    assert found.keys() == weights.keys()
    assert all(torch.equal(found[name], weights[name]) for name in found)
    assert sorted(trainings.rglob("*")) == before


def test_a_copied_folder_is_enough_and_nothing_is_trained_for_it(trainings, tmp_path):
    mine = shutil.copytree(trainings / training_of(2).name, tmp_path / "kept" / "mine")
    columns = load_trained_network(mine).columns
    assert columns["pooling"] == "closed-form, beside max, after-activation, at 1"
    assert (columns["layer"], columns["form"]) == ("3", "replace")
    (mine / OPERATOR).unlink()
    with pytest.raises(FileNotFoundError, match=rf"mine.{OPERATOR}: no such file.*copy it from"):
        load_trained_network(mine)
    assert list((tmp_path / "kept").iterdir()) == [mine]


def test_weights_of_another_training_are_refused(trainings, tmp_path):
    mine = shutil.copytree(trainings / training_of(2).name, tmp_path / "mine")
    shutil.copy(trainings / training_of(1).name / WEIGHTS, mine)
    with pytest.raises(ValueError, match=rf"{WEIGHTS}: holds the weights of .*, wanted those of"):
        load_trained_network(mine)


def test_weights_of_another_form_are_refused_with_their_file(trainings, tmp_path):
    mine = shutil.copytree(trainings / training_of(2).name, tmp_path / "mine")
    weights, facts = load_tensors(mine / WEIGHTS, "weights")
    weights.pop("head.bias")
    save_tensors(mine / WEIGHTS, "weights", weights, facts)
    with pytest.raises(ValueError, match=rf"(?s)mine.{WEIGHTS}: not the weights .*head.bias"):
        load_trained_network(mine)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"held_out": {"number": 0, "size": 0.1}}, "trained in a search, without its test images"),
        ({"recipe": {"epochs": 0}}, "wanted a training of a study that was measured on the test"),
    ],
    ids=["of a search", "damaged"],
)
def test_what_is_no_training_of_a_table_is_refused_with_its_note(
    trainings, tmp_path, changes, message
):
    mine = shutil.copytree(trainings / training_of(0).name, tmp_path / "mine")
    note = mine / "training.json"
    note.write_text(json.dumps(json.loads(note.read_text()) | changes))
    with pytest.raises(ValueError, match=rf"mine.training\.json: .*{message}"):
        load_trained_network(mine)


def test_a_note_of_train_that_makes_no_network_is_refused_with_its_file(run):
    note = run[0] / "run.json"
    note.write_text(note.read_text().replace('"width": 4', '"width": 0'))
    with pytest.raises(ValueError, match=r"run\.json: width: got 0.*wanted the note that"):
        load_trained_network(run[0])


def test_other_images_in_the_place_of_a_networks_own_are_refused(run):
    folder, images = run
    assert load_trained_network(folder).columns["epochs"] == "1"
    study_training._load_source.cache_clear()
    write_npz(replace(toy_data(), test=toy_images(40, 2)), images)
    with pytest.raises(ValueError, match=r"holds the weights of another training: data.content is"):
        load_trained_network(folder)


def test_a_note_of_another_seed_is_refused(run):
    note = run[0] / "run.json"
    note.write_text(note.read_text().replace('"seed": 0', '"seed": 4'))
    with pytest.raises(ValueError, match=r"another training: seed is 0 there and 4 here"):
        load_trained_network(run[0])


def test_what_was_measured_holds_for_the_images_it_was_measured_on(run, monkeypatch):
    trained = load_trained_network(run[0])
    asked = RobustnessRequest(("fog",), (1,), (), device="cpu")
    done, evaluate = [], measuring.evaluate

    def counted(*given, **more):
        done.append(given)
        return evaluate(*given, **more)

    monkeypatch.setattr(measuring, "evaluate", counted)
    other = replace(trained, data=replace(trained.data, test=toy_images(40, 2)))
    for each, times in ((trained, 1), (trained, 1), (other, 2)):
        measure_network(each, asked)
        assert len(done) == times
