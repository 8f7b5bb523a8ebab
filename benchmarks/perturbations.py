"""The perturbations of CIFAR-10-P: ours against the authors' code, and how fast ours are.

The first 100 test images of CIFAR-10 against hashes and statistics that the authors' code gave for
them, then seconds per 1,000 images. Adds rows to results/perturbations.csv; a row of a statistic
has our value as its mean and, in brackets, theirs and the difference that their seeds allow.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import time
from pathlib import Path

import torch
from torch import Tensor

from foveapool.data.registry import load_data
from foveapool.records import Row, append_rows, provenance
from foveapool.robustness.perturbations import PERTURBATIONS, perturb, perturbed

STUDY = "perturbations"
FACTS = Path(__file__).parents[1] / "tests" / "robustness" / "vectors" / "cifar10p.json"
CHECKED = 100
# How much seeds of the authors differ, relative; two of them may differ less by chance.
SPREAD = {"gaussian_noise": 0.001, "speckle_noise": 0.001, "shot_noise": 0.001, "snow": 0.02}
NAMES = {
    "consecutive_mae": "change from frame to frame",
    "vs_first_mae": "change from the first frame",
    "mean": "mean level",
    "std": "deviation of levels",
}


def measured(frames: Tensor) -> dict[str, float]:
    """The statistics that the facts have, of frames (N, F, H, W, 3)."""
    values = frames.double()
    return {
        "consecutive_mae": float(values.diff(dim=1).abs().mean()),
        "vs_first_mae": float((values[:, 1:] - values[:, :1]).abs().mean()),
        "mean": float(values.mean()),
        "std": float(values.std(correction=0)),
    }


def compared(name: str, images: Tensor, facts: dict) -> dict[str, float]:
    """Our figures for one perturbation, each under what is measured and what the authors have."""
    frames = perturb(images, name, reproduce=True).cpu()
    theirs, other = facts, facts["seed1"]
    found: dict[str, float] = {}
    if name == "spatter":
        # How many sequences turn black is chance; the rest are compared without them.
        black = (frames == 0).flatten(2).all(2)
        counts = theirs["black_frames"], other["black_frames"]
        found[f"black frames ({counts[0]}, other seed {counts[1]})"] = int(black.sum())
        part = "without_videos_that_have_a_black_frame"
        frames, theirs, other = frames[~black.any(1)], theirs[part], other[part]
    for key, value in measured(frames).items():
        spread = SPREAD.get(name.rstrip("_23"), 0.025) * theirs[key] if facts["random"] else 0.0
        allowed = 3 * max(abs(theirs[key] - other[key]), spread)
        limit = f", allowed {allowed:.2g}" if facts["random"] else ""
        found[f"{NAMES[key]} ({theirs[key]:.4f}{limit})"] = value
    if not facts["random"]:
        digest = hashlib.sha256(frames.numpy().tobytes()).hexdigest()
        found["all bytes as theirs (1)"] = float(digest == facts["sha256_seed0"])
        sums = frames[0].flatten(1).sum(1) - torch.tensor(facts["image0_frame_sums_seed0"])
        found["largest difference of a frame's sum, first image (0)"] = int(sums.abs().max())
    return found


def seconds(name: str, images: Tensor, repeats: int) -> list[float]:
    """Seconds per 1,000 images, made a chunk at a time and thrown away."""
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        for _ in perturbed(images, name):
            pass
        if images.is_cuda:
            torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / len(images) * 1000)
    return times[1:]


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
    origin = provenance()
    rows = []
    for name in PERTURBATIONS:
        what = {"study": STUDY, "data": f"CIFAR-10-P {name}", "seeds": "0", **origin}
        for metric, value in compared(name, images[:CHECKED], facts[name]).items():
            rows.append(Row(metric=metric, mean=value, deviation=0.0, n=CHECKED, **what))
        times = seconds(name, timed, options.repeats)
        rows.append(
            Row(
                metric="seconds per 1,000 images",
                mean=statistics.mean(times),
                deviation=statistics.stdev(times) if len(times) > 1 else 0.0,
                n=len(times),
                batch=str(len(timed)),
                **what,
            )
        )
        for row in rows[-6:]:
            print(f"{name:<17} {row.metric:<62} {row.mean:10.4f}", flush=True)
    append_rows(options.out, rows)


if __name__ == "__main__":
    main()
