"""SVHN, the cropped digits (format 2): what was published, and reading one MATLAB file.

The published set of 531,131 extra images is left out, as in the paper. The files are read here and
not by scipy, which takes what a file says of itself for true: a flipped bit ends the process.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from foveapool.data.official import Edition, OfficialSet, Remote

_SITE = "ufldl.stanford.edu/housenumbers"


def read_svhn_file(path: Path, count: int) -> tuple[Tensor, Tensor]:
    """Images uint8 (count, 3, 32, 32) and digits int64 (count,) of a .mat file."""
    try:
        found = _read_arrays(path, _PIXELS * count + _SMALL)
        if missing := {"X", "y"} - found.keys():
            raise ValueError(f"no {' and no '.join(sorted(missing))}")
    except (ValueError, zlib.error) as error:
        raise ValueError(
            f"not a whole MATLAB file with X and y ({error}): it has "
            f"{path.stat().st_size:,} bytes{_official_size(path.name)}"
        ) from error
    pixels, marks = found["X"], found["y"]
    if pixels.dtype != np.uint8 or pixels.shape != (32, 32, 3, count):
        raise ValueError(f"X: got {pixels.dtype} {pixels.shape}, wanted uint8 (32, 32, 3, {count})")
    if marks.size != count:
        raise ValueError(f"y: got {marks.dtype} {marks.shape}, wanted ({count}, 1) numbers")
    # The bounds are false for NaN.
    if not (marks.min() >= 1 and marks.max() <= 10 and np.array_equal(marks, np.rint(marks))):
        raise ValueError(
            f"y: got {marks.min()} to {marks.max()}, wanted whole numbers from 1 to 10, 10 for "
            "digit 0"
        )
    images = np.ascontiguousarray(pixels.transpose(3, 2, 0, 1))
    digits = marks.reshape(count).astype(np.int64) % 10
    return torch.from_numpy(images), torch.from_numpy(digits)


# Bytes of one image, and room for labels and whatever else somebody has put beside the images.
_PIXELS, _SMALL = 32 * 32 * 3, 16_000_000
# Kinds of elements in MATLAB's format 5, and numpy's names for those of numbers.
_MATRIX, _COMPRESSED = 14, 15
_TYPES = dict(enumerate(("i1", "u1", "i2", "u2", "i4", "u4", "f4"), 1))
_TYPES |= {9: "f8", 12: "i8", 13: "u8"}
# Kinds of arrays; those of text, cells and objects are none of ours.
_CLASSES = dict(enumerate(("f8", "f4", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"), 6))
_COMPLEX = 0x0800


def _read_arrays(path: Path, most: int) -> dict[str, np.ndarray]:
    """The arrays of numbers in a file, by name; ValueError where they take more than `most`."""
    found: dict[str, np.ndarray] = {}
    with open(path, "rb") as file:
        order = {b"\x00\x01IM": "<", b"\x01\x00MI": ">"}.get(file.read(128)[124:])
        if order is None:
            raise ValueError("no MATLAB file of version 5")
        content = file.read(most)
        if file.read(1):
            raise ValueError("it holds more than the images take")
    for kind, element in _split(content, order, padding=1):
        if kind == _COMPRESSED:
            stream = zlib.decompressobj()
            element = stream.decompress(element, most)
            if not stream.eof:
                raise ValueError("it is not whole, or unpacks to more than the images take")
            kind, element = next(_split(element, order), (0, b""))
        most -= len(element)
        if most <= 0:
            raise ValueError("it holds more than the images take")
        if kind == _MATRIX:
            found |= _read_matrix(element, order)
    return found


def _split(content: bytes, order: str, padding: int = 8) -> Iterator[tuple[int, bytes]]:
    """The elements that follow each other, each with its kind; ValueError where one ends early."""
    at = 0
    while at < len(content):
        if len(content) < at + 8:
            raise ValueError("it ends early")
        kind, size = struct.unpack_from(f"{order}II", content, at)
        begin = at + 8
        if kind >> 16:  # so few bytes that they stand in the tag itself
            kind, size, begin = kind & 0xFFFF, kind >> 16, at + 4
            at += 8
        else:
            at = begin + size + -size % padding
        if begin + size > min(at, len(content)):
            raise ValueError(f"it ends early: {size:,} bytes are not there")
        yield kind, content[begin : begin + size]


def _read_matrix(content: bytes, order: str) -> dict[str, np.ndarray]:
    """The array by its name, if it is one of numbers."""
    parts = _split(content, order)
    flags, sizes, name, numbers = (next(parts, (0, b"")) for _ in range(4))
    if len(flags[1]) != 8:
        raise ValueError("an array does not say of what kind it is")
    told = struct.unpack(f"{order}II", flags[1])[0]
    wanted, stored = _CLASSES.get(told & 0xFF), _TYPES.get(numbers[0])
    if wanted is None or stored is None or told & _COMPLEX:
        return {}
    shape = np.frombuffer(sizes[1], f"{order}i4").tolist()
    values = np.frombuffer(numbers[1], order + stored)
    if min(shape, default=-1) < 0 or math.prod(shape) != len(values):
        raise ValueError(f"got {len(values):,} numbers for an array of {shape}")
    return {name[1].decode("latin1"): values.astype(wanted, copy=False).reshape(shape, order="F")}


def _official_size(name: str) -> str:
    sizes = [remote.size for remote in SVHN.editions[0].remotes if remote.name == name]
    return f", the official file {sizes[0]:,}" if sizes else ""


SVHN = OfficialSet(
    name="svhn",
    classes=tuple("0123456789"),
    train_counts=(4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659),
    test_counts=(1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595),
    editions=(
        Edition(
            (
                Remote(
                    f"https://{_SITE}/train_32x32.mat",
                    size=182_040_794,
                    md5="e26dedcc434d2e4c54c9b2d4a06d8373",
                    plain=f"http://{_SITE}/train_32x32.mat",
                ),
                Remote(
                    f"https://{_SITE}/test_32x32.mat",
                    size=64_275_384,
                    md5="eb5a983be6a315427106f1b164d9cef3",
                    plain=f"http://{_SITE}/test_32x32.mat",
                ),
            ),
            train={"train_32x32.mat": "e26dedcc434d2e4c54c9b2d4a06d8373"},
            test={"test_32x32.mat": "eb5a983be6a315427106f1b164d9cef3"},
        ),
    ),
    read_file=read_svhn_file,
    normalization="image",
)
