"""`foveapool study` and `foveapool results` as someone at a terminal has them."""

import typer
from typer.testing import CliRunner

from foveapool.cli.results import results_command
from foveapool.cli.study import study_command

app = typer.Typer()
app.command("study")(study_command)
app.command("results")(results_command)

QUICK = ("--jobs", 1, "--device", "cpu")


def run(*words):
    # A terminal wide enough for a table.
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, [str(word) for word in words])


def refused(*words):
    """The one line that a mistake gets."""
    done = run(*words)
    assert done.exit_code == 2, done.output
    assert "Traceback" not in done.output
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    return line
