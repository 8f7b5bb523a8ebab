"""What `foveapool data check` finds out: whether files are the published ones, and what is in them.

Reading never asks for a checksum; this is for those who want to know.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from foveapool.data.download import compute_md5
from foveapool.data.images import DataSet, Images
from foveapool.data.official import OfficialSet, find_edition


@dataclass(frozen=True)
class FileCheck:
    """One file: how large it is, and whether it is the published one to the last byte."""

    path: Path
    size: int
    published: bool


def check_files(official: OfficialSet, root: Path) -> list[FileCheck]:
    """The files that a reader would take, compared with the published checksums."""
    found = find_edition(official, root)
    files = {found.folder / path: md5 for path, md5 in found.edition.files.items()}
    return [
        FileCheck(path, path.stat().st_size, compute_md5(path) == files[path]) for path in files
    ]


def count_labels(images: Images) -> tuple[int, ...]:
    """How many images each class has."""
    return tuple(torch.bincount(images.labels, minlength=len(images.classes)).tolist())


def check_classes(data: DataSet) -> None:
    """Raises ValueError if a class has no training image: no pooling can be fitted on that."""
    counts = zip(data.train.classes, count_labels(data.train), strict=True)
    if absent := [name for name, count in counts if not count]:
        raise ValueError(
            f"{data.name}: got no training image of class {', '.join(absent)}, wanted some of "
            "each; number the classes from 0 without gaps"
        )


def check_counts(official: OfficialSet, data: DataSet) -> None:
    """Raises ValueError if a class has another number of images than was published."""
    published = {"train": official.train_counts, "test": official.test_counts}
    for part, images in (("train", data.train), ("test", data.test)):
        for name, got, wanted in zip(
            official.classes, count_labels(images), published[part], strict=True
        ):
            if got != wanted:
                raise ValueError(
                    f"{data.name}: got {got:,} {part} images of class {name}, wanted {wanted:,} "
                    "as published: the labels are not those of the official files"
                )
