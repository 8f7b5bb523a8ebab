"""`foveapool figures`: one command a figure, from run folders and result files to PNG, PDF, SVG."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foveapool.cli.options import DataRoot, Device, user_errors
from foveapool.data.registry import OFFICIAL, REDUCED
from foveapool.pooling.operator import PoolingOperator
from foveapool.pooling.solve import ALPHAS
from foveapool.records import CE, ERROR, FLIP_RATE, VALIDATION
from foveapool.report import figures
from foveapool.report.operator_files import find_fit_operator, has_network, read_adapter_layer
from foveapool.report.robustness_figures import read_ratios
from foveapool.report.sources import read_all_rows, read_curves, read_ratio_rows, read_sweeps
from foveapool.report.style import COLUMN
from foveapool.robustness.result import (
    CORRUPTION_GROUPS,
    PERTURBATION_GROUPS,
    get_paper_figures,
    load_paper,
)
from foveapool.study.loading import find_operator_file, pool_both_ways

if TYPE_CHECKING:
    from matplotlib.figure import Figure

app = typer.Typer(help="Figures of operators, studies and trainings.", no_args_is_help=True)

Out = Annotated[Path, typer.Option(help="The file; its ending says what it is.")]
Formats = Annotated[
    str, typer.Option(help="Write these instead, each with its own ending, such as png,pdf,svg.")
]
Width = Annotated[float, typer.Option(help="Inches; one column of a paper.", min=1.0)]
Layer = Annotated[
    str | None,
    typer.Option(
        help="Where there are several: the number in a run, the name in a folder that "
        "ClosedFormPooling.save or foveapool.save wrote."
    ),
]
Run = Annotated[Path, typer.Argument(help="An operator's file, or a folder with it.")]
Pooling = Annotated[
    Path, typer.Argument(help="An operator's file, a folder with it, or an adapter.")
]
Sweep = Annotated[
    list[Path],
    typer.Argument(help="Scatter files, folders with them, or runs with operators of many alphas."),
]
Alphas = Annotated[str, typer.Option(help="Which ones to solve for on a scatter.")]
Rows = Annotated[list[Path], typer.Argument(help="Folders of studies, or CSV files of rows.")]
_USUAL = ",".join(f"{alpha:g}" for alpha in ALPHAS)


def _written(figure: Figure, out: Path, formats: str) -> None:
    wanted = [form.strip().lower() for form in formats.split(",") if form.strip()]
    for path in figures.save_figure(figure, out, wanted):
        typer.echo(f"written to {path}")


def _note(text: str) -> None:
    typer.echo(f"note: {text}", err=True)


@app.command("operator")
def operator_command(
    source: Pooling,
    out: Out,
    positions: Annotated[
        str | None, typer.Option(help="Places along each axis, or such as 3x5, down by across.")
    ] = None,
    layer: Layer = None,
    formats: Formats = "",
    width: Width = COLUMN,
) -> None:
    """The weights at evenly spaced places of the output: red positive, blue negative."""
    with user_errors():
        adapted = read_adapter_layer(source, layer)
        operator = adapted or PoolingOperator.load(_find_operator(source, layer))
        shown = figures.operator_figure(operator, _positions(positions), width)
        _written(shown, out, formats)


def _find_operator(source: Path, layer: str | None) -> Path:
    """The operator's file that a source is or, as the only one or that of a layer, has in it."""
    found = find_fit_operator(source, layer)
    return found or find_operator_file(source, None if layer is None else int(layer))


