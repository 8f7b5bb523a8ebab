"""Files of images: published sets, archives, one's own pictures, corrupted sets."""

from __future__ import annotations

import pickle
import shutil
import tarfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from scipy.io import savemat

from foveapool.data.cifar import CIFAR10
from foveapool.data.download import unpack
from foveapool.data.images import DataSet
from foveapool.data.official import OfficialSet, read_official
from foveapool.data.svhn import SVHN
from foveapool.data.user_data import read_folder, read_npz, write_npz
from foveapool.robustness.sets import generate_corruptions, open_corruption, read_labels
from foveapool.robustness.weather import load_frost_pictures

from ..data.oracles import python_batch, random_images, write_cifar10
from .kind import Kind
from .mutations import (
    inside_gzip,
    mutate_json,
    mutate_mat,
    mutate_npy,
    mutate_pickle,
    mutate_png,
    mutate_tar,
    mutate_zip,
)

COUNTS = {"train_counts": (2,) * 10, "test_counts": (1,) * 10}
TINY_CIFAR, TINY_SVHN = replace(CIFAR10, **COUNTS), replace(SVHN, **COUNTS)
ENDINGS = {"png": "png", "jpg": "jpeg", "gif": "gif", "bmp": "bmp", "tif": "tiff", "webp": "webp"}


def check(data: DataSet) -> None:
    for part in (data.train, data.test):
        assert part.images.dtype == torch.uint8 and part.images.dim() == 4
        assert len(part.images) == len(part.labels) > 0
        assert 0 <= int(part.labels.min()) <= int(part.labels.max()) < len(part.classes)


def read_set(official: OfficialSet, folder: Path) -> None:
    data = read_official(official, folder)
    check(data)
    assert len(data.train) == sum(official.train_counts)


def make_npz(folder: Path) -> None:
    write_cifar10(folder / "cifar", "binary")
    write_npz(read_official(TINY_CIFAR, folder / "cifar"), folder / "set.npz")
    shutil.rmtree(folder / "cifar")


def make_new_pickles(folder: Path) -> None:
    """As Python 3 writes them, by each of its protocols."""
    write_cifar10(folder, "python")
    images, labels = random_images(4, classes=4)
    for protocol, path in enumerate(sorted((folder / "cifar-10-batches-py").glob("data_*"))):
        path.write_bytes(pickle.dumps(python_batch(images, labels), protocol=protocol))


def make_svhn(folder: Path) -> None:
    images, labels = random_images(20, 10, classes=10)
    for name, part in (("train", slice(0, 20)), ("test", slice(20, 30))):
        digits = np.where(labels[part] == 0, 10, labels[part]).astype(np.uint8)[:, None]
        variables = {"X": images[part].transpose(2, 3, 1, 0), "y": digits}
        savemat(folder / f"{name}_32x32.mat", variables, do_compression=name == "train")


def make_archive(folder: Path) -> None:
    write_cifar10(folder, "binary")
    inside = folder / "cifar-10-batches-bin"
    with tarfile.open(folder / "archive.tar.gz", "w:gz") as tar:
        tar.add(inside, inside.name)
    shutil.rmtree(inside)


def read_archive(folder: Path) -> None:
    to = folder / "deep" / "to"
    to.mkdir(parents=True)
    try:
        unpack(folder / "archive.tar.gz", to)
    finally:
        assert {path.name for path in folder.iterdir()} == {"archive.tar.gz", "deep"}
        assert list(to.parent.iterdir()) == [to]
        found = list(to.rglob("*"))
        assert not any(path.is_symlink() for path in found)
        assert all(path.is_file() or path.is_dir() for path in found)


def make_images(folder: Path, endings: Iterable[str] = ENDINGS) -> None:
    images, _ = random_images(12, classes=2)
    for i, ending in enumerate(endings):
        for part in ("train", "test"):
            path = folder / part / "ab"[i % 2] / f"{i}.{ending}"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(images[i, 0]).convert("RGB").save(path, ENDINGS[ending])


def read_images(folder: Path) -> None:
    check(read_folder(folder))


def read_frost(folder: Path) -> None:
    pictures = load_frost_pictures(folder / "train" / "a", 1.0)
    assert all(each.dtype == torch.uint8 and each.shape[2] == 3 for each in pictures)


def make_corrupted(folder: Path) -> None:
    images, labels = random_images(10, classes=10)
    pixels = torch.from_numpy(images.transpose(0, 2, 3, 1).copy())
    generate_corruptions(folder, pixels, torch.from_numpy(labels), ["brightness"], (1, 3))


def read_corrupted(folder: Path) -> None:
    labels, images = read_labels(folder, 10), open_corruption(folder, "brightness", 3, 10)
    assert (len(images), len(labels), images.shape[3:]) == (10, 10, (3,))
    assert images.dtype == np.uint8


KINDS = {
    "npz": Kind(
        make_npz, lambda folder: check(read_npz(folder / "set.npz")), "set.npz", mutate_zip
    ),
    "binary-cifar": Kind(
        lambda folder: write_cifar10(folder, "binary"),
        lambda folder: read_set(TINY_CIFAR, folder),
        "*/*.bin",
    ),
    "pickled-cifar": Kind(
        lambda folder: write_cifar10(folder, "python"),
        lambda folder: read_set(TINY_CIFAR, folder),
        "*/*_batch*",
        mutate_pickle,
    ),
    "new-pickles": Kind(
        make_new_pickles,
        lambda folder: read_set(TINY_CIFAR, folder),
        "*/data_*",
        mutate_pickle,
    ),
    "svhn": Kind(make_svhn, lambda folder: read_set(TINY_SVHN, folder), "*.mat", mutate_mat),
    "archive": Kind(make_archive, read_archive, "*.gz", inside_gzip(mutate_tar)),
    "png": Kind(make_images, read_images, "*/*/*.png", mutate_png),
    "images": Kind(make_images, read_images, "*/*/*.*"),
    "frost": Kind(
        lambda folder: make_images(folder, ("png", "jpg")), read_frost, "train/a/*", mutate_png
    ),
    "corrupted-set": Kind(make_corrupted, read_corrupted, "*.npy", mutate_npy),
    "corrupted-set-note": Kind(make_corrupted, read_corrupted, "*.json", mutate_json),
}
