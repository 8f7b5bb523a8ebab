"""The pictures of README and docs, drawn by the functions that `foveapool figures` uses."""

from __future__ import annotations

from pathlib import Path

import torch.nn.functional as F
from forms_tables import first_errors
from maps import street_maps
from matplotlib.figure import Figure
from told import RESULTS

import foveapool as fp
from foveapool.pooling.solve import sweep_pooling
from foveapool.records import VALIDATION, read_rows
from foveapool.report.figures import (
    alpha_figure,
    eigenvalue_figure,
    feature_map_figure,
    images_figure,
    operator_figure,
    poolings_figure,
    radius_figure,
    save_figure,
    separability_figure,
)
from foveapool.report.style import new_figure, tidy_axes, with_style

ALPHAS = (1.0, 5.0, 25.0, 100.0, 400.0, 1600.0)
WIDE = 6.6


def draw(images: Path) -> None:
    """All of them, into a folder."""
    rows = [row for row in read_rows(RESULTS / "alphas.csv") if row.data == "svhn-reduced"]
    save_figure(alpha_figure(rows, width=WIDE), images / "alpha.png", dpi=130)
    _draw_results(images)
    maps, labels = street_maps(3000, channels=32)
    scatter = fp.compute_scatter(maps, labels, num_classes=10)
    operator = fp.solve_pooling(scatter, (16, 16), alpha=25.0)
    save_figure(operator_figure(operator, width=WIDE), images / "operator.png", dpi=150)
    save_figure(eigenvalue_figure(operator, width=WIDE), images / "eigenvalues.png", dpi=110)
    small, _ = street_maps(3000, size=16, halvings=1, channels=16)
    halved = fp.compute_scatter(small, labels, num_classes=10, dead_channels="ignore")
    sweeps = {
        "32 x 32": list(sweep_pooling(scatter, (16, 16), ALPHAS)),
        "16 x 16": list(sweep_pooling(halved, (8, 8), ALPHAS)),
    }
    save_figure(radius_figure(sweeps), images / "radius.png", dpi=150)
    save_figure(separability_figure(sweeps, width=WIDE), images / "separability.png", dpi=110)
    learned = operator.module()(maps)
    names = [str(digit) for digit in range(10)]
    figure = feature_map_figure(F.avg_pool2d(maps, 2), learned, labels, names, width=WIDE)
    save_figure(figure, images / "feature-maps.png", dpi=110)


@with_style
def gain_figure(width: float = WIDE) -> Figure:
    """A bar for each of README's lines and network, with the std over the seeds."""
    names, *networks = zip(*first_errors(), strict=True)
    figure = new_figure(width, 0.6 + 0.26 * len(names))
    ours = [name.startswith("closed form") for name in names]
    panels = figure.subplots(1, 2, sharey=True)
    for axes, rows, title in zip(panels, networks, ("CNN", "ResNet-18"), strict=True):
        tidy_axes(axes)
        axes.barh(
            range(len(rows)),
            [row.mean for row in rows],
            xerr=[row.std for row in rows],
            color=["#0072b2" if own else "0.65" for own in ours],
            error_kw={"elinewidth": 0.8},
        )
        largest = max(row.mean for row in rows)
        for at, row in enumerate(rows):
            beside = row.mean + row.std + 0.02 * largest
            axes.text(beside, at, f"{row.mean:.1f}", va="center")
        axes.set_xlim(0, 1.25 * largest)
        axes.grid(False, axis="y")
        axes.set_title(title)
    panels[0].set_yticks(range(len(names)), names)
    panels[0].invert_yaxis()
    figure.supxlabel("test error %, 3,663 training images of SVHN, five seeds", fontsize="medium")
    return figure


def _draw_results(images: Path) -> None:
    """Those of docs/results.md: searches, all poolings, shares of the data, what was learned."""
    found = [row for path in sorted(RESULTS.glob("table1-*.csv")) for row in read_rows(path)]
    save_figure(alpha_figure(found, VALIDATION, width=WIDE), images / "search.png", dpi=110)
    save_figure(gain_figure(), images / "gain.png", dpi=150)
    shares = images_figure(read_rows(RESULTS / "shares.csv"), {"svhn": 73_257}, width=WIDE)
    save_figure(shares, images / "shares.png", dpi=110)
    poolings = poolings_figure(read_rows(RESULTS / "replaced.csv"), width=WIDE)
    save_figure(poolings, images / "poolings.png", dpi=110)
    for network in ("cnn", "resnet18"):
        (path,) = (RESULTS / "operators").glob(f"svhn-reduced-{network}-*.safetensors")
        figure = operator_figure(fp.PoolingOperator.load(path), width=WIDE)
        save_figure(figure, images / f"operator-{network}.png", dpi=110)
