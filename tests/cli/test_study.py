"""`foveapool study` and `foveapool results`: from a preset to a table."""

import csv
import io
import json
import shutil

import pytest

from foveapool.records import ERROR, Row, append_rows, read_rows
from foveapool.study.presets import preset_names, read_preset
from foveapool.study.spec import TrainingJob

from ..study.small_studies import TINY
from .commands import QUICK, refused, run


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder with the tiny study done, and what the command said."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "tiny.toml").write_text(TINY)
    words = (folder / "tiny.toml", "--runs", folder / "runs", "--results", folder / "all.csv")
    return folder, run("study", *words, *QUICK)


def test_a_study_prints_its_table_and_leaves_its_rows(finished):
    folder, done = finished
    assert done.exit_code == 0, done.output
    rows = read_rows(folder / "runs" / "studies" / "tiny" / "rows.csv")
    errors = [row for row in rows if row.metric == ERROR]
    assert [row.pooling for row in errors] == ["baseline", "closed-form"]
    for row in errors:
        assert f"{row.mean:.2f}" in done.stdout
        assert row.command and row.commit and row.n == 2
    selection = read_rows(folder / "runs" / "studies" / "tiny" / "selection.csv")
    # As text, since a deviation that is no number equals no other.
    assert str(read_rows(folder / "all.csv")) == str([*selection, *rows])
    assert "held-out part 0" in done.stderr and "seed 1" in done.stderr


def test_the_same_command_again_trains_nothing(finished, no_training):
    folder, first = finished
    again = run("study", folder / "tiny.toml", "--runs", folder / "runs", *QUICK)
    assert again.exit_code == 0 and again.stdout == first.stdout


def test_a_dry_run_says_what_would_be_done_and_does_nothing(preset, tmp_path, no_training):
    done = run("study", preset, "--runs", tmp_path / "runs", "--dry-run", *QUICK)
    assert done.exit_code == 0, done.output
    # A baseline and two alphas for the one part, then two seeds of two arms.
    assert "7 trainings, 0 of them done; " in done.stdout
    assert " for the other 7, 1 at once" in done.stdout
    assert "2 settings on 1 held-out parts of 20 %" in done.stdout
    assert not (tmp_path / "runs").exists()


def test_a_dry_run_knows_what_is_done(finished, no_training):
    folder, _ = finished
    done = run("study", folder / "tiny.toml", "--runs", folder / "runs", "--dry-run", *QUICK)
    assert "7 trainings, 7 of them done; nothing is left to do" in done.stdout


def test_so_far_is_the_table_of_what_is_finished(finished, tmp_path, no_training):
    folder, _ = finished
    shutil.copytree(folder / "runs", tmp_path / "runs")
    (result,) = (tmp_path / "runs").glob("trainings/*-closed-form-*seed1*/result.json")
    result.unlink()
    rows = tmp_path / "rows.csv"
    words = (folder / "tiny.toml", "--runs", tmp_path / "runs", "--partial", "--results", rows)
    done = run("study", *words, "--data-root", tmp_path / "nothing", *QUICK)
    assert done.exit_code == 0, done.output
    assert "not finished: closed form, layer 3, " in done.stderr and "1 of 2 seeds" in done.stderr
    errors = [row for row in read_rows(rows) if row.metric == ERROR]
    assert [(row.pooling, row.n) for row in errors] == [("baseline", 2)]
    both = run("study", *words, "--dry-run", *QUICK)
    assert both.exit_code == 2 and "wanted one of them" in both.stderr


