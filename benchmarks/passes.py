"""What do the two passes of a fit cost beside the network's own forward passes?

The paper's CNN on street digits, solving apart. In turn, several times: two bare forward passes
that end at the layer, and the two passes of a fit there; the ratio is of neighbors in time. Adds
rows to results/passes.csv (`--out`).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch

from foveapool.data.street_digits import make_street_digits
from foveapool.networks import build_network
from foveapool.pooling.gram import Panels
from foveapool.records import BenchmarkRow, append_rows, collect_provenance
from foveapool.surgery.capture import read_inputs
from foveapool.surgery.loader import FitSource
from foveapool.surgery.passes import FitPasses, ScatterSettings

LAYERS = ("down1", "down2", "down3")


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=250)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", default="results/passes.csv")
    options = parser.parse_args()
    scenes = make_street_digits(options.images)
    images = (scenes.images.float() - 128) / 64
    pairs = list(zip(images.split(options.batch), scenes.labels.split(options.batch), strict=True))
    network = build_network("cnn", seed=0, width=64).eval()

    def forward(*layers: str) -> None:
        for _ in range(2):
            for part, _ in pairs:
                read_inputs(network, part, layers)

    def fit(*layers: str) -> None:
        FitPasses(FitSource(network, pairs, layers), ScatterSettings(10), lambda _: None).run()

    def gram(layer: str) -> None:
        """The products alone, of maps that are there."""
        maps = read_inputs(network, pairs[0][0], [layer])[layer].flatten(2).flatten(0, 1)
        panels = Panels.for_grid((network.site(LAYERS.index(layer) + 1)).in_shape)
        total = panels.zeros()
        for _ in pairs:
            panels.add_gram(total, maps)

    facts = collect_provenance()
    facts["hardware"] += f", {torch.get_num_threads()} threads"

    def record(layer: str, metric: str, values: list[float]) -> None:
        row = BenchmarkRow(
            benchmark="passes",
            network="CNN",
            data="street digits",
            layer=layer,
            metric=metric,
            mean=statistics.median(values),
            std=statistics.stdev(values),
            n=len(values),
            batch=str(options.batch),
            **facts,
        )
        print(f"{layer:<8} {metric:<44} {row.mean:.3f} +- {row.std:.3f}", flush=True)
        append_rows(options.out, [row])

    for layer in LAYERS:
        times = [
            (seconds(lambda: forward(layer)), seconds(lambda: fit(layer)))  # noqa: B023
            for _ in range(options.repeats + 1)
        ][1:]
        record(layer, "two passes, s", [fitted for _, fitted in times])
        record(layer, "two passes / two bare forward passes", [f / bare for bare, f in times])
    times = []
    for _ in range(options.repeats + 1):
        alone, together = seconds(lambda: fit("down3")), seconds(lambda: fit(*LAYERS))
        others = seconds(lambda: gram("down1")) + seconds(lambda: gram("down2"))
        times.append(together / (alone + others))
    record("all", "three layers / (the deepest + other products)", times[1:])


if __name__ == "__main__":
    main()
