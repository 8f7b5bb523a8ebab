"""The perturbations of CIFAR-10-P: ours against the authors' code, and how fast ours are.

The first 100 test images of CIFAR-10 against hashes and statistics that the authors' code gave for
them, then seconds per 1,000 images. Adds rows to results/perturbations.csv. The authors' rows hold
their first seed, and how far their second one is from it as the deviation.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from foveapool.data.registry import load_data
from foveapool.records import BenchmarkRow, append_rows, collect_provenance
from foveapool.robustness.perturbations import PERTURBATIONS, iterate_perturbed, perturb

FACTS = Path(__file__).parents[1] / "tests" / "robustness" / "vectors" / "cifar10p.json"
CHECKED = 100
STATISTICS = {
    "consecutive_mae": "change from frame to frame",
    "vs_first_mae": "change from the first frame",
    "mean": "mean level",
    "std": "deviation of levels",
}


@dataclass(frozen=True)
class Figure:
    """What was measured, its mean and deviation, and of how many."""

    metric: str
    mean: float
    std: float = 0.0
    n: int = CHECKED


def measured(frames: Tensor) -> dict[str, float]:
    """The statistics that the facts have, of frames (N, F, H, W, 3)."""
    values = frames.double()
    return {
        "consecutive_mae": float(values.diff(dim=1).abs().mean()),
        "vs_first_mae": float((values[:, 1:] - values[:, :1]).abs().mean()),
        "mean": float(values.mean()),
        "std": float(values.std(correction=0)),
    }


def compared(name: str, images: Tensor, facts: dict[str, Any]) -> Iterator[Figure]:
    """Our figures and the authors' for one perturbation."""
    frames = perturb(images, name, reproduce=True).cpu()
    first, second = facts, facts["seed1"]
    if name == "spatter":
        # How many sequences turn black is chance; the rest are compared without them.
        black = (frames == 0).flatten(2).all(2)
        counts = [each["black_frames"] for each in (first, second)]
        yield Figure("black frames, ours", int(black.sum()))
        yield Figure("black frames, authors", counts[0], abs(counts[1] - counts[0]), 2)
        part = "without_videos_that_have_a_black_frame"
        frames, first, second = frames[~black.any(1)], first[part], second[part]
    for key, value in measured(frames).items():
        spread = abs(first[key] - second[key])
        yield Figure(f"{STATISTICS[key]}, ours", value)
        yield Figure(f"{STATISTICS[key]}, authors", first[key], spread, 2)
    if not facts["random"]:
        digest = hashlib.sha256(frames.numpy().tobytes()).hexdigest()
        yield Figure("every byte as the authors'", float(digest == facts["sha256_seed0"]))
        sums = frames[0].flatten(1).sum(1) - torch.tensor(facts["image0_frame_sums_seed0"])
        yield Figure("largest difference of a frame's sum, first image", int(sums.abs().max()), n=1)


def speed(name: str, images: Tensor, repeats: int) -> Figure:
    """Seconds per 1,000 images, made a chunk at a time and thrown away."""
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        for _ in iterate_perturbed(images, name):
            pass
        if images.is_cuda:
            torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / len(images) * 1000)
    spread = statistics.stdev(times[1:]) if repeats > 1 else 0.0
    return Figure("seconds per 1,000 images", statistics.mean(times[1:]), spread, repeats)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-root", type=Path, default=None, help="the folder with CIFAR-10")
    parser.add_argument("--facts", type=Path, default=FACTS)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--images", type=int, default=None, help="to time; 10,000 on a GPU, or 256")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", default="results/perturbations.csv")
    options = parser.parse_args()
    facts = json.loads(options.facts.read_text("utf-8"))["perturbations"]
    images = load_data("cifar10", options.data_root).test.images.permute(0, 2, 3, 1).contiguous()
    images = images.to(options.device)
    timed = images[: options.images or (len(images) if images.is_cuda else 256)]
    origin = collect_provenance()
    rows = []
    for name in PERTURBATIONS:
        figures = [*compared(name, images[:CHECKED], facts[name])]
        figures.append(speed(name, timed, options.repeats))
        for figure in figures:
            what = {"benchmark": "perturbations", "case": name, "data": "CIFAR-10-P"}
            rows.append(BenchmarkRow(**asdict(figure), **what, seeds="0", **origin))
            print(f"{name:<17} {figure.metric:<50} {figure.mean:10.4f}", flush=True)
    append_rows(options.out, rows)


if __name__ == "__main__":
    main()
