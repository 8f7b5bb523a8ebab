"""The demonstration, small: it compares, says how sure it is, leaves its files, goes on."""

import fcntl
import subprocess
import sys
import time

import pytest

import foveapool as fp
from foveapool.demo import NAMES, Demo, Outcome, main, run_demo, table, verdict


def outcomes(closed, base=(50.0, 52.0, 51.0)):
    errors = {name: base for name in NAMES} | {"closed-form": closed}
    return [
        Outcome(name, seed, error, 1000, 1.0)
        for name, own in errors.items()
        for seed, error in enumerate(own)
    ]


def test_the_demo_trains_compares_and_goes_on_where_it_was(tmp_path, capsys):
    demo = Demo(tmp_path / "demo", (0,), train_images=128, test_images=40, epochs=1, width=4)
    main(demo)
    said = capsys.readouterr().out
    assert all(name in said for name in NAMES.values())
    operator = fp.PoolingOperator.load(demo.operator(0))
    assert operator.summary() in said
    assert (demo.out / "operator.png").read_bytes().startswith(b"\x89PNG")
    written = {path: path.stat().st_mtime_ns for path in demo.out.glob("*/checkpoint*")}
    again = run_demo(demo, lambda text: None)
    assert written and written == {p: p.stat().st_mtime_ns for p in written}
    assert sorted(o.pooling for o in again) == sorted(NAMES)


@pytest.mark.parametrize(
    ("closed", "words"),
    [
        ((20.0, 21.0, 19.0), "With the closed form 31.0 points fewer are wrong"),
        ((50.5, 51.0, 52.0), "does not tell them apart"),
        ((80.0, 81.0, 79.0), "With the strided convolution 29.0 points fewer"),
    ],
)
def test_the_verdict_says_what_the_spread_allows(closed, words):
    assert words in verdict(outcomes(closed))


def test_the_table_has_mean_and_deviation_over_the_seeds():
    rows = table(outcomes((20.0, 21.0, 22.0)))
    assert rows[1] == ("closed form", "21.0 +- 1.0", "1,000", "1")


def test_a_killed_demo_leaves_its_folders_free(tmp_path):
    words = ["demo", "--out", str(tmp_path / "demo"), "--seeds", "1", "--images", "2000"]
    command = [sys.executable, "-m", "foveapool", *words]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    lock = tmp_path / "demo" / "baseline-0" / "lock"
    try:
        deadline = time.monotonic() + 60
        while not is_locked(lock):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        process.kill()
        process.wait()
    deadline = time.monotonic() + 10
    while is_locked(lock):
        assert time.monotonic() < deadline, "a worker goes on without its parent"
        time.sleep(0.1)


def is_locked(path):
    if not path.exists():
        return False
    with open(path, "rb+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False
