"""Tiny data sets in the official file formats, written without the code under test."""

from __future__ import annotations

import io
import pickle
import struct
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from foveapool.data.cifar import CIFAR10, CIFAR100
from foveapool.data.svhn import SVHN

TINY_CIFAR10 = replace(CIFAR10, train_counts=(2,) * 10, test_counts=(1,) * 10)
TINY_CIFAR100 = replace(CIFAR100, train_counts=(1,) * 100, test_counts=(1,) * 100)
TINY_SVHN = replace(SVHN, train_counts=(6,) * 10, test_counts=(1,) * 10)


def random_images(*counts: int, classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Images uint8 (n, 3, 32, 32) and n labels; among each of `counts` all classes are as many."""
    random = np.random.default_rng(seed)
    images = random.integers(0, 256, (sum(counts), 3, 32, 32), dtype=np.uint8)
    labels = [random.permutation(np.arange(count) % classes) for count in counts]
    return images, np.concatenate(labels)


class _Python2Pickler(pickle._Pickler):
    """Writes bytes as Python 2 wrote its strings, which is how the official batches hold them."""

    dispatch: ClassVar[dict] = dict(pickle._Pickler.dispatch)

    def save_string(self, value: bytes) -> None:
        self.write(pickle.BINSTRING + struct.pack("<i", len(value)) + value)
        self.memoize(value)

    dispatch[bytes] = save_string


def python2_pickle(value: object) -> bytes:
    file = io.BytesIO()
    _Python2Pickler(file, protocol=2).dump(value)
    return file.getvalue().replace(b"numpy._core.multiarray", b"numpy.core.multiarray")


def python_batch(images: np.ndarray, labels: np.ndarray, key: bytes = b"labels") -> dict:
    data = images.reshape(len(images), 3072)
    return {b"batch_label": b"a batch", key: labels.tolist(), b"data": data}


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def write_cifar10(root: Path, edition: str, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Six files of the "python" or "binary" edition; the images and labels, training ones first."""
    images, labels = random_images(20, 10, classes=10, seed=seed)
    names = [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]
    ends = [4, 8, 12, 16, 20]
    pieces = (names, np.split(images, ends), np.split(labels, ends))
    for name, some, marks in zip(*pieces, strict=True):
        if edition == "python":
            content = python2_pickle(python_batch(some, marks))
            write(root / "cifar-10-batches-py" / name, content)
        else:
            rows = np.concatenate([marks[:, None].astype(np.uint8), some.reshape(-1, 3072)], 1)
            write(root / "cifar-10-batches-bin" / f"{name}.bin", rows.tobytes())
    return images, labels


def write_cifar100(root: Path, edition: str) -> tuple[np.ndarray, np.ndarray]:
    images, labels = random_images(100, 100, classes=100)
    for name, part in (("train", slice(0, 100)), ("test", slice(100, 200))):
        coarse = labels[part] // 5
        if edition == "python":
            batch = python_batch(images[part], labels[part], b"fine_labels")
            batch[b"coarse_labels"] = coarse.tolist()
            write(root / "cifar-100-python" / name, python2_pickle(batch))
        else:
            marks = np.stack([coarse, labels[part]], 1).astype(np.uint8)
            rows = np.concatenate([marks, images[part].reshape(-1, 3072)], 1)
            write(root / "cifar-100-binary" / f"{name}.bin", rows.tobytes())
    return images, labels


def write_svhn(root: Path) -> tuple[np.ndarray, np.ndarray]:
    from scipy.io import savemat

    images, labels = random_images(60, 10, classes=10)
    root.mkdir(parents=True, exist_ok=True)
    for name, part in (("train", slice(0, 60)), ("test", slice(60, 70))):
        marks = np.where(labels[part] == 0, 10, labels[part]).astype(np.uint8)[:, None]
        variables = {"X": images[part].transpose(2, 3, 1, 0), "y": marks}
        savemat(root / f"{name}_32x32.mat", variables, do_compression=True)
    return images, labels
