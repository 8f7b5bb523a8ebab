"""A cluster whose machines share no disk, with workers, machines and drivers killed at random.

The table is that of an undisturbed study to the last bit, and what is finished is never done again.
`make test-soak` kills five times, `make soak` fifty.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from foveapool.records import ERROR, read_rows
from foveapool.runs import RESULT
from foveapool.training.metrics import METRICS

from .small_studies import NARROW

ray = pytest.importorskip("ray", reason="ray is an extra and not installed")

KILLS = 50 if os.environ.get("FOVEAPOOL_SOAK") else 5
LIMIT = 600 if KILLS == 5 else 3600  # seconds, for whatever hangs
STUDY = f"""
title = "On a cluster"
{NARROW}
epochs = 150
lr = 0.01
batch_size = 32
[trials]
seeds = SEEDS
[[arm]]
pooling = "baseline"
[[arm]]
pooling = ["closed-form", "closed-form-trained"]
layer = 3
"""
FAST = {"OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}


class Machines:
    """Three of them: the head, which has no cores and is the driver's, and two that work.

    Each of these keeps its files in a folder of its own, which goes with it.
    """

    def __init__(self, folder: Path) -> None:
        from ray.cluster_utils import Cluster

        self._folder, self._number = folder, 0
        self._cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
        self.address = self._cluster.address
        self._working: list[tuple[object, Path]] = []
        self.add()
        self.add()

    def add(self) -> None:
        own = self._folder / str(self._number)
        own.mkdir(parents=True)
        self._number += 1
        machine = self._cluster.add_node(num_cpus=1, env_vars={"TMPDIR": str(own)})
        self._working.append((machine, own))

    def lose(self, which: int) -> None:
        """A machine goes at once, with all that it does and holds."""
        machine, own = self._working.pop(which)
        for process in find_processes(f"TMPDIR={own}\0".encode(), "environ"):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self._cluster.remove_node(machine, allow_graceful=False)
        shutil.rmtree(own)

    def list_used(self) -> list[Path]:
        return [path for _, own in self._working for path in own.glob("foveapool-worker-*")]

    def close(self) -> None:
        self._cluster.shutdown()


@pytest.fixture
def machines(tmp_path, monkeypatch):
    for name, value in FAST.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    machines = Machines(tmp_path / "machines")
    yield machines
    machines.close()


class Driver:
    """The command that a user gives, and gives again when it was killed."""

    def __init__(self, folder: Path, seeds: int, *options: object) -> None:
        self.runs, self.seeds, self._options = folder / "runs", seeds, options
        self._study, self._said = folder / "cluster.toml", folder / "said.txt"
        folder.mkdir()
        self.start()

    def start(self) -> None:
        self._study.write_text(STUDY.replace("SEEDS", str(self.seeds)))
        command = [sys.executable, "-m", "foveapool", "study", self._study, "--runs", self.runs]
        with open(self._said, "w") as said:
            self._process = subprocess.Popen(
                [*map(str, [*command, "--device", "cpu", *self._options])],
                env={**os.environ, **FAST},
                stdout=said,
                stderr=subprocess.STDOUT,
            )

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def has_ended(self) -> bool:
        """Whether it is through; anything but success is told with what it said."""
        if self._process.poll() is None:
            return False
        assert self._process.returncode == 0, self._said.read_text()
        return True

    def read_results(self) -> dict[str, str]:
        return {path.parent.name: path.read_text() for path in self.runs.glob(f"*/*/{RESULT}")}

    def read_table(self) -> object:
        """What must not differ by a bit: all but the times."""
        rows = read_rows(next(self.runs.glob("studies/*/rows.csv")))
        errors = sorted((row.pooling, row.values) for row in rows if row.metric == ERROR)
        results = {name: json.loads(text) for name, text in self.read_results().items()}
        keys = ("error", "loss", "parameters", "multiply_adds", "alphas")
        return errors, {name: [each[key] for key in keys] for name, each in results.items()}


def find_processes(text: bytes, file: str) -> list[int]:
    """Those that have a text in a file that the kernel keeps of them."""
    found = []
    for path in Path("/proc").glob(f"[0-9]*/{file}"):
        with suppress(OSError):
            if text in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def find_workers() -> list[int]:
    """The processes that train now."""
    return find_processes(b"ray::_work_apart", "cmdline")


def wait_until(condition) -> float:
    """How many seconds it took until something was so."""
    begin = time.monotonic()
    while not condition():
        assert time.monotonic() - begin < LIMIT
        time.sleep(0.02)
    return time.monotonic() - begin


@pytest.mark.soak
@pytest.mark.skipif(not Path("/proc").exists(), reason="looks for workers in /proc")
def test_kills_on_a_cluster_without_a_shared_disk_change_nothing(tmp_path, machines):
    options = ("--engine", "ray", "--address", machines.address, "--send-seconds", 0.2)
    driver, draw = Driver(tmp_path / "killed", 1, *options), random.Random(0)
    wait_until(lambda: find_workers() or driver.has_ended())
    # What a worker needs until something comes of it: much more on a busy machine.
    pace = wait_until(lambda: any(driver.runs.glob(f"trainings/*/{METRICS}")))
    assert machines.list_used()
    kinds, kills = ["worker", "machine", "driver", "worker", "worker"], Counter[str]()
    seen: dict[str, str] = {}
    while kills.total() < KILLS:
        wait_until(lambda: find_workers() or driver.has_ended())
        time.sleep(draw.uniform(0, 3) * pace)
        now = driver.read_results()
        assert {name: now.get(name) for name in seen} == seen
        seen = now
        if driver.has_ended():
            driver.seeds += 1
            driver.start()
            continue
        kind, workers = kinds[kills.total() % len(kinds)], find_workers()
        if not workers:
            continue
        kills[kind] += 1
        if kind == "worker":
            os.kill(draw.choice(workers), signal.SIGKILL)
        elif kind == "machine":
            machines.lose(draw.randrange(2))
            machines.add()
        else:
            driver.kill()
            driver.start()
    wait_until(driver.has_ended)

    after = driver.read_results()
    assert len(after) == 3 * driver.seeds
    assert {name: after.get(name) for name in seen} == seen
    assert not any(driver.runs.glob("aside/*"))
    calm = Driver(tmp_path / "calm", driver.seeds)
    wait_until(calm.has_ended)
    assert driver.read_table() == calm.read_table()
