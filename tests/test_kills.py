"""Whoever is killed while he saves over what is there leaves the old or the new, never neither.

A child saves one thing after the other, as fast as it can, until it is killed at a random moment.
"""

import os
import random
import signal
import time
from contextlib import suppress

import pytest
import torch
from torch import nn

import foveapool as fp
from foveapool.pooling.module import LinearPool2d
from foveapool.records import Row, append_rows, read_rows
from foveapool.runs import NUMBERS, TEXTS, Runs

SHAPES = {"in_shape": (8, 8), "out_shape": (4, 4)}


def network():
    return nn.Sequential(nn.Conv2d(3, 6, 3, 2, 1), nn.Conv2d(6, 12, 3, 2, 1))


class SavedFit:
    """Of two layers or one, so that the number of files changes too."""

    def __init__(self, folder):
        self.folder = folder
        torch.manual_seed(0)
        batches = [(torch.randn(40, 3, 16, 16), torch.arange(40) % 3)]
        model = network()
        self.fits = [
            fp.ClosedFormPooling(alpha).fit(model, batches, layers)
            for alpha, layers in ((9.0, ["0", "1"]), (25.0, ["1"]))
        ]

    def save(self, which):
        self.fits[which].save(self.folder)

    def check(self):
        found = fp.ClosedFormPooling.load(self.folder)
        wanted = next(each for each in self.fits if each.alpha == found.alpha)
        assert found.layers_ == wanted.layers_
        for name, operator in wanted.operators_.items():
            assert torch.equal(found.operators_[name].weight, operator.weight)

    def check_tidy(self):
        note = self.folder / "estimator.json"
        others = {path.name for path in self.folder.iterdir() if path != note}
        assert len(others) == 4 and all(name in note.read_text() for name in others)


class SavedAdapter:
    def __init__(self, folder):
        self.folder, self.models = folder, [network(), network()]
        fp.replace(self.models[0], {"0": LinearPool2d.average((16, 16), (8, 8), components=2)})
        fp.replace(self.models[1], {"1": LinearPool2d.average((8, 8), (4, 4), components=2)})

    def save(self, which):
        fp.save(self.models[which], self.folder)

    def check(self):
        assert str(fp.load(network(), self.folder))[0] in "01"

    def check_tidy(self):
        names = sorted(path.name for path in self.folder.iterdir())
        assert names == ["README.md", "adapter_config.json", "adapter_model.safetensors"]


class SavedOperator:
    def __init__(self, folder):
        self.path = folder / "operator.safetensors"
        scatter = fp.compute_scatter(torch.randn(40, 3, 8, 8), torch.arange(40) % 4)
        self.operators = [fp.solve_pooling(scatter, (4, 4), alpha=alpha) for alpha in (9.0, 25.0)]

    def save(self, which):
        self.operators[which].save(self.path)

    def check(self):
        found = fp.PoolingOperator.load(self.path)
        assert any(torch.equal(found.weight, each.weight) for each in self.operators)

    def check_tidy(self):
        pass  # beside its file may lie others' that are being written


class SavedRecords:
    def __init__(self, folder):
        self.path = folder / "rows.csv"

    def save(self, which):
        append_rows(self.path, [Row("some", "error", float(which), 0.0, 1)] * (1 + 20 * which))

    def check(self):
        assert {row.mean for row in read_rows(self.path)} <= {0.0, 1.0}

    check_tidy = check


class SavedRuns:
    def __init__(self, folder):
        self.runs, self.facts = Runs(folder), {"x": 1}
        result = dict.fromkeys(NUMBERS, 1.0) | dict.fromkeys(TEXTS, "a") | {"alphas": {}}
        self.results = [result | {"loss": loss} for loss in (1.0, 2.0)]

    def save(self, which):
        with self.runs.claimed("a", self.facts):
            self.runs.finish("a", self.results[which])

    def check(self):
        assert self.runs.result("a", self.facts)["loss"] in (1.0, 2.0)

    check_tidy = check


def save_until_killed(saved, seconds):
    pid = os.fork()
    if not pid:
        with suppress(BaseException):
            for turn in range(1_000_000):
                saved.save(turn % 2)
        os._exit(1)
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL


@pytest.mark.parametrize("kills", [8, pytest.param(60, marks=pytest.mark.soak)])
@pytest.mark.parametrize("kind", [SavedFit, SavedAdapter, SavedOperator, SavedRecords, SavedRuns])
def test_saved_over_and_killed_it_loads(kind, kills, tmp_path):
    saved = kind(tmp_path)
    saved.save(0)
    chance = random.Random(kills)
    for _ in range(kills):
        save_until_killed(saved, chance.uniform(0.005, 0.05))
        saved.check()
    saved.save(0)
    saved.check()
    saved.check_tidy()
