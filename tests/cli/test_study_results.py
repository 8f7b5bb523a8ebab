"""`foveapool study --results`: a row is added once, whoever asks for it and how often."""

from dataclasses import replace

import pytest
import typer
from typer.testing import CliRunner

from foveapool.cli.study import study_command
from foveapool.records import ERROR, LESS, P_VALUE, VALIDATION, Row, read_rows
from foveapool.report.tables import latest_rows, list_lacking_rows

from ..study.small_studies import TINY

app = typer.Typer()
app.command("study")(study_command)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder with the tiny study done and its rows in `all.csv`."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "tiny.toml").write_text(TINY)
    assert study(folder).exit_code == 0
    return folder


def study(folder, *more, preset="tiny.toml"):
    words = (folder / preset, "--runs", folder / "runs", "--results", folder / "all.csv")
    quick = ("--jobs", 1, "--device", "cpu")
    found = CliRunner(env={"COLUMNS": "200"}).invoke(app, [*map(str, (*words, *quick, *more))])
    assert "Traceback" not in found.output
    return found


@pytest.fixture
def rows(finished):
    """The file as it was after the first time."""
    content = (finished / "all.csv").read_text()
    yield read_rows(finished / "all.csv")
    (finished / "all.csv").write_text(content)


def test_the_same_command_again_adds_no_row(finished, rows):
    again = study(finished)
    assert again.exit_code == 0 and str(read_rows(finished / "all.csv")) == str(rows)
    said = " ".join(again.stderr.split())
    assert f"all.csv: {len(rows)} of {len(rows)} rows were there already" in said


def test_rows_of_another_day_and_command_are_the_same_rows(finished, rows):
    path = finished / "all.csv"
    path.write_text(path.read_text().replace(rows[0].date, "1999-12-31"))
    assert study(finished, "--partial").exit_code == 0
    assert len(read_rows(path)) == len(rows)


def test_rows_that_are_not_there_are_added(finished, rows):
    path = finished / "all.csv"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-3]))
    again = study(finished)
    assert f"{len(rows) - 3} of {len(rows)} rows were there" in " ".join(again.stderr.split())
    assert str(read_rows(path)) == str(rows)
    path.write_text("")
    assert "were there already" not in study(finished).stderr
    assert str(read_rows(path)) == str(rows)


def test_a_file_that_is_damaged_is_refused_before_anything_is_trained(finished, rows):
    path = finished / "all.csv"
    path.write_text(path.read_text()[:-40])
    done = study(finished, "--runs", finished / "others")
    assert done.exit_code == 2 and "all.csv: line" in done.stderr
    assert not (finished / "others").exists()


def test_what_the_study_came_to_last_is_what_a_reader_finds(finished, rows):
    path = finished / "all.csv"
    path.unlink()
    # Halving looks at a setting twice, and rows say nothing of the rate.
    halved = TINY.replace("parts = 1", "parts = 2\nhalving = { parts = 1, keep = 1 }")
    (finished / "halved.toml").write_text(halved)
    assert study(finished, preset="halved.toml").exit_code == 0
    wanted = latest_rows(read_rows(path))
    assert study(finished, "--set", "recipe.lr=0.1", preset="halved.toml").exit_code == 0
    assert str(latest_rows(read_rows(path))) != str(wanted)
    once, twice = [], []
    for found in (once, twice):
        assert study(finished, preset="halved.toml").exit_code == 0
        found += read_rows(path)
        assert [row.values for row in latest_rows(found)] == [row.values for row in wanted]
    assert len(once) == len(twice)


def told_of(path):
    """What a reader finds of the pooling, by metric."""
    return {
        row.metric: row.values for row in latest_rows(read_rows(path)) if row.pooling != "baseline"
    }


def test_a_study_done_again_leaves_no_difference_of_older_errors(finished, rows):
    path = finished / "all.csv"
    wanted = told_of(path)
    assert LESS in wanted
    # One seed makes no pairs.
    assert study(finished, "--set", "trials.seeds=1").exit_code == 0
    assert told_of(path).keys() == wanted.keys() - {LESS, P_VALUE}
    for _ in range(2):
        assert study(finished).exit_code == 0
        assert told_of(path) == wanted


def test_a_baseline_measured_again_leaves_no_difference_from_the_older_one(finished, rows):
    path = finished / "all.csv"
    wanted = told_of(path)
    (finished / "base.toml").write_text(TINY.rpartition("[[arm]]")[0])
    # No number of 63 images is the same share as one of 64.
    other = ("--name", "tiny", "--set", "data.options.test_size=63")
    assert study(finished, *other, preset="base.toml").exit_code == 0
    found = told_of(path)
    assert found[ERROR] == wanted[ERROR] and not {LESS, P_VALUE} & found.keys()
    assert study(finished).exit_code == 0
    assert told_of(path) == wanted


@pytest.mark.parametrize("metric", [ERROR, LESS])
def test_a_setting_is_said_again_as_a_whole(metric):
    there = [
        Row("s", each, 20.0, 1.0, 2, pooling=pooling, values="19 21")
        for pooling in ("sgd", "max")
        for each in (VALIDATION, ERROR, LESS, P_VALUE, "parameters")
    ]
    # The other numbers came out the same, but p: where all differences are equal there is none.
    again = [
        replace(row, values="21 19") if (row.pooling, row.metric) == ("sgd", metric) else row
        for row in there
        if (row.pooling, row.metric) != ("sgd", P_VALUE)
    ]
    added = list_lacking_rows(again, there)
    assert added == again[1:4] and latest_rows([*there, *added]) == again
    assert list_lacking_rows(again, [*there, *added]) == []
