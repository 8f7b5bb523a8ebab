"""What does the layer cost in a network? Forward and backward, against what it stands in for.

The strided 3 x 3 convolution that doubles the channels, average pooling and BlurPool, at the
three down-sampling layers of the paper's networks. Adds rows to results/forward.csv (`--out`).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

import foveapool as fp
from foveapool.records import BenchmarkRow, append_rows, collect_provenance

LAYERS = ((64, 32), (128, 16), (256, 8))


def candidates(channels: int, size: int) -> dict[str, nn.Module]:
    """The layers to compare, all from (C, size, size) to (2 C, size / 2, size / 2)."""
    shapes = {"in_shape": (size, size), "out_shape": (size // 2, size // 2)}
    weight = torch.randn(2, size * size // 4, size * size) / size
    mean = torch.randn(channels)
    return {
        "strided convolution": nn.Conv2d(channels, 2 * channels, 3, 2, 1, bias=False),
        "frozen": fp.LinearPool2d(weight, mean, **shapes),
        "trainable": fp.LinearPool2d(weight, mean, trainable=True, **shapes),
        "average": fp.baseline_pooling("average", channels, components=2, **shapes),
        "blur": fp.baseline_pooling("blur", channels, components=2, **shapes),
    }


def once(layer: nn.Module, x: torch.Tensor, dtype: torch.dtype) -> Callable[[], object]:
    """Forward and backward of a layer; on a GPU captured as a graph, as a training step would be.

    Without the graph a GPU would wait for Python, and the number of calls be measured.
    """
    parameters = [x, *layer.parameters()]

    def step() -> object:
        with torch.autocast(x.device.type, dtype=dtype, enabled=dtype != torch.float32):
            y = layer(x)
        return torch.autograd.grad(y, parameters, torch.ones_like(y))

    if not x.is_cuda:
        return step
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def measure(steps: dict[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """Seconds of each step, taking turns."""
    cuda = torch.cuda.is_available()
    inner = 20 if cuda else 1
    times: dict[str, list[float]] = {name: [] for name in steps}
    for repeat in range(repeats + 2):
        for name, step in steps.items():
            if cuda:
                torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(inner):
                step()
            if cuda:
                torch.cuda.synchronize()
            if repeat >= 2:
                times[name].append((time.perf_counter() - begin) / inner)
    return times


def main() -> None:
    cuda = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--batch", type=int, default=512 if cuda else 64)
    parser.add_argument("--dtype", default="bfloat16" if cuda else "float32")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--out", default="results/forward.csv")
    options = parser.parse_args()
    device, dtype = "cuda" if cuda else "cpu", getattr(torch, options.dtype)
    facts = collect_provenance()
    for channels, size in LAYERS:
        layers = {
            name: layer.to(device, memory_format=torch.channels_last)
            for name, layer in candidates(channels, size).items()
        }
        x = torch.randn(options.batch, channels, size, size, device=device)
        if dtype != torch.float32:
            x = x.to(dtype)
        x = x.to(memory_format=torch.channels_last).requires_grad_()
        steps = {name: once(layer, x, dtype) for name, layer in layers.items()}
        times = measure(steps, options.repeats)
        reference = statistics.median(times["strided convolution"])
        for name, values in times.items():
            median = statistics.median(values)
            rows = [
                BenchmarkRow(
                    benchmark="forward",
                    case=name,
                    maps=f"{channels} x {size} x {size}",
                    metric=metric,
                    mean=mean,
                    std=statistics.stdev(values) * factor,
                    n=len(values),
                    components="2",
                    options=f"{options.dtype}, channels last, forward + backward",
                    batch=str(options.batch),
                    **facts,
                )
                for metric, mean, factor in (
                    ("milliseconds", 1e3 * median, 1e3),
                    ("share of the convolution's time", median / reference, 1 / reference),
                )
            ]
            print(f"{rows[0].maps:<14} {name:<20} {rows[0].mean:9.3f} ms  {rows[1].mean:6.2f}")
            append_rows(options.out, rows)


if __name__ == "__main__":
    main()
