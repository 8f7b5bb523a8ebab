"""Passes shared by two processes: each ends with the answer of all, or is told what is unlike."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import save_file

from foveapool.pooling.scatter import Scatter

from .shards import (
    Shard,
    assert_same,
    cut,
    first_pass,
    in_a_single_pass,
    second_pass,
    three_classes,
)


@pytest.fixture(scope="module")
def data() -> Shard:
    return three_classes()


@pytest.fixture(scope="module")
def wanted() -> Scatter:
    return in_a_single_pass()


def one_process(rank: str, folder: str) -> None:
    """What each of two processes does; it runs in an interpreter of its own."""
    from datetime import timedelta
    from pathlib import Path

    import torch.distributed as dist
    from safetensors.torch import load_file

    from foveapool import ChannelMoments, ScatterAccumulator

    here = Path(folder)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{here / 'meeting'}",
        rank=int(rank),
        world_size=2,
        timeout=timedelta(seconds=60),
    )
    for scenario in ("halves", "one_has_none"):
        shard = load_file(here / f"{scenario}{rank}.safetensors")
        moments = ChannelMoments(3, class_cap=50, seed=3)
        if len(shard["maps"]):
            moments.update(shard["maps"], shard["labels"], shard["ids"])
        moments.all_reduce()
        accumulator = ScatterAccumulator(moments.compute())
        accumulator.update(shard["maps"], shard["labels"], shard["ids"])
        accumulator.all_reduce()
        accumulator.compute().save(here / f"{scenario}{rank}.scatter")
    nobody = ChannelMoments(3)
    nobody.all_reduce()
    refused = []
    for holder in (ChannelMoments(3, seed=int(rank)), ChannelMoments(3 + int(rank))):
        try:
            holder.all_reduce()
        except ValueError as error:
            refused.append(str(error))
    (here / f"refused{rank}.txt").write_text("\n".join(refused))
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def processes(data: Shard, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder into which two gloo processes have written their answers."""
    folder = tmp_path_factory.mktemp("processes")
    for scenario, edge in (("halves", 90), ("one_has_none", 215)):
        for rank, shard in enumerate(cut(data, edge)):
            named = dict(zip(("maps", "labels", "ids"), shard, strict=True))
            named = {name: tensor.clone() for name, tensor in named.items()}
            save_file(named, folder / f"{scenario}{rank}.safetensors")
    program = f"{inspect.getsource(one_process)}\nimport sys\none_process(*sys.argv[1:])"
    running = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(rank), str(folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        said = [process.communicate(timeout=90)[0] for process in running]
    finally:
        for process in running:
            process.kill()
    assert [process.returncode for process in running] == [0, 0], "\n".join(said)
    return folder


@pytest.mark.parametrize("scenario", ["halves", "one_has_none"])
def test_two_processes_give_the_single_pass_answer(processes, wanted, scenario):
    one, other = (Scatter.load(processes / f"{scenario}{rank}.scatter") for rank in range(2))
    assert_same(one, wanted)
    assert_same(other, wanted)


def test_processes_set_up_differently_are_told_so(processes):
    for rank in range(2):
        seed, classes = (processes / f"refused{rank}.txt").read_text().splitlines()
        assert "got shards with seed" in seed
        assert "got shards with num_classes" in classes


def test_all_reduce_without_processes_says_what_is_missing(data):
    moments = first_pass([data])
    for holder in (moments, second_pass([data], moments.compute())):
        with pytest.raises(RuntimeError, match="init_process_group"):
            holder.all_reduce()
