"""Files that other processes may read or write at the same time: whole or not there, one at a time.

A file is written near its final place and moved there when complete; a lock belongs to a process
and goes with it, however it ends. What is read may come from anyone: its size and how deep it is
nested are bounded, and where it says what its SHA-256 was when it was written, that is compared.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

# Far above anything that is written here; as Python's objects it takes some twenty times as much.
LARGEST_TEXT, DEEPEST = 16_000_000, 64
_SEAL = "sha256"


@contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """A file near `path` to write to, which takes its place when it is complete.

    In a folder of its own: a library may write beside it first, and what a killed process leaves of
    that goes with the folder.
    """
    hidden = f".{path.name}."
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"{path}: got no folder {path.parent}, wanted one to write to; make it first"
        )
    try:
        with tempfile.TemporaryDirectory(prefix=hidden, dir=path.parent) as folder:
            temporary = Path(folder) / path.name
            yield temporary
            with open(temporary, "rb+") as written:
                os.fsync(written.fileno())
            os.chmod(temporary, _find_new_mode(Path(folder)))
            os.replace(temporary, path)
    except OSError as error:
        # The hidden file is no concern of those who named this one, and gone by now; a full disk
        # names none.
        if error.errno and (error.filename is None or hidden in str(error.filename)):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def _find_new_mode(folder: Path) -> int:
    """The mode that a new file gets there: what the user's umask leaves, whatever a library did."""
    with open(folder / ".mode", "x") as file:
        return os.fstat(file.fileno()).st_mode & 0o777


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


def read_text(path: Path) -> str:
    """The text of a file; ValueError where it is none, is too large or no regular file."""
    if path.exists() and not path.is_file():
        raise ValueError(f"{path}: got what is no regular file, wanted one of text")
    with open(path, "rb") as file:
        content = file.read(LARGEST_TEXT + 1)
    if len(content) > LARGEST_TEXT:
        raise ValueError(f"{path}: got more than {LARGEST_TEXT:,} bytes, which no such file has")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: got what is no text in UTF-8 ({error})") from error


def parse_json(text: str, where: object) -> Any:
    """What a JSON text says; ValueError names `where` it stands and why it cannot be read."""
    try:
        return _check_depth(json.loads(text))
    except RecursionError as error:
        raise ValueError(f"{where} is not whole (nested too deeply)") from error
    except ValueError as error:
        raise ValueError(f"{where} is not whole ({error})") from error


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; ValueError where it holds none or only half of one.

    It has the name of the file: who asks says whose it is, and what to do.
    """
    try:
        text = read_text(path)
    except ValueError as error:
        told = str(error).removeprefix(f"{path}: ")
        raise ValueError(f"{path.name} is not whole ({told})") from error
    found = parse_json(text, path.name)
    if not isinstance(found, dict):
        raise ValueError(f"{path.name}: got {type(found).__name__}, wanted an object")
    return found


def write_sealed_json(path: Path, facts: Mapping[str, Any]) -> None:
    """Writes an object with the SHA-256 of what it says, whole or not at all."""
    write_text(path, seal_json(facts))


def seal_json(facts: Mapping[str, Any]) -> str:
    """The text of `write_sealed_json`; TypeError where JSON cannot say it."""
    return json.dumps({**facts, _SEAL: _digest_facts(facts)}, indent=1) + "\n"


def read_sealed_json(path: Path) -> dict[str, Any]:
    """What `write_sealed_json` wrote; ValueError where it was changed, or as `read_json`.

    One without a SHA-256, as earlier versions wrote them, is read as it is.
    """
    facts = read_json(path)
    if facts.pop(_SEAL, wanted := _digest_facts(facts)) != wanted:
        raise ValueError(f"{path.name}: got contents that are not those of its SHA-256")
    return facts


def _digest_facts(facts: Mapping[str, Any]) -> str:
    # As they come back: JSON knows no keys but text, which sorts in another way than numbers do.
    plain = json.loads(json.dumps({key: facts[key] for key in facts if key != _SEAL}))
    return hashlib.sha256(to_canonical_json(plain).encode()).hexdigest()


def to_canonical_json(value: Any) -> str:
    """Writes a value as JSON, equal values alike; as text, since nan does not equal itself."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def read_toml(path: Path, wanted: str) -> dict[str, Any]:
    """The tables in a TOML file; ValueError where it cannot be read as what is `wanted`."""
    try:
        return _check_depth(tomllib.loads(read_text(path)))
    except RecursionError as error:
        raise ValueError(f"{path}: nested too deeply, wanted {wanted} in TOML") from error
    except ValueError as error:
        told = str(error).removeprefix(f"{path}: ")
        raise ValueError(f"{path}: {told}, wanted {wanted} in TOML") from error


