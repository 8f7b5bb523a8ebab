"""How many images a second do several trainings at once get through a GPU, all together?

Each training is a process of its own, as `foveapool study --jobs` has them, with checkpoints.
The clock runs from the moment when all have done an epoch (captured, compiled) to the end of the
last. Start NVIDIA's MPS before, or they take turns: `nvidia-cuda-mps-control -d`. Adds rows to
results/throughput.csv (`--out`).
"""

from __future__ import annotations

import argparse
import dataclasses
import multiprocessing
import tempfile
import time
from typing import Any

import torch
from train import random_images

from foveapool.data.images import Augmentation, DataSet
from foveapool.records import BenchmarkRow, append_rows, collect_provenance
from foveapool.study.setting import BASELINE, Setting
from foveapool.study.spec import TrainingJob
from foveapool.study.study import Arm
from foveapool.training.loop import train
from foveapool.training.metrics import Progress
from foveapool.training.recipe import get_paper_recipe

STRIDED = "strided convolution"


def make_network(data: DataSet, job: dict[str, Any]) -> torch.nn.Module:
    """A network with a rival at all three layers, in its published form."""
    start = Setting(network=job["network"], width=job["width"])
    arm = Arm(BASELINE if job["pooling"] == STRIDED else job["pooling"], job["choices"])
    recipe = get_paper_recipe(job["network"], "cifar10")
    network: torch.nn.Module = TrainingJob(arm.setting(start), data, recipe).network()
    return network


def run_training(number: int, job: dict[str, Any], ready: Any, seconds: Any) -> None:
    """A training in a process of its own; notes the seconds from the common start to its end."""
    data = DataSet(
        "random", random_images(job["images"], 0), random_images(100, 1), "channel", Augmentation()
    )
    recipe = dataclasses.replace(
        get_paper_recipe(job["network"], "cifar10"), epochs=1 + job["epochs"], milestones=()
    )
    begin = [0.0]

    def wait_for_all(progress: Progress) -> None:
        if progress.last is not None and progress.last.epoch == 1 and not begin[0]:
            ready.wait()
            begin[0] = time.perf_counter()

    with tempfile.TemporaryDirectory() as folder:
        train(
            make_network(data, job),
            data,
            recipe,
            number,
            device=job["device"],
            compile=job["compile"],
            folder=folder,
            checkpoint_seconds=5.0,
            progress=wait_for_all,
        )
    seconds[number] = time.perf_counter() - begin[0]


def measure(at_once: int, job: dict[str, Any]) -> float:
    """Images a second of so many trainings together."""
    context = multiprocessing.get_context("spawn")
    ready, seconds = context.Barrier(at_once), context.Array("d", at_once)
    processes = [
        context.Process(target=run_training, args=(number, job, ready, seconds))
        for number in range(at_once)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        if process.exitcode:
            ready.abort()  # the others wait for it
    if any(process.exitcode for process in processes):
        raise ChildProcessError(f"{at_once} at once: a training ended before its time")
    return at_once * job["epochs"] * job["images"] / max(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--networks", nargs="+", default=["resnet18", "cnn"])
    parser.add_argument("--poolings", nargs="+", default=[STRIDED], help="or names of rivals")
    parser.add_argument("--at-once", nargs="+", type=int, default=[1, 2, 3, 4, 6])
    parser.add_argument("--compile", nargs="+", default=["no", "yes"], choices=["no", "yes"])
    parser.add_argument("--epochs", type=int, default=3, help="beside a first one to warm up")
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", default="results/throughput.csv")
    options = parser.parse_args()
    facts = collect_provenance(options.device)
    for network in options.networks:
        for pooling in options.poolings:
            for compiled in options.compile:
                for at_once in options.at_once:
                    job = {
                        "network": network,
                        "pooling": pooling,
                        "choices": {} if pooling == STRIDED else {"layers": [1, 2, 3]},
                        "compile": compiled == "yes",
                        **{k: getattr(options, k) for k in ("epochs", "images", "width", "device")},
                    }
                    begin = time.perf_counter()
                    rate = measure(at_once, job)
                    how = f"{at_once} at once" + (", compiled" if job["compile"] else "")
                    print(f"{network:<9} {pooling:<20} {how:<20} {rate:9,.0f} images a second")
                    row = BenchmarkRow(
                        benchmark="throughput",
                        network=network,
                        data="random images 32 x 32",
                        case=pooling,
                        options=how,
                        metric="images a second, all trainings together",
                        mean=rate,
                        std=float("nan"),
                        n=1,
                        epochs=str(options.epochs),
                        batch="128",
                        seconds=f"{time.perf_counter() - begin:.1f}",
                        **facts,
                    )
                    append_rows(options.out, [row])


if __name__ == "__main__":
    main()