def _positions(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    found = re.fullmatch(r"(\d+)(?:x(\d+))?", text)
    if found is None:
        raise ValueError(f"positions: got {text!r}, wanted a number, or two such as 3x5")
    return int(found[1]), int(found[2] or found[1])


@app.command("eigenvalues")
def eigenvalues_command(
    source: Run, out: Out, layer: Layer = None, formats: Formats = "", width: Width = COLUMN
) -> None:
    """Eigenvalues and the gaps behind them over the output map."""
    with user_errors():
        operator = PoolingOperator.load(_find_operator(source, layer))
        _written(figures.eigenvalue_figure(operator, width), out, formats)


@app.command("maps")
def maps_command(
    source: Run,
    out: Out,
    layer: Layer = None,
    channel: Annotated[int, typer.Option(help="Of the network's own pooling.")] = 0,
    learned_channel: Annotated[
        int | None, typer.Option(help="Of the learned one; the same if not given.")
    ] = None,
    nearest: Annotated[int, typer.Option(help="Samples of each class.", min=1)] = 5,
    images: Annotated[int, typer.Option(help="The first so many test images.", min=2)] = 1000,
    placement: Annotated[
        str | None, typer.Option(help="In a ResNet of `foveapool train`: as given to `fit`.")
    ] = None,
    data_root: DataRoot = None,
    device: Device = None,
    formats: Formats = "",
    width: Width = COLUMN,
) -> None:
    """A channel's class means and the samples nearest to them, both poolings side by side.

    SOURCE is a training of a study with a closed form, or a folder of `foveapool train` in which
    `foveapool fit` left an operator.
    """
    with user_errors():
        path = _find_operator(source, layer)
        if not has_network(path):
            raise ValueError(
                f"{path}: got an operator without its network, wanted one in a training of a study "
                "or in a folder of `foveapool train`; maps that you have are drawn by "
                "feature_map_figure of foveapool.report.figures"
            )
        maps = pool_both_ways(path, images, placement, data_root, device)
        other = channel if learned_channel is None else learned_channel
        shown = figures.feature_map_figure(
            maps.default,
            maps.learned,
            maps.labels,
            maps.classes,
            channels=(channel, other),
            count=nearest,
            width=width,
        )
        _written(shown, out, formats)


@app.command("radius")
def radius_command(
    sources: Sweep, out: Out, alphas: Alphas = _USUAL, formats: Formats = "", width: Width = COLUMN
) -> None:
    """How far the rows of an operator reach, against alpha, at each layer."""
    with user_errors():
        _written(figures.radius_figure(read_sweeps(sources, alphas, _note), width), out, formats)


@app.command("separability")
def separability_command(
    sources: Sweep, out: Out, alphas: Alphas = _USUAL, formats: Formats = "", width: Width = COLUMN
) -> None:
    """How well pooled values separate the classes, against average pooling, at each layer."""
    with user_errors():
        _written(
            figures.separability_figure(read_sweeps(sources, alphas, _note), width), out, formats
        )


@app.command("alpha")
def alpha_command(
    sources: Rows,
    out: Out,
    test: Annotated[
        bool, typer.Option("--test", help="Test errors, though there are validation errors.")
    ] = False,
    formats: Formats = "",
    width: Width = COLUMN,
) -> None:
    """Error against alpha, by layer and norm, with spread."""
    with user_errors():
        rows = read_all_rows(sources, _note)
        searched = not test and any(row.metric == VALIDATION for row in rows)
        metric = VALIDATION if searched else ERROR
        _written(figures.alpha_figure(rows, metric, width), out, formats)


@app.command("images")
def images_command(sources: Rows, out: Out, formats: Formats = "", width: Width = COLUMN) -> None:
    """Test error against the number of training images, a line a pooling."""
    totals = {name: sum(official.train_counts) for name, official in OFFICIAL.items()}
    totals["svhn-reduced"] = round(REDUCED * totals["svhn"])
    with user_errors():
        _written(figures.images_figure(read_all_rows(sources, _note), totals, width), out, formats)


@app.command("poolings")
def poolings_command(sources: Rows, out: Out, formats: Formats = "", width: Width = COLUMN) -> None:
    """Test error of every pooling, the best first, a marker a layer, against the baseline."""
    with user_errors():
        _written(figures.poolings_figure(read_all_rows(sources, _note), width), out, formats)


@app.command("curves")
def curves_command(
    sources: Annotated[
        list[Path], typer.Argument(help="Folders of studies, trainings or `foveapool train`.")
    ],
    out: Out,
    formats: Formats = "",
    width: Width = COLUMN,
) -> None:
    """Training loss and test error against the epoch; seeds of one setting make one line."""
    with user_errors():
        _written(figures.curves_figure(read_curves(sources, _note), width), out, formats)


@app.command("ce")
def ce_command(sources: Rows, out: Out, formats: Formats = "", width: Width = COLUMN) -> None:
    """CE of each corruption, geometric ones and others; on CIFAR-10 beside the paper's."""
    with user_errors():
        shown = _bars(sources, CE, CORRUPTION_GROUPS, load_paper().ce, width)
        _written(shown, out, formats)


@app.command("flips")
def flips_command(sources: Rows, out: Out, formats: Formats = "", width: Width = COLUMN) -> None:
    """Flip rate of each perturbation, geometric ones and others; on CIFAR-10 beside the paper's."""
    with user_errors():
        shown = _bars(sources, FLIP_RATE, PERTURBATION_GROUPS, load_paper().rate, width)
        _written(shown, out, formats)


def _bars(
    sources: list[Path],
    what: str,
    groups: Mapping[str, Sequence[str]],
    printed: Mapping[str, float],
    width: float,
) -> Figure:
    """The ratios of the rows, and what the paper prints of them where the data are its own."""
    rows = read_ratio_rows(sources, what, _note)
    beside = all(get_paper_figures(row.data) for row in rows)
    percent = {name: 100 * ratio for name, ratio in printed.items() if beside}
    return figures.ratio_figure(read_ratios(rows, what), groups, what, percent, width)
