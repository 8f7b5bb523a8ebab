"""benchmarks/timed_study.sh: what ends in time is in its file, and time that is up is no fault."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from foveapool.known_trainings import read_trainings

ROOT = Path(__file__).parents[1]
STUDY = """
[data]
name = "street-digits"
options = { train_size = 100, test_size = 50 }
[network]
name = "cnn"
width = 4
[recipe]
optimizer = "adam"
lr = 0.001
epochs = 1
batch_size = 50
[trials]
seeds = 2
[[arm]]
pooling = "baseline"
[[arm]]
pooling = "closed-form"
layer = 3
"""

pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, ("bash", "timeout"))), reason="needs bash and timeout"
)


def run_for(seconds, folder, text=STUDY, runs="runs"):
    """Runs the script on the study; gives its exit code and what it printed."""
    study = folder / "tiny.toml"
    study.write_text(text, "utf-8")
    command = [ROOT / "benchmarks" / "timed_study.sh", seconds, folder / "out", study]
    environment = {**os.environ, "PYTHON": sys.executable, "RUNS": str(folder / runs)}
    done = subprocess.run(
        [*map(str, command), "--jobs", "1", "--device", "cpu"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def test_trainings_that_end_in_time_join_those_of_results(tmp_path):
    before = read_trainings(ROOT / "results" / "trainings.jsonl.gz").trainings
    code, said = run_for(100, tmp_path)
    assert code == 0, said
    after = read_trainings(tmp_path / "out" / "trainings.jsonl.gz").trainings
    added = after.keys() - before.keys()
    assert before.keys() <= after.keys()
    assert sorted(after[name].facts["seed"] for name in added) == [0, 0, 1, 1]


def test_another_machine_needs_no_baseline_for_what_is_fitted_on_it(tmp_path):
    assert run_for(100, tmp_path)[0] == 0
    code, said = run_for(100, tmp_path, STUDY + "alpha = 50\n", runs="elsewhere")
    assert code == 0 and "alpha 50" in said
    assert "trained again" not in said
    for piece in (tmp_path / "out").glob("fits.tar.*"):
        piece.unlink()
    code, said = run_for(100, tmp_path, STUDY + "alpha = 60\n", runs="without")
    assert code == 0 and "trained again" in said


def test_time_that_is_up_is_no_fault(tmp_path):
    code, said = run_for(0.1, tmp_path)
    assert code == 0 and "time is up after 0.1 s" in said


def test_a_study_that_fails_fails(tmp_path):
    code, said = run_for(100, tmp_path, "[nothing]\n")
    assert code not in (0, 124) and "nothing" in said
