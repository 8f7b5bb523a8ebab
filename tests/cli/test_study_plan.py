"""`foveapool study` before it trains: a plan needs no data and writes nothing; mistakes come up."""

import pytest
from typer.testing import CliRunner

from foveapool.cli.main import application
from foveapool.networks.sites import PLACEMENTS
from foveapool.records import COLUMNS
from foveapool.report.describe import describe_training
from foveapool.study.preflight import StudyPlan
from foveapool.study.presets import parse_changes, read_preset
from foveapool.study.setting import Pool
from foveapool.study.spec import TrainingJob

from ..study.small_studies import training

QUICK = ("--jobs", 1, "--device", "cpu")


def study(*words):
    done = CliRunner().invoke(application(), ["study", *map(str, words), *map(str, QUICK)])
    assert "Traceback" not in done.output
    return done


def test_a_plan_needs_no_data_and_writes_nothing(tmp_path):
    where = ("--runs", tmp_path / "runs", "--data-root", tmp_path / "nothing")
    done = study("table1-cnn-svhn-reduced", "--dry-run", *where)
    assert done.exit_code == 0, done.output
    assert "CNN on reduced SVHN, 150 epochs" in done.stdout
    assert "compared: strided convolution; closed form; closed form, then trained" in done.stdout
    assert "search closed form: " in done.stdout and " trainings, 0 of them done; " in done.stdout
    assert f"is unknown: svhn: not in {tmp_path / 'nothing'}" in done.stdout
    assert "`foveapool data download svhn` fetches" in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("seconds", "told"), [(0.4, "less than a second"), (3725.2, "about 1:02:05")]
)
def test_the_time_is_told_in_words_that_fit_it(seconds, told):
    demo = read_preset("demo")
    trainings = tuple(demo.training(demo.network, seed) for seed in range(3))
    assert StudyPlan(trainings, 1, seconds).describe_time(1) == (
        f"{told} of training for the other 2, 1 at once; fits and robustness not counted"
    )


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ("svhn", "svhn"),
        ("'svhn'", "svhn"),
        (" folder:~/my-images/v1.2", "folder:~/my-images/v1.2"),
        ("3", 3),
        ("true", True),
        ("[1, 2]", [1, 2]),
    ],
)
def test_a_word_is_text_with_quotes_and_without(given, value):
    assert parse_changes([f"data.name={given}"]) == {"data": {"name": value}}


def test_trainings_of_different_settings_are_told_apart():
    pools = [Pool("closed-form", 3, 25), Pool("closed-form", 3, 25, components=4)]
    given = [training(pool) for pool in pools]
    given += [training(pools[0], network="resnet18", placement=each) for each in PLACEMENTS]
    told = [describe_training(each.facts) for each in given]
    assert len(set(told)) == len(told)


@pytest.mark.parametrize("given", ["note.txt", "note.txt/runs"])
def test_runs_that_can_be_no_folder_are_refused_in_one_line(tmp_path, given):
    (tmp_path / "note.txt").write_text("a note")
    done = study("demo", "--runs", tmp_path / given)
    assert done.exit_code == 2
    assert f"error: {tmp_path / given}: got {tmp_path / 'note.txt'}, which is" in done.stderr


def test_images_that_are_too_few_are_known_before_anything_is_trained(tmp_path, monkeypatch):
    monkeypatch.setattr(TrainingJob, "run", None)
    done = study("demo", "--runs", tmp_path / "runs", "--set", "data.options.train_size=12")
    assert done.exit_code == 2 and " among the 12 training images, wanted two" in done.stderr
    assert not (tmp_path / "runs").exists()
    planned = study("demo", "--dry-run", "--set", "data.options.train_size=12")
    assert planned.exit_code == 2 and planned.stderr == done.stderr


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("folder", "folder: got a folder, wanted a CSV file to add rows to"),
        ("note.txt/all.csv", "note.txt/all.csv: cannot be written, since"),
        ("older.csv", "older.csv: got columns"),
        ("binary.csv", "binary.csv: got what is no text"),
    ],
)
def test_a_file_for_results_is_tried_before_anything_is_trained(
    tmp_path, monkeypatch, given, message
):
    monkeypatch.setattr(TrainingJob, "run", None)
    (tmp_path / "folder").mkdir()
    (tmp_path / "note.txt").write_text("a note")
    (tmp_path / "older.csv").write_text(",".join(COLUMNS[:-1]) + "\n")
    (tmp_path / "binary.csv").write_bytes(b"\xff\x00\xfe")
    there = sorted(tmp_path.iterdir())
    done = study("demo", "--runs", tmp_path / "runs", "--results", tmp_path / given)
    assert done.exit_code == 2 and message in done.stderr
    assert sorted(tmp_path.iterdir()) == there
