"""Images of the user's own: a folder of files, one folder a class, or one .npz file."""

from __future__ import annotations

import math
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from foveapool._io import replace_file
from foveapool._memory import check_fits_memory
from foveapool._pictures import read_picture
from foveapool.data.images import Augmentation, DataSet, Images, Normalization

ENDINGS = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff", ".webp"}


def read_folder(path: Path, size: int | tuple[int, int] | None = None) -> DataSet:
    """The images below `path` as RGB, classes by name; files that are no images are passed over.

    size: the side, or (H, W), to which every image is resized; without it all must agree.
    """
    resize = (size, size) if isinstance(size, int) else size
    if resize is not None and (len(resize) != 2 or min(resize) < 1):
        raise ValueError(f"size: got {size!r}, wanted a number of pixels or (H, W)")
    classes, files = _list_classes(path / "train"), list_image_files(path)
    model, _ = files["train"][0]
    shape = read_picture(model, resize).shape
    _check_all_fit(path, sum(len(each) for each in files.values()), shape)

    def read(part: str) -> Images:
        images = torch.empty(len(files[part]), *shape, dtype=torch.uint8)
        for i, (file, _) in enumerate(files[part]):
            pixels = read_picture(file, resize)
            if pixels.shape != shape:
                raise ValueError(
                    f"{file}: got {pixels.shape[0]} x {pixels.shape[1]} pixels, wanted "
                    f"{shape[0]} x {shape[1]} as in {model}; or resize all by size=, which is "
                    "--size of `foveapool train`, and options = { size = 32 } in a study's [data]"
                )
            images[i] = torch.from_numpy(pixels)
        labels = torch.tensor([label for _, label in files[part]])
        return Images(images.permute(0, 3, 1, 2).contiguous(), labels, classes)

    name = f"folder:{path}"
    return DataSet(name, read("train"), read("test"), normalization="channel", augmentation=None)


def _check_all_fit(path: Path, count: int, shape: tuple[int, ...]) -> None:
    """ValueError where the images, of which the larger part is copied, need too much memory."""
    try:
        check_fits_memory(2 * count * math.prod(shape), "resize them by size=, or take fewer")
    except ValueError as error:
        told = f"{count:,} images of {shape[0]} x {shape[1]} pixels"
        raise ValueError(f"{path}: got {told}, which {error}") from error


def list_image_files(path: Path) -> dict[str, list[tuple[Path, int]]]:
    """The files that are read from `path`, and no others, with their labels: of train and of test.

    Links are followed at `path`, train, test and the classes; below a class they are not. What is
    hidden, begins with a dot, is no image: systems and editors leave such copies beside them.
    """
    classes = _list_classes(path / "train")
    if (found := _list_classes(path / "test")) != classes:
        odd = ", ".join(sorted(set(found) ^ set(classes)))
        raise ValueError(f"{path}: only one of train and test has {odd}; wanted the same classes")
    return {part: _list_files(path / part, classes) for part in ("train", "test")}


def _list_classes(folder: Path) -> tuple[str, ...]:
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such folder, wanted one with a folder a class in it")
    names = sorted(path.name for path in folder.iterdir() if path.is_dir())
    if not (classes := tuple(name for name in names if not name.startswith("."))):
        raise ValueError(f"{folder}: no folders in it, wanted one a class")
    return classes


def _list_files(folder: Path, classes: tuple[str, ...]) -> list[tuple[Path, int]]:
    """The image files below a folder with their labels, in an order that does not change."""
    found = []
    for label, name in enumerate(classes):
        below = folder / name
        images = (file for file in below.rglob("*") if file.suffix.lower() in ENDINGS)
        files = (file for file in images if not _is_hidden(file.relative_to(below)))
        if not (files_of_class := sorted(files)):
            raise ValueError(f"{below}: no images in it ({', '.join(sorted(ENDINGS))})")
        found += [(file, label) for file in files_of_class]
    return found


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


_ARRAYS = ("train_images", "train_labels", "test_images", "test_labels")
# Far above any labeled set of images; a label beyond it is a mistake that would eat the memory.
MOST_UNNAMED_CLASSES = 30_000
_NORMALIZATION, _SPELLED_BEFORE = "normalization", "normalisation"
_CHOICES = (_NORMALIZATION, _SPELLED_BEFORE, "classes", "augmentation")


def write_npz(data: DataSet, path: Path, compress: bool = True) -> None:
    """Packs a data set into one file that `read_npz` gives back, its treatment included."""
    arrays: dict[str, np.ndarray] = {
        "normalization": np.array(data.normalization),
        "classes": np.array(data.train.classes),
    }
    if data.augmentation is not None:
        arrays["augmentation"] = np.array([data.augmentation.pad, data.augmentation.flip])
    for part, images in (("train", data.train), ("test", data.test)):
        arrays[f"{part}_images"] = images.images.numpy()
        arrays[f"{part}_labels"] = images.labels.numpy()
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(path) as temporary, open(temporary, "wb") as file:
        write = np.savez_compressed if compress else np.savez
        write(file, **arrays)  # type: ignore[arg-type]


