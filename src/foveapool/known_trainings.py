"""Known trainings: finished ones in one file, so that none is lost with the machine that did it.

The file is meant for version control: a line of JSON for each training, with its name, its facts
and its result, sorted and compressed so that equal content gives equal bytes. Processes share it:
each writes a new file with what is in the old one by then, and moves it into place. What cannot be
used is said and stays as it is.
"""

from __future__ import annotations

import glob
import gzip
import json
import os
import shutil
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from foveapool._io import (
    check_file_place,
    hold_lock,
    parse_json,
    replace_file,
    to_canonical_json,
)
from foveapool.runs import Finished, digest_facts, find_result_fault

HEADER = {"format": "foveapool-trainings", "version": 1}
KEYS = {"name", "facts", "result"}
# A small file can hold very much once it is unpacked.
LARGEST_FILE, LONGEST_LINE, MOST_BAD_LINES = 1_000_000_000, 1_000_000, 1_000
MOST_TOLD = 10
SECONDS_BETWEEN_WRITES = 10.0

Check = Callable[[str, Mapping[str, Any], Mapping[str, Any]], str]


class _Unusable(Exception):
    """Why nothing more of a file can be read, or nothing written to it."""


@dataclass
class Contents:
    """What a file of trainings holds: `trainings` and their `lines`, and what is wrong with it.

    `others` are the lines that cannot be used, each with its name as far as it has one, and
    `faults` says why. `damage` says why the file must not be written to; nothing if it may be.
    """

    trainings: dict[str, Finished] = field(default_factory=dict)
    lines: dict[str, bytes] = field(default_factory=dict)
    others: list[tuple[str, bytes]] = field(default_factory=list)
    faults: dict[bytes, str] = field(default_factory=dict)
    damage: str = ""


