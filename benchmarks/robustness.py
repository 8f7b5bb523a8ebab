"""How long it takes to measure a network's robustness, images made on the way.

All 15 corruptions at 5 severities, and all perturbations (20 files, 595 frames an image), of drawn
images through a ResNet-18 that was not trained: speed does not depend on what is seen. Adds rows
to results/robustness-speed.csv.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings

import torch

from foveapool.data.batches import make_normalizer
from foveapool.data.images import DataSet
from foveapool.data.street_digits import make_street_digits
from foveapool.networks import NETWORKS, build_network
from foveapool.records import BenchmarkRow, append_rows, collect_provenance
from foveapool.robustness.evaluate import evaluate
from foveapool.training.parallel import choose_device


class Stopwatch:
    """Seconds by corruption: a `progress` that looks at the clock where the name changes."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.last = time.perf_counter()

    def __call__(self, done: int, total: int, what: str) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        now = time.perf_counter()
        self.seconds[what] = self.seconds.get(what, 0.0) + now - self.last
        self.last = now


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", choices=NETWORKS, default="resnet18")
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--parts", nargs="+", default=["corruptions", "perturbations"])
    parser.add_argument("--device", default=None)
    parser.add_argument("--out", default="results/robustness-speed.csv")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # frost is drawn here, which costs as much
    place = choose_device(options.device)
    scenes = make_street_digits(options.images)
    data = DataSet("street digits", scenes, scenes, "channel", None)
    network = build_network(options.network, seed=0).to(place)
    given = (network, scenes.images, scenes.labels, make_normalizer(data))
    asked = {
        "corruptions": {"corruptions": "standard"},
        "perturbations": {"corruptions": (), "perturbations": "all"},
    }
    # What the first call of a kernel costs is paid here.
    evaluate(*given, corruptions=(), batch=options.batch)
    facts = {
        "benchmark": "robustness",
        "network": options.network,
        "data": f"street digits, {options.images} images",
        "batch": str(options.batch),
        **collect_provenance(),
    }
    for part in options.parts:
        watch = Stopwatch()
        begin = time.perf_counter()
        evaluate(*given, **asked[part], batch=options.batch, progress=watch)
        whole = time.perf_counter() - begin
        print(f"{part}: {whole:.1f} s", flush=True)
        taken = {f"all {part}": whole}
        for name, seconds in watch.seconds.items():
            print(f"  {name:<20} {seconds:7.2f} s", flush=True)
            taken[f"{part}, {name}"] = seconds
        once = {"metric": "seconds", "std": math.nan, "n": 1, **facts}
        append_rows(
            options.out,
            [BenchmarkRow(case=case, mean=seconds, **once) for case, seconds in taken.items()],
        )


if __name__ == "__main__":
    main()
