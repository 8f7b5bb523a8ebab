"""What figures are drawn from: the operators, rows and curves of folders and files.

Where a source has none of what a figure needs, the error says which source would.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import typer

from foveapool.pooling.grid import Center
from foveapool.pooling.module import LinearPool2d
from foveapool.pooling.operator import PoolingOperator
from foveapool.pooling.scatter import Scatter
from foveapool.pooling.solve import sweep_pooling
from foveapool.records import Row, read_rows
from foveapool.report.operator_files import (
    SavedFit,
    find_adapter_folder,
    read_adapter_pools,
    read_saved_fit,
)
from foveapool.report.run_summary import NO_OPERATOR, Curve, RunSummary
from foveapool.report.sources import UNNAMED, summarize_run
from foveapool.runs import STUDY, TRAINING
from foveapool.study.loading import RUN_NOTE, find_operator_file

Found = TypeVar("Found", bound=Hashable)


def read_weights(source: Path, layer: str | None = None) -> PoolingOperator | LinearPool2d:
    """The operator that `source` is or has in it, or the layer of an adapter."""
    folder = find_adapter_folder(source)
    if folder is None:
        return PoolingOperator.load(find_operator(source, layer))
    if read_saved_fit(source) is not None:
        raise ValueError(
            f"{source}: got a fit and an adapter in one folder, wanted one of them; "
            "name the adapter's file or an operator's"
        )
    return _of_layer(folder, read_adapter_pools(folder), layer)


def find_operator(source: Path, layer: str | None = None) -> Path:
    """The operator's file that `source` is or, as the only one or that of a layer, has in it.

    `layer` is a name where ClosedFormPooling.save wrote the folder, and a number elsewhere.
    """
    fit = read_saved_fit(source)
    if fit is not None:
        return _of_layer(source, fit.operators, layer)
    if find_adapter_folder(source) is not None:
        raise ValueError(
            f"{source}: got an adapter, which holds weights and neither eigenvalues nor maps, "
            "wanted an operator; `foveapool figures operator` draws the weights"
        )
    if source.is_file() and layer is not None:
        raise ValueError(
            f"layer: got {layer!r} and a file, {source}, which is of one layer; wanted one or the "
            "other: leave it out, or name the folder"
        )
    if layer is not None and not layer.isdecimal():
        raise ValueError(
            f"layer: got {layer!r} for {source}, wanted a number, as `foveapool fit` and `study` "
            "count their layers; names are those of a folder that ClosedFormPooling.save wrote"
        )
    return find_operator_file(source, None if layer is None else int(layer))


def has_network(operator: Path) -> bool:
    """Whether the folder of an operator's file tells of the network that it was fitted on."""
    fit = read_saved_fit(operator.parent)
    if fit is not None and operator in fit.operators.values():
        return False
    return any((operator.parent / note).is_file() for note in (TRAINING, RUN_NOTE))


def _of_layer(source: Path, found: Mapping[str, Found], layer: str | None) -> Found:
    """What is there for a layer; without a name, the only one, which layers may share."""
    names = ", ".join(found)
    if layer is None:
        if len(set(found.values())) > 1:
            raise ValueError(f"{source}: got the layers {names}, wanted one; name it by --layer")
        layer = next(iter(found))
    if layer not in found:
        raise ValueError(f"layer: got {layer!r} for {source}, wanted one of {names}")
    return found[layer]


