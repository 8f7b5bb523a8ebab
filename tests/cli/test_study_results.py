"""`foveapool study --results`: a row is added once, whoever asks for it and how often."""

import pytest
import typer
from typer.testing import CliRunner

from foveapool.cli.study import study_command
from foveapool.records import read_rows
from foveapool.report.tables import latest

from ..study.small import TINY

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
    quick = ("--at-once", 1, "--device", "cpu")
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
    assert study(finished, "--so-far").exit_code == 0
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
    wanted = latest(read_rows(path))
    assert study(finished, "--set", "recipe.lr=0.1", preset="halved.toml").exit_code == 0
    assert str(latest(read_rows(path))) != str(wanted)
    once, twice = [], []
    for found in (once, twice):
        assert study(finished, preset="halved.toml").exit_code == 0
        found += read_rows(path)
        assert [row.values for row in latest(found)] == [row.values for row in wanted]
    assert len(once) == len(twice)
