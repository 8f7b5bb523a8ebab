"""What travels between a driver and the machines of a cluster: files of the folder of runs.

They are named by their paths in that folder.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath

from foveapool._io import replace_file
from foveapool.runs import RESULT
from foveapool.study.spec import TrainingSpec
from foveapool.training.checkpoint import CHECKPOINT

Files = dict[str, bytes]


def list_needed(training: TrainingSpec) -> list[str]:
    """The trainings whose folders this one reads: its networks', and those of its operators."""
    names: dict[str, None] = {}
    each: TrainingSpec | None = training
    while each is not None:
        names[each.name] = None
        for pool in each.setting.pools:
            if pool.is_fitted:
                names[replace(each, setting=each.setting.until(pool)).name] = None
        each = each.fitted_on
    return list(names)


def list_files(root: Path, training: str) -> Iterator[tuple[str, Path]]:
    """The files of a training's folder, by their paths in the folder of runs; no locks."""
    for path in sorted((root / "trainings" / training).rglob("*")):
        name = path.relative_to(root)
        hidden = any(part.startswith(".") for part in name.parts)
        if path.is_file() and not hidden and "lock" not in (path.name, path.suffix[1:]):
            yield name.as_posix(), path


def write_files(root: Path, own: str, files: Mapping[str, bytes]) -> None:
    """Writes what came from a worker; the result last, since it says that all is there.

    What is another training's, such as the scatter at its network, is written once.
    """
    for name in sorted(files, key=lambda each: PurePosixPath(each).name == RESULT):
        parts = PurePosixPath(name).parts
        if len(parts) < 3 or parts[0] != "trainings" or ".." in parts:
            raise ValueError(f"{name!r}: got this from a worker, wanted a file of a training")
        path = root.joinpath(*parts)
        if parts[1] == own or path.name == CHECKPOINT or not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with replace_file(path) as temporary:
                temporary.write_bytes(files[name])


class Changes:
    """The files below a folder of runs that differ from those that were there at first."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._first = {path: _state(path) for path in self._paths()}
        self._seen = dict(self._first)

    def _paths(self) -> list[Path]:
        trainings = self._root / "trainings"
        folders = [each.name for each in trainings.iterdir()] if trainings.exists() else []
        return [path for each in folders for _, path in list_files(self._root, each)]

    def read_all(self) -> Files:
        """Reads them, those too that were read before: what was sent then may be lost."""
        self.forget()
        return self._read(self._paths())

    def read_new(self) -> Files:
        """Reads those that changed since then; no result, since it says that all is there."""
        return self._read([path for path in self._paths() if path.name != RESULT])

    def forget(self) -> None:
        """Takes all of them as not read yet."""
        self._seen = dict(self._first)

    def _read(self, paths: list[Path]) -> Files:
        found: Files = {}
        for path in paths:
            # A file may go while this looks; each is whole, since it was moved into its place.
            with suppress(FileNotFoundError):
                state = _state(path)
                if self._seen.get(path) != state:
                    found[path.relative_to(self._root).as_posix()] = path.read_bytes()
                    self._seen[path] = state
        return found


def _state(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_mtime_ns, found.st_size


@contextmanager
def make_own_folder() -> Iterator[Path]:
    """A folder for this worker; those that dead ones left on this machine go."""
    for left in Path(tempfile.gettempdir()).glob("foveapool-worker-*"):
        process = left.name.split("-")[2]
        if process.isdigit() and not _is_alive(int(process)):
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"foveapool-worker-{os.getpid()}-") as folder:
        yield Path(folder)


def _is_alive(process: int) -> bool:
    if os.name == "nt":
        return True  # there, asking in this way would end it
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # another user's
    return True
