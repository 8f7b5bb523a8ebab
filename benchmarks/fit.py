"""How long does fitting take, and how does it grow? Side by side with what others would do.

    python benchmarks/fit.py peers            # against scipy's eigh and eigs, on the CPU
    python benchmarks/fit.py gram             # accumulating scatter against a bare matrix product
    python benchmarks/fit.py growth           # N from 64 to 4096
    python benchmarks/fit.py large            # 112 x 112 with a window
    python benchmarks/fit.py agree            # the same operator on CPU and GPU, signs included
    python benchmarks/fit.py older            # against the solver of an older commit, one thread

Adds rows to results/fit.csv (`--out`). Scatter comes from the maps of random convolutions over
generated street-like scenes.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from maps import street_maps
from torch import Tensor

import foveapool as fp
from foveapool.pooling.accumulate import ScatterAccumulator
from foveapool.pooling.grid import penalty
from foveapool.records import BenchmarkRow, append_rows, collect_provenance

DATA = "street digits"
NETWORK = "random convolutions"


def seconds(work: Callable[[], object], repeats: int, device: str) -> list[float]:
    """Times of `repeats` runs after one that is not counted."""
    times = []
    for _ in range(repeats + 1):
        if device == "cuda":
            torch.cuda.synchronize()
        begin = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return times[1:]


class Results:
    """Collects rows and prints them as they come."""

    def __init__(self, out: str) -> None:
        self.out = out
        self.facts = collect_provenance()

    def add(self, case: str, maps: str, metric: str, values: list[float], **more: str) -> None:
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        row = BenchmarkRow(
            benchmark="fit",
            network=NETWORK,
            data=DATA,
            case=case,
            maps=maps,
            metric=metric,
            mean=statistics.median(values),
            std=spread,
            n=len(values),
            **{"components": "2", **self.facts, **more},
        )
        print(f"{maps:<18} {case:<22} {metric:<26} {row.mean:10.5g} +- {spread:.2g}")
        append_rows(self.out, [row])


def maps_of(size: int, count: int, device: str = "cpu") -> tuple[Tensor, Tensor]:
    """Maps of `size` x `size` places: one convolution with stride 1; for 16, one with 2 behind."""
    halvings = 1 if size == 16 else 0
    return street_maps(count, size, halvings, device=device)


def peers(options: argparse.Namespace, results: Results) -> None:
    """Our solver, scipy.linalg.eigh and scipy.sparse.linalg.eigs, in turn, on the same problems."""
    from scipy.linalg import eigh
    from scipy.sparse.linalg import eigs

    for size in (32, 16):
        scatter = fp.compute_scatter(*maps_of(size, 2000), num_classes=10)
        out = (size // 2, size // 2)
        places = out[0] * out[1]
        distance = penalty((size, size), out).numpy()
        between, within = scatter.between.numpy(), scatter.within.numpy()
        # Evenly spaced over the output map, corners and edges among them.
        sample = np.linspace(0, places - 1, options.sample).astype(int)
        for alpha in options.alphas:
            ours, full, sparse = [], [], []
            for repeat in range(options.repeats + 1):
                begin = time.perf_counter()
                operator = fp.solve_pooling(scatter, out, alpha=alpha)
                taken = (time.perf_counter() - begin) / places
                # The thread pools of torch and scipy stay awake for a while after their last call.
                time.sleep(0.3)
                for m in sample:
                    begin = time.perf_counter()
                    metric = within + np.diag(alpha * distance[m])
                    built = time.perf_counter()
                    values, _ = eigh(between, metric, subset_by_index=[size**2 - 2, size**2 - 1])
                    middle = time.perf_counter()
                    eigs(between, k=2, M=metric)
                    end = time.perf_counter()
                    # Each route has to write its metric out first.
                    if repeat:
                        full.append(middle - begin)
                        sparse.append(end - middle + built - begin)
                    error = abs(operator.eigenvalues[:, m].numpy()[::-1] - values).max()
                    assert error <= 1e-9 * values[-1], (m, error)
                assert float(operator.residuals.max()) <= 1e-8
                if repeat:
                    ours.append(taken)
                time.sleep(0.3)
            layer, more = f"N={size**2} M={places}", {"alpha": f"{alpha:g}"}
            which = f"sample {sample.tolist()}"
            results.add("krylov", layer, "seconds a place", ours, **more)
            results.add("scipy eigh", layer, "seconds a place", full, options=which, **more)
            results.add("scipy eigs", layer, "seconds a place", sparse, options=which, **more)
            mine = statistics.median(ours)
            for name, other in (("scipy eigh", full), ("scipy eigs", sparse)):
                ratio = statistics.median(other) / mine
                results.add(f"krylov / {name}", layer, "times faster", [ratio], **more)


def gram(options: argparse.Namespace, results: Results) -> None:
    """The sums of products alone, and the whole second pass, against one bare product."""
    device = options.device
    batch = 4096 if device == "cuda" else 256
    for size, channels in ((32, 64), (16, 128), (8, 256)):
        maps = torch.randn(batch, channels, size, size, device=device)
        labels = torch.arange(batch, device=device) % 10
        moments = fp.ChannelMoments(10)
        moments.update(maps, labels)
        accumulator = ScatterAccumulator(moments.compute())
        panels = accumulator.panels
        rows, total = maps.flatten(2).flatten(0, 1), panels.zeros(device)
        routes: dict[str, Callable[[], object]] = {
            "torch.matmul": partial(torch.matmul, rows.mT, rows),
            "products": partial(panels.add_gram, total, rows),
            "ScatterAccumulator": partial(accumulator.update, maps, labels),
        }
        times: dict[str, list[float]] = {name: [] for name in routes}
        for _ in range(options.repeats):
            for name, work in routes.items():
                times[name] += seconds(work, 1, device)
        layer, more = f"{channels} x {size} x {size}", {"batch": str(batch)}
        bare = statistics.median(times["torch.matmul"])
        for name, taken in times.items():
            results.add(name, layer, "seconds a batch", taken, **more)
            if name != "torch.matmul":
                rate = bare / statistics.median(taken)
                results.add(name, layer, "share of matmul's rate", [rate], **more)


def growth(options: argparse.Namespace, results: Results) -> None:
    """Solving alone, all places, for maps from 8 x 8 to 64 x 64."""
    for size in options.sizes:
        maps, labels = maps_of(size, 1000, options.device)
        scatter = fp.compute_scatter(maps, labels, num_classes=10)
        out = (size // 2, size // 2)

        def solve(scatter: fp.Scatter = scatter, out: tuple[int, int] = out) -> object:
            return fp.solve_pooling(scatter, out, alpha=25.0)

        times = seconds(solve, options.repeats if size < 64 else 2, options.device)
        layer = f"N={size**2} M={size**2 // 4}"
        results.add("auto", layer, "seconds to solve", times, alpha="25")


def large(options: argparse.Namespace, results: Results) -> None:
    """112 x 112 maps, each output place sees 31 x 31 of them."""
    size, window = 112, 15
    device = options.device
    moments = fp.ChannelMoments(10)
    batches = 4

    def batch(seed: int) -> tuple[Tensor, Tensor]:
        return street_maps(128, size, device=device, seed=seed)

    for seed in range(batches):
        moments.update(*batch(seed))
    accumulator = ScatterAccumulator(moments.compute(), window=window)
    for seed in range(batches):
        accumulator.update(*batch(seed))
    scatter = accumulator.compute()

    def solve() -> object:
        return fp.solve_pooling(scatter, (56, 56), alpha=25.0, window=window)

    times = seconds(solve, 2, device)
    results.add("auto", "N=12544 M=3136 window 15", "seconds to solve", times, alpha="25")
    operator = fp.solve_pooling(scatter, (56, 56), alpha=25.0, window=window)
    results.add(
        "auto",
        "N=12544 M=3136 window 15",
        "largest residual",
        [float(operator.residuals.max())],
        alpha="25",
    )


def agree(options: argparse.Namespace, results: Results) -> None:
    """The largest difference between the operators that CPU and GPU find, signs included."""
    for size in (16, 32):
        scatter = fp.compute_scatter(*maps_of(size, 1000), num_classes=10)
        for alpha in (5.0, 25.0, 400.0):
            pair = [
                fp.solve_pooling(scatter.to(device), (size // 2, size // 2), alpha=alpha)
                for device in ("cpu", options.device)
            ]
            difference = (pair[0].weight - pair[1].weight.cpu()).abs().max()
            metric = "largest difference CPU-GPU"
            layer = f"N={size**2} M={size**2 // 4}"
            results.add("krylov", layer, metric, [float(difference)], alpha=f"{alpha:g}")


# Run by one interpreter for each commit, with its own `src`.
SOLVE = """
import sys, time, torch, foveapool as fp
torch.set_num_threads(1)
path, side, alpha, components = sys.argv[1], *(int(each) for each in sys.argv[2:])
scatter = fp.Scatter.load(path)
begin = time.process_time()
operator = fp.solve_pooling(scatter, (side, side), alpha=float(alpha), components=components)
print(time.process_time() - begin, float(operator.residuals.max()))
"""


def older(options: argparse.Namespace, results: Results) -> None:
    """CPU seconds of solving now and at an older commit, in turn; and of nine components."""
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(
            ["git", "archive", options.commit, "src"], check=True, capture_output=True
        )
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        now, before = {"now": "src"}, {f"at {options.commit}": f"{folder}/src"}
        for size, alpha in itertools.product(options.sizes, ("25", "400")):
            path, layer = f"{folder}/scatter-{size}", f"N={size**2} M={size**2 // 4}"
            if not Path(path).exists():
                fp.compute_scatter(*maps_of(size, 1000), num_classes=10).save(path)
            medians: dict[int, list[float]] = {}
            for components in (2, 9) if size == 48 else (2,):
                sources = now | before if components == 2 else now
                told = [path, str(size // 2), alpha, str(components)]
                more = {"alpha": alpha, "components": str(components)}
                times = time_in_turn(sources, told, options.repeats)
                for name, taken in times.items():
                    results.add(f"solver {name}", layer, "CPU seconds to solve", taken, **more)
                medians[components] = [statistics.median(taken) for taken in times.values()]
                ours, *theirs = medians[components]
                if theirs:
                    gain = theirs[0] / ours
                    results.add("solver now / older", layer, "times faster", [gain], **more)
                else:
                    loss = ours / medians[2][0]
                    results.add("nine / two components", layer, "times slower", [loss], **more)


def time_in_turn(sources: dict[str, str], told: list[str], repeats: int) -> dict[str, list[float]]:
    """CPU seconds that each source takes to solve what it is told."""
    times: dict[str, list[float]] = {name: [] for name in sources}
    for name, source in list(sources.items()) * repeats:
        done = subprocess.run(
            [sys.executable, "-c", SOLVE, *told],
            env=os.environ | {"PYTHONPATH": source},
            check=True,
            capture_output=True,
            text=True,
        )
        taken, residual = map(float, done.stdout.split())
        assert residual <= 1e-8, (name, told, residual)
        times[name].append(taken)
    return times


QUESTIONS = {
    "peers": peers,
    "gram": gram,
    "growth": growth,
    "large": large,
    "agree": agree,
    "older": older,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "questions", nargs="*", default=["peers", "gram"], help=", ".join(QUESTIONS)
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--alphas", type=float, nargs="+", default=[25.0, 400.0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[8, 16, 24, 32, 48, 64])
    parser.add_argument("--sample", type=int, default=8, help="places that scipy solves")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--commit", default="067f21a", help="of `older`")
    parser.add_argument("--out", default="results/fit.csv")
    options = parser.parse_args()
    results = Results(options.out)
    for question in options.questions:
        if question not in QUESTIONS:
            parser.error(f"unknown question {question!r}, wanted some of {list(QUESTIONS)}")
        QUESTIONS[question](options, results)


if __name__ == "__main__":
    main()
