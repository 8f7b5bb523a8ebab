"""What do the layer and its fit cost at the sizes of real networks, images of 224 x 224?

    python benchmarks/real_sizes.py forward    # a windowed layer against a strided convolution
    python benchmarks/real_sizes.py stem       # fit 224 -> 112 with a window: memory, time
    python benchmarks/real_sizes.py resnet     # fit 56 -> 28 of a ResNet-50, against bare passes
    python benchmarks/real_sizes.py windows    # what a window keeps of the whole map's answer

Adds rows to results/real-sizes.csv (`--out`).
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from forward import measure, once
from maps import street_maps
from torch import Tensor, nn

import foveapool as fp
from foveapool.data.street_digits import make_street_digits
from foveapool.pooling.eigenproblem import Eigenproblem
from foveapool.pooling.gram import Workspace
from foveapool.pooling.scatter import Scatter
from foveapool.pooling.solvers import SOLVERS
from foveapool.records import BenchmarkRow, append_rows, collect_provenance, summarize_values
from foveapool.surgery.capture import read_inputs

SIZE, WINDOW, BATCH = 224, 3, 16
DATA = "street digits"


class Results:
    """Collects rows and prints them as they come."""

    def __init__(self, out: str) -> None:
        self.out, self.facts = out, collect_provenance()
        # Threads that may move to another core wake late, so that small operations have one.
        bound = ", bound to cores" if os.environ.get("OMP_PROC_BIND") == "true" else ""
        self.facts["hardware"] += f", {torch.get_num_threads()} threads{bound}"

    def add(self, case: str, maps: str, metric: str, values: list[float], **more: str) -> None:
        facts = {"data": DATA, **self.facts, **summarize_values(values), **more}
        row = BenchmarkRow(benchmark="real-sizes", case=case, maps=maps, metric=metric, **facts)
        print(f"{case:<44} {maps:<20} {metric:<44} {row.mean:.4g} +- {row.std:.2g}", flush=True)
        append_rows(self.out, [row])


def read_images(count: int) -> list[tuple[Tensor, Tensor]]:
    """Street digits of 224 x 224, in batches."""
    scenes = make_street_digits(count, 0, SIZE)
    images = (scenes.images.float() - 128) / 64
    return list(zip(images.split(BATCH), scenes.labels.split(BATCH), strict=True))


def forward(options: argparse.Namespace, results: Results) -> None:
    """224 -> 112, each output place sees 7 x 7 places, against the convolution it stands for."""
    half, seen = SIZE // 2, (2 * WINDOW + 1) ** 2
    for components, formats in ((2, "channels first"), (2, "channels last"), (1, "channels last")):
        layer = fp.LinearPool2d(
            torch.randn(components, half**2, seen) / seen**0.5,
            torch.randn(32),
            in_shape=(SIZE, SIZE),
            out_shape=(half, half),
            window=WINDOW,
        )
        layout = torch.channels_last if formats == "channels last" else torch.contiguous_format
        strided = nn.Conv2d(32, 32 * components, 3, 2, 1, bias=False).to(memory_format=layout)
        x = torch.randn(8, 32, SIZE, SIZE).contiguous(memory_format=layout)
        layers: dict[str, nn.Module] = {"strided convolution": strided, "windowed": layer}
        for direction in ("forward", "forward + backward"):
            if direction == "forward":
                # Alone it is what inference takes.
                steps = {name: infer(each, x) for name, each in layers.items()}
            else:
                x.requires_grad_()
                steps = {name: once(each, x, torch.float32) for name, each in layers.items()}
            times = measure(steps, options.repeats)
            of_strided = statistics.median(times["strided convolution"])
            more = {
                "data": "",
                "components": str(components),
                "batch": "8",
                "options": f"{formats}, {direction}",
            }
            for name, taken in times.items():
                maps = f"32 x {SIZE} x {SIZE}"
                results.add(name, maps, "milliseconds", [1e3 * each for each in taken], **more)
                share = statistics.median(taken) / of_strided
                results.add(name, maps, "share of the convolution's time", [share], **more)


def infer(layer: nn.Module, x: Tensor) -> Callable[[], object]:
    """What a layer makes of maps, without gradients."""

    def step() -> object:
        with torch.no_grad():
            return layer(x)

    return step


# Run by an interpreter of its own, whose largest memory is what the fit took.
STEM = """
import os, resource, sys, time, torch, foveapool as fp
from torch import nn
sys.path.append("benchmarks")
from real_sizes import read_images
mode, count, window = sys.argv[1], int(sys.argv[2]), sys.argv[4]
stem = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU()]
model = nn.Sequential(*stem, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
pairs = read_images(count)
window = window if window == "auto" else int(window)
begin, estimator = time.perf_counter(), fp.ClosedFormPooling(window=window)
estimator.sum_scatter(model, pairs, ["0"], mode)
summed = time.perf_counter()
estimator.solve()
solved = time.perf_counter()
if mode == "mix":
    estimator.fit_mixing(model, pairs)
mixed = time.perf_counter()
estimator.operators_["0"].save(path := sys.argv[3])
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
size = os.path.getsize(path) / 1e6
print(summed - begin + mixed - solved, solved - summed, memory, size)
"""


def stem(options: argparse.Namespace, results: Results) -> None:
    """Modes `after` and `mix` at a 224-pixel network's first convolution, 3 to 32 channels."""
    with tempfile.TemporaryDirectory() as folder:
        for mode, window in (("after", WINDOW), ("mix", WINDOW), ("mix", "auto")):
            path = str(Path(folder, f"{mode}.safetensors"))
            told = [mode, str(options.images), path, str(window)]
            command = [sys.executable, "-c", STEM, *told]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            metrics = ("passes, s", "solving, s", "largest memory of the process, GB", "file, MB")
            for metric, value in zip(metrics, map(float, done.stdout.split()), strict=True):
                maps = f"{SIZE} -> {SIZE // 2}"
                more = {"network": "stem, 3 -> 32 channels", "options": f"{options.images} images"}
                results.add(f"{mode}, window {window}", maps, metric, [value], **more)


def resnet(options: argparse.Namespace, results: Results) -> None:
    """A ResNet-50 with random weights, its layers from 56 x 56 to 28 x 28, without a window."""
    from transformers import ResNetConfig, ResNetForImageClassification

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = ResNetForImageClassification(ResNetConfig(num_labels=10))

        def forward(self, x: Tensor) -> Tensor:
            return self.network(x).logits

    torch.manual_seed(0)
    model, pairs = Network().eval(), read_images(options.images)
    found = fp.downsampling_layers(model, pairs[0][0][:1])
    for layer in (each for each in found if each.in_shape == (56, 56)):
        for metric, values in zip_lists(time_fit(model, pairs, layer.name, options.repeats)):
            kernel = " x ".join(map(str, layer.kernel_size))
            more = {
                "network": "ResNet-50",
                "layer": f"{kernel}, {layer.in_channels} -> {layer.out_channels}",
                "components": str(layer.components),
                "options": f"{options.images} images",
            }
            results.add("replace", "56 -> 28", metric, values, **more)


def time_fit(
    model: nn.Module, pairs: list[tuple[Tensor, Tensor]], layer: str, repeats: int
) -> Iterator[dict[str, float]]:
    """Two bare passes that end at the layer and the fit, in turn, after one that is not counted."""
    for repeat in range(repeats + 1):
        begin = time.perf_counter()
        for images, _ in pairs * 2:
            read_inputs(model, images, [layer])
        bare = time.perf_counter() - begin
        begin = time.perf_counter()
        fp.ClosedFormPooling().fit(model, pairs, [layer])
        taken = time.perf_counter() - begin
        if repeat:
            yield {
                "two bare passes, s": bare,
                "fit, s": taken,
                "fit / (1.5 times two bare passes + 10 s)": taken / (1.5 * bare + 10),
            }


def windows(options: argparse.Namespace, results: Results) -> None:
    """How much of the whole map's eigenvalue and S_b / S_w windows keep, at 4 x 4 output places."""
    for size in (48, 56, 64):
        scatter = fp.compute_scatter(*street_maps(1000, size), num_classes=10)
        for alpha in (0.5, 3.0, 10.0):
            whole = best_rows(scatter, size // 2, alpha, None)
            for window in (2, 3, 5, 8, 13, 20):
                kept = best_rows(scatter, size // 2, alpha, window) / whole
                more = {"alpha": f"{alpha:g} trace(B)/N", "components": "1"}
                more["options"] = "random convolutions"
                maps = f"{size} -> {size // 2}"
                for metric, shares in zip(("eigenvalue", "S_b / S_w"), kept.mT, strict=True):
                    told = f"share of the whole map's {metric}"
                    results.add(f"window {window}", maps, told, shares.tolist(), **more)


def best_rows(scatter: Scatter, side: int, alpha: float, window: int | None) -> Tensor:
    """mu and S_b / S_w of the first component at output places from corner to corner, (16, 2)."""
    problem = Eigenproblem.of(scatter, (side, side), 1, "paper", window)
    along = torch.linspace(0, side - 1, 4).round().long().tolist()
    found = []
    for place in (row * side + column for row in along for column in along):
        rows = slice(place, place + 1)
        pencil = problem.block(rows, alpha, 0.0, Workspace())
        solver = SOLVERS[problem.choose("auto")]
        pairs = solver(pencil, 1, 1e-8, problem.start(rows, None))
        row = pairs.vectors
        between, within = (row * pencil.times_between(row)), (row * pencil.times_within(row))
        found.append(torch.stack((pairs.values[0, 0], between.sum() / within.sum())))
    return torch.stack(found)


def zip_lists(found: Iterator[dict[str, float]]) -> Iterator[tuple[str, list[float]]]:
    """Each name with all of its values."""
    every = list(found)
    return ((name, [each[name] for each in every]) for name in every[0])


QUESTIONS = {"forward": forward, "stem": stem, "resnet": resnet, "windows": windows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("questions", nargs="+", choices=QUESTIONS)
    parser.add_argument("--images", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", default="results/real-sizes.csv")
    options = parser.parse_args()
    results = Results(options.out)
    for question in options.questions:
        QUESTIONS[question](options, results)


if __name__ == "__main__":
    main()