def test_an_interruption_says_how_to_go_on(preset, tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(TrainingJob, "run", interrupted)
    done = run("study", preset, "--runs", tmp_path / "runs", *QUICK)
    assert done.exit_code not in (0, 2) and "the same command goes on" in done.stderr


def test_trainings_that_diverged_are_told_of_below_the_table(preset, tmp_path):
    done = run("study", preset, "--runs", tmp_path / "runs", "--set", "recipe.lr=1e30", *QUICK)
    assert done.exit_code == 0, done.output
    assert (
        "strided convolution: 2 of 2 trainings diverged, which its error counts as all"
        in done.stderr
    )
    assert "closed form at layer 3: 2 of 2 trainings diverged" in done.stderr


def test_values_set_on_the_command_line_stand_over_the_preset(preset, tmp_path, no_training):
    changes = ("--set", "trials.seeds=5", "--set", "recipe.epochs=3")
    done = run("study", preset, "--runs", tmp_path / "runs", "--dry-run", *changes, *QUICK)
    assert "3 epochs of batches of 32, 5 seeds" in done.stdout
    assert "13 trainings" in done.stdout


def test_without_a_preset_the_presets_are_listed_with_their_titles():
    listed = [line.split("  ", 1) for line in run("study").stdout.splitlines()]
    assert [name for name, _ in listed] == preset_names()
    assert [title.strip() for _, title in listed] == [read_preset(name).title for name, _ in listed]


def test_a_damaged_training_is_told_of_and_redone(finished, tmp_path):
    folder, _ = finished
    shutil.copytree(folder / "runs", tmp_path / "runs")
    (result, *_) = (tmp_path / "runs").glob("trainings/*baseline-seed0*/result.json")
    wanted = json.loads(result.read_text())
    result.write_text(result.read_text()[:40])
    done = run("study", folder / "tiny.toml", "--runs", tmp_path / "runs", *QUICK)
    assert done.exit_code == 0, done.output
    told = " ".join(done.stderr.split())
    assert "set aside as" in told and "result.json is not whole" in told
    redone = json.loads(result.read_text())
    assert (redone["error"], redone["loss"]) == (wanted["error"], wanted["loss"])


def test_results_come_in_every_format(finished):
    folder, _ = finished
    study = folder / "runs" / "studies" / "tiny"
    (error, *_) = [row for row in read_rows(study / "rows.csv") if row.pooling == "closed-form"]
    cell = f"{error.mean:.2f} +- {error.std:.2f}"
    markdown = run("results", study, "--format", "markdown").stdout.splitlines()
    assert markdown[1].startswith("| --- |") and cell in markdown[3]
    table = list(csv.reader(io.StringIO(run("results", study, "--format", "csv").stdout)))
    assert table[2][table[0].index("error %")] == cell
    latex = run("results", study, "--format", "latex").stdout
    assert cell.replace("+-", r"$\pm$") in latex and "10^6" not in latex
    assert "closed form" in run("results", "--runs", folder / "runs").stdout
    searched = run("results", study, "--selection", "--format", "markdown").stdout.splitlines()
    assert len(searched) == 2 + 2


def test_claims_are_counted_beside_the_papers(tmp_path):
    same = {"study": "table1-cnn-svhn", "metric": ERROR, "std": 0.1, "n": 5}
    where = {"network": "cnn", "data": "svhn"}
    rows = [
        Row(mean=10.0, pooling="baseline", **same, **where),
        Row(mean=9.0, pooling="closed-form", layer="2", **same, **where),
    ]
    append_rows(tmp_path / "rows.csv", rows)
    done = run("results", tmp_path / "rows.csv", "--claims", "--format", "markdown")
    assert "| CNN: closed form below the baseline | 2 of 4 | 1 of 1 |" in done.stdout
    assert "| 9.00 +- 0.10 | 9.93 +- 0.47 |" in done.stdout


def test_results_that_are_not_there_are_named(preset, tmp_path):
    runs = tmp_path / "runs"
    assert "no studies in it" in refused("results", "--runs", runs)
    assert "wanted one" in refused("results", tmp_path)
    assert "none.csv" in refused("results", tmp_path / "none.csv")
    assert "format: got 'html'" in refused("results", "--format", "html", "--runs", runs)
    (runs / "studies" / "tiny").mkdir(parents=True)
    (runs / "studies" / "tiny" / "study.json").write_text("{}")
    assert "no finished table in it yet" in refused("results", "--runs", runs)
    (tmp_path / "foreign.csv").write_text("a,b\n1,2\n")
    assert "foreign.csv: got columns" in refused("results", tmp_path / "foreign.csv")


def test_a_study_with_other_values_can_have_another_name(preset, tmp_path):
    runs = tmp_path / "runs"
    words = ("study", preset, "--runs", runs, "--set", "trials.seeds=2", *QUICK)
    done = run(*words, "--name", "two-seeds")
    assert done.exit_code == 0, done.output
    assert [path.name for path in (runs / "studies").iterdir()] == ["two-seeds"]
