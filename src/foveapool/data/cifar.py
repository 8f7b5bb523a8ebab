"""CIFAR-10 and CIFAR-100 as their author publishes them: binary files, or pickled batches.

Reading a pickle runs whatever it says. Here one may only build what those files hold, dicts,
lists, numbers, text and arrays of bytes; anything else is refused unread.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from foveapool.data.images import Augmentation
from foveapool.data.official import Edition, OfficialSet, Remote

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
    normalization="channel",
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
    normalization="channel",
    augmentation=Augmentation(),
)


class _Kind:
    """Stands for numpy.dtype: only its name is kept."""

    def __init__(self, name: bytes | str, *_: Any) -> None:
        self.name = _text(name)

    def __setstate__(self, state: Any) -> None:
        pass  # byte order and fields; bytes have neither


class _Array:
    """Stands for numpy.ndarray and for the function that pickles call to make an empty one."""

    state: tuple[Any, ...] = ()

    def __init__(self, *_: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def bytes_array(self) -> np.ndarray:
        """The uint8 array that numpy would have made of the state."""
        _, shape, kind, fortran, raw = self.state
        if kind.name not in ("u1", "|u1", "uint8"):
            raise ValueError(f"got an array of {kind.name}, wanted bytes (u1)")
        if math.prod(shape) != len(raw):
            raise ValueError(f"got {len(raw):,} bytes for an array of {shape}")
        return np.frombuffer(raw, np.uint8).reshape(shape, order="F" if fortran else "C")


def _encode(text: str, encoding: str = "") -> bytes:
    """Stands for codecs.encode, of whose many ways batches need one."""
    if encoding != "latin1":
        raise ValueError(f"got text in {encoding!r}, wanted latin1")
    return text.encode("latin1")


_STAND_INS: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Kind,
    # Python 3 writes bytes for Python 2 as a call of this function.
    ("_codecs", "encode"): _encode,
}


class _Refused(Exception):
    pass


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _STAND_INS[module, name]
        except KeyError:
            raise _Refused(f"{module}.{name}") from None


# More than twice the largest batch that was published.
_LARGEST_BATCH = 400_000_000
# Twice what 50,000 names and labels take, however they are written.
_MOST_INSTRUCTIONS = 1_000_000
# No batch has sets; nothing that is written by a pickler has a DUP.
_UNUSED = {"DUP", "EMPTY_SET", "ADDITEMS", "FROZENSET", "NEXT_BUFFER", "READONLY_BUFFER"}


def _check_program(content: bytes) -> None:
    """ValueError where a few bytes would have the pickle take much memory or time.

    A pickle claims sizes and places in its memo before it has filled them, and tuples in tuples,
    each twice in the next, take for ever where they are a key.
    """
    if len(content) > _LARGEST_BATCH:
        raise ValueError(f"got more than {_LARGEST_BATCH:,} bytes, which no batch has")
    tuples, count, is_tuple = set(), 0, False
    # Reading an instruction refuses a size that goes beyond the end.
    for step, (code, value, _) in enumerate(pickletools.genops(content)):
        name = code.name
        if step > _MOST_INSTRUCTIONS:
            raise ValueError(f"got more than {_MOST_INSTRUCTIONS:,} instructions")
        if name in _UNUSED:
            raise ValueError(f"got the instruction {name}, which no batch has")
        if "PUT" in name or name == "MEMOIZE":
            place = count if value is None else value
            if place > step:
                raise ValueError(f"got place {place:,} of the memo after {step:,} instructions")
            count += 1
            tuples.discard(place)
            if is_tuple:
                tuples.add(place)
        elif "GET" in name and value in tuples:
            raise ValueError("got a tuple twice, which no batch has")
        else:
            is_tuple = name.startswith("TUPLE")


def read_batch(path: Path) -> dict[str, Any]:
    """The entries of a batch file, arrays of bytes as numpy arrays; ValueError if it is no batch.

    A file that asks for anything but what the official batches need is refused by the name of
    what it asked for, before any of that is looked up.
    """
    with open(path, "rb") as file:
        content = file.read(_LARGEST_BATCH + 1)
        try:
            _check_program(content)
            found = _Unpickler(io.BytesIO(content), encoding="bytes").load()
            if not isinstance(found, dict):
                raise ValueError(f"got a {type(found).__name__}, wanted a dictionary")
            return {_text(key): _value(value) for key, value in found.items()}
        except _Refused as error:
            raise ValueError(
                f"refused: the pickle asks for {error}, which no CIFAR batch needs; nothing in it "
                "was run, it may be malicious"
            ) from error
        except Exception as error:  # a damaged pickle may fail in any way
            reason = f"{type(error).__name__}: {error}"
            raise ValueError(f"not a whole CIFAR batch ({reason})") from error


def _text(key: Any) -> str:
    return key.decode("latin1") if isinstance(key, bytes) else str(key)


def _value(value: Any) -> Any:
    return value.bytes_array() if isinstance(value, _Array) else value
