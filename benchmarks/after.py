"""What does mode `after` do to a trained network: right after the swap, and fine-tuned?

The network of docs/tutorials/fine-tune-after.md, larger, on street digits, five seeds; beside it
the untouched network, trained for as many epochs more. Adds rows to results/after.csv.
"""

from __future__ import annotations

import argparse
import copy
import re
from pathlib import Path
from typing import Any

import torch

import foveapool as fp
from foveapool.records import BenchmarkRow, append_rows, collect_provenance, summarize_values

TUTORIAL = Path(__file__).parents[1] / "docs/tutorials/fine-tune-after.md"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=4000)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--more", type=int, default=5)
    parser.add_argument("--alphas", type=float, nargs="+", default=[25.0, 400.0, 10_000.0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", default="results/after.csv")
    options = parser.parse_args()
    # The tutorial's own functions and network: what is measured is what is shown.
    block = re.findall(r"```python\n(.*?)```", TUTORIAL.read_text("utf-8"), flags=re.S)[0]
    names: dict[str, Any] = {}
    exec(compile(block, TUTORIAL.name, "exec"), names)
    prepared, train, accuracy = names["prepared"], names["train"], names["accuracy"]
    images, labels = prepared(options.images, 1)
    test = prepared(2000, 0)
    loader = list(zip(images.split(250), labels.split(250), strict=True))
    found: dict[tuple[str, str], list[float]] = {}

    def note(stage: str, alpha: str, model: Any) -> None:
        found.setdefault((stage, alpha), []).append(100 * accuracy(model, *test))

    for seed in range(options.seeds):
        torch.manual_seed(seed)
        model = copy.deepcopy(names["model"])
        for module in model.modules():
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()
        train(model, images, labels, options.epochs, seed)
        note("before", "", model)
        for alpha in options.alphas:
            pooled = copy.deepcopy(model)
            fit = fp.ClosedFormPooling(alpha=alpha).fit(pooled, loader, layer="7", mode="after")
            fit.replace(pooled, trainable=True)
            note("right after the swap", f"{alpha:g}", pooled)
            train(pooled, images, labels, options.more, seed + 100)
            note("fine-tuned", f"{alpha:g}", pooled)
        train(model, images, labels, options.more, seed + 100)
        note("untouched, trained on as long", "", model)
        print(seed, {key: round(values[-1], 1) for key, values in found.items()}, flush=True)
    facts = collect_provenance()
    rows = [
        BenchmarkRow(
            benchmark="after",
            network="3 convolutions, 2 max poolings",
            data="street digits",
            case=stage,
            options="mode after",
            layer="7",
            alpha=alpha,
            metric="test accuracy %",
            **summarize_values(values),
            seeds=f"0-{options.seeds - 1}",
            epochs=f"{options.epochs} + {options.more}",
            batch="32",
            **facts,
        )
        for (stage, alpha), values in found.items()
    ]
    append_rows(options.out, rows)


if __name__ == "__main__":
    main()
