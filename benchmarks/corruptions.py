"""Our corruptions of CIFAR-10 against what the authors' code makes of it, and how long they take.

The first 500 test images at all severities, several seeds: five statistics each, and whether the
bytes are the authors' where nothing is random; then seconds for 1,000 images, and with --whole
for the standard corruptions of the whole test set. Adds rows to results/corruptions.csv.
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
from foveapool.records import BenchmarkRow, append_rows, collect_provenance
from foveapool.robustness.corruptions import CORRUPTIONS, corrupt

FACTS = Path(__file__).parents[1] / "tests" / "robustness" / "vectors" / "cifar10c.json"
SEVERITIES = range(1, 6)
STATISTICS = {
    "mae": "mean absolute change",
    "psnr_db": "PSNR dB",
    "mean": "mean",
    "std": "deviation",
    "hf_ratio": "high-frequency ratio",
}


def roughness(images: Tensor) -> float:
    """The energy of the 4-neighbor Laplacian inside the images."""
    values = images.double()
    around = values[:, :-2, 1:-1] + values[:, 2:, 1:-1]
    around += values[:, 1:-1, :-2] + values[:, 1:-1, 2:]
    return float(((around - 4 * values[:, 1:-1, 1:-1]) ** 2).sum())


def measured(corrupted: Tensor, images: Tensor) -> dict[str, float]:
    """The statistics of the facts for corrupted and clean images."""
    values = corrupted.double()
    change = values - images
    return {
        "mae": float(change.abs().mean()),
        "psnr_db": float(10 * torch.log10(255**2 / (change**2).mean())),
        "mean": float(values.mean()),
        "std": float(values.std(correction=0)),
        "hf_ratio": roughness(corrupted) / roughness(images),
    }


def compared(images: Tensor, facts: dict, options: argparse.Namespace) -> list[BenchmarkRow]:
    """Rows of the statistics, and a line a corruption with the worst difference printed."""
    rows = []
    for name, corruption in CORRUPTIONS.items():
        seeds = options.seeds if corruption.random else 1
        worst, equal = 0.0, []
        for severity in SEVERITIES:
            theirs = facts[name]["severity"][str(severity)]
            found = []
            for seed in range(seeds):
                corrupted = corrupt(images, name, severity, seed, frost_folder=options.frost_folder)
                found.append(measured(corrupted, images))
            for statistic, words in STATISTICS.items():
                values = [each[statistic] for each in found]
                rows.append(_row(name, f"severity {severity}, {words}", values, images, options))
                off = abs(statistics.mean(values) / theirs[statistic] - 1)
                worst = max(worst, 100 * off)
            if not corruption.random:
                digest = hashlib.sha256(corrupted.cpu().numpy().tobytes()).hexdigest()
                equal.append(float(digest == theirs["sha256_seed0"]))
                metric = f"severity {severity}, bytes are the authors' (1) or not (0)"
                rows.append(_row(name, metric, equal[-1:], images, options))
        allowed = 3 * facts[name].get("seed_spread_percent", 0)
        print(
            f"{name:<18} worst difference {worst:7.4f} %"
            + (f", allowed {allowed:.1f} %" if corruption.random else "")
            + (f", bytes equal at {int(sum(equal))} of 5 severities" if equal else ""),
            flush=True,
        )
    return rows


def timed(images: Tensor, options: argparse.Namespace) -> list[BenchmarkRow]:
    """Rows of seconds for 1,000 images, over the severities, and for the whole set if asked for."""

    def seconds(part: Tensor, name: str, severity: int) -> float:
        _wait(part)
        start = time.perf_counter()
        corrupt(part, name, severity, frost_folder=options.frost_folder)
        _wait(part)
        return time.perf_counter() - start

    rows = []
    for name in CORRUPTIONS:
        seconds(images[:1000], name, 1)
        taken = [seconds(images[:1000], name, severity) for severity in SEVERITIES]
        rows.append(_row(name, "seconds for 1,000 images", taken, images[:1000], options))
        print(f"{name:<18} {statistics.mean(taken):.3f} s for 1,000 images", flush=True)
    if options.whole:
        standard = [name for name, corruption in CORRUPTIONS.items() if corruption.standard]
        taken = [sum(seconds(images, name, s) for name in standard for s in SEVERITIES)]
        metric = f"seconds for {len(images)} images, 15 corruptions, 5 severities"
        rows.append(_row("the 15 standard ones", metric, taken, images, options))
        print(f"{metric}: {taken[0]:.1f}", flush=True)
    return rows


def _wait(images: Tensor) -> None:
    if images.is_cuda:
        torch.cuda.synchronize()


def _row(
    name: str, metric: str, values: list[float], images: Tensor, options: argparse.Namespace
) -> BenchmarkRow:
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return BenchmarkRow(
        benchmark="corruptions",
        case=name,
        metric=metric,
        mean=statistics.mean(values),
        std=spread,
        n=len(values),
        data=f"CIFAR-10 test, first {len(images)}",
        seeds="" if metric.startswith("seconds") else f"0-{len(values) - 1}",
        **options.provenance,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-root", type=Path, default=None, help="the folder of CIFAR-10")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--frost-folder", type=Path, default=None, help="pictures of ice")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--whole", action="store_true", help="time the whole test set too")
    parser.add_argument("--out", default="results/corruptions.csv")
    options = parser.parse_args()
    options.provenance = collect_provenance()
    facts = json.loads(FACTS.read_text("utf-8"))
    data = load_data("cifar10", options.data_root)
    images = data.test.images.permute(0, 2, 3, 1).contiguous().to(options.device)
    digest = hashlib.sha256(images[:500].cpu().numpy().tobytes()).hexdigest()
    if digest != facts["clean_check"]["sha256"]:
        raise SystemExit("the first 500 test images are not those that the facts were measured on")
    rows = compared(images[:500], facts["corruptions"], options)
    append_rows(options.out, rows + timed(images, options))


if __name__ == "__main__":
    main()
