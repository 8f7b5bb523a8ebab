"""Fits the operators that `foveapool report --example` shows, and keeps maps to lay under them.

A narrow CNN on street digits, fitted at two layers with several alphas. Run by hand after a change
of the method or of the scenes; takes a few minutes on two cores.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path

from foveapool.data.registry import load_data
from foveapool.networks import build_network
from foveapool.pooling.operator import PoolingOperator
from foveapool.pooling.solve import solve_pooling
from foveapool.report.examples import choose_examples, get_examples_path
from foveapool.study.fits import sum_scatter
from foveapool.study.loading import read_sample_maps
from foveapool.study.setting import CLOSED_FORM, Pool
from foveapool.training.loop import train
from foveapool.training.recipe import Recipe

FOLDER = Path("src/foveapool/report/assets/example")
IMAGES, WIDTH, SEED = 6000, 16, 0
RECIPE = Recipe("adam", 1e-3, 20, batch_size=64)
ALPHAS = {2: (5, 50, 400), 3: (1, 5, 25, 100, 400)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=FOLDER)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    data = load_data("street-digits", train_size=IMAGES)
    shape = data.train.images.shape
    network = build_network(
        "cnn",
        seed=SEED,
        classes=len(data.train.classes),
        width=WIDTH,
        in_channels=shape[1],
        in_shape=tuple(shape[2:]),
    )
    result = train(network, data, RECIPE, SEED, device="cpu", evaluate_every=1)
    lines = [json.dumps(dataclasses.asdict(record)) for record in result.history]
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    note = {
        "title": "A pooling learned on street digits",
        "data": f"street digits, {IMAGES:,} training images, seed 0",
        "network": f"CNN, width {WIDTH}, strided convolutions, seed {SEED}",
        "recipe": f"adam, rate {RECIPE.lr:g}, {RECIPE.epochs} epochs, batches of 64",
        "error": f"{result.test_error:.2f} % of {len(data.test):,} test images",
        "time_training": f"{result.seconds:.0f} s",
    }
    (folder / "run.json").write_text(json.dumps(note, indent=1) + "\n", "utf-8")
    for layer, alphas in ALPHAS.items():
        site = network.site(layer)
        scatter = sum_scatter(network, data, site, Pool(CLOSED_FORM, layer), "cpu")
        paths = [folder / f"operator-{layer}-alpha{alpha}.safetensors" for alpha in alphas]
        for path, alpha in zip(paths, alphas, strict=True):
            in_half_precision(solve_pooling(scatter, site.out_shape, alpha=alpha)).save(path)
        some = read_sample_maps(network, data, site.module, "cpu")
        choose_examples(*some, count=6).save(get_examples_path(paths[0]))


def in_half_precision(operator: PoolingOperator) -> PoolingOperator:
    """The operator with numbers as short as the page shows them: it travels with the package."""
    floats = ("eigenvalues", "residuals", "gaps", "separability", "average_separability", "mean")
    short = {name: getattr(operator, name).float() for name in floats}
    return dataclasses.replace(operator, weight=operator.weight.half(), **short)


if __name__ == "__main__":
    main()
