"""Files that other processes may read or write at the same time: whole or not there, one at a time.

A file is written near its final place and moved there when complete; a lock belongs to a process
and goes with it, however it ends.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """A file near `path` to write to, which takes its place when it is complete.

    In a folder of its own: a library may write beside it first, and what a killed process leaves of
    that goes with the folder.
    """
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
        temporary = Path(folder) / path.name
        yield temporary
        with open(temporary, "rb+") as written:
            os.fsync(written.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)


def check_file_place(path: Path) -> None:
    """OSError where no file can be written: for before the work that is to fill it."""
    if path.is_dir():
        raise IsADirectoryError(f"{path}: got a folder, wanted a file to write; name one in it")
    _check_writable(path, path.absolute().parent)


def check_folder_place(path: Path) -> None:
    """OSError where no folder is or can be made: for before the work that is to fill it."""
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(f"{path}: got a file, wanted a folder; name another place")
    _check_writable(path, path.absolute())


def find_existing_parent(path: Path) -> Path:
    """The path itself, or the first above it that is there: what a new folder would be made in."""
    return next(each for each in (path, *path.absolute().parents) if each.exists())


def _check_writable(path: Path, folder: Path) -> None:
    """Refuses a path whose folder, there or to be made, cannot be written to."""
    there = find_existing_parent(folder)
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        raise PermissionError(
            f"{path}: cannot be written, since {there} is no folder that you may write to; name "
            "another place"
        )


def make_folder(path: str | os.PathLike[str], purpose: str) -> Path:
    """The folder `path`, made if it is not there; says so if a file is in its way."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise NotADirectoryError(
            f"{folder}: got a file here or above, wanted a folder for {purpose}; give another name"
        ) from error
    return folder


def clear_leftovers(path: Path) -> None:
    """Removes what killed processes had begun to write to `path`; for who alone may write it.

    Its name may be a pattern, "operator-*.json" say.
    """
    for leftover in path.parent.glob(f".{path.name}.*"):
        if leftover.is_dir() and not leftover.is_symlink():
            shutil.rmtree(leftover)
        else:
            leftover.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Writes a text file, whole or not at all."""
    with replace_file(path) as temporary:
        temporary.write_text(text, "utf-8")


@contextmanager
def hold_lock(path: Path, wait: bool = False) -> Iterator[None]:
    """Holds the lock file for this process; BlockingIOError names the one that holds it, if not us.

    With `wait` it stands in line instead.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError as error:
            file.seek(0)
            raise BlockingIOError(
                f"{path.parent}: process {file.read().strip() or 'unknown'} works in this folder; "
                "wait for it or choose another folder"
            ) from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
