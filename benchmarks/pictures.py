"""The pictures of README and docs, drawn by the functions that `foveapool figures` uses."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import torch.nn.functional as F
from maps import street_maps
from matplotlib.figure import Figure
from tables.forms import first_errors
from tables.rows import RESULTS, name_machine
from tables.speed import read_solving

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


def draw_pictures(images: Path) -> None:
    """All of them, into a folder."""
    draw_badges(images)
    rows = [row for row in read_rows(RESULTS / "alphas.csv") if row.data == "svhn-reduced"]
    save_figure(alpha_figure(rows, width=WIDE), images / "alpha.png", dpi=130)
    growth_figure().savefig(images / "scaling.png", dpi=110)
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


def read_badges() -> dict[str, tuple[str, str]]:
    """README's badges by their files: what pyproject.toml says, and nothing that may change alone.

    Tests that reach fewer lines than it says fail; whether they pass is known where they run.
    """
    told = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))
    project, least = told["project"], told["tool"]["coverage"]["report"]["fail_under"]
    versions = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    (torch_from,) = (each for each in project["dependencies"] if each.startswith("torch>="))
    return {
        "badge-python.svg": ("Python", " | ".join(versions)),
        "badge-torch.svg": ("torch", torch_from.removeprefix("torch>=") + " or newer"),
        "badge-coverage.svg": ("coverage", f"{least} % or more"),
        "badge-license.svg": ("license", project["license"]),
    }


def draw_badges(images: Path) -> None:
    """Draws README's badges: a word on gray, what it is on blue."""
    for file, (name, value) in read_badges().items():
        left, right = (10 + round(6.1 * len(text)) for text in (name, value))
        lines = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" '
            f'role="img" aria-label="{name}: {value}">',
            f'<rect width="{left + right}" height="20" rx="3" fill="#0072b2"/>',
            f'<path d="M3 0H{left}V20H3a3 3 0 0 1-3-3V3a3 3 0 0 1 3-3Z" fill="#444"/>',
            '<g fill="#fff" font-family="Verdana, DejaVu Sans, sans-serif" font-size="11">',
            f'<text x="5" y="14" textLength="{left - 10}">{name}</text>',
            f'<text x="{left + 5}" y="14" textLength="{right - 10}">{value}</text>',
            "</g></svg>",
        )
        (images / file).write_text("\n".join(lines) + "\n", "utf-8")


def growth_figure() -> Figure:
    """Seconds to solve against the positions of the map, a line a machine."""
    rows = [row for row in read_solving() if "window" not in row.maps]
    figure = Figure(figsize=(4.6, 3.0), layout="constrained")
    axis = figure.subplots()
    for name, mark in zip(sorted({name_machine(r) for r in rows}, key=len), "os^", strict=False):
        sizes = [int(re.findall(r"N=(\d+)", r.maps)[0]) for r in rows if name_machine(r) == name]
        points = sorted(zip(sizes, [r.mean for r in rows if name_machine(r) == name], strict=True))
        axis.loglog(*zip(*points, strict=True), f"{mark}-", label=name, markersize=4)
    axis.set_xlabel("places of the input map, N (output N/4, two components)")
    axis.set_ylabel("seconds to solve, all places")
    axis.legend(frameon=False, fontsize=8)
    axis.grid(alpha=0.3, which="both")
    return figure


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
    for form in ("replace", "after-activation"):
        path = RESULTS / "operators" / f"solar-cells-{form}-blocks.5.depthwise_conv.safetensors"
        figure = operator_figure(fp.PoolingOperator.load(path), width=WIDE)
        save_figure(figure, images / f"operator-solar-cells-{form}.png", dpi=110)
