"""Rows: one measured result each, and the one writer and reader of results/*.csv.

A row says what was measured, how often, and by which command, commit and machine, so that a
figure in a table can be traced. `Row` is of trainings, `BenchmarkRow` of everything else; a file
holds rows of one kind. A file is never half written: rows are added to a copy, which takes its
place.
"""

from __future__ import annotations

import csv
import datetime
import io
import math
import os
import platform
import shlex
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

from foveapool._io import check_file_place, hold_lock, replace_file
from foveapool.tabular import guard_cell, unguard_cell


@dataclass(frozen=True)
class Row:
    """One figure of trainings: the mean and deviation of `n` measurements of `metric`.

    `values` are the measurements themselves, by rising seed, so that any two rows of one study can
    be compared in pairs.
    """

    study: str
    metric: str
    mean: float
    std: float
    n: int
    network: str = ""
    data: str = ""
    pooling: str = ""
    layer: str = ""
    placement: str = ""
    form: str = ""
    alpha: str = ""
    norm: str = ""
    components: str = ""
    trainable: str = ""
    seeds: str = ""
    epochs: str = ""
    batch: str = ""
    command: str = ""
    commit: str = ""
    hardware: str = ""
    torch: str = ""
    date: str = ""
    seconds: str = ""
    values: str = ""


@dataclass(frozen=True)
class BenchmarkRow:
    """One figure of a benchmark: the speed of a solver, say, or what a swap does to a network.

    `case` is which of the things compared it is of, `options` how that ran ("4 at once, MPS"), and
    `maps` the sizes of the maps ("64 x 32 x 32", or "N=1024 M=256" where positions count).
    """

    benchmark: str
    metric: str
    mean: float
    std: float
    n: int
    case: str = ""
    options: str = ""
    network: str = ""
    data: str = ""
    layer: str = ""
    maps: str = ""
    alpha: str = ""
    components: str = ""
    seeds: str = ""
    epochs: str = ""
    batch: str = ""
    command: str = ""
    commit: str = ""
    hardware: str = ""
    torch: str = ""
    date: str = ""
    seconds: str = ""
    values: str = ""


AnyRow = TypeVar("AnyRow", Row, BenchmarkRow)

# The metrics of a study, as its writer and its readers call them.
ERROR, VALIDATION = "test error %", "validation error %"
LESS, P_VALUE = "less baseline, paired, points", "p against baseline, paired t-test"

CE, FLIP_RATE = "CE %", "flip rate %"

COLUMNS = tuple(field.name for field in fields(Row))
_OLD_COLUMNS = tuple("deviation" if name == "std" else name for name in COLUMNS)

# Those of some rows that a file which has others lacks.
Lacking = Callable[[list[AnyRow], list[AnyRow]], list[AnyRow]]
# Takes what is wrong with a line that is left out.
Say = Callable[[str], None]


def summarize_values(values: Sequence[float]) -> dict[str, Any]:
    """Measurements, their mean, deviation and number, as fields of `Row`; one has no deviation."""
    spread = statistics.stdev(values) if len(values) > 1 else math.nan
    listed = " ".join(f"{value:.10g}" for value in values)
    return {
        "mean": statistics.mean(values),
        "std": spread,
        "n": len(values),
        "values": listed,
    }


def collect_provenance(device: str | None = None) -> dict[str, str]:
    """Where a row comes from: command, commit, machine, torch and date, as fields of `Row`.

    `device` is where it was measured; by default a GPU, where there is one.
    """
    import torch

    return {
        "command": shlex.join(["python", *map(_relative, sys.argv)]),
        "commit": os.environ.get("FOVEAPOOL_COMMIT") or _commit(),
        "hardware": name_hardware(device),
        "torch": torch.__version__,
        "date": datetime.date.today().isoformat(),
    }


