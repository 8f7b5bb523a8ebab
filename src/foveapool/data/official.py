"""What a published data set consists of, where its files lie below a data root, and reading them.

`cifar.py` and `svhn.py` describe their sets with the classes here and bring a reader for one file.
Nothing here needs a network or a checksum: files that were rebuilt from other sources read as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from foveapool.data.images import Augmentation, DataSet, Images

# Reads one file that should hold so many images: uint8 (n, C, H, W) and int64 (n,). What it finds
# wrong it says in a ValueError, without the path and without the way to mend it.
FileReader = Callable[[Path, int], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Remote:
    """A file at an official address; `plain` is one for where that host does not speak https.

    Size and MD5 are compared either way.
    """

    url: str
    size: int
    md5: str
    plain: str = ""

    @property
    def name(self) -> str:
        return self.url.rsplit("/", 1)[-1]


@dataclass(frozen=True)
class Edition:
    """One published form of a set: what to fetch, and the files (path to MD5) that come of it."""

    remotes: tuple[Remote, ...]
    train: dict[str, str]
    test: dict[str, str]

    @property
    def files(self) -> dict[str, str]:
        return {**self.train, **self.test}


@dataclass(frozen=True)
class OfficialSet:
    """A published data set. Editions hold the same images; the first one is the one to fetch."""

    name: str
    classes: tuple[str, ...]
    train_counts: tuple[int, ...]
    test_counts: tuple[int, ...]
    editions: tuple[Edition, ...]
    read_file: FileReader
    normalization: Literal["channel", "image"]
    augmentation: Augmentation | None = None


def list_folders(official: OfficialSet, root: Path) -> tuple[Path, Path]:
    """Where the files of a set may lie: the folder of its own below the root, and the root."""
    return root / official.name, root


@dataclass(frozen=True)
class Found:
    """What is there of an edition: the folder that holds it, and the files that it lacks."""

    edition: Edition
    folder: Path
    missing: tuple[str, ...]


def find_files(official: OfficialSet, root: Path) -> Found | None:
    """The edition that lacks least; None if no file of any is there."""
    best: Found | None = None
    for folder in list_folders(official, root):
        for edition in official.editions:
            missing = tuple(path for path in edition.files if not (folder / path).is_file())
            if len(missing) < (len(best.missing) if best else len(edition.files)):
                best = Found(edition, folder, missing)
    return best


def find_edition(official: OfficialSet, root: Path) -> Found:
    """A whole edition; FileNotFoundError says what is missing and how to get it."""
    found = find_files(official, root)
    if found is None:
        names = " or ".join(next(iter(edition.train)) for edition in official.editions)
        raise FileNotFoundError(
            f"{official.name}: not in {root} (looked for {names}, also below {official.name}); "
            f"{_describe_download(official)}, or name another data root"
        )
    if found.missing:
        raise FileNotFoundError(
            f"{found.folder / found.missing[0]}: no such file, though others of {official.name} "
            f"are there ({len(found.missing)} missing in all); {_describe_download(official)}"
        )
    return found


def read_official(official: OfficialSet, root: Path) -> DataSet:
    """The images of the set, from whichever edition is there."""
    found = find_edition(official, root)

    def read(files: dict[str, str], total: int) -> Images:
        parts = [_read_file(official, found.folder / path, total // len(files)) for path in files]
        if len(parts) == 1:
            return parts[0]
        images = torch.cat([part.images for part in parts])
        return Images(images, torch.cat([part.labels for part in parts]), official.classes)

    return DataSet(
        name=official.name,
        train=read(found.edition.train, sum(official.train_counts)),
        test=read(found.edition.test, sum(official.test_counts)),
        normalization=official.normalization,
        augmentation=official.augmentation,
    )


def _read_file(official: OfficialSet, path: Path, count: int) -> Images:
    try:
        return Images(*official.read_file(path, count), official.classes)
    except ValueError as error:
        raise ValueError(
            f"{path}: {error}; remove it, then {_describe_download(official)}"
        ) from error


def _describe_download(official: OfficialSet) -> str:
    remotes = official.editions[0].remotes
    size = sum(remote.size for remote in remotes) / 1e6
    return (
        f"`foveapool data download {official.name}` fetches {size:.0f} MB "
        f"({' and '.join(remote.url for remote in remotes)})"
    )
