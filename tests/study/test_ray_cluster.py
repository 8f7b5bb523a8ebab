"""A cluster whose machines share no disk, with workers, machines and drivers killed at random.

The table is that of an undisturbed study to the last bit, and what is finished is never done again.
`make test-soak` kills five times, `make soak` fifty.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from foveapool.records import ERROR, read_rows
from foveapool.runs import RESULT

ray = pytest.importorskip("ray", reason="ray is an extra and not installed")

KILLS = 50 if os.environ.get("FOVEAPOOL_SOAK") else 5
SEEDS = 10 if KILLS > 5 else 2
STUDY = """
title = "On a cluster"
[data]
name = "street-digits"
options = { train_size = 160, test_size = 64 }
[network]
width = 4
[recipe]
epochs = 10
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


@pytest.fixture
def cluster(monkeypatch):
    from ray.cluster_utils import Cluster

    for name, value in FAST.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    # The head has no cores: it is the driver's, and outlives the machines that work.
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    yield cluster
    cluster.shutdown()


def start(folder: Path, *more: object) -> subprocess.Popen[str]:
    (folder.parent / "cluster.toml").write_text(STUDY.replace("SEEDS", str(SEEDS)))
    command = [sys.executable, "-m", "foveapool", "study", folder.parent / "cluster.toml"]
    return subprocess.Popen(
        [*map(str, [*command, "--runs", folder, "--device", "cpu", *more])],
        env={**os.environ, **FAST},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def find_workers() -> list[int]:
    """The processes that train now."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes()
        except OSError:
            continue
        if command.startswith(b"ray::_work_apart"):
            found.append(int(path.parent.name))
    return found


def read_results(folder: Path) -> dict[str, str]:
    return {path.parent.name: path.read_text() for path in folder.glob(f"trainings/*/{RESULT}")}


def read_errors(folder: Path) -> list[tuple[str, str, tuple[float, ...]]]:
    rows = read_rows(next(folder.glob("studies/*/rows.csv")))
    return sorted((row.pooling, row.metric, row.values) for row in rows if row.metric == ERROR)


@pytest.mark.soak
@pytest.mark.skipif(not Path("/proc").exists(), reason="looks for workers in /proc")
def test_kills_on_a_cluster_without_a_shared_disk_change_nothing(tmp_path, cluster):
    calm = start(tmp_path / "calm")
    said, _ = calm.communicate(timeout=300)
    assert calm.returncode == 0, said

    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    folder, draw = tmp_path / "runs", random.Random(0)
    options = ("--engine", "ray", "--address", cluster.address, "--send-seconds", 0.2)
    driver = start(folder, *options)
    kinds = ["worker", "machine", "driver", "worker", "worker"]
    seen: dict[str, str] = {}
    kills = dict.fromkeys(kinds, 0)
    for kill in range(KILLS):
        while driver.poll() is None and not find_workers():
            time.sleep(0.02)
        time.sleep(draw.uniform(0, 1))
        now = read_results(folder)
        assert all(now[name] == text for name, text in seen.items())
        seen = now
        if driver.poll() is not None:
            break
        kind = kinds[kill % len(kinds)]
        if kind == "worker":
            workers = find_workers()
            if not workers:
                continue
            os.kill(draw.choice(workers), signal.SIGKILL)
        elif kind == "machine":
            cluster.remove_node(nodes.pop(0), allow_graceful=False)
            nodes.append(cluster.add_node(num_cpus=1))
        elif kind == "driver":
            driver.kill()
            driver.communicate()
            driver = start(folder, *options)
        kills[kind] += 1
    said, _ = driver.communicate(timeout=300)
    assert driver.returncode == 0, said

    after = read_results(folder)
    assert len(after) == 3 * SEEDS
    assert all(kills.values()), kills
    assert all(after[name] == text for name, text in seen.items())
    assert len(read_errors(folder)) == 3
    assert read_errors(folder) == read_errors(tmp_path / "calm")
    alphas = [json.loads(text)["alphas"] for text in after.values()]
    calm_alphas = [json.loads(text)["alphas"] for text in read_results(tmp_path / "calm").values()]
    assert sorted(map(str, alphas)) == sorted(map(str, calm_alphas))
