"""What does each mode do to a trained network: right after the swap, and fine-tuned?

The narrow CNN of the preset `demo` on street digits, five seeds: modes `replace` and `mix` at its
third pooling layer, mode `after` there and at all three, with several windows and alphas. Beside
them the untouched network, trained for as many epochs more. Adds rows to results/swap.csv.
"""

from __future__ import annotations

import argparse
import copy
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import foveapool as fp
from foveapool.data.batches import iterate_batches, load_resident
from foveapool.data.registry import load_data
from foveapool.networks.cnn import CNN
from foveapool.records import BenchmarkRow, append_rows, collect_provenance, summarize_values
from foveapool.training.loop import train
from foveapool.training.recipe import Recipe
from foveapool.training.state import measure_error

LAST, ALL = (3,), (1, 2, 3)


@dataclass(frozen=True)
class Arm:
    """One way to put a pooling into the network; alpha in units of trace(B)/N."""

    form: str
    components: int | None = None
    mixing: str = "least-squares"
    alpha: float = 0.5
    trainable: bool = False
    window: int | str | None = "auto"
    layers: tuple[int, ...] = LAST


ARMS = (
    Arm("replace"),
    Arm("after"),
    Arm("after", window=None),
    Arm("after", layers=ALL),
    Arm("after", layers=ALL, alpha=0.1),
    Arm("after", layers=ALL, alpha=3.0),
    Arm("after", layers=ALL, alpha=10.0),
    Arm("after", layers=ALL, window=1),
    Arm("after", layers=ALL, window=None),
    Arm("after", layers=ALL, window=None, alpha=3.0),
    Arm("after", layers=ALL, trainable=True),
    Arm("mix", 1),
    Arm("mix", 4),
    Arm("mix", 9),
    Arm("mix", 9, trainable=True),
    Arm("mix", 9, mixing="random"),
)


def swapped(model: nn.Module, arm: Arm, loader: list[tuple[Tensor, Tensor]]) -> float | None:
    """Puts the arm's pooling into the model; the share that its mixing explains, if it has one."""
    settings: dict[str, Any] = {"components": arm.components, "window": arm.window}
    settings |= {"alpha": arm.alpha, "alpha_unit": "trace"}
    more = {"mixing": arm.mixing} if arm.form == "mix" else {}
    layers = [f"down{layer}" for layer in arm.layers]
    fit = fp.ClosedFormPooling(**settings).fit(model, loader, layers, arm.form, **more)
    fit.replace(model, trainable=arm.trainable)
    return 100 * fit.mixing_.explained if fit.mixings_ else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=3000)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--more", type=int, default=5)
    parser.add_argument("--rate", type=float, default=1e-4, help="of the fine-tuning")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", default="results/swap.csv")
    options = parser.parse_args()
    # At a few places fewer than nine components separate the classes; the tables say as much.
    warnings.filterwarnings("ignore", message="components: got")
    data = load_data("street-digits", train_size=options.images, test_size=2000)
    images, test = load_resident(data, "cpu")
    loader = list(iterate_batches(images))
    long = Recipe("adam", 1e-3, options.epochs, batch_size=64)
    short = Recipe("adam", options.rate, options.more, batch_size=64)
    found: dict[tuple[str, str, Arm | None], list[float]] = {}

    def note(metric: str, stage: str, arm: Arm | None, value: float) -> None:
        found.setdefault((metric, stage, arm), []).append(value)

    for seed in range(options.seeds):
        torch.manual_seed(seed)
        model = CNN(width=options.width)
        note("test error %", "before", None, train(model, data, long, seed).test_error)
        for arm in ARMS:
            pooled = copy.deepcopy(model)
            torch.manual_seed(seed)  # of a random mixing
            explained = swapped(pooled, arm, loader)
            if explained is not None:
                note("explained variance %", "right after the swap", arm, explained)
            note("test error %", "right after the swap", arm, measure_error(pooled, test))
            note("test error %", "fine-tuned", arm, train(pooled, data, short, seed).test_error)
        untouched = train(model, data, short, seed).test_error
        note("test error %", "untouched, trained on as long", None, untouched)
        print(f"seed {seed}", flush=True)
        for (metric, stage, own), values in found.items():
            print(f"  {metric} {stage} {own or ''}: {values[-1]:.1f}", flush=True)
    facts = collect_provenance("cpu")
    rows = [
        BenchmarkRow(
            benchmark="swap",
            network=f"CNN, width {options.width}",
            data=f"street digits, {options.images} images",
            case=stage,
            metric=metric,
            **described(arm),
            **summarize_values(values),
            seeds=f"0-{options.seeds - 1}",
            epochs=f"{options.epochs} + {options.more}",
            batch="64",
            **facts,
        )
        for (metric, stage, arm), values in found.items()
    ]
    append_rows(options.out, rows)


def described(arm: Arm | None) -> dict[str, str]:
    """An arm as fields of a row: its form, and what is unusual about it."""
    if arm is None:
        return {}
    options = arm.form + (", random mixing" if arm.mixing == "random" else "")
    if arm.window != "auto":
        options += ", whole map" if arm.window is None else f", window {arm.window}"
    options += ", P trains" if arm.trainable else ""
    usual = {"replace": 2, "after": 1}.get(arm.form)
    return {
        "layer": ", ".join(map(str, arm.layers)),
        "options": options,
        "alpha": f"{arm.alpha:g} traces",
        "components": str(arm.components or usual),
    }


if __name__ == "__main__":
    main()
