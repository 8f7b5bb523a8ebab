"""A data set of the user's own in one .npz file."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from foveapool.data.images import DataSet, Images, Normalisation

_ARRAYS = ("train_images", "train_labels", "test_images", "test_labels")
_CHOICE = "normalisation"


def read_npz(path: Path) -> DataSet:
    """The set in a file with the arrays train_images, train_labels, test_images, test_labels.

    Images are uint8 (n, H, W, C), (n, C, H, W) with 1 or 3 channels, or grey (n, H, W); labels
    whole numbers from 0 on. Classes are named by their numbers. A string `normalisation`, "image"
    or "channel" (the default), may stand beside them. Nothing is unpickled.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file, wanted an .npz with {', '.join(_ARRAYS)}")
    try:
        with np.load(path, allow_pickle=False) as file:
            missing = [name for name in _ARRAYS if name not in file.files]
            arrays = {name: file[name] for name in _ARRAYS if not missing}
            normalisation = str(file[_CHOICE]) if _CHOICE in file.files else "channel"
    except (ValueError, OSError, EOFError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(
            f"{path}: not a whole .npz file of plain arrays ({error}); write it with "
            "numpy.savez_compressed, images as uint8"
        ) from error
    if missing:
        raise ValueError(f"{path}: no {', '.join(missing)}; wanted the arrays {', '.join(_ARRAYS)}")
    try:
        labels = {part: _labels(f"{part}_labels", arrays) for part in ("train", "test")}
        count = 1 + max(int(labels["train"].max()), int(labels["test"].max()))
        classes = tuple(str(i) for i in range(count))
        train, test = (
            Images(_images(f"{part}_images", arrays), labels[part], classes)
            for part in ("train", "test")
        )
        return DataSet(f"npz:{path}", train, test, _normalisation(normalisation), augmentation=None)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _normalisation(value: str) -> Normalisation:
    if value == "channel":
        return "channel"
    if value == "image":
        return "image"
    raise ValueError(f"{_CHOICE}: got {value!r}, wanted 'channel' or 'image'")


def _labels(name: str, arrays: dict[str, np.ndarray]) -> Tensor:
    array = arrays[name]
    if array.dtype.kind not in "iu" or array.ndim != 1 or not len(array):
        raise ValueError(f"{name}: got {array.dtype} {array.shape}, wanted whole numbers (n,)")
    return torch.from_numpy(array.astype(np.int64))


def _images(name: str, arrays: dict[str, np.ndarray]) -> Tensor:
    array = arrays[name]
    wanted = "uint8 (n, H, W, C) or (n, C, H, W) with 1 or 3 channels, or (n, H, W)"
    if array.dtype != np.uint8 or array.ndim not in (3, 4):
        raise ValueError(f"{name}: got {array.dtype} {array.shape}, wanted {wanted}")
    if array.ndim == 3:
        array = array[:, None]
    else:
        first, last = array.shape[1] in (1, 3), array.shape[3] in (1, 3)
        if first == last:
            which = "both" if first else "neither"
            raise ValueError(
                f"{name}: got {array.shape}, in which {which} the second and the last size could "
                f"be the channels; wanted {wanted}"
            )
        array = array if first else array.transpose(0, 3, 1, 2)
    return torch.from_numpy(np.require(array, requirements=["C", "W"]))
