"""Corrupted and perturbed sets on disk, in the layouts that their authors publish.

Corruptions: `NAME.npy`, uint8 (5 n, H, W, 3), a block of the n images for each severity, and
`labels.npy`, the n labels five times. Perturbations: `NAME.npy`, uint8 (n, frames, H, W, 3), no
labels. Files are read through a memory map, so that only what is looked at is loaded; what fills
them stands in `generate.py`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from foveapool.files import replacing
from foveapool.robustness.corruption_metrics import SEVERITIES

LABELS = "labels"
# What a set that was generated here says of itself; published ones have no such file.
GENERATED = "generated.json"
# The folders of the published archives end like this: CIFAR-10-C, CIFAR-10-P.
CORRUPTIONS_END, PERTURBATIONS_END = "-C", "-P"


def array_path(folder: str | os.PathLike[str], name: str) -> Path:
    """The file of a corruption, of a perturbation or of the labels."""
    return Path(folder) / f"{name}.npy"


def set_folder(folder: str | os.PathLike[str], ending: str) -> Path:
    """The folder with the files: `folder`, or the one in it whose name ends in -C or -P.

    So that one folder may hold both archives, whose files have the same names.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such folder, wanted one with a set ending {ending}")
    inside = sorted(path for path in folder.glob(f"*{ending}") if path.is_dir())
    if len(inside) > 1:
        names = ", ".join(path.name for path in inside)
        raise ValueError(f"{folder}: holds {names}; name the one to read")
    return inside[0] if inside else folder


def open_corruption(
    folder: str | os.PathLike[str], name: str, severity: int, count: int
) -> np.ndarray:
    """The `count` images of one severity, uint8 (count, H, W, 3), mapped from their file."""
    there = _severities(folder)
    if severity not in there:
        raise ValueError(f"severity: got {severity!r}, wanted one of {there} in {folder}")
    path = array_path(folder, name)
    array = _open(path, count * len(there), ("H", "W", 3), f"{len(there)} blocks of {count} images")
    first = count * there.index(severity)
    return array[first : first + count]


def open_perturbation(
    folder: str | os.PathLike[str], name: str, frames: int, count: int
) -> np.ndarray:
    """The sequences of `count` images, uint8 (count, frames, H, W, 3), mapped from their file."""
    path = array_path(folder, name)
    return _open(path, count, (frames, "H", "W", 3), f"a sequence for each of {count} images")


def read_labels(folder: str | os.PathLike[str], count: int) -> Tensor:
    """The labels of the `count` images of a corrupted set, int64 (count,)."""
    path = array_path(folder, LABELS)
    blocks = len(_severities(folder))
    array = _open(path, count * blocks, (), f"{blocks} times the labels of {count} images", "iu")
    labels = torch.from_numpy(array.astype(np.int64)).view(blocks, count)
    if not torch.equal(labels, labels[:1].expand_as(labels)):
        raise ValueError(
            f"{path}: the labels differ between severities, wanted the same ones {blocks} times; "
            "it belongs to another set"
        )
    return labels[0]


def _open(
    path: Path, rows: int, row: tuple[int | str, ...], meaning: str, kinds: str = ""
) -> np.ndarray:
    """The array of a .npy file, mapped for reading only and checked; nothing is unpickled.

    row: the shape of one row, a letter where any number will do. kinds: numpy's letters of the
    dtypes to accept, uint8 alone if empty.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; generate it, or name another folder")
    try:
        array = np.lib.format.open_memmap(path, mode="r")
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(
            f"{path}: not a whole .npy file of numbers ({error}); copy it again or generate it anew"
        ) from error
    wanted = (rows, *row)
    shape_fits = array.ndim == len(wanted) and all(
        isinstance(side, str) or side == got for side, got in zip(wanted, array.shape, strict=True)
    )
    if not shape_fits or not (array.dtype.kind in kinds or array.dtype == np.uint8):
        hint = ""
        if {array.ndim, len(wanted)} == {4, 5}:
            hint = "; single images lie in the folder that ends in -C, sequences in that in -P"
        sides = ", ".join(map(str, wanted)) + ("," if len(wanted) == 1 else "")
        raise ValueError(
            f"{path}: got {array.dtype} {array.shape}, wanted "
            f"{'whole numbers' if kinds else 'uint8'} ({sides}): {meaning}{hint}"
        )
    return array


def _severities(folder: str | os.PathLike[str]) -> tuple[int, ...]:
    """The severities whose blocks the files hold: all five unless the set says otherwise."""
    return tuple((generated(folder) or {}).get("severities", SEVERITIES))


def generated(folder: str | os.PathLike[str]) -> dict[str, Any] | None:
    """What a set says of how it was generated here; None if it does not."""
    path = Path(folder) / GENERATED
    if not path.is_file():
        return None
    try:
        return dict(json.loads(path.read_text("utf-8")))
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"{path}: not written by foveapool ({error}); generate the set into another folder"
        ) from error


@contextmanager
def new_array(path: Path, shape: tuple[int, ...]) -> Iterator[Callable[[np.ndarray], None]]:
    """What appends rows to a new uint8 array, which is at `path` when it is complete, not before.

    Rows are written to a file beside it, not to a memory map: there a full disk is an error, here
    it would be the end of the process.
    """
    with replacing(path) as temporary, open(temporary, "wb") as file:
        header = {"descr": "|u1", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        written = 0

        def append(rows: np.ndarray) -> None:
            nonlocal written
            if rows.dtype != np.uint8 or rows.shape[1:] != shape[1:]:
                raise ValueError(
                    f"{path}: got rows of {rows.dtype} {rows.shape[1:]}, wanted uint8 {shape[1:]}"
                )
            file.write(np.ascontiguousarray(rows).data)
            written += len(rows)

        yield append
        if written != shape[0]:
            raise ValueError(f"{path}: got {written} rows, wanted {shape[0]}")
