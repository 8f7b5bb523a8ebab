"""Damages files and reads them, in a process of its own that may not take much memory.

    python -m tests.fuzz.attack SEED FOLDER KIND:FIRST:LAST...

Prints the number of each file before it is read, and behind it what was wrong. A damaged file stays
in the folder where something was wrong.
"""

from __future__ import annotations

import re
import resource
import shutil
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import torch
from torch import Tensor

from . import data_kinds, method_kinds, study_kinds
from .kind import Kind
from .mutations import mutate

KINDS = {**method_kinds.KINDS, **study_kinds.KINDS, **data_kinds.KINDS}
MOST_BYTES, MOST_SECONDS = 1_000_000_000, 10.0
_REFUSED = ("allocate", "MemoryError")


def attack(kind: Kind, name: str, numbers: range, seed: str, folder: Path) -> None:
    whole, work = folder / name / "whole", folder / name / "damaged"
    whole.mkdir(parents=True)
    kind.make(whole)
    shutil.copytree(whole, work)
    value = kind.read(work)
    for number in numbers:
        print(f"{name}:{number}", flush=True)
        shutil.rmtree(work)
        shutil.copytree(whole, work)
        draw = Random(f"{seed} {name} {number}")
        path = draw.choice(sorted(work.glob(kind.files)))
        before = path.read_bytes()
        after = mutate(draw, before, kind.inside)
        path.write_bytes(after)
        digests = re.findall(rb"\b[0-9a-f]{64}\b", before)
        is_signed = bool(digests) and all(each in after for each in digests)
        if fault := find_fault(kind, work, path, value if is_signed else None):
            path.write_bytes(after)
            path.rename(folder / f"{name}-{number}-{path.name}")
            print(f"  {path.name}: {fault}", flush=True)


def find_fault(kind: Kind, folder: Path, path: Path, value: object) -> str:
    """What is wrong with how a damaged folder is read, in words; nothing if nothing is."""
    try:
        with limited_time():
            found = kind.read(folder)
        if value is not None and not agree(found, value):
            return "read other contents than its checksum is of"
    except (ValueError, FileNotFoundError) as error:
        told = describe(error)
        if not names(str(error), path):
            return f"is not named by {told}"
        if any(word in told for word in _REFUSED):
            return f"took more memory than there is: {told}"
    except BaseException as error:
        return describe(error)
    return ""


class TooSlow(BaseException):
    """Not one that a reader would take for its own."""


@contextmanager
def limited_time() -> Iterator[None]:
    """Ends what takes this process too long, however busy others keep the machine."""

    def end(*_: object) -> None:
        raise TooSlow(f"more than {MOST_SECONDS} s")

    signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def names(text: str, path: Path) -> bool:
    """Whether a message names a file, or a folder above it as what is damaged."""
    folders = "|".join(re.escape(str(each)) for each in path.parents[:2])
    return path.name in text or re.search(rf"({folders})(?!/)", text) is not None


def describe(error: BaseException | None) -> str:
    """What was raised, and all that it came of."""
    told = []
    while error is not None:
        trace, line = error.__traceback__, ""
        while trace is not None:
            line = f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
            trace = trace.tb_next
        told.append(f"{type(error).__name__} at {line}: {str(error)[:300]}")
        error = error.__cause__ or error.__context__
    return " <- ".join(told)


def agree(found: object, value: object) -> bool:
    """Whether what was read is what had been written; what was left out is not wrong."""
    if isinstance(found, dict) and isinstance(value, dict):
        return all(agree(found[name], value[name]) for name in found.keys() & value.keys())
    if isinstance(found, Tensor) and isinstance(value, Tensor):
        return found.dtype == value.dtype and torch.equal(found.nan_to_num(), value.nan_to_num())
    return found == value


def limit_memory() -> None:
    """Refuses what goes far beyond what this process has now, whether it is used or not."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MOST_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


if __name__ == "__main__":
    seed, folder, *parts = sys.argv[1:]
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    limit_memory()
    for part in parts:
        name, first, last = part.split(":")
        attack(KINDS[name], name, range(int(first), int(last)), seed, Path(folder))
