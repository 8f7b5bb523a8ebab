"""How fast is training? Seconds an epoch of 50,000 images, against a plain loop.

Three loops over the same images on the GPU, augmentation included, compilation and evaluation
apart: plain eager in TF32, ours (bfloat16, channels last, one CUDA graph a step), and ours
compiled. Adds rows to results/train.csv (`--out`). Needs a CUDA device.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import time

import torch
import torch.nn.functional as F

from foveapool.data.batches import Feed, load_resident
from foveapool.data.images import Augmentation, DataSet, Images
from foveapool.networks import build_network
from foveapool.records import BenchmarkRow, append_rows, collect_provenance
from foveapool.training.loop import train
from foveapool.training.recipe import Recipe, get_paper_recipe

CLASSES = tuple("0123456789")


def random_images(count: int, seed: int) -> Images:
    """Images of noise: the time of a step does not hang on what they show."""
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(0, 256, (count, 3, 32, 32), generator=generator, dtype=torch.uint8)
    return Images(pixels, torch.randint(10, (count,), generator=generator), CLASSES)


def eager_epochs(network_name: str, data: DataSet, recipe: Recipe) -> list[float]:
    """Seconds of each epoch of a plain loop: float32 with TF32, torch's default optimizer."""
    torch.set_float32_matmul_precision("high")
    network = build_network(network_name, seed=0).cuda()
    options = {"lr": recipe.lr, "weight_decay": recipe.weight_decay}
    if recipe.optimizer == "adam":
        optimizer: torch.optim.Optimizer = torch.optim.Adam(network.parameters(), **options)
    else:
        optimizer = torch.optim.SGD(network.parameters(), momentum=recipe.momentum, **options)
    feed = Feed(load_resident(data, "cuda")[0], recipe.batch_size, 0, data.augmentation)
    seconds = []
    for epoch in range(recipe.epochs):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        feed.start(epoch)
        for _ in range(feed.steps):
            images, labels = feed.batch()
            loss = F.cross_entropy(network(images.contiguous()), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            feed.step.add_(1)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    torch.set_float32_matmul_precision("highest")
    return seconds


def our_epochs(network_name: str, data: DataSet, recipe: Recipe, compile: bool) -> list[float]:
    """Seconds of each epoch of `train`."""
    network = build_network(network_name, seed=0)
    result = train(network, data, recipe, device="cuda", compile=compile)
    return [record.seconds for record in result.history]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--networks", nargs="+", default=["cnn", "resnet18"])
    parser.add_argument("--epochs", type=int, default=6, help="the first one is not counted")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--out", default="results/train.csv")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("got no CUDA device, wanted one: what is measured here is a GPU's loop")
    data = DataSet(
        "random images 32 x 32",
        random_images(50_000, 0),
        random_images(1_000, 1),
        "channel",
        Augmentation(),
    )
    facts = collect_provenance()
    for name in options.networks:
        recipe = dataclasses.replace(
            get_paper_recipe(name, "cifar10"),
            epochs=options.epochs,
            batch_size=options.batch,
            milestones=(),
        )
        loops = {
            "eager, TF32": lambda name=name, recipe=recipe: eager_epochs(name, data, recipe),
            "CUDA graph, bfloat16": lambda name=name, recipe=recipe: our_epochs(
                name, data, recipe, False
            ),
            "CUDA graph, bfloat16, compiled": lambda name=name, recipe=recipe: our_epochs(
                name, data, recipe, True
            ),
        }
        reference = 0.0
        for loop, epochs in loops.items():
            begin = time.perf_counter()
            seconds = epochs()[1:]
            whole = time.perf_counter() - begin
            median = statistics.median(seconds)
            reference = reference or median
            images = len(data.train) // options.batch * options.batch
            spread = statistics.stdev(seconds)
            rows = [
                BenchmarkRow(
                    benchmark="train",
                    network=name,
                    data=data.name,
                    options=loop,
                    metric=metric,
                    mean=mean,
                    std=deviation,
                    n=len(seconds),
                    epochs=str(options.epochs),
                    batch=str(options.batch),
                    seconds=f"{whole:.1f}",
                    **facts,
                )
                for metric, mean, deviation in (
                    ("seconds an epoch of 50,000 images", median, spread),
                    ("images a second", images / median, images * spread / median**2),
                    ("times the eager loop", reference / median, reference * spread / median**2),
                )
            ]
            text = f"{name:<10} {loop:<32} {median:7.3f} s an epoch {rows[2].mean:6.2f} times"
            print(f"{text}   ({whole:.1f} s in all)", flush=True)
            append_rows(options.out, rows)


if __name__ == "__main__":
    main()