def collect_origin(results: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Where measurements were made, which need not be where a row is written: fields of `Row`."""
    results = list(results)
    return {
        key: " / ".join(sorted({result[key] for result in results}))
        for key in ("commit", "hardware", "torch")
    }


def _relative(argument: str) -> str:
    """The argument as anyone could give it: no path of this machine stays in a row."""
    path = Path(argument)
    if not path.is_absolute():
        return argument
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else path.name


def _commit() -> str:
    """The commit of this code, marked dirty if what runs differs from it; "unknown" outside git.

    Results and documents may differ from it.
    """
    home = Path(__file__).parent

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(home), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        # Installed below another project's work tree, this code is no part of its commits.
        git("ls-files", "--error-unmatch", Path(__file__).name)
        changed = git("status", "--porcelain", "--", ".", ":/benchmarks")
        return git("rev-parse", "--short", "HEAD") + ("-dirty" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return f"unknown{_version()}"


def _version() -> str:
    try:
        return f", foveapool {metadata.version('foveapool')}"
    except metadata.PackageNotFoundError:
        return ""


def name_hardware(device: str | None = None) -> str:
    """The name of a GPU, or the processor and its cores.

    That of `device`, such as "cpu" or "cuda:1"; by default a GPU, where there is one.
    """
    import torch

    if torch.cuda.is_available() and not (device or "").startswith("cpu"):
        return torch.cuda.get_device_name(device)
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        model = names[0].split(":", 1)[1].strip() if names else model
    return f"{model}, {os.cpu_count()} cores"


def append_rows(
    path: str | os.PathLike[str],
    rows: Iterable[AnyRow],
    lacking: Lacking[AnyRow] | None = None,
) -> int:
    """Adds rows to a CSV file, with its header if it is new; two processes may do so at once.

    The file is written anew and takes the old one's place: killed, or on a full disk, it is as it
    was.

    Args:
        path: The file; it and its folder are made where they are missing.
        rows: All of one kind, which is that of the file's rows.
        lacking: Which of the rows to add, given them and those of the file; all without it.

    Returns:
        How many were added.

    Raises:
        ValueError: If the file holds something else.
        OSError: If it cannot be written.
    """
    # A link is to stay one: the file that it leads to is replaced.
    path, rows = Path(os.path.realpath(path)), list(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    with hold_lock(path.with_name(f".lock-{path.name}"), wait=True):
        _check_regular(path)
        there = _read_text(path) if path.exists() else ""
        kind = _kind(rows)
        if not there:
            write_rows(path, rows)
            return len(rows)
        there = _renew_header(path, there, kind)
        if lacking is not None:
            rows = lacking(rows, _parse(path, there, kind, skip=lambda text: None))
        # Some editors leave the last line open, and a row would go on with it.
        end = "" if there.endswith(("\n", "\r")) else "\n"
        if rows:
            _write_text(path, there + end + _format(rows, kind))
    return len(rows)


def write_rows(path: str | os.PathLike[str], rows: Sequence[AnyRow]) -> None:
    """Writes a CSV file of these rows alone, whole or not at all."""
    kind = _kind(rows)
    _write_text(Path(path), ",".join(_columns(kind)) + "\n" + _format(rows, kind))


def check_rows_file(path: str | os.PathLike[str]) -> None:
    """Refuses a file that rows of trainings cannot be added to: before the hours that they take."""
    path = Path(path)
    _check_regular(path)
    if not path.exists():
        check_file_place(path)
    elif text := _read_text(path):
        _renew_header(path, text, Row)


def read_rows(path: str | os.PathLike[str], skip: Say | None = None) -> list[Row]:
    """The rows of trainings of a CSV file that `append_rows` wrote, now or in older versions.

    Args:
        path: The file.
        skip: Takes what is wrong with a line, which is then left out. Without it such a line, of a
            file that was cut off say, is an error.

    Returns:
        Its rows, as they were added.

    Raises:
        ValueError: If it is no such file, or a line of it is no row.
    """
    return _parse(path, _read_text(Path(path)), Row, skip)


def read_benchmark_rows(
    path: str | os.PathLike[str], skip: Say | None = None
) -> list[BenchmarkRow]:
    """The rows of benchmarks of a CSV file; for the rest as `read_rows`."""
    return _parse(path, _read_text(Path(path)), BenchmarkRow, skip)


def _kind(rows: Sequence[AnyRow]) -> type[AnyRow]:
    """The one kind of some rows; that of trainings where there are none."""
    kinds: list[Any] = list(dict.fromkeys(map(type, rows))) or [Row]
    if len(kinds) > 1:
        raise TypeError("rows: got some of trainings and some of benchmarks, wanted one kind")
    found: type[AnyRow] = kinds[0]
    return found


def _columns(kind: type[AnyRow]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def _format(rows: Iterable[AnyRow], kind: type[AnyRow]) -> str:
    """The lines of rows, each cell so that a spreadsheet shows it and does not run it."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for row in rows:
        writer.writerow([guard_cell(str(getattr(row, name))) for name in _columns(kind)])
    return text.getvalue()


def _check_regular(path: Path) -> None:
    if path.is_dir():
        raise IsADirectoryError(
            f"{path}: got a folder, wanted a CSV file to add rows to; name a file in it"
        )
    if path.exists() and not path.is_file():
        raise OSError(f"{path}: got what is no file, wanted a CSV file to add rows to")
    if path.exists() and not os.access(path, os.W_OK):
        raise PermissionError(f"{path}: may not be written to; name another file")


def _read_text(path: str | os.PathLike[str]) -> str:
    try:
        # A spreadsheet may have put a mark of its own in front.
        return Path(path).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}: got what is no text ({error}), wanted a CSV file of rows that foveapool wrote"
        ) from error


