"""Processes of one fit that differ, or of which one fails, say so everywhere instead of hanging."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

# What each of two processes does; `toys` is found beside this file.
EACH = """
import json
import os
import sys
import warnings
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from toys import SHORTCUT, loader, toy

from foveapool import ClosedFormPooling

here, rank = Path(sys.argv[1]), int(sys.argv[2])
store = f"file://{here / 'store'}"
dist.init_process_group("gloo", store, timedelta(seconds=60), rank=rank, world_size=2)
images, labels = (torch.cat(parts) for parts in zip(*loader()))
mine = list(zip(images[rank::2].split(7), labels[rank::2].split(7)))


class Breaking(list):
    def __init__(self, batches, reading, end):
        super().__init__(batches)
        self.reading, self.end = reading, end

    def __iter__(self):
        self.reading -= 1
        for number, batch in enumerate(super().__iter__()):
            if (self.reading, number) == (0, 1):
                self.end()
            yield batch


def fail():
    raise OSError("the disk is gone")


def told(batches=mine, model=None, mode="replace", **settings):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            ClosedFormPooling(**settings).fit(model or toy(), batches, SHORTCUT, mode)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    return " ".join(f"{each.message}" for each in caught)


def changed(tensors):
    model = toy()
    with torch.no_grad():
        next(t for t in getattr(model, tensors)() if t.is_floating_point()).add_(0.5 * rank)
    return model


breaking = lambda reading, end: Breaking(mine, reading, end) if rank == 1 else mine
answers = {
    "weights": told(model=changed("parameters")),
    "statistics": told(model=changed("buffers")),
    "alpha": told(alpha=1.0 + rank),
    "num_classes": told(num_classes=4 + rank),
    "mode": told(mode=("replace", "after")[rank]),
    "no batch": told(mine if rank == 0 else []),
    "unknown norm": told(norm=("l2", "l3")[rank]),
    "pass 1": told(breaking(2, fail)),
    "pass 2": told(breaking(3, fail)),
    "pass 3": told(breaking(4, fail), mode="mix"),
    "alike": told(),
}
(here / f"rank{rank}.json").write_text(json.dumps(answers))
answers["killed"] = told(breaking(3, lambda: os._exit(9)))
(here / f"rank{rank}.json").write_text(json.dumps(answers))
# Gloo's threads let go of the last collective's tensors whenever they come to it, and those of a
# process that was killed never end; in a Python that is ending by then, that aborts the process.
os._exit(0)
"""

FAILED = "RuntimeError: fit: rank 1 failed with OSError: the disk is gone; mend it there"
EXPECTED = {
    "weights": ("ValueError: model: got other weights on rank 1 than here", "on rank 0 than here"),
    "statistics": ("such as the statistics of batch norm, differ on rank 1", "differ on rank 0"),
    "alpha": ("alpha: got 1.0 here and 2.0 on rank 1", "alpha: got 2.0 here and 1.0 on rank 0"),
    "num_classes": ("num_classes: got 4 here and 5 on rank 1", "num_classes: got 5 here"),
    "mode": ("mode: got replace here and after on rank 1", "mode: got after here"),
    "no batch": ("rank 1 failed with ValueError: loader: got no batch", "ValueError: loader: got"),
    "unknown norm": ("rank 1 failed with ValueError: norm", "ValueError: norm: got 'l3'"),
    "pass 1": (FAILED, "OSError: the disk is gone"),
    "pass 2": (FAILED, "OSError: the disk is gone"),
    "pass 3": (FAILED, "OSError: the disk is gone"),
    "killed": ("got no answer from another process, which ended without a word", None),
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory) -> list[dict[str, str]]:
    folder = tmp_path_factory.mktemp("disagree")
    (folder / "each.py").write_text(EACH)
    paths = [str(Path(__file__).parent), *sys.path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, folder / "each.py", folder, str(rank)],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    said = [process.communicate(timeout=150)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 9], said
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize(("difference", "wanted"), EXPECTED.items(), ids=EXPECTED)
def test_a_difference_or_a_failure_is_named_by_every_process(answers, difference, wanted):
    for answer, words in zip(answers, wanted, strict=True):
        assert words is None or words in answer[difference]


def test_processes_that_agree_have_nothing_to_say(answers):
    assert [answer["alike"] for answer in answers] == ["", ""]
