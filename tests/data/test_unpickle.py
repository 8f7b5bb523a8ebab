"""Pickles that are no CIFAR batches: refused by name, and nothing in them runs."""

from __future__ import annotations

import builtins
import os
import pickle
import resource
import subprocess
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

from foveapool.data.cifar import read_batch

from .oracles import python2_pickle, python_batch, random_images, write


class Calls:
    """Pickles to a call of a function with these arguments."""

    def __init__(self, function: object, *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple:
        return self.call


@pytest.mark.parametrize("protocol", [0, 2, 5])
@pytest.mark.parametrize(
    ("function", "name"),
    [
        (os.system, "posix.system"),
        (os.mkdir, "posix.mkdir"),
        (builtins.eval, r"(builtins|__builtin__).eval"),
        (builtins.getattr, r"(builtins|__builtin__).getattr"),
        (subprocess.run, r"(subprocess|commands).run"),
        (np.load, "numpy.*load"),
        (np.fromfile, "numpy.*fromfile"),
    ],
)
def test_a_malicious_pickle_is_refused_by_name(tmp_path, function, name, protocol):
    mark = tmp_path / "mark"
    content = pickle.dumps({b"data": Calls(function, str(mark))}, protocol=protocol)
    with pytest.raises(ValueError, match=f"refused: the pickle asks for {name}, "):
        read_batch(write(tmp_path / "batch", content))
    assert not mark.exists()


def test_plain_pickle_would_have_run_it(tmp_path):
    mark = tmp_path / "mark"
    pickle.loads(pickle.dumps(Calls(os.mkdir, str(mark)), protocol=2))
    assert mark.exists()


# Hand-made programs around the names that are allowed.
ARRAY = b"cnumpy.core.multiarray\n_reconstruct\n"
HOSTILE = {
    "a call of an attribute of an allowed module": b"cnumpy.core.multiarray\nfromfile\n.",
    "a dotted name": b"\x80\x04\x8c\x05numpy\x8c\x10ndarray.__init__\x93.",
    "an attribute set on a stand-in": ARRAY + b"(N}(S'state'\nS'x'\ntb.",
    "state of no array": b"\x80\x02}U\x04data" + ARRAY + b")R}bs.",
    "state of too few parts": b"\x80\x02}U\x04data" + ARRAY + b")R(K\x01tbs.",
    "a persistent id": b"Pname\n.",
    "an extension code": b"\x82\x01.",
    "not a dictionary": b"\x80\x02K\x01.",
    "a list": b"\x80\x02].",
    "a number for a key": b"\x80\x02}K\x01cos\nsystem\ns.",
    "an empty stack": b"\x80\x02.",
    "no pickle": b"\xff\xd8\xff\xe0 JFIF",
    "a protocol of the future": b"\x80\x09.",
}


@pytest.mark.parametrize("program", HOSTILE.values(), ids=HOSTILE)
def test_what_is_no_batch_is_a_value_error(tmp_path, program):
    with pytest.raises(ValueError, match=r"refused|not a whole CIFAR batch"):
        read_batch(write(tmp_path / "batch", program))


# A few bytes each: the place in the memo, the size of what follows, and the times of hashing.
GREEDY = {
    "a place far down the memo": b"\x80\x02}r\xff\xff\xff\xff.",
    "bytes that are not there": b"\x80\x02}B\xff\xff\xff\xff.",
    "an array of bytes that is not there": b"\x80\x05\x96\xff\xff\xff\xff\x01\0\0\0.",
    "a frame that is not there": b"\x80\x04\x95\xff\xff\xff\xff\x01\0\0\0}.",
    "tuples in tuples as a key": b"\x80\x02})" + b"2\x86" * 60 + b"K\x01s.",
    "tuples from the memo": b"\x80\x02})q\x00" + b"h\x00h\x00\x86q\x00" * 60 + b"K\x01s.",
    "another encoding": b"\x80\x02c_codecs\nencode\n(X\x01\0\0\0aX\x05\0\0\0utf16tR.",
}


def time_refusal(path) -> float:
    """Seconds that refusing a batch takes, which has to take no memory."""
    before, begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    with pytest.raises(ValueError, match="not a whole CIFAR batch"):
        read_batch(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # kilobytes
    return time.perf_counter() - begin


@pytest.mark.parametrize("program", GREEDY.values(), ids=GREEDY)
def test_a_few_bytes_do_not_take_memory_or_time(tmp_path, program):
    assert time_refusal(write(tmp_path / "batch", program)) < 1


def test_instructions_without_end_are_not_followed(tmp_path):
    more_than_a_batch_has = b"\x80\x02(" + b"N" * 1_000_000 + b"l."
    assert time_refusal(write(tmp_path / "batch", more_than_a_batch_has)) < 10


def test_a_refused_pickle_leaves_later_ones_readable(tmp_path):
    for i, program in enumerate(HOSTILE.values()):
        with pytest.raises(ValueError):
            read_batch(write(tmp_path / f"hostile{i}", program))
    batch = python_batch(*random_images(3, classes=3))
    found = read_batch(write(tmp_path / "batch", python2_pickle(batch)))
    assert np.array_equal(found["data"], batch[b"data"])


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dumps", [python2_pickle, lambda batch: pickle.dumps(batch, protocol=2)])
def test_a_batch_reads_as_plain_pickle_reads_it(tmp_path, dumps, order):
    batch = python_batch(*random_images(3, classes=3))
    batch[b"data"] = np.asarray(batch[b"data"], order=order)
    path = write(tmp_path / "batch", dumps(batch))
    with warnings.catch_warnings(action="ignore"):  # numpy.core, as the official batches say
        wanted = pickle.loads(Path(path).read_bytes(), encoding="bytes")
    found = read_batch(path)
    assert np.array_equal(found["data"], wanted[b"data"])
    assert found["labels"] == wanted[b"labels"]


def test_a_missing_batch_is_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_batch(tmp_path / "batch")
