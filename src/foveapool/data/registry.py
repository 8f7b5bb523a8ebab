"""Data sets by name, and what tells one's own data from others in the same place.

Published sets have checksums and street digits a seed; for images of the user's own there is only
a path, and what it leads to may change: a digest of the content says whether it did.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from foveapool._suggest import did_you_mean
from foveapool.data.cifar import CIFAR10, CIFAR100
from foveapool.data.images import DataSet, draw_subset
from foveapool.data.official import OfficialSet, read_official
from foveapool.data.street_digits import make_street_digits
from foveapool.data.svhn import SVHN
from foveapool.data.user_data import list_image_files, read_folder, read_npz

# The reduced set is a random part of the training images and needs the same files.
OFFICIAL: dict[str, OfficialSet] = {
    "cifar10": CIFAR10,
    "cifar100": CIFAR100,
    "svhn": SVHN,
    "svhn-reduced": SVHN,
}
NAMES = (*OFFICIAL, "street-digits", "folder:PATH", "npz:PATH")
REDUCED = 0.05
_DRAWN = "svhn-reduced"

_OPTIONS = {"street-digits": {"train_size", "test_size"}, "folder": {"size"}}


def resolve_root(root: Path | None) -> Path:
    """Where files are looked for and downloaded to: `root`, or ~/.cache/foveapool if None."""
    return (root or Path("~/.cache/foveapool")).expanduser()


def check_data_name(name: str, where: str = "data") -> None:
    """Refuses data that there are none of, with near names; `where` says what was to name them."""
    kinds = [each.partition(":")[0] for each in NAMES]
    kind = str(name).partition(":")[0]
    if kind not in kinds:
        hint = did_you_mean(kind, kinds)
        raise ValueError(f"{where}: got {name!r}, wanted one of {', '.join(NAMES)}{hint}")


def load_data(name: str, root: Path | None = None, data_seed: int = 0, **options: Any) -> DataSet:
    """Reads a data set into memory, with the treatment that the paper gives it.

    Args:
        name: "cifar10", "cifar100", "svhn", "svhn-reduced", "street-digits", "folder:PATH" or
            "npz:PATH".
        root: Where the files of the published sets lie, or packed copies; ~/.cache/foveapool if
            None.
        data_seed: Draws the training images of "svhn-reduced" and "street-digits"; the test images
            stay the same.
        **options: train_size and test_size of "street-digits"; size of "folder:PATH", to resize to.

    Returns:
        The training images and the test images.

    Raises:
        ValueError: If there is no such set or option, or the files are not what they should be.

    Example:
        >>> data = load_data("street-digits", train_size=20, test_size=10)
        >>> len(data.train), len(data.test), data.normalization
        (20, 10, 'image')
    """
    kind, _, path = name.partition(":")
    if unknown := options.keys() - _OPTIONS.get(kind, set()):
        offered = ", ".join(sorted(_OPTIONS.get(kind, set()))) or "none"
        raise ValueError(f"{name}: no option {', '.join(sorted(unknown))}; it has {offered}")
    if kind in ("folder", "npz"):
        if not path:
            raise ValueError(f"{name}: no path; wanted {kind}:PATH")
        where = Path(path).expanduser()
        data = read_folder(where, **options) if kind == "folder" else read_npz(where)
    elif name == "street-digits":
        return _street_digits(data_seed, **options)
    elif get_packed_path(name, root, data_seed).is_file():
        return replace(read_npz(get_packed_path(name, root, data_seed)), name=name)
    else:
        data = read_official(get_official_set(name), resolve_root(root))
    if name == _DRAWN:
        data = replace(data, train=draw_subset(data.train, REDUCED, data_seed))
    return replace(data, name=name)


def get_packed_path(name: str, root: Path | None = None, data_seed: int = 0) -> Path:
    """Where a packed copy of a set would lie; it is read instead of the published files.

    Only of a set that is drawn by its seed there is one for each.
    """
    get_official_set(name)
    return resolve_root(root) / f"{name}-{data_seed if name == _DRAWN else 0}.npz"


def get_official_set(name: str) -> OfficialSet:
    """The published set whose files that name needs; ValueError if there is none."""
    if name not in OFFICIAL:
        if name in NAMES or name.startswith(("folder:", "npz:")):
            raise ValueError(f"{name}: has no published files; {', '.join(OFFICIAL)} have")
        raise ValueError(f"{name}: no such data set; wanted one of {', '.join(NAMES)}")
    return OFFICIAL[name]


def _street_digits(data_seed: int, train_size: int = 10_000, test_size: int = 2_000) -> DataSet:
    if data_seed < 0:
        raise ValueError(f"data_seed: got {data_seed}, wanted 0 or more")
    return DataSet(
        name="street-digits",
        train=make_street_digits(train_size, seed=1 + data_seed),
        # One test set for all seeds, so that errors can be compared.
        test=make_street_digits(test_size, seed=0),
        normalization="image",
        augmentation=None,
    )


def digest_content(name: str) -> str:
    """A digest of what `npz:PATH` or `folder:PATH` leads to; "" for other data, or if nothing is.

    A folder counts with the names and bytes of the images that are read from it, and no other file.
    """
    kind, _, path = name.partition(":")
    where = Path(path).expanduser()
    digest = hashlib.blake2b(digest_size=8)
    if kind == "npz" and where.is_file():
        _add(digest, where)
    elif kind == "folder" and where.is_dir():
        # All bytes, since images without compression all have one size: 100,000 small ones take
        # about four seconds, a third of what it takes to decode them for a training.
        for file, _ in (each for part in list_image_files(where).values() for each in part):
            digest.update(f"{file.relative_to(where)}\0".encode())
            digest.update(f"{_add(digest, file)}\0".encode())
    else:
        return ""
    return digest.hexdigest()


def _add(digest: hashlib.blake2b, path: Path) -> int:
    """Adds the bytes of a file to the digest, and says how many they are."""
    if path.exists() and not path.is_file():
        # A pipe is waited for, a device never ends.
        raise ValueError(f"{path}: got what is no regular file, wanted one; remove it")
    try:
        with open(path, "rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
            return file.tell()
    except OSError as error:
        raise OSError(
            f"{path}: could not be read ({error}), wanted a file; remove it or put it back"
        ) from error
