"""Through how many files of the package one call goes: whoever follows it has to open them all."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import nn

import foveapool as fp
from foveapool.runs import Runs
from foveapool.study.engine import Engine, SerialWorkers
from foveapool.study.setting import Pool, Setting
from foveapool.study.spec import ExecutionOptions, Source, TrainingSpec
from foveapool.training.recipe import Recipe

PACKAGE = Path(fp.__file__).parent


@contextmanager
def passed_files() -> Iterator[set[str]]:
    """The files of the package in which a function is called within; imports do not count."""
    found: set[str] = set()

    def watch(frame, event, argument):
        code = frame.f_code
        if event == "call" and code.co_name != "<module>":
            path = Path(code.co_filename)
            if path.is_relative_to(PACKAGE):
                found.add(path.relative_to(PACKAGE).as_posix())

    before = sys.getprofile()
    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        yield found
    finally:
        sys.setprofile(before)
        threading.setprofile(None)


def test_a_call_is_followed_into_the_files_that_it_calls():
    with passed_files() as found:
        fp.LinearPool2d.average((8, 8), (4, 4))
    assert "pooling/module.py" in found
    assert "surgery/estimator.py" not in found


def test_scatter_and_operator_pass_few_files():
    maps, labels = torch.randn(60, 4, 8, 8), torch.arange(60) % 3
    with passed_files() as found:
        fp.solve_pooling(fp.compute_scatter(maps, labels), (4, 4))
    assert "pooling/solve.py" in found
    assert len(found) <= 14, sorted(found)


@pytest.mark.parametrize("mode", ["replace", "after"])
def test_fit_and_replace_pass_few_files(mode):
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 8, 3, 2, 1))
    loader = [(torch.randn(40, 3, 8, 8), torch.arange(40) % 2)]
    fp.downsampling_layers(model, loader[0][0])  # loads what torch loads late, which takes seconds
    with passed_files() as found:
        fp.ClosedFormPooling().fit(model, loader, layer="1", mode=mode).replace(model)
    assert "surgery/replace.py" in found
    assert len(found) <= 26, sorted(found)


def test_a_training_of_a_study_passes_few_files(tmp_path):
    source = Source("street-digits", options={"train_size": 100, "test_size": 20})
    setting = Setting((Pool("closed-form", 3),), width=4)
    training = TrainingSpec(setting, source, Recipe("adam", 1e-3, 1, batch_size=50), 0)
    runs = Runs(tmp_path)
    runs.make()
    with passed_files() as found:
        list(Engine(runs, ExecutionOptions("cpu"), SerialWorkers()).run([training]))
    assert "training/loop.py" in found
    assert len(found) <= 50, sorted(found)
