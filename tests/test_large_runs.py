"""A folder of runs with very many trainings: tables, page and plan take seconds.

`make test-soak` has 2,500 of them, `make soak` 10,000.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import foveapool as fp
from foveapool.runs import RESULT, TRAINING, Runs
from foveapool.study.engine import order_by_dependency
from foveapool.study.fits import name_operator_file
from foveapool.study.presets import read_preset
from foveapool.study.setting import AUTO
from foveapool.study.spec import TrainingSpec
from foveapool.study.study import StudyStages, write_manifest
from foveapool.training.metrics import METRICS

from .study.small_studies import NARROW

TRAININGS, MOST_SECONDS = (10_000, 20) if os.environ.get("FOVEAPOOL_SOAK") else (2_500, 10)
# Half of them are of the search: alphas, two norms, ten parts; half are trials of ten arms.
ALPHAS = [1.05**i for i in range(TRAININGS // 40)]
STUDY = f"""
title = "Large"
{NARROW}
epochs = 20
[trials]
seeds = {TRAININGS // 20}
[[search]]
layers = [3]
alphas = {ALPHAS}
norms = ["l1", "l2"]
parts = 10
held_out = 0.2
[[arm]]
pooling = "baseline"
[[arm]]
pooling = ["closed-form", "closed-form-trained"]
[[arm]]
pooling = "closed-form"
layer = 3
alpha = [1.5, 2.5, 3.5, 4.5]
[[arm]]
pooling = ["average", "max", "blur"]
layer = 3
"""


class Written:
    """Trainings as a study leaves them in its folder of runs, and none was done."""

    def __init__(self, folder: Path) -> None:
        self._runs, self._folder = Runs(folder), folder
        self._runs.make()
        maps, labels = torch.randn(40, 3, 8, 8), torch.arange(40) % 4
        self._operator = fp.solve_pooling(fp.compute_scatter(maps, labels), (4, 4), components=2)
        self._operators: dict[tuple[float, str], Path] = {}
        self.count = 0

    def write(self, trainings: Sequence[TrainingSpec]) -> dict[str, dict[str, Any]]:
        return {each.name: self._write_training(each) for each in trainings}

    def _write_training(self, training: TrainingSpec) -> dict[str, Any]:
        own = self._runs.folder(training.name)
        own.mkdir(parents=True, exist_ok=True)
        self.count += 1
        alphas = {}
        for pool in training.setting.pools:
            if pool.is_fitted:
                alpha = 100.0 if pool.alpha == AUTO else float(pool.alpha)
                alphas = {"3": alpha}
                os.link(self._keep_operator(alpha, pool.norm), own / name_operator_file("3"))
        result = {
            **{"error": 10 + self.count % 997 / 100, "loss": 0.5, "seconds": 60.0},
            **{"fit_seconds": 1.0, "parameters": 1000, "multiply_adds": 5000, "alphas": alphas},
            **{"commit": "abc", "hardware": "here", "torch": "2.0", "date": "2026-01-01"},
            "training": training.name,
        }
        (own / TRAINING).write_text(json.dumps(training.facts, indent=1))
        (own / RESULT).write_text(json.dumps(result, indent=1))
        epochs = [{"epoch": i, "loss": 1 / i, "lr": 0.1, "seconds": 1.0} for i in range(1, 21)]
        text = "".join(json.dumps({**each, "test_error": 50.0}) + "\n" for each in epochs)
        (own / METRICS).write_text(text)
        return result

    def _keep_operator(self, alpha: float, norm: str) -> Path:
        if (alpha, norm) not in self._operators:
            path = self._folder / f"operator-{len(self._operators)}.safetensors"
            settings = replace(self._operator.settings, alpha=alpha, norm=norm)
            replace(self._operator, settings=settings).save(path)
            self._operators[alpha, norm] = path
        return self._operators[alpha, norm]


def write_study(folder: Path) -> int:
    """A study that is done but for its tables; how many trainings it has."""
    path = folder / "large.toml"
    path.write_text(STUDY)
    study, written, asked = read_preset(str(path)), Written(folder / "runs"), {}
    for stage in StudyStages(study):
        for level in order_by_dependency(stage.trainings):
            results = written.write([each for each in level if each.name not in asked])
            asked |= dict.fromkeys(results, stage.name)
            stage.results = {**stage.results, **results}
    own = folder / "runs" / "studies" / study.name
    own.mkdir(parents=True)
    write_manifest(study, own, asked)
    return len(asked)


def run(folder: Path, *words: str) -> float:
    """Seconds that a command takes of the processor, however busy others keep the machine."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "foveapool", *words, "--runs", "runs"],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.soak
def test_a_folder_of_very_many_trainings_is_read_in_seconds(tmp_path):
    assert write_study(tmp_path) >= TRAININGS
    took = [
        (words, run(tmp_path, *words))
        for words in (
            ("study", "large.toml", "--dry-run"),
            ("study", "large.toml", "--partial"),
            ("report", "large", "--no-maps"),  # without tables so far
            ("study", "large.toml", "--jobs", "1", "--device", "cpu"),
            ("results",),
            ("results", "--selection"),
            ("report", "large", "--no-maps"),
        )
    ]
    assert all(seconds < MOST_SECONDS for _, seconds in took), took