class KnownTrainings(Mapping[str, Finished]):
    """The finished trainings of a file, by name, and those that are added to it.

    Args:
        path: The file; where it is missing, it is made when the first training is added.
        say: Takes what a user should know, a line at a time.
        check: Says why a training cannot have that name, those facts and that result; nothing if
            it can. What the file itself tells is checked anyway.

    Raises:
        OSError: If no such file can be, because its folder is missing, say.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        say: Callable[[str], None] = lambda text: None,
        check: Check = lambda name, facts, result: "",
    ) -> None:
        # A link is to stay one: the file that it leads to is replaced.
        self.path, self.say, self._check = Path(os.path.realpath(path)), say, check
        _check_path(self.path)
        self._added: dict[str, bytes] = {}
        self._told: set[bytes | str] = set()
        self._told_lines = 0
        self._mutex = threading.RLock()
        self._timer: threading.Timer | None = None
        self._written = -SECONDS_BETWEEN_WRITES
        self._trainings: dict[str, Finished] = {}
        self._stamp: tuple[int, ...] | None = None
        self._contents = Contents()
        self._read()

    def __getitem__(self, name: str) -> Finished:
        return self._trainings[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._trainings)

    def __len__(self) -> int:
        return len(self._trainings)

    def check_writable(self) -> None:
        """Refuses a file that cannot be written: before the work whose results it is to get.

        Raises:
            OSError: If the file or its folder may not be written to.
        """
        check_file_place(self.path)

    def add(self, name: str, facts: Mapping[str, Any], result: Mapping[str, Any]) -> None:
        """Adds a finished training; it is in the file at once, or within some seconds.

        Args:
            name: The name of the training; nothing is done where it is known already.
            facts: What was trained.
            result: What it came to.
        """
        with self._mutex:
            if name in self._trainings:
                return
            line = _make_line(name, facts, result)
            if len(line) > LONGEST_LINE:
                self._tell(
                    f"{name}: its result is too long for {self.path} ({len(line)} bytes, wanted at "
                    f"most {LONGEST_LINE}); it stays in the folder of runs only"
                )
                return
            self._added[name] = line
            entry = json.loads(line)
            self._trainings[name] = Finished(entry["facts"], entry["result"])
            if self._timer is not None:
                return
            wait = self._written + SECONDS_BETWEEN_WRITES - time.monotonic()
            if wait <= 0:
                self.write()
            else:
                # The next training may take an hour: what is finished does not wait for it.
                self._timer = threading.Timer(wait, self.write)
                self._timer.daemon = True
                self._timer.start()

    def write(self) -> None:
        """Writes to the file what was added and is not in it; says why where that cannot be."""
        with self._mutex:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if not self._added:
                return
            try:
                self._merge()
            except OSError as error:
                self._tell(
                    f"{self.path}: cannot be written ({error.strerror or error}); what is finished "
                    "stays in the folder of runs, from where the same command adds it"
                )
            self._written = time.monotonic()

    def close(self) -> None:
        """Writes what was added, and says how many that were; the last call."""
        self.write()
        with self._mutex:
            if there := sum(name in self._contents.lines for name in self._added):
                total = len(self._contents.lines)
                self._tell(f"{self.path}: {there} trainings added, {total} in all")

    def _merge(self) -> None:
        # Its name begins otherwise than what a killed process leaves, which is removed below.
        with hold_lock(self.path.with_name(f".lock-{self.path.name}"), wait=True):
            self._read()
            found = self._contents
            if found.damage:
                return
            lines = {**self._added, **found.lines}
            for name in self._added.keys() & found.lines.keys():
                if self._added[name] != found.lines[name]:
                    self._tell(
                        f"{name}: another process added another result of it to {self.path}, which "
                        "is left as it is; the one here stays in the folder of runs"
                    )
            if len(lines) == len(found.lines):
                return
            header = to_canonical_json(HEADER).encode()
            own = [(name, 0, line) for name, line in lines.items()]
            others = [(name, 1, line) for name, line in found.others]
            # The first of two lines of one name is the one that counts. What has no name is last.
            ordered = [line for *_, line in sorted(own + others, key=lambda each: _place(*each))]
            if sum(map(len, ordered)) + len(ordered) + len(header) >= LARGEST_FILE:
                self._tell(
                    f"{self.path}: is full ({LARGEST_FILE} bytes); what is finished stays in the "
                    "folder of runs only"
                )
                return
            for leftover in self.path.parent.glob(f".{glob.escape(self.path.name)}.*/"):
                shutil.rmtree(leftover, ignore_errors=True)
            write_lines(self.path, [header, *ordered])
            self._stamp, found.lines = _get_stamp(self.path), lines
            found.trainings = {name: self._trainings[name] for name in lines}

    def _read(self) -> None:
        """Reads the file, unless it is the one that was read last, and says what is wrong."""
        stamp = _get_stamp(self.path)
        if stamp == self._stamp:
            return
        self._stamp, self._contents = stamp, Contents()
        if stamp is not None:
            self._contents = read_trainings(self.path, self._check)
        found = self._contents
        for line, fault in found.faults.items():
            if line not in self._told:
                self._told.add(line)
                self._told_lines += 1
                if self._told_lines <= MOST_TOLD:
                    self.say(f"{self.path}: {fault}; it is left as it is, and does not count")
        if self._told_lines > MOST_TOLD:
            self._tell(f"{self.path}: more than {MOST_TOLD} of its lines do not count")
        if found.damage:
            self._tell(
                f"{self.path}: {found.damage}; {len(found.trainings)} of its trainings count, and "
                "nothing is written to it: what this study finishes stays in the folder of runs; "
                "get the file back from version control, or name another one"
            )
        # What this process did counts here, whatever others wrote.
        own = {name: self._trainings[name] for name in self._added}
        self._trainings = {**found.trainings, **own}

    def _tell(self, text: str) -> None:
        """Says it, once."""
        if text not in self._told:
            self._told.add(text)
            self.say(text)


def read_trainings(path: Path, check: Check = lambda name, facts, result: "") -> Contents:
    """Reads a file of trainings, as much of it as can be used.

    Args:
        path: The file.
        check: What else is wrong with a training, in words, from its name, facts and result.

    Returns:
        Its trainings, and what is wrong with the rest.

    Raises:
        OSError: If the file cannot be opened.
    """
    found = Contents()
    with open(path, "rb") as file:
        try:
            _read_all(gzip.GzipFile(fileobj=file), found, check)
        except EOFError:
            found.damage = "is cut off, whole lines before the cut count"
        except (OSError, zlib.error) as error:
            # Without the checksum at its end nobody knows which of its lines are as they were.
            found = Contents(damage=f"is not a whole gzip file ({error})")
        except _Unusable as error:
            found.damage = str(error)
    return found


def write_lines(path: Path, lines: Iterable[bytes]) -> None:
    """Writes lines as a compressed file, whole or not at all; equal lines give equal bytes.

    Args:
        path: The file, which is replaced.
        lines: Each without its end.
    """
    with (
        replace_file(path) as temporary,
        open(temporary, "wb") as raw,
        # Neither the time nor the name of the file are in it.
        gzip.GzipFile("", "wb", 9, raw, mtime=0) as file,
    ):
        for line in lines:
            file.write(line + b"\n")


def _read_all(file: gzip.GzipFile, found: Contents, check: Check) -> None:
    lines = _split_lines(file)
    _check_header(next(lines, b""))
    for number, line in enumerate(lines, 2):
        name, fault = "", f"longer than {LONGEST_LINE} bytes"
        if line is None:
            # What is not held here could not be written again.
            found.damage = f"line {number} is {fault}"
            continue
        try:
            name, canonical, training = _parse(line)
            fault = _find_training_fault(name, training) or check(name, *training)
            if not fault and name in found.trainings:
                fault = f"a second line of {name}"
        except ValueError as error:
            fault = str(error)
        if fault:
            found.others.append((name, line))
            # What stands in the line may hold anything, and is shown on a terminal.
            shown = "".join(each if each.isprintable() else " " for each in fault[:300])
            found.faults[line] = f"line {number}: {shown}"
        else:
            found.trainings[name], found.lines[name] = training, canonical
        if len(found.others) > MOST_BAD_LINES:
            raise _Unusable(f"more than {MOST_BAD_LINES} lines that cannot be used")


def _split_lines(file: gzip.GzipFile) -> Iterator[bytes | None]:
    """The lines without their ends, None for one that is too long."""
    size, is_long = 0, False
    while line := file.readline(LONGEST_LINE + 1):
        size += len(line)
        if size > LARGEST_FILE:
            raise _Unusable(f"holds more than {LARGEST_FILE} bytes")
        ends = line.endswith(b"\n")
        if len(line) > LONGEST_LINE and not ends:
            is_long = True
        elif is_long:
            # The rest of it.
            is_long = False
            yield None
        else:
            yield line.removesuffix(b"\n")
    if is_long:
        yield None


def _check_header(line: bytes | None) -> None:
    wanted = f"wanted {to_canonical_json(HEADER)} as its first line"
    try:
        header = parse_json((line or b"").decode(), "its first line")
    except ValueError as error:
        raise _Unusable(f"not a file of trainings, {wanted}") from error
    if not isinstance(header, dict) or header.get("format") != HEADER["format"]:
        raise _Unusable(f"not a file of trainings, {wanted}")
    if to_canonical_json(header) != to_canonical_json(HEADER):
        raise _Unusable(f"of version {header.get('version')!r:.40}, {wanted}")


def _parse(line: bytes) -> tuple[str, bytes, Finished]:
    """The name, the line as it is written here, and the training; ValueError if it is none."""
    try:
        entry = parse_json(line.decode(), "its JSON")
    except ValueError as error:
        raise ValueError(f"not JSON ({error})") from error
    if not isinstance(entry, dict) or set(entry) != KEYS:
        raise ValueError("not an object of name, facts and result")
    name, facts, result = entry["name"], entry["facts"], entry["result"]
    if not (isinstance(name, str) and isinstance(facts, dict) and isinstance(result, dict)):
        raise ValueError("got name, facts or result of another kind, wanted text and two objects")
    canonical = _make_line(name, facts, result)
    if len(canonical) > LONGEST_LINE:
        raise ValueError(f"longer than {LONGEST_LINE} bytes")
    return name, canonical, Finished(facts, result)


def _find_training_fault(name: str, training: Finished) -> str:
    if not name.endswith(f"-{digest_facts(training.facts)}"):
        return f"got the name {name[:200]!r}, which does not belong to its facts"
    fault = find_result_fault(name, training.result)
    return f"{name}: {fault}" if fault else ""


def _make_line(name: str, facts: Mapping[str, Any], result: Mapping[str, Any]) -> bytes:
    return to_canonical_json({"name": name, "facts": facts, "result": result}).encode()


def _place(name: str, number: int, line: bytes) -> tuple[bool, str, int, bytes]:
    return (not name, name, number, line)


def _get_stamp(path: Path) -> tuple[int, ...] | None:
    """What changes when the file does; None where it is missing."""
    try:
        stat = path.stat()
    except FileNotFoundError:
        return None
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


def _check_path(path: Path) -> None:
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"{path}: got no folder {path.parent}, wanted one for the file of known trainings; "
            "make it, or name a file elsewhere"
        )
    if path.exists() and not path.is_file():
        raise IsADirectoryError(
            f"{path}: got what is no file, wanted a file of known trainings, there or to be made; "
            "name one"
        )
