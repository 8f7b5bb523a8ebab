"""What figures are drawn from: the operators, rows and curves of folders and files.

Where a source has none of what a figure needs, the error says which source would.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import typer

from foveapool.pooling.operator import PoolingOperator
from foveapool.pooling.scatter import Scatter
from foveapool.pooling.solve import sweep_pooling
from foveapool.records import Row, read_rows
from foveapool.report.accounts import NO_OPERATOR, Account, Curve
from foveapool.report.collect import UNNAMED, account_of
from foveapool.runs import STUDY


def sweeps_in(sources: Sequence[Path], text: str) -> dict[str, list[PoolingOperator]]:
    """Operators over alpha by layer: solved for on scatter files, or as runs have them."""
    try:
        alphas = [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"alphas: got {text!r}, wanted numbers such as 5,25,100") from None
    found: dict[str, list[PoolingOperator]] = {}
    for source in sources:
        scatters = _scatters(source)
        for path, scatter in scatters.items():
            halves = [(size + 1) // 2 for size in scatter.in_shape]
            named = re.fullmatch(r"scatter-(.+)-[0-9a-f]{8}", path.stem)
            swept = sweep_pooling(scatter, halves, alphas, window=scatter.window)
            found[named[1] if named else path.stem] = list(swept)
        for family in () if scatters else _account(source).families:
            if len(family.operators) > 1:
                found[family.label] = list(family.operators)
    if not found:
        raise ValueError(
            f"{_listed(sources)}: no operators of several alphas, wanted such ones or "
            "a scatter file, which a study leaves in the folder of its baseline"
        )
    return found


def _scatters(source: Path) -> dict[Path, Scatter]:
    if source.is_dir():
        return {path: Scatter.load(path) for path in sorted(source.glob("scatter-*.safetensors"))}
    try:
        return {source: Scatter.load(source)}
    except ValueError:
        return {}  # an operator's file, or what is neither, as reading it as one will say


def curves_in(sources: Sequence[Path]) -> list[Curve]:
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


def rows_in(sources: Sequence[Path]) -> list[Row]:
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


def ratio_rows(sources: Sequence[Path], what: str) -> list[Row]:
    """The rows that hold CE or flip rates, as `what` says."""
    found = [row for row in rows_in(sources) if row.metric.startswith(f"{what}, ")]
    if not found:
        raise ValueError(
            f"{_listed(sources)}: got no row of {what!r}, wanted some, such as `foveapool "
            "robustness evaluate RUN --baseline RUN` adds to results/robustness.csv"
        )
    return found


def _listed(sources: Sequence[Path]) -> str:
    return ", ".join(map(str, sources))


def _account(source: Path) -> Account:
    """What is known of a run; what is missing is said on the error stream.

    Not that an operator is: figures of operators say so themselves, others need none.
    """
    account = account_of(source)
    for text in account.missing:
        if not text.startswith(NO_OPERATOR):
            typer.echo(f"note: {text}", err=True)
    return account
