"""What is to be known of a kind of file in order to damage it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from .mutations import Mutation

FROZEN = Path(__file__).parents[1] / "frozen"
# Tensors that divide by what may be nothing.
RATIOS = ("gaps", "separability", "average_separability")


@dataclass(frozen=True)
class Kind:
    """Files of one kind.

    Attributes:
        make: Fills an empty folder with whole ones.
        read: Reads the folder as foveapool does. AssertionError where it got what such files never
            hold; what it gives has to be the same again where a checksum says so.
        files: What of the folder is damaged.
        inside: How what the format holds is damaged, beside the bytes.
    """

    make: Callable[[Path], object]
    read: Callable[[Path], object]
    files: str
    inside: Mutation | None = None


def copy_frozen(name: str) -> Callable[[Path], object]:
    """Files that an earlier version wrote, without checksums."""
    source = FROZEN / name

    def make(folder: Path) -> None:
        if source.is_dir():
            shutil.copytree(source, folder, dirs_exist_ok=True)
        else:
            shutil.copy(source, folder)

    return make


def check_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors, if there are such in a file that is whole."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and name.rsplit(".", 1)[-1] not in RATIOS:
            assert tensor.isfinite().all(), f"{name} is not finite"
        assert not tensor.is_complex() and tensor.dtype != torch.bool, f"{name}: {tensor.dtype}"
    return dict(tensors)


def list_tensors(found: object) -> dict[str, Tensor]:
    """Those that are fields of a data class."""
    fields = {name: each for name, each in vars(found).items() if isinstance(each, Tensor)}
    return check_tensors(fields)
