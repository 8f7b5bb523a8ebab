"""A data set of the user's own as image files, one folder a class.

PATH/train/CLASS/*.png
PATH/test/CLASS/*.png
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from foveapool.data.images import DataSet, Images

_ENDINGS = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff", ".webp"}


def read_folder(path: Path, size: int | tuple[int, int] | None = None) -> DataSet:
    """The images below `path` as RGB, classes by name; files that are no images are passed over.

    size: the side, or (H, W), to which every image is resized; without it all must agree.
    """
    resize = (size, size) if isinstance(size, int) else size
    if resize is not None and (len(resize) != 2 or min(resize) < 1):
        raise ValueError(f"size: got {size!r}, wanted a number of pixels or (H, W)")
    classes, files = _classes(path / "train"), image_files(path)
    model, _ = files["train"][0]
    shape = _pixels(model, resize).shape

    def read(part: str) -> Images:
        images = torch.empty(len(files[part]), *shape, dtype=torch.uint8)
        for i, (file, _) in enumerate(files[part]):
            pixels = _pixels(file, resize)
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
    return DataSet(name, read("train"), read("test"), normalisation="channel", augmentation=None)


def image_files(path: Path) -> dict[str, list[tuple[Path, int]]]:
    """The files that are read from `path`, and no others, with their labels: of train and of test.

    Links are followed at `path`, train, test and the classes; below a class they are not. What is
    hidden, begins with a dot, is no image: systems and editors leave such copies beside them.
    """
    classes = _classes(path / "train")
    if (found := _classes(path / "test")) != classes:
        odd = ", ".join(sorted(set(found) ^ set(classes)))
        raise ValueError(f"{path}: only one of train and test has {odd}; wanted the same classes")
    return {part: _files(path / part, classes) for part in ("train", "test")}


def _classes(folder: Path) -> tuple[str, ...]:
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such folder, wanted one with a folder a class in it")
    names = sorted(path.name for path in folder.iterdir() if path.is_dir())
    if not (classes := tuple(name for name in names if not name.startswith("."))):
        raise ValueError(f"{folder}: no folders in it, wanted one a class")
    return classes


def _files(folder: Path, classes: tuple[str, ...]) -> list[tuple[Path, int]]:
    """The image files below a folder with their labels, in an order that does not change."""
    found = []
    for label, name in enumerate(classes):
        below = folder / name
        images = (file for file in below.rglob("*") if file.suffix.lower() in _ENDINGS)
        files = (file for file in images if not _is_hidden(file.relative_to(below)))
        if not (files_of_class := sorted(files)):
            raise ValueError(f"{below}: no images in it ({', '.join(sorted(_ENDINGS))})")
        found += [(file, label) for file in files_of_class]
    return found


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _pixels(file: Path, resize: tuple[int, int] | None) -> np.ndarray:
    """The image as a new uint8 array (H, W, 3)."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(
            "reading image files needs Pillow: pip install foveapool[data]"
        ) from error
    try:
        with Image.open(file) as stored:
            if stored.mode.startswith(("I", "F")):
                raise ValueError(f"mode {stored.mode}, wanted 8 bits a channel")
            image = stored.convert("RGB")
        if resize is not None:
            image = image.resize(resize[::-1], Image.Resampling.BILINEAR)
        return np.array(image)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"{file}: not an image that can be read ({error})") from error