def read_npz(path: Path) -> DataSet:
    """The set in a file with the arrays train_images, train_labels, test_images, test_labels.

    Images are uint8 (n, H, W, C), (n, C, H, W) with 1 or 3 channels, or grey (n, H, W); labels
    whole numbers from 0 on. There may stand beside them: a string `normalization`, "image" or
    "channel" (the default); the names of the `classes`, else they are named by their numbers;
    `augmentation`, pixels to pad by and 1 to mirror, else 0. Nothing is unpickled.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file, wanted an .npz with {', '.join(_ARRAYS)}")
    try:
        _check_archive(path)
        with np.load(path, allow_pickle=False) as file:
            missing = [name for name in _ARRAYS if name not in file.files]
            arrays = {name: file[name] for name in _ARRAYS if not missing}
            choices = {name: file[name] for name in _CHOICES if name in file.files}
    except Exception as error:  # a damaged archive may fail in any way
        reason = str(error) or type(error).__name__
        raise ValueError(
            f"{path}: not a whole .npz file of plain arrays ({reason}); write it with "
            "numpy.savez_compressed, images as uint8"
        ) from error
    if missing:
        raise ValueError(f"{path}: no {', '.join(missing)}; wanted the arrays {', '.join(_ARRAYS)}")
    try:
        labels = {part: _read_labels(f"{part}_labels", arrays) for part in ("train", "test")}
        classes = _read_class_names(
            choices["classes"] if "classes" in choices else _check_counts(labels)
        )
        train, test = (
            Images(_read_images(f"{part}_images", arrays), labels[part], classes)
            for part in ("train", "test")
        )
        chosen = choices.get(_NORMALIZATION, choices.get(_SPELLED_BEFORE, "channel"))
        normalization = _read_normalization(str(chosen))
        augmentation = None
        if "augmentation" in choices:
            side = min(train.images.shape[2:])
            augmentation = _read_augmentation(choices["augmentation"], side)
        return DataSet(f"npz:{path}", train, test, normalization, augmentation)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


# Images do not compress to a hundredth; what is small may.
_MOST_RATIO, _SMALL = 100, 64_000_000


def _check_archive(path: Path) -> None:
    """ValueError where the arrays would take far more than the file, or more than they have."""
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        need = sum(member.file_size for member in members)
        if need > _SMALL + _MOST_RATIO * path.stat().st_size:
            raise ValueError(f"it unpacks to {need:,} bytes, more than images ever do")
        check_fits_memory(2 * need, "take fewer images")
        for member in members:
            # Encrypted ones, and ways to compress that numpy does not use, are not for us to open.
            if member.flag_bits & 1 or member.compress_type not in _COMPRESSIONS:
                raise ValueError(f"{member.filename} is encrypted or compressed in another way")
            with archive.open(member) as file:
                version = np.lib.format.read_magic(file)
                read_header = _HEADERS.get(version)
                if read_header is None:
                    raise ValueError(f"{member.filename} is of the version {version}")
                shape, _, dtype = read_header(file)
                if math.prod(shape) * dtype.itemsize > member.file_size:
                    raise ValueError(
                        f"{member.filename} has {member.file_size:,} bytes for {dtype} {shape}"
                    )


_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_HEADERS: dict[tuple[int, int], Any] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def _read_normalization(value: str) -> Normalization:
    if value == "channel":
        return "channel"
    if value == "image":
        return "image"
    raise ValueError(f"normalization: got {value!r}, wanted 'channel' or 'image'")


def _check_counts(labels: dict[str, Tensor]) -> np.ndarray:
    """The numbers of the classes, where the file does not name them."""
    largest = max(int(each.max()) for each in labels.values())
    if largest >= MOST_UNNAMED_CLASSES:
        raise ValueError(
            f"labels: got {largest}, wanted the numbers of classes, from 0 on without gaps; name "
            f"the `classes` if there are more than {MOST_UNNAMED_CLASSES:,}"
        )
    return np.arange(1 + largest)


def _read_class_names(array: np.ndarray) -> tuple[str, ...]:
    if array.ndim != 1:
        raise ValueError(f"classes: got shape {array.shape}, wanted a list of names")
    names = tuple(array.astype(str).tolist())
    if twice := sorted(name for name, times in Counter(names).items() if times > 1):
        raise ValueError(
            f"classes: got {', '.join(map(repr, twice))} more than once, wanted a name a class"
        )
    return names


def _read_augmentation(array: np.ndarray, side: int) -> Augmentation:
    """What the two numbers say; images of that side must not be moved out of sight."""
    if array.dtype.kind in "biuf" and array.shape == (2,):
        pad, flip = array.tolist()
        if pad in range(side) and flip in (0, 1):
            return Augmentation(int(pad), bool(flip))
    raise ValueError(
        f"augmentation: got {array.tolist()!r}, wanted two numbers such as [4, 1]: pixels to pad "
        f"by, 0 to {side - 1}, less than the images' side, and 1 to mirror half of them, else 0"
    )


def _read_labels(name: str, arrays: dict[str, np.ndarray]) -> Tensor:
    array = arrays[name]
    if array.dtype.kind in "iu" and array.shape == (0,):
        raise ValueError(f"{name}: got none, wanted one or more images with a label each")
    if array.dtype.kind not in "iu" or array.ndim != 1:
        raise ValueError(f"{name}: got {array.dtype} {array.shape}, wanted whole numbers (n,)")
    return torch.from_numpy(array.astype(np.int64))


def _read_images(name: str, arrays: dict[str, np.ndarray]) -> Tensor:
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