def _check_depth(value: Any) -> Any:
    """The value itself, unless those who walk through it would run out of stack."""
    level, depth = [value], 0
    while level := [
        inner
        for each in level
        if isinstance(each, (dict, list))
        for inner in (each.values() if isinstance(each, dict) else each)
    ]:
        depth += 1
        if depth > DEEPEST:
            raise ValueError(f"nested too deeply, more than {DEEPEST} levels")
    return value


@contextmanager
def hold_lock(path: Path, wait: bool = False) -> Iterator[None]:
    """Holds the lock file for this process; BlockingIOError names the one that holds it, if not us.

    With `wait` it stands in line instead.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+") as file:
        try:
            lock_file(file, wait=wait)
        except BlockingIOError as error:
            file.seek(0)
            raise BlockingIOError(
                f"{path.parent}: process {file.read().strip() or 'unknown'} works in this folder; "
                "wait for it or choose another folder"
            ) from error
        # Who holds it is told as far as a full disk allows.
        with suppress(OSError):
            os.ftruncate(file.fileno(), 0)
            os.write(file.fileno(), str(os.getpid()).encode())
        yield


@contextmanager
def hold_folder(folder: Path) -> Iterator[None]:
    """Holds a folder for a moment, to write to; others wait, and nothing is left of the lock."""
    path = folder / ".lock"
    held = False
    while not held:
        with open(path, "a+") as file:
            lock_file(file)
            # Whoever held it before has removed it: those who come now lock another file.
            with suppress(FileNotFoundError):
                held = os.path.samestat(os.fstat(file.fileno()), os.stat(path))
            if held:
                try:
                    yield
                finally:
                    with suppress(PermissionError):  # Windows removes no open file
                        path.unlink()


# Windows knows no shared locks: who shares one holds any of these bytes, who is alone all of them.
# They lie behind all that a file holds, since a locked byte cannot be read there.
_FIRST_BYTE, _BYTES = 1 << 30, 64


def lock_file(file: IO[Any], *, shared: bool = False, wait: bool = True) -> None:
    """Locks an open file until it is closed, or changes the lock that it has.

    BlockingIOError where another has it and `wait` is not asked for.
    """
    if fcntl is None:
        _lock_bytes(file.fileno(), shared, wait)
        return
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    fcntl.flock(file, kind if wait else kind | fcntl.LOCK_NB)


def _lock_bytes(file: int, shared: bool, wait: bool) -> None:
    import msvcrt as windows

    lock: Callable[[int, int, int], None] = windows.locking  # type: ignore[attr-defined]
    at_once, release = windows.LK_NBLCK, windows.LK_UNLCK  # type: ignore[attr-defined]
    before = os.lseek(file, 0, os.SEEK_CUR)
    try:
        os.lseek(file, _FIRST_BYTE, os.SEEK_SET)
        with suppress(OSError):
            lock(file, release, _BYTES)
        while True:
            for byte in range(_BYTES if shared else 1):
                os.lseek(file, _FIRST_BYTE + byte, os.SEEK_SET)
                with suppress(OSError):
                    return lock(file, at_once, 1 if shared else _BYTES)
            if not wait:
                raise BlockingIOError("another process holds the lock")
            time.sleep(0.05)
    finally:
        os.lseek(file, before, os.SEEK_SET)