def _write_text(path: Path, text: str) -> None:
    try:
        with replace_file(path) as temporary:
            temporary.write_bytes(text.encode())
    except OSError as error:
        why = f"{error.strerror or error}; nothing was written, make room or name another file"
        raise OSError(error.errno, why, str(path)) from error


def _parse(
    path: str | os.PathLike[str], text: str, kind: type[AnyRow], skip: Say | None
) -> list[AnyRow]:
    lines = list(io.StringIO(text, newline=""))
    header, at = _read_record(f"{path}: line 1", lines, 0)
    is_old = _check_columns(path, header, kind)
    rows = []
    while at < len(lines):
        where = f"{path}: line {at + 1}"
        try:
            cells, after = _read_record(where, lines, at)
            if cells:
                rows.append(_make_row(cells if is_old else map(unguard_cell, cells), kind, where))
            at = after
        except ValueError as error:
            if skip is None:
                raise
            skip(f"{error} (left out here)")
            # A quote that was cut off may have taken in whole rows behind it.
            at += 1
    return rows


def _read_record(where: str, lines: Sequence[str], at: int) -> tuple[list[str], int]:
    """The cells that begin at a line, and the line behind them."""
    reader = csv.reader(lines[i] for i in range(at, len(lines)))
    try:
        cells = next(reader, [])
    except csv.Error as error:
        raise ValueError(f"{where}: got what is no row ({error}); remove the line") from error
    return cells, at + reader.line_num


def _renew_header(path: Path, text: str, kind: type[AnyRow]) -> str:
    """The text with the columns of today; refuses a file of others."""
    header, _ = _read_record(f"{path}: line 1", list(io.StringIO(text, newline="")), 0)
    return text.replace("deviation", "std", 1) if _check_columns(path, header, kind) else text


def _check_columns(path: str | os.PathLike[str], found: Sequence[str], kind: type[AnyRow]) -> bool:
    """Whether the columns are those of older versions; refuses those of no version."""
    wanted = _columns(kind)
    if kind is Row and tuple(found) == _OLD_COLUMNS:
        return True
    if tuple(found) != wanted:
        raise ValueError(
            f"{path}: got columns {list(found)}, wanted {list(wanted)}; it was not written by "
            "foveapool, or holds rows of another kind or version. Name another file; a study's own "
            "tables are written anew when it is started again"
        )
    return False


def _make_row(found: Iterable[str], kind: type[AnyRow], where: str) -> AnyRow:
    cells, columns = list(found), _columns(kind)
    if len(cells) != len(columns):
        amount = "more" if len(cells) > len(columns) else "fewer"
        raise ValueError(
            f"{where}: got {amount} cells than the header's {len(columns)}; the file was cut off "
            "or changed: take it anew, or remove the line"
        )
    values: dict[str, Any] = dict(zip(columns, cells, strict=True))
    for column, number in (("mean", float), ("std", float), ("n", int)):
        try:
            values[column] = number(values[column])
        except ValueError:
            raise ValueError(
                f"{where}, column {column}: got {values[column]!r}, wanted a number"
            ) from None
    listed = len(values["values"].split())
    if listed not in (0, values["n"]):
        raise ValueError(
            f"{where}, column values: got {listed} measurements, wanted the {values['n']} of "
            "column n; the file was cut off or changed: take it anew, or remove the line"
        )
    return kind(**values)
