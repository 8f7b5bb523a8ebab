"""How far a pooling looks for each alpha: scatter is summed up once, and solved for many alphas.

python examples/which_alpha.py --out runs/which_alpha    # a table, and a picture for each alpha
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

import foveapool as fp
from foveapool.data.street_digits import make_street_digits
from foveapool.report.figures import operator_figure, radius_figure, save_figure


def main(arguments: Sequence[str] | None = None) -> list[Path]:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--images", type=int, default=2000)
    options.add_argument("--alphas", type=float, nargs="+", default=[5, 25, 100, 400])
    options.add_argument("--out", type=Path, default=Path("runs/which_alpha"))
    chosen = options.parse_args(arguments)

    scenes = make_street_digits(chosen.images, seed=1)
    torch.manual_seed(0)
    # Yours is trained; one convolution of chance shows enough here.
    network = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1))
    images = scenes.images.float() / 64
    batches = list(zip(images.split(250), scenes.labels.split(250), strict=True))

    fit = fp.ClosedFormPooling().sum_scatter(network, batches, layer="2", progress=True)
    print(fp.pooling_report(fit.scatter_, (8, 8), chosen.alphas))
    operators = list(fp.sweep_pooling(fit.scatter_, (8, 8), chosen.alphas))

    written = save_figure(radius_figure({"convolution 2": operators}), chosen.out / "radius.png")
    for operator in operators:
        alpha = f"{operator.settings.alpha:g}"
        written += save_figure(operator_figure(operator), chosen.out / f"alpha-{alpha}.png")
    print(*written, sep="\n")
    return written


if __name__ == "__main__":
    main()
