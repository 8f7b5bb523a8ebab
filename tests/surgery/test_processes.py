"""Several processes that each read a part of the data find what one finds alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from foveapool import ClosedFormPooling

from .toys import MAIN, POOL, SHORTCUT, loader, toy

LAYERS = [MAIN, SHORTCUT, POOL]

# What each of two processes does; `toys` is found beside this file.
EACH = """
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from toys import loader, toy

from foveapool import ClosedFormPooling
from foveapool.surgery import passes

dist.init_process_group("gloo", timeout=timedelta(seconds=60))
rank, here = dist.get_rank(), Path(sys.argv[1])
layers = sys.argv[2:]
images, labels = (torch.cat(parts) for parts in zip(*loader()))
ids = torch.arange(len(labels))


def part(mine):
    return list(zip(*(each[mine].split(7) for each in (images, labels, ids))))


def fitted(batches, model=None, **more):
    settings = more.pop("settings", {})
    mixes = more.get("mode") == "mix"
    fit = ClosedFormPooling(**settings).fit(
        model or toy(), batches, layers[:2] if mixes else layers, unpack=lambda batch: batch, **more
    )
    found = fit.mixings_ if mixes else fit.operators_
    return {name: each.weight for name, each in found.items()}


uneven = ids < 12 if rank == 0 else ids >= 12
by_class = labels < 2 if rank == 0 else labels >= 1
answers = {
    "uneven": fitted(part(uneven)),
    "a class unseen by one": fitted(part(by_class & ((ids % 2 == rank) | (labels != 1)))),
    "drawn by id": fitted(part(uneven), settings={"class_cap": 12, "seed": 2}),
    "wrapped": fitted(part(uneven), model=DistributedDataParallel(toy())),
    "after": fitted(part(uneven), mode="after"),
    "mix": fitted(part(uneven), mode="mix"),
}

passes.SAVE_SECONDS = -1.0


class Breaking(list):
    # Fails in the middle of a reading; the first one is a look at the first batch.
    def __init__(self, batches, reading):
        super().__init__(batches)
        self.reading = reading

    def __iter__(self):
        self.reading -= 1
        for number, batch in enumerate(super().__iter__()):
            if (self.reading, number) == (0, 1):
                raise OSError("the disk is gone")
            yield batch


def gone_on(folder, reading, lost=True, **more):
    # One process may have lost its sums when both begin again.
    try:
        fitted(Breaking(part(uneven), reading), resume=folder, **more)
    except OSError:
        assert (folder / f"process-{rank}" / "position.json").is_file()
    dist.barrier()
    if rank == 1 and lost:
        for path in (folder / "process-1").iterdir():
            path.unlink()
    answer = fitted(part(uneven), resume=folder, **more)
    dist.barrier()
    assert not folder.exists()
    return answer


answers["stopped in pass 1"] = gone_on(here / "one", 2)
answers["stopped in pass 2"] = gone_on(here / "two", 3)
answers["stopped in pass 3"] = gone_on(here / "three", 4, lost=False, mode="mix")
torch.save(answers, here / f"rank{rank}")
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory) -> list[dict[str, dict[str, torch.Tensor]]]:
    folder = tmp_path_factory.mktemp("processes")
    (folder / "each.py").write_text(EACH)
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    paths = [str(Path(__file__).parent), *sys.path]
    done = subprocess.run(
        [sys.executable, *launch, str(folder / "each.py"), str(folder), *LAYERS],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [torch.load(folder / f"rank{rank}", weights_only=True) for rank in range(2)]


ALONE = {
    "uneven": ({}, "replace"),
    "a class unseen by one": ({}, "replace"),
    "drawn by id": ({"class_cap": 12, "seed": 2}, "replace"),
    "wrapped": ({}, "replace"),
    "after": ({}, "after"),
    "stopped in pass 1": ({}, "replace"),
    "stopped in pass 2": ({}, "replace"),
    "mix": ({}, "mix"),
    "stopped in pass 3": ({}, "mix"),
}


@pytest.mark.parametrize(("scenario", "alone"), ALONE.items(), ids=ALONE)
def test_two_processes_find_what_one_finds_alone(answers, scenario, alone):
    settings, mode = alone
    layers = LAYERS[:2] if mode == "mix" else LAYERS
    fit = ClosedFormPooling(**settings).fit(toy(), loader(), layers, mode)
    wanted = fit.mixings_ if mode == "mix" else fit.operators_
    for name in layers:
        one, other = (answer[scenario][name] for answer in answers)
        assert torch.equal(one, other)
        torch.testing.assert_close(one, wanted[name].weight, rtol=1e-5, atol=1e-6)
