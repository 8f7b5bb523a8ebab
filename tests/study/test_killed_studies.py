"""Studies that are killed at random moments, and two at once in one folder: the same tables."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from foveapool.records import ERROR, LESS, P_VALUE, read_rows

# Each try is a process of its own, forked from one that has imported torch and drawn the images.
SCRIPT = """
import json, os, random, signal, sys, time
from pathlib import Path
import scipy.stats
import torch
from foveapool.study import spec
from foveapool.study.search import Search
from foveapool.study.study import Arm, Study
from foveapool.study.spec import load_training_data
from small_studies import CPU, RECIPE, SOURCE, conduct_study, engine, training
from dataclasses import replace

load_training_data(training(), CPU)
torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))])
spec.CHECKPOINT_SECONDS = 0.0
RUN = spec.TrainingJob.run

def noted(self, *given):
    # Who begins which training, and whether it was finished then.
    done = (self.folder / "result.json").exists()
    with open(self.folder.parents[1] / "begun", "a") as file:
        file.write(json.dumps([os.getpid(), self.folder.name, done]) + "\\n")
    return RUN(self, *given)

spec.TrainingJob.run = noted
STUDY = Study(
    "small", SOURCE, replace(RECIPE, epochs=3), training().setting,
    (Search(layers=(2, 3), alphas=(25,), norms=("l2",), parts=2, held_out=0.2),),
    (Arm("baseline"), Arm("closed-form"), Arm("closed-form-trained")), 2,
)

def begin(folder):
    pid = os.fork()
    if pid == 0:
        conduct_study(STUDY, engine(folder))
        os._exit(0)
    return pid

def finish(*pids):
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * len(pids)

def results(folder):
    stats = {path: path.stat() for path in Path(folder).glob("trainings/*/result.json")}
    return {path.parent.name: [stat.st_ino, stat.st_mtime_ns] for path, stat in stats.items()}

def halves(folder):
    return len(list(Path(folder).glob("trainings/*/checkpoint.safetensors")))

start = time.monotonic()
finish(begin("calm"))
whole = time.monotonic() - start
moments, seen = random.Random(int(sys.argv[1])), []
for attempt in range(10):
    before = len(results("killed"))
    pid = begin("killed")
    # Every other one may first finish a training and one get half way through the next, or slow
    # machines would only see beginnings.
    while attempt % 2 and len(results("killed")) == before:
        time.sleep(0.001)
    while attempt == 4 and not halves("killed"):
        time.sleep(0.001)
    end = time.monotonic() + (attempt != 4) * moments.uniform(0, 0.1) * whole
    # Something must be left for every blow to come.
    while time.monotonic() < end and len(results("killed")) < 12 - (10 - attempt):
        time.sleep(0.001)
    os.kill(pid, signal.SIGKILL)
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL
    seen.append([results("killed"), halves("killed")])
finish(begin("killed"))
seen.append([results("killed"), 0])
finish(begin("both"), begin("both"))
print(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """The folders "calm", "killed" and "both", and what was finished when the blows came."""
    folder = tmp_path_factory.mktemp("studies")
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    here = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SCRIPT, "5"]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **here}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return SimpleNamespace(folder=folder, seen=json.loads(done.stdout))


def outcomes(runs):
    """What every training came to; time apart, bit for bit."""
    found = [json.loads(path.read_text()) for path in runs.glob("trainings/*/result.json")]
    kept = ("error", "loss", "parameters", "multiply_adds", "alphas")
    return {each["training"]: [each[key] for key in kept] for each in found}


def table(runs):
    """The rows that do not measure time, without the time of their trainings."""
    rows = read_rows(runs / "studies" / "small" / "rows.csv")
    rows = [row for row in rows if row.metric in (ERROR, LESS, P_VALUE, "parameters")]
    chosen = read_rows(runs / "studies" / "small" / "selection.csv")
    return [(r.metric, r.mean, r.std, r.n, r.pooling, r.layer) for r in (*chosen, *rows)]


def begun(runs):
    return [json.loads(line) for line in (runs / "begun").read_text().splitlines()]


@pytest.mark.parametrize("name", ["killed", "both"])
def test_the_table_is_that_of_an_undisturbed_study(told, name):
    calm, other = outcomes(told.folder / "calm"), outcomes(told.folder / name)
    # Two parts and their two layers, then two seeds of three arms.
    assert len(calm) == 2 + 4 + 6
    assert other == calm
    assert table(told.folder / name) == table(told.folder / "calm")


def test_the_blows_came_at_all_kinds_of_moments(told):
    counts = [len(results) for results, _ in told.seen]
    assert len(counts) == 11 and counts == sorted(counts)
    assert len(set(counts)) > 3
    assert any(halves for _, halves in told.seen), "none came in the middle of a training"


def test_a_killed_study_repeats_no_finished_trial(told):
    for (before, _), (after, _) in zip(told.seen, told.seen[1:], strict=False):
        assert {name: after[name] for name in before} == before
    assert not any(done for _, _, done in begun(told.folder / "killed"))


def test_a_killed_study_leaves_nothing_half_done(told):
    names = {path.name for path in (told.folder / "killed").glob("trainings/*/*")}
    assert not [name for name in names if name.startswith(".")]
    assert not (told.folder / "killed" / "aside").exists()


def test_two_processes_on_one_folder_share_the_work(told):
    found = begun(told.folder / "both")
    assert sorted(name for _, name, _ in found) == sorted(outcomes(told.folder / "calm"))
    assert len({pid for pid, _, _ in found}) == 2, "one of them did it all"
    assert not (told.folder / "both" / "aside").exists()