def read_sweeps(sources: Sequence[Path], text: str) -> dict[str, list[PoolingOperator]]:
    """Operators over alpha by layer: solved for on scatter files, or as runs have them."""
    try:
        alphas = [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"alphas: got {text!r}, wanted numbers such as 5,25,100") from None
    found: list[tuple[Path, str, list[PoolingOperator]]] = []
    for source in dict.fromkeys(sources):
        fit = read_saved_fit(source)
        scatters = _scatters(source, fit)
        center: Center = "paper" if fit is None else fit.center
        for name, scatter in scatters.items():
            halves = [(size + 1) // 2 for size in scatter.in_shape]
            swept = sweep_pooling(scatter, halves, alphas, center=center, window=scatter.window)
            found.append((source, name, list(swept)))
        for family in () if scatters else _account(source).families:
            if len(family.operators) > 1:
                found.append((source, family.label, list(family.operators)))
    if not found:
        raise ValueError(
            f"{_listed(sources)}: no operators of several alphas, wanted such ones or "
            "a scatter file, which a study leaves in the folder of its baseline"
        )
    names = [name for _, name, _ in found]
    folders = [source.name for source in dict.fromkeys(source for source, _, _ in found)]

    def named(source: Path, name: str) -> str:
        if names.count(name) == 1:
            return name
        return f"{name}, {source.name if folders.count(source.name) == 1 else source}"

    return {named(source, name): operators for source, name, operators in found}


def _scatters(source: Path, fit: SavedFit | None) -> dict[str, Scatter]:
    """Scatter by what it is called: its layers, or else its file."""
    if fit is not None:
        files = dict.fromkeys(fit.scatters.values())
        return {", ".join(fit.layers(path)): Scatter.load(path) for path in files}
    if source.is_dir():
        found = sorted(source.glob("scatter-*.safetensors"))
        names = [_of_study(path) for path in found]
        # Scatter of one layer may have been summed up in several ways, which the file's name tells.
        return {
            name if names.count(name) == 1 else path.stem: Scatter.load(path)
            for path, name in zip(found, names, strict=True)
        }
    try:
        return {_of_study(source): Scatter.load(source)}
    except ValueError:
        return {}  # an operator's file, or what is neither, as reading it as one will say


def _of_study(scatter: Path) -> str:
    """The layer in the name of a study's scatter file; of another, the name."""
    named = re.fullmatch(r"scatter-(.+)-[0-9a-f]{8}", scatter.stem)
    return named[1] if named else scatter.stem


def read_curves(sources: Sequence[Path]) -> list[Curve]:
    """The curves of runs; one that is no setting of a study is named by its folder.

    Studies share trainings, and those are drawn once. Where two studies call different trainings
    the same, each line says whose it is.
    """
    found = {source: _account(source).curves for source in sources}
    if not any(found.values()):
        raise ValueError(
            f"{_listed(sources)}: got no finished epoch, wanted a study, a training of one or a "
            "folder of `foveapool train` that has one; wait for it, or name another"
        )
    studies = [source for source in found if (source / STUDY).is_file()]
    meant: dict[str, set[tuple[Curve, ...]]] = {}
    for study in studies:
        for label in {curve.label for curve in found[study]}:
            own = tuple(curve for curve in found[study] if curve.label == label)
            meant.setdefault(label, set()).add(own)

    def named(source: Path, curve: Curve) -> Curve:
        if curve.label == UNNAMED:
            return replace(curve, label=str(source))
        if source in studies and len(meant[curve.label]) > 1:
            alone = [study.name for study in studies].count(source.name) == 1
            return replace(curve, label=f"{curve.label}, {source.name if alone else source}")
        return curve

    every = [named(source, curve) for source, curves in found.items() for curve in curves]
    return list(dict.fromkeys(every))


def read_all_rows(sources: Sequence[Path]) -> list[Row]:
    """The rows of CSV files and studies; of one that is not finished, those so far."""
    found: list[Row] = []
    for source in sources:
        if source.is_file():
            found += read_rows(source)
        else:
            account = _account(source)
            found += [*account.selection, *account.rows]
    if not found:
        raise ValueError(
            f"{_listed(sources)}: got no row of results, wanted the folder of a study with a "
            "finished training, or a CSV file of rows; `foveapool train` and `fit` write none"
        )
    return found


def read_ratio_rows(sources: Sequence[Path], what: str) -> list[Row]:
    """The rows that hold CE or flip rates, as `what` says."""
    found = [row for row in read_all_rows(sources) if row.metric.startswith(f"{what}, ")]
    if not found:
        raise ValueError(
            f"{_listed(sources)}: got no row of {what!r}, wanted some, such as `foveapool "
            "robustness evaluate RUN --baseline RUN` adds to results/robustness.csv"
        )
    return found


def _listed(sources: Sequence[Path]) -> str:
    return ", ".join(map(str, sources))


def _account(source: Path) -> RunSummary:
    """What is known of a run; what is missing is said on the error stream.

    Not that an operator is: figures of operators say so themselves, others need none.
    """
    account = summarize_run(source)
    for text in account.missing:
        if not text.startswith(NO_OPERATOR):
            typer.echo(f"note: {text}", err=True)
    return account
