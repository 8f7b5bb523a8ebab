"""Damaged files of every kind that is read: each loads right, or is refused by its name.

None may take more than 1 GB of memory or 10 s. `make test-soak` damages 5,000, `make fuzz` as many
as FILES says, by the SEED that is given.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from . import attack
from .attack import KINDS
from .kind import Kind
from .mutations import SEAL, mutate

FILES = int(os.environ.get("FILES", 5000))
SEED = os.environ.get("SEED", "0")
# More than there are cores: a process that a file ends is missed by fewer others.
SHARES = 4
LIMIT = 1200 + FILES  # seconds, for one that waits for ever


def damage(share: int, folder: Path) -> tuple[int, list[str]]:
    """How many files of a share of the kinds were damaged and read, and what was wrong."""
    each = -(-FILES // len(KINDS))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.fuzz.attack", SEED, str(folder)),
            *(f"{name}:0:{each}" for name in list(KINDS)[share::SHARES]),
        ],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT,
    )
    lines = done.stdout.splitlines()
    faults = [f"{file}:{text}" for file, text in pairwise(lines) if text.startswith("  ")]
    if done.returncode:
        faults.append("\n".join([f"ended with {done.returncode}, at last:", *lines[-30:]]))
    return sum(not line.startswith("  ") for line in lines), faults


@pytest.mark.soak
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is limited as on Linux")
def test_damaged_files_load_right_or_are_refused_by_name(tmp_path):
    with ThreadPoolExecutor(min(SHARES, os.cpu_count() or 1)) as pool:
        found = list(pool.map(damage, range(SHARES), [tmp_path] * SHARES))
    faults = [fault for _, each in found for fault in each]
    assert not faults, f"seed {SEED}, files in {tmp_path}:\n" + "\n".join(faults)
    assert sum(read for read, _ in found) >= FILES


class Careless:
    """Readers that make each of the mistakes that are looked for."""

    @staticmethod
    def wrong(folder: Path) -> object:
        return (folder / "file").read_bytes()

    @staticmethod
    def unnamed(folder: Path) -> object:
        raise ValueError("something is wrong")

    @staticmethod
    def untranslated(folder: Path) -> object:
        raise KeyError("file")

    @staticmethod
    def hidden(folder: Path) -> object:
        try:
            raise MemoryError
        except MemoryError as error:
            raise ValueError("file: not whole") from error

    @staticmethod
    def slow(folder: Path) -> object:
        while True:
            pass


@pytest.mark.parametrize(
    ("mistake", "told"),
    [
        ("wrong", "other contents"),
        ("unnamed", "is not named by ValueError"),
        ("untranslated", "KeyError"),
        ("hidden", "more memory than"),
        ("slow", "TooSlow"),
    ],
)
def test_each_mistake_is_noticed(tmp_path, monkeypatch, mistake, told):
    monkeypatch.setattr(attack, "MOST_SECONDS", 0.1)
    (tmp_path / "file").write_bytes(b"damaged")
    kind = Kind(lambda folder: None, getattr(Careless, mistake), "file")
    assert told in attack.find_fault(kind, tmp_path, tmp_path / "file", b"whole")


def test_a_file_that_is_read_as_it_was_has_no_fault(tmp_path):
    (tmp_path / "file").write_bytes(b"whole")
    kind = Kind(lambda folder: None, Careless.wrong, "file")
    assert not attack.find_fault(kind, tmp_path, tmp_path / "file", b"whole")


def in_json(**changes: object) -> Callable[[bytes], bytes]:
    """Other facts, without a checksum."""

    def change(content: bytes) -> bytes:
        found = json.loads(content) | changes
        found.pop(SEAL, None)
        return json.dumps(found).encode()

    return change


def in_header(name: str, value: object) -> Callable[[bytes], bytes]:
    """Another fact in the header of a file of tensors, which has its size in front."""

    def change(content: bytes) -> bytes:
        size = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + size])
        own = json.loads(header["__metadata__"]["foveapool"]) | {name: value}
        header["__metadata__"]["foveapool"] = json.dumps(own)
        header["__metadata__"].pop(f"foveapool.{SEAL}", None)
        told = json.dumps(header).encode()
        return len(told).to_bytes(8, "little") + told + content[8 + size :]

    return change


def in_numbers(content: bytes) -> bytes:
    """NaN, or a negative number, at the end of all tensors."""
    return content[:-8] + b"\xff" * 8


def in_name(content: bytes) -> bytes:
    """A checksum that is not found, and other numbers."""
    return content[:-1].replace(b"foveapool.sha256", b"foveapool.sha257") + b"\x00"


FOUND: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "NaN among weights": ("weights", in_numbers),
    "a checksum by another name": ("scatter", in_name),
    "examples of other numbers": ("examples", in_header("labels", [1, 2])),
    "groups that divide nothing": ("mixing", in_header("groups", 7)),
    "a fit without an operator": ("fit-note", in_json(operators={})),
    "a header of numpy's that is no Python": (
        "corrupted-set",
        lambda content: content.replace(b"{", b"(", 1),
    ),
    "severities that are none": ("corrupted-set-note", in_json(severities=1.5)),
    "no severities": ("corrupted-set-note", in_json(severities=None)),
    "a picture that is none": ("frost", lambda content: content[:40]),
    "a seed that is none": ("own-facts", in_json(seed="")),
    "an endless seed": ("own-facts", in_json(seed=float("inf"))),
}


@pytest.mark.parametrize("found", FOUND)
def test_what_was_found_once_is_refused_by_name(tmp_path, found):
    name, change = FOUND[found]
    kind = attack.KINDS[name]
    kind.make(tmp_path)
    path = sorted(tmp_path.glob(kind.files))[0]
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ValueError) as told:
        kind.read(tmp_path)
    assert attack.names(str(told.value), path)


@pytest.mark.parametrize(
    ("name", "change"),
    [("own-metrics", {"epoch": float("inf")}), ("own-result", {"fit_seconds": [1]})],
)
def test_what_was_found_once_is_left_out(tmp_path, name, change):
    kind = attack.KINDS[name]
    kind.make(tmp_path)
    path = next(tmp_path.glob(kind.files))
    content = path.read_bytes()
    first = content.splitlines()[0] if name.endswith("metrics") else content
    path.write_bytes(in_json(**change)(first) + b"\n")
    assert kind.read(tmp_path) is not None


EACH_WAY = {kind.inside: name for name, kind in attack.KINDS.items()}


@pytest.mark.parametrize("name", EACH_WAY.values())
def test_damage_can_be_done_again_and_is_some(name, tmp_path):
    kind = attack.KINDS[name]
    kind.make(tmp_path)
    content = sorted(tmp_path.glob(kind.files))[0].read_bytes()
    once, again = (mutate(Random(1), content, kind.inside) for _ in range(2))
    assert once == again != content
