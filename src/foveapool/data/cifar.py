"""CIFAR-10 and CIFAR-100: what was published, and reading one file of either edition.

The binary edition comes first: it needs no unpickling. The labels of CIFAR-100 are its fine ones.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from foveapool.data.images import Augmentation
from foveapool.data.official import Edition, OfficialSet, Remote
from foveapool.data.unpickle import read_batch

_SHAPE = (3, 32, 32)
_PIXELS = 3 * 32 * 32
_SITE = "https://www.cs.toronto.edu/~kriz"
_CIFAR10_CLASSES = "airplane automobile bird cat deer dog frog horse ship truck"
_CIFAR100_CLASSES = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly
camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup
dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower
leopard lion lizard lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid
otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray
road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle
wardrobe whale willow_tree wolf woman worm
"""


def read_cifar_file(
    path: Path, count: int, *, label_bytes: int, label_key: str
) -> tuple[Tensor, Tensor]:
    """Images uint8 (count, 3, 32, 32) and labels int64 (count,) of a binary or a python batch."""
    if path.suffix == ".bin":
        pixels, labels = _read_binary(path, count, label_bytes)
    else:
        pixels, labels = _read_python(path, count, label_key)
    images = np.require(pixels.reshape(count, *_SHAPE), requirements=["C", "W"])
    return torch.from_numpy(images), torch.from_numpy(labels.astype(np.int64))


def _read_binary(path: Path, count: int, label_bytes: int) -> tuple[np.ndarray, np.ndarray]:
    record = label_bytes + _PIXELS
    size = path.stat().st_size
    if size != count * record:
        raise ValueError(
            f"got {size:,} bytes, wanted {count * record:,} ({count:,} images of {record:,} bytes)"
        )
    records = np.fromfile(path, np.uint8).reshape(count, record)
    return records[:, label_bytes:], records[:, label_bytes - 1]


def _read_python(path: Path, count: int, label_key: str) -> tuple[np.ndarray, np.ndarray]:
    try:
        batch = read_batch(path)
    except ValueError as error:
        raise ValueError(
            f"{error}; the file has {path.stat().st_size:,} bytes, wanted {count:,} images, "
            f"{count * _PIXELS:,} bytes and some more for the labels"
        ) from error
    pixels, labels = batch.get("data"), np.asarray(batch.get(label_key))
    if not isinstance(pixels, np.ndarray) or pixels.shape != (count, _PIXELS):
        got = f"an array of {pixels.shape}" if isinstance(pixels, np.ndarray) else repr(pixels)
        raise ValueError(f"data: got {got}, wanted ({count}, {_PIXELS}), one image a row")
    if labels.dtype.kind not in "iu" or labels.shape != (count,):
        raise ValueError(
            f"{label_key}: got {labels.dtype} {labels.shape}, wanted {count} whole numbers"
        )
    return pixels, labels


CIFAR10 = OfficialSet(
    name="cifar10",
    classes=tuple(_CIFAR10_CLASSES.split()),
    train_counts=(5000,) * 10,
    test_counts=(1000,) * 10,
    editions=(
        Edition(
            (
                Remote(
                    f"{_SITE}/cifar-10-binary.tar.gz",
                    size=170_052_171,
                    md5="c32a1d4ab5d03f1284b67883e8d87530",
                ),
            ),
            train={
                "cifar-10-batches-bin/data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
                "cifar-10-batches-bin/data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
                "cifar-10-batches-bin/data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
                "cifar-10-batches-bin/data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
                "cifar-10-batches-bin/data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
            },
            test={"cifar-10-batches-bin/test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d"},
        ),
        Edition(
            (
                Remote(
                    f"{_SITE}/cifar-10-python.tar.gz",
                    size=170_498_071,
                    md5="c58f30108f718f92721af3b95e74349a",
                ),
            ),
            train={
                "cifar-10-batches-py/data_batch_1": "c99cafc152244af753f735de768cd75f",
                "cifar-10-batches-py/data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
                "cifar-10-batches-py/data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
                "cifar-10-batches-py/data_batch_4": "634d18415352ddfa80567beed471001a",
                "cifar-10-batches-py/data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
            },
            test={"cifar-10-batches-py/test_batch": "40351d587109b95175f43aff81a1287e"},
        ),
    ),
    read_file=partial(read_cifar_file, label_bytes=1, label_key="labels"),
    normalisation="channel",
    augmentation=Augmentation(),
)

CIFAR100 = OfficialSet(
    name="cifar100",
    classes=tuple(_CIFAR100_CLASSES.split()),
    train_counts=(500,) * 100,
    test_counts=(100,) * 100,
    editions=(
        Edition(
            (
                Remote(
                    f"{_SITE}/cifar-100-binary.tar.gz",
                    size=168_513_733,
                    md5="03b5dce01913d631647c71ecec9e9cb8",
                ),
            ),
            train={"cifar-100-binary/train.bin": "6172c7755cfe09b2fe270c85cebc1b15"},
            test={"cifar-100-binary/test.bin": "4499cfba6c016c1be1438163640a0898"},
        ),
        Edition(
            (
                Remote(
                    f"{_SITE}/cifar-100-python.tar.gz",
                    size=169_001_437,
                    md5="eb9058c3a382ffc7106e4002c42a8d85",
                ),
            ),
            train={"cifar-100-python/train": "16019d7e3df5f24257cddd939b257f8d"},
            test={"cifar-100-python/test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
        ),
    ),
    read_file=partial(read_cifar_file, label_bytes=2, label_key="fine_labels"),
    normalisation="channel",
    augmentation=Augmentation(),
)
