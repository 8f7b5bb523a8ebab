"""`foveapool train`: flags over a recipe over the paper's, one folder, one line of answer."""

import json

import numpy as np
import pytest
import typer
from PIL import Image
from typer.testing import CliRunner

from foveapool.cli import train as command
from foveapool.cli.main import application
from foveapool.data.registry import load_data
from foveapool.study.loading import load_trained_network
from foveapool.training.checkpoint import CHECKPOINT, RunFolder
from foveapool.training.recipe import Recipe, get_paper_recipe

from ..training.toys import toy_data
from .stopped_training import killed_after_an_epoch

app = typer.Typer()
app.command()(command.train_command)
QUICK = ["--epochs", "2", "--batch-size", "16", "--width", "4", "--device", "cpu"]


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    asked = []

    def load(*arguments):
        asked.append(arguments)
        return toy_data()

    monkeypatch.setattr(command, "load_data", load)
    return asked


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_a_network_is_trained_into_its_folder_and_not_twice(tmp_path, toy):
    given = ("cnn", "svhn", *QUICK, "--out", tmp_path / "run", "--seed", 3, "--data-seed", 7)
    first, second = run(*given), run(*given)
    assert first.exit_code == second.exit_code == 0, first.output
    *epochs, answer = first.stdout.splitlines()
    assert second.stdout.splitlines() == [answer]
    assert answer.startswith("cnn on svhn, seed 3: error ")
    assert [line.partition(", loss")[0] for line in epochs] == [
        f"cnn on svhn, seed 3: epoch {epoch} of 2" for epoch in (1, 2)
    ]
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["lr"] for line in lines] == [1e-3, 1e-3]
    assert toy == [("svhn", None, 7)] * 2


def test_the_seed_gives_other_weights(tmp_path):
    answers = {
        run("cnn", "svhn", *QUICK, "--out", tmp_path / str(seed), "--seed", seed).stdout.split(
            ": error"
        )[1]
        for seed in (1, 2)
    }
    assert len(answers) == 2


def test_flags_stand_over_a_file_and_that_over_the_paper(tmp_path):
    flags = dict.fromkeys(["lr", "epochs", "milestones"])
    assert command._recipe(None, "resnet18", "cifar10", flags) == get_paper_recipe(
        "resnet18", "cifar10"
    )
    path = tmp_path / "mine.toml"
    path.write_text('optimizer = "adam"\nlr = 0.5\nepochs = 7\n')
    found = command._recipe(str(path), "cnn", "svhn", {**flags, "lr": 0.25, "milestones": (3,)})
    assert found == Recipe("adam", 0.25, 7, milestones=(3,))
    named = command._recipe("cnn-cifar", "resnet18", "svhn", {**flags, "epochs": 1})
    assert (named.optimizer, named.epochs) == ("adam", 1)


