"""The demonstration, small: it compares, says how sure it is, leaves its files, goes on."""

import fcntl
import inspect
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from typer.testing import CliRunner

import foveapool as fp
from foveapool.cli import demo as command
from foveapool.cli.main import application
from foveapool.demo import (
    BEST,
    BLUR,
    NAMES,
    PAPER,
    STRIDED,
    Demo,
    describe_verdict,
    get_operator_path,
    main,
    make_table,
    run_demo,
)
from foveapool.records import ERROR
from foveapool.study.presets import read_preset
from foveapool.study.rows import SeedTrials, make_trial_rows
from foveapool.study.setting import Setting
from foveapool.study.spec import TrainingJob, TrainingSpec

BASE = (50.0, 52.0, 51.0)
NUMBERS = {"parameters": 1000, "seconds": 1.0, "fit_seconds": 0.5, "multiply_adds": 10, "loss": 0.1}
TOLD = {"alphas": {"3": 25.0}, "hardware": "h", "torch": "t", "commit": "c"}


def rows(best, base=BASE):
    """The rows of a study whose last line has these errors, and all others the baseline's."""
    study, trials, results = Demo().study(), [], {}
    for line, arm in enumerate(study.arms):
        setting: Setting = arm.setting(study.network)
        made: list[TrainingSpec] = [study.training(setting, seed) for seed in range(len(base))]
        errors = best if line == BEST else base
        trials.append(SeedTrials(setting, tuple(made)))
        for each, error in zip(made, errors, strict=True):
            results[each.name] = {"error": error, **NUMBERS, **TOLD}
    return make_trial_rows("demo", trials, results, {})


def test_the_demo_trains_compares_and_goes_on_where_it_was(tmp_path, capsys, monkeypatch):
    demo = Demo(tmp_path / "runs", 1, 160, 40, epochs=1, width=4, processes=1)
    main(demo)
    said = capsys.readouterr().out
    assert "5 trainings" in said and "One seed only" in said
    operator = fp.PoolingOperator.load(get_operator_path(demo))
    assert operator.summary() in said
    folder = demo.out / "studies" / "demo"
    assert (folder / "operator.png").read_bytes().startswith(b"\x89PNG")
    monkeypatch.setattr(TrainingJob, "run", None)
    again = run_demo(demo, lambda text: None)
    wrong = [row.mean for row in again if row.metric == ERROR]
    for name, error in zip(NAMES, wrong, strict=True):
        assert f"{name}, seed 0: {error:.1f} % wrong" in said


def test_the_best_line_has_the_parameters_of_the_network_as_it_is(tmp_path):
    demo = Demo(tmp_path / "runs", 1, 160, 40, epochs=1, width=4, processes=1)
    numbers = [line[2] for line in make_table(run_demo(demo, lambda text: None))]
    assert numbers[STRIDED] == numbers[BLUR] == numbers[BEST] != numbers[PAPER]


def test_the_demo_is_the_preset_of_that_name_in_another_size():
    demo, preset = Demo().study(), read_preset("demo")
    assert demo == preset
    smaller = Demo(seeds=1, train_images=100, test_images=10, epochs=2, width=8).study()
    assert smaller.source.options == {"train_size": 100, "test_size": 10}
    assert (smaller.seeds, smaller.recipe.epochs, smaller.network.width) == (1, 2, 8)
    assert replace(smaller.recipe, epochs=15) == preset.recipe


def test_the_demo_learns_with_the_alpha_that_the_library_does():
    study = Demo().study()
    arms = [study.arms[PAPER], study.arms[BEST]]
    pools = [pool for arm in arms for pool in arm.setting(study.network).pools if pool.is_fitted]
    assert [pool.alpha for pool in pools] == ["auto", "auto"]
    assert inspect.signature(fp.solve_pooling).parameters["alpha"].default == "auto"


@pytest.mark.parametrize(
    ("best", "words"),
    [
        ((20.0, 21.0, 19.0), "31.0 points better than: strided convolution (paired over 3 seeds"),
        ((50.5, 51.0, 52.0), "0.2 points from: strided convolution (paired over 3 seeds"),
        ((80.0, 81.0, 79.0), "29.0 points worse than: strided convolution (paired over 3 seeds"),
    ],
)
def test_the_verdict_says_what_the_spread_allows(best, words):
    told = describe_verdict(rows(best)).splitlines()
    assert words in told[STRIDED] and "p = " in told[STRIDED]
    assert [name in line for name, line in zip(NAMES, told, strict=False)] == [True] * BEST
    assert ("not significantly different" in told[BLUR]) == ("points from" in words)


def test_seeds_that_all_differ_by_the_same_get_no_p():
    told = describe_verdict(rows(tuple(error - 10.0 for error in BASE)))
    assert "10.0 points from: strided convolution (paired over 3 seeds, deviation 0.0)" in told
    assert "p = " not in told


def test_the_table_has_mean_and_deviation_over_the_seeds():
    lines = make_table(rows((20.0, 21.0, 22.0)))
    assert [line[0] for line in lines] == list(NAMES)
    assert lines[BEST] == (NAMES[BEST], "21.0 +- 1.0", "1,000", "1")


def test_what_is_asked_of_the_command_is_what_the_demo_does(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(command, "main", asked.append)
    words = ["--out", str(tmp_path), "--seeds", "2", "--images", "300", "--epochs", "4"]
    done = CliRunner().invoke(application(), ["demo", *words])
    assert done.exit_code == 0, done.output
    CliRunner().invoke(application(), ["demo"])
    assert asked == [Demo(tmp_path, 2, 300, epochs=4), Demo()]
    assert CliRunner().invoke(application(), ["demo", "--seeds", "0"]).exit_code == 2


def test_a_killed_demo_leaves_its_folders_free(tmp_path):
    words = ["demo", "--out", str(tmp_path / "runs"), "--seeds", "1", "--images", "2000"]
    command = [sys.executable, "-m", "foveapool", *words]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, **quiet)
    try:
        wait_until(lambda: locked(tmp_path), process, "no worker began")
    finally:
        process.kill()
        process.wait()
    wait_until(lambda: not locked(tmp_path), None, "a worker goes on without its parent")


def wait_until(done, process, complaint):
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline, complaint
        assert process is None or process.poll() is None
        time.sleep(0.1)


def locked(folder):
    """Whether anyone holds one of the trainings."""
    for path in folder.glob("runs/locks/*.lock"):
        with open(path, "rb+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
    return False
