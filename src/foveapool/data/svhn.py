"""SVHN, the cropped digits (format 2): what was published, and reading one MATLAB file.

The published set of 531,131 extra images is left out, as in the paper.
"""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import IO

import numpy as np
import torch
from torch import Tensor

from foveapool._suggest import how_to_install
from foveapool.data.official import Edition, OfficialSet, Remote

_SITE = "ufldl.stanford.edu/housenumbers"


def read_svhn_file(path: Path, count: int) -> tuple[Tensor, Tensor]:
    """Images uint8 (count, 3, 32, 32) and digits int64 (count,) of a .mat file."""
    try:
        from scipy.io import loadmat
    except ImportError as error:
        raise ImportError(f"reading SVHN needs scipy: {how_to_install('data')}") from error
    with open(path, "rb") as file:
        try:
            found = loadmat(_inflate(file, _PIXELS * count + _SMALL), variable_names=["X", "y"])
            pixels, marks = found["X"], found["y"]
        except Exception as error:  # scipy meets a damaged file in many ways
            raise ValueError(
                f"not a whole MATLAB file with X and y ({type(error).__name__}: {error}): it has "
                f"{path.stat().st_size:,} bytes{_official_size(path.name)}"
            ) from error
    if pixels.dtype != np.uint8 or pixels.shape != (32, 32, 3, count):
        raise ValueError(f"X: got {pixels.dtype} {pixels.shape}, wanted uint8 (32, 32, 3, {count})")
    if marks.dtype.kind not in "iuf" or marks.size != count:
        raise ValueError(f"y: got {marks.dtype} {marks.shape}, wanted ({count}, 1) numbers")
    marks = marks.reshape(count).astype(np.int64)
    if marks.min() < 1 or marks.max() > 10:
        raise ValueError(f"y: got {marks.min()} to {marks.max()}, wanted 1 to 10, 10 for digit 0")
    images = np.ascontiguousarray(pixels.transpose(3, 2, 0, 1))
    return torch.from_numpy(images), torch.from_numpy(marks % 10)


# Bytes of one image, and room for labels and whatever else somebody has put beside the images.
_PIXELS, _SMALL = 32 * 32 * 3, 16_000_000
_COMPRESSED = 15


def _inflate(file: IO[bytes], most: int) -> io.BytesIO:
    """A MATLAB 5 file with nothing compressed, of at most so many bytes.

    scipy unpacks as much as a file says, and gives it the room before it has seen the bytes.
    """
    head = file.read(128)
    orders = {b"\x00\x01IM": "<", b"\x01\x00MI": ">"}
    if head[124:] not in orders:
        raise ValueError("no MATLAB file of version 5")
    plain = io.BytesIO()
    plain.write(head)
    while tag := file.read(8):
        kind, size = struct.unpack(f"{orders[head[124:]]}II", tag)
        content = file.read(min(size, most))
        if len(content) < size:
            raise ValueError("it ends early, or is too large")
        if kind == _COMPRESSED:
            stream = zlib.decompressobj()
            content, tag = stream.decompress(content, most), b""
            if not stream.eof:
                raise ValueError("it is not whole, or unpacks to more than the images take")
        most -= len(content)
        if most <= 0:
            raise ValueError("it holds more than the images take")
        plain.write(tag + content)
    plain.seek(0)
    return plain


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