def test_milestones_go_with_the_epochs_unless_they_are_given(tmp_path):
    flags = dict.fromkeys(["lr", "epochs", "milestones"])
    shorter = command._recipe(None, "resnet18", "svhn", {**flags, "epochs": 15})
    assert (shorter.epochs, shorter.milestones) == (15, (5, 10))
    path = tmp_path / "mine.toml"
    path.write_text('optimizer = "sgd"\nlr = 0.5\nepochs = 10\nmilestones = [4]\n')
    assert command._recipe(str(path), "cnn", "svhn", flags).milestones == (4,)
    for milestones, wanted in ((None, (8,)), ((3,), (3,))):
        given = {**flags, "epochs": 20, "milestones": milestones}
        assert command._recipe(str(path), "cnn", "svhn", given).milestones == wanted


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cn", "svhn"], "network: got 'cn', wanted one of cnn, resnet18; did you mean 'cnn'?"),
        (["vgg", "street-digits"], "network: got 'vgg', wanted one of cnn, resnet18"),
        (["cnn", "mnist"], "data: got 'mnist', wanted one of cifar10, "),
        (["cnn", "shvn"], "; did you mean 'svhn'?"),
        (["cnn", "svhn", "--seed", str(2**64)], f"seed: got {2**64}, wanted a whole number of 64"),
        (["cnn", "svhn", "--evaluate-every", "0"], "evaluate_every: got 0"),
        (["cnn", "svhn", "--lr", "-1"], "lr: got -1.0"),
        (["cnn", "svhn", "--recipe", "mine"], "recipe: got 'mine'"),
        (["cnn", "svhn", "--recipe", "none.toml"], "none.toml"),
        (["cnn", "svhn", "--batch-size", "65"], "batch_size: got 65"),
        (["cnn", "svhn", "--device", "tpu"], "device: got 'tpu'"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(tmp_path, arguments, message):
    result = run(*arguments[:2], *QUICK, *arguments[2:], "--out", tmp_path / "run")
    assert result.exit_code == 2
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert message in line
    assert not (tmp_path / "run").exists()


def test_a_file_is_no_run_folder_and_is_said_before_the_data_are_read(tmp_path, toy):
    (tmp_path / "file").write_text("mine")
    for place, message in (("file", "got a file, wanted a folder"), ("file/run", "is no folder")):
        result = run("cnn", "svhn", *QUICK, "--out", tmp_path / place)
        assert result.exit_code == 2 and toy == []
        assert result.stderr.startswith(f"error: {tmp_path / place}: ") and message in result.stderr


def test_another_training_is_not_written_over_but_on_demand(tmp_path):
    given = ("cnn", "svhn", *QUICK, "--out", tmp_path)
    assert run(*given).exit_code == 0
    before = (tmp_path / "run.json").read_text()
    result = run(*given, "--seed", 1)
    assert result.exit_code == 2 and "seed is 0 there and 1 here" in result.stderr
    assert "start afresh with resume=False, on the command line --no-resume" in result.stderr
    assert (tmp_path / "run.json").read_text() == before
    assert run(*given, "--seed", 1, "--no-resume").exit_code == 0
    assert json.loads((tmp_path / "run.json").read_text())["seed"] == 1


def test_a_killed_training_says_that_it_goes_on(tmp_path):
    given = ("cnn", "svhn", *QUICK, "--out", tmp_path)
    with killed_after_an_epoch():
        assert run(*given).exit_code != 0
    first, second, answer = run(*given).stdout.splitlines()
    assert first == "cnn on svhn, seed 0: goes on after epoch 1"
    assert second.startswith("cnn on svhn, seed 0: epoch 2 of 2, loss ")
    assert answer.startswith("cnn on svhn, seed 0: error ")


def test_a_training_afresh_that_is_killed_early_leaves_no_weights_of_another(tmp_path, monkeypatch):
    given = ("cnn", "svhn", *QUICK, "--out", tmp_path)
    assert run(*given).exit_code == 0

    def killed(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr(RunFolder, "save", killed)
    assert run(*given, "--seed", 1, "--no-resume").exit_code != 0
    assert json.loads((tmp_path / "run.json").read_text())["seed"] == 1
    assert not (tmp_path / CHECKPOINT).exists()


def test_milestones_are_epochs(tmp_path):
    result = run("cnn", "svhn", *QUICK, "--out", tmp_path, "--milestones", "a,b")
    assert result.exit_code == 2 and "milestones: got 'a,b'" in result.stderr
    given = ("cnn", "svhn", *QUICK, "--out", tmp_path, "--milestones", "1", "--gamma", "0.5")
    assert run(*given).exit_code == 0
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["lr"] for line in lines] == [1e-3, 5e-4]


def test_images_of_many_sizes_are_trained_on_and_measured_at_one(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "load_data", load_data)
    draw = np.random.default_rng(0)
    for label, name in enumerate(("cat", "dog")):
        for i in range(8):
            for part in ("train", "test"):
                path = tmp_path / "mine" / part / name / f"{i}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                pixels = draw.integers(128 * label, 128 * label + 128, (16 + i, 20, 3), np.uint8)
                Image.fromarray(pixels).save(path)
    given = ("cnn", f"folder:{tmp_path / 'mine'}", *QUICK[:2], *QUICK[4:], "--out")
    own = ("--recipe", "cnn-svhn", "--batch-size", 8)
    refused = run(*given, tmp_path / "run", *own)
    assert refused.exit_code == 2 and "--size of `foveapool train`" in refused.stderr
    done = run(*given, tmp_path / "run", *own, "--size", 16)
    assert done.exit_code == 0, done.output
    bare = run(*given, tmp_path / "bare", "--size", 16)
    assert bare.exit_code == 0 and "recipe: optimizer adam, lr 0.001, epochs 2" in bare.stderr
    # The recipe's 128 images a step are more than there are.
    assert "batch_size 16 (" in bare.stderr and "recipe:" not in done.stderr
    fitted = CliRunner().invoke(application(), ["fit", str(tmp_path / "run"), "--device", "cpu"])
    assert fitted.exit_code == 0, fitted.output
    assert load_trained_network(tmp_path / "run").data.test.images.shape[2:] == (16, 16)


def test_the_layout_of_data_of_ones_own_is_in_the_help():
    environment = {"COLUMNS": "100", "TERM": "dumb"}
    for words in (["train"], ["data"]):
        done = CliRunner().invoke(application(), [*words, "--help"], env=environment)
        said = " ".join(done.stdout.replace("\N{BOX DRAWINGS LIGHT VERTICAL}", " ").split())
        assert "PATH/train/CLASS/ and PATH/test/CLASS/" in said
        assert "train_images, train_labels, test_images and test_labels" in said


def test_training_that_diverges_says_where(tmp_path):
    given = ("cnn", "svhn", *QUICK, "--out", tmp_path, "--optimizer", "sgd", "--lr", "1e30")
    result = run(*given)
    assert result.exit_code == 2 and "in epoch 1, step" in result.stderr
