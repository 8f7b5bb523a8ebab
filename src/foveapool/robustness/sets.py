"""Corrupted sets on disk in the published layout: made, found and read."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from foveapool._io import clear_leftovers, hold_lock, read_json, replace_file, write_text
from foveapool.robustness.corruptions import block_length, corrupt
from foveapool.robustness.images import check_images
from foveapool.robustness.names import (
    SEVERITIES,
    check_severities,
    corruption_names,
    perturbation_names,
)
from foveapool.robustness.perturbations import PERTURBATIONS, iterate_perturbed

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
    there = _read_severities(folder)
    if severity not in there:
        raise ValueError(f"severity: got {severity!r}, wanted one of {there} in {folder}")
    path, meaning = array_path(folder, name), f"{len(there)} blocks of {count} images"
    array = _open_array(path, count * len(there), ("H", "W", 3), meaning + _as_noted(folder))
    first = count * there.index(severity)
    return array[first : first + count]


def open_perturbation(
    folder: str | os.PathLike[str], name: str, frames: int, count: int
) -> np.ndarray:
    """The sequences of `count` images, uint8 (count, frames, H, W, 3), mapped from their file."""
    path = array_path(folder, name)
    return _open_array(path, count, (frames, "H", "W", 3), f"a sequence for each of {count} images")


def read_labels(folder: str | os.PathLike[str], count: int) -> Tensor:
    """The labels of the `count` images of a corrupted set, int64 (count,)."""
    path = array_path(folder, LABELS)
    blocks = len(_read_severities(folder))
    meaning = f"{blocks} times the labels of {count} images"
    array = _open_array(path, count * blocks, (), meaning + _as_noted(folder), "iu")
    labels = torch.from_numpy(array.astype(np.int64)).view(blocks, count)
    if not torch.equal(labels, labels[:1].expand_as(labels)):
        raise ValueError(
            f"{path}: the labels differ between severities, wanted the same ones {blocks} times; "
            "it belongs to another set"
        )
    return labels[0]


def _open_array(
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
    except Exception as error:  # a damaged header may fail in any way
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


def _read_severities(folder: str | os.PathLike[str]) -> tuple[int, ...]:
    """The severities whose blocks the files hold: all five unless the set says otherwise."""
    note = read_generated(folder)
    there = SEVERITIES if note is None else note.get("severities")
    try:
        return check_severities(there)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{Path(folder) / GENERATED}: got the severities {there!r}, wanted some of "
            f"{SEVERITIES}; generate the set into another folder"
        ) from error


def _as_noted(folder: str | os.PathLike[str]) -> str:
    return f", as {GENERATED} says" if (Path(folder) / GENERATED).is_file() else ""


def read_generated(folder: str | os.PathLike[str]) -> dict[str, Any] | None:
    """What a set says of how it was generated here; None if it does not."""
    path = Path(folder) / GENERATED
    if not path.is_file():
        return None
    try:
        return read_json(path)
    except ValueError as error:
        raise ValueError(
            f"{path}: not written by foveapool ({error}); generate the set into another folder"
        ) from error


@contextmanager
def new_array(path: Path, shape: tuple[int, ...]) -> Iterator[Callable[[np.ndarray], None]]:
    """What appends rows to a new uint8 array, which is at `path` when it is complete, not before.

    Rows are written to a file beside it, not to a memory map: there a full disk is an error, here
    it would be the end of the process.
    """
    with replace_file(path) as temporary, open(temporary, "wb") as file:
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


# Told after every part: images done, images in all, and the name of what is being made.
Progress = Callable[[int, int, str], None]


def generate_corruptions(
    folder: str | os.PathLike[str],
    images: Tensor,
    labels: Tensor,
    names: str | Iterable[str] = "standard",
    severities: Iterable[int] = SEVERITIES,
    *,
    seed: int = 0,
    frost_folder: Path | str | None = None,
    device: torch.device | str = "cpu",
    progress: Progress | None = None,
) -> list[Path]:
    """Writes `NAME.npy` for every name and `labels.npy`; returns the files that it had to make.

    images: uint8 (n, H, W, 3), labels: (n,) from 0 to 255. Fewer severities than five make shorter
    files than the published layout has, and `generated.json` says which they hold. With the same
    seed and kind of device these are the images that `evaluate` corrupts in flight.
    """
    check_images(images)
    _check_labels(labels, len(images))
    chosen, severities = corruption_names(names), check_severities(severities)
    folder, count, length = Path(folder), len(images), block_length(images)
    with _claim_folder(
        folder, _make_facts(images, seed, kind="corruptions", severities=severities)
    ):
        if not array_path(folder, LABELS).exists():
            with new_array(array_path(folder, LABELS), (len(severities) * count,)) as append:
                append(np.tile(labels.cpu().numpy().astype(np.uint8), len(severities)))
        missing = [name for name in chosen if not array_path(folder, name).exists()]
        done, total = 0, len(missing) * len(severities) * count
        for name in missing:
            shape = (len(severities) * count, *images.shape[1:])
            with new_array(array_path(folder, name), shape) as append:
                for severity in severities:
                    for start in range(0, count, length):
                        part = images[start : start + length].to(device)
                        found = corrupt(part, name, severity, seed, start, frost_folder)
                        append(found.cpu().numpy())
                        done += len(part)
                        if progress is not None:
                            progress(done, total, name)
    return [array_path(folder, name) for name in missing]


def generate_perturbations(
    folder: str | os.PathLike[str],
    images: Tensor,
    names: str | Iterable[str] = "all",
    *,
    seed: int = 0,
    reproduce: bool = False,
    device: torch.device | str = "cpu",
    progress: Progress | None = None,
) -> list[Path]:
    """Writes `NAME.npy` for every name; returns the files that it had to make.

    images: uint8 (n, H, W, 3). All 20 files of 10,000 images of 32 x 32 are 18 GB. reproduce: see
    `perturb`. Labels are not written, as their authors do not: flips need none.
    """
    check_images(images)
    chosen, folder = perturbation_names(names), Path(folder)
    with _claim_folder(
        folder, _make_facts(images, seed, kind="perturbations", reproduce=reproduce)
    ):
        missing = [name for name in chosen if not array_path(folder, name).exists()]
        done = 0
        total = len(images) * sum(PERTURBATIONS[name].frames for name in missing)
        for name in missing:
            shape = (len(images), PERTURBATIONS[name].frames, *images.shape[1:])
            with new_array(array_path(folder, name), shape) as append:
                for frames in iterate_perturbed(images.to(device), name, seed, reproduce):
                    append(frames.cpu().numpy())
                    done += frames.shape[0] * frames.shape[1]
                    if progress is not None:
                        progress(done, total, name)
    return [array_path(folder, name) for name in missing]


def _check_labels(labels: Tensor, count: int) -> None:
    if labels.shape != (count,) or labels.is_floating_point():
        raise ValueError(
            f"labels: got {labels.dtype} {tuple(labels.shape)}, wanted whole numbers ({count},), "
            "one an image"
        )
    if count and not 0 <= int(labels.min()) <= int(labels.max()) <= 255:
        raise ValueError(
            f"labels: got {int(labels.min())} to {int(labels.max())}, wanted 0 to 255: the "
            "published layout holds them as bytes"
        )


def _make_facts(images: Tensor, seed: int, **more: Any) -> dict[str, Any]:
    """What two generations must share to fill one folder."""
    checksum = zlib.crc32(images.cpu().contiguous().numpy().data)
    shape = list(images.shape)
    # Through JSON, so that they equal what is read back.
    return json.loads(json.dumps({**more, "seed": seed, "images": shape, "checksum": checksum}))


@contextmanager
def _claim_folder(folder: Path, facts: dict[str, Any]) -> Iterator[None]:
    """The folder for this process alone, made if there is none, its set being the one of `facts`.

    What a killed process left of a file is swept away.
    """
    with hold_lock(folder / ".lock"):
        clear_leftovers(folder / "*.npy")
        known = read_generated(folder)
        if known is None:
            if strangers := sorted(path.name for path in folder.glob("*.npy")):
                raise ValueError(
                    f"{folder}: holds {strangers[0]}, which was not generated here; choose another "
                    "folder"
                )
            write_text(folder / GENERATED, json.dumps(facts, indent=1) + "\n")
        elif known != facts:
            names = sorted(n for n in known.keys() | facts.keys() if known.get(n) != facts.get(n))
            shown = [f"{name} {known.get(name)}, not {facts.get(name)}" for name in names]
            raise ValueError(
                f"{folder}: holds another set: {'; '.join(shown)}; choose another folder"
            )
        yield
