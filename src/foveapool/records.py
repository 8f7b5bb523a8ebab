"""Row: one measured result, and the one writer and reader of results/*.csv.

A row says what was measured, how often, and by which command, commit and machine, so that a
figure in a table can be traced. Knows nothing else of this package.
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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from importlib import metadata
from pathlib import Path
from typing import Any, TextIO

from foveapool._io import lock_file


@dataclass(frozen=True)
class Row:
    """One figure: the mean and deviation of `n` measurements of `metric`.

    `values` are the measurements themselves, by rising seed, so that any two rows of one study can
    be compared in pairs.
    """

    study: str
    metric: str
    mean: float
    deviation: float
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


# The metrics of a study, as its writer and its readers call them.
ERROR, VALIDATION = "test error %", "validation error %"
LESS, P_VALUE = "less baseline, paired, points", "p against baseline, paired t-test"

CE, FLIP_RATE = "CE %", "flip rate %"

COLUMNS = tuple(field.name for field in fields(Row))

# Those of some rows that a file which has others lacks.
Lacking = Callable[[list[Row], list[Row]], list[Row]]


def summarize_values(values: Sequence[float]) -> dict[str, Any]:
    """Measurements, their mean, deviation and number, as fields of `Row`; one has no deviation."""
    spread = statistics.stdev(values) if len(values) > 1 else math.nan
    listed = " ".join(f"{value:.10g}" for value in values)
    return {
        "mean": statistics.mean(values),
        "deviation": spread,
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
    path: str | os.PathLike[str], rows: Iterable[Row], lacking: Lacking | None = None
) -> int:
    """Adds rows to a CSV file, with its header if it is new; two processes may do so at once.

    With `lacking`, only those that it finds lacking in the file. Returns how many were added.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    with open(path, "a+", newline="", encoding="utf-8") as file:
        lock_file(file)
        rows = list(rows)
        if not _has_header(path, file):
            writer.writeheader()
        elif not _ends_a_line(path):
            # Some editors leave the last line open, and a row would go on with it.
            text.write("\n")
        if lacking is not None and path.stat().st_size:
            rows = lacking(rows, read_rows(path))
        file.seek(0, os.SEEK_END)
        writer.writerows(asdict(row) for row in rows)
        # One write, so that a reader or a killed process never leaves half a row.
        file.write(text.getvalue())
        file.flush()
        os.fsync(file.fileno())
    return len(rows)


def check_rows_file(path: str | os.PathLike[str]) -> None:
    """Refuses a file that rows cannot be added to: before the hours that they take to measure."""
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(
            f"{path}: got a folder, wanted a CSV file to add rows to; name a file in it"
        )
    if path.exists():
        with open(path, "a+", newline="", encoding="utf-8") as file:
            _has_header(path, file)
        return
    above = next(each for each in path.absolute().parents if each.exists())
    if not (above.is_dir() and os.access(above, os.W_OK | os.X_OK)):
        raise PermissionError(
            f"{path}: cannot be written, since {above} is no folder that you may write to; name "
            "another file"
        )


def read_rows(path: str | os.PathLike[str]) -> list[Row]:
    """The rows of a CSV file that `append_rows` wrote; refuses a file that was cut off."""
    # A spreadsheet may have put a mark of its own in front.
    with open(path, newline="", encoding="utf-8-sig") as file, _text_only(path):
        reader = csv.DictReader(file)
        _check_columns(path, reader.fieldnames or ())
        return [_row(record, f"{path}: line {reader.line_num}") for record in reader]


def _has_header(path: Path, file: TextIO) -> bool:
    """Whether the file has begun; refuses one of other columns."""
    file.seek(0)
    with _text_only(path):
        header = next(csv.reader(line.removeprefix("\ufeff") for line in file), None)
    if header is not None:
        _check_columns(path, header)
    return header is not None


def _ends_a_line(path: Path) -> bool:
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() in b"\r\n"


@contextmanager
def _text_only(path: str | os.PathLike[str]) -> Iterator[None]:
    try:
        yield
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(
            f"{path}: got what is no text ({error}), wanted a CSV file of rows that foveapool wrote"
        ) from error


def _check_columns(path: str | os.PathLike[str], found: Sequence[str]) -> None:
    if tuple(found) != COLUMNS:
        raise ValueError(
            f"{path}: got columns {list(found)}, wanted {list(COLUMNS)}; it was not written by "
            "foveapool, or by another version. Name another file; a study's own tables are written "
            "anew when it is started again"
        )


def _row(record: dict[str, Any], where: str) -> Row:
    # The csv module's marks of a row that is longer or shorter than the header.
    if None in record or None in record.values():
        amount = "more" if None in record else "fewer"
        raise ValueError(
            f"{where}: got {amount} cells than the header's {len(COLUMNS)}; the file was cut off "
            "or changed: take it anew, or remove the line"
        )
    values = dict(record)
    for column, kind in (("mean", float), ("deviation", float), ("n", int)):
        try:
            values[column] = kind(record[column])
        except ValueError:
            raise ValueError(
                f"{where}, column {column}: got {record[column]!r}, wanted a number"
            ) from None
    listed = len(values["values"].split())
    if listed not in (0, values["n"]):
        raise ValueError(
            f"{where}, column values: got {listed} measurements, wanted the {values['n']} of "
            "column n; the file was cut off or changed: take it anew, or remove the line"
        )
    return Row(**values)
