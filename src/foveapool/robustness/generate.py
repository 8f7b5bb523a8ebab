"""Filling sets on disk: corruptions and perturbations of images, file by file.

A file is there when it is whole, so a generation that was killed goes on with the first file that
is missing. Layouts stand in `sets.py`.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from foveapool.files import clear_leftovers, held, write_text
from foveapool.robustness.corruption_metrics import SEVERITIES
from foveapool.robustness.corruptions import block_length, corrupt
from foveapool.robustness.levels import check_images
from foveapool.robustness.perturbations import PERTURBATIONS, perturbed
from foveapool.robustness.selection import (
    checked_severities,
    corruption_names,
    perturbation_names,
)
from foveapool.robustness.sets import (
    GENERATED,
    LABELS,
    array_path,
    generated,
    new_array,
)

# Told after every part: images done, images in all, and the name of what is being made.
Progress = Callable[[int, int, str], None]


def generate_corruptions(
    folder: str | os.PathLike[str],
    images: Tensor,
    labels: Tensor,
    names: str | Iterable[str] = "standard",
    severities: Iterable[int] = SEVERITIES,
    *,
    seed: int = 0,
    frost_folder: Path | str | None = None,
    device: torch.device | str = "cpu",
    progress: Progress | None = None,
) -> list[Path]:
    """Writes `NAME.npy` for every name and `labels.npy`; returns the files that it had to make.

    images: uint8 (n, H, W, 3), labels: (n,) from 0 to 255. Fewer severities than five make shorter
    files than the published layout has, and `generated.json` says which they hold. With the same
    seed and kind of device these are the images that `evaluate` corrupts in flight.
    """
    check_images(images)
    _check_labels(labels, len(images))
    chosen, severities = corruption_names(names), checked_severities(severities)
    folder, count, length = Path(folder), len(images), block_length(images)
    with _claimed(folder, _facts(images, seed, kind="corruptions", severities=severities)):
        if not array_path(folder, LABELS).exists():
            with new_array(array_path(folder, LABELS), (len(severities) * count,)) as append:
                append(np.tile(labels.cpu().numpy().astype(np.uint8), len(severities)))
        missing = [name for name in chosen if not array_path(folder, name).exists()]
        done, total = 0, len(missing) * len(severities) * count
        for name in missing:
            shape = (len(severities) * count, *images.shape[1:])
            with new_array(array_path(folder, name), shape) as append:
                for severity in severities:
                    for start in range(0, count, length):
                        part = images[start : start + length].to(device)
                        found = corrupt(part, name, severity, seed, start, frost_folder)
                        append(found.cpu().numpy())
                        done += len(part)
                        if progress is not None:
                            progress(done, total, name)
    return [array_path(folder, name) for name in missing]


def generate_perturbations(
    folder: str | os.PathLike[str],
    images: Tensor,
    names: str | Iterable[str] = "all",
    *,
    seed: int = 0,
    reproduce: bool = False,
    device: torch.device | str = "cpu",
    progress: Progress | None = None,
) -> list[Path]:
    """Writes `NAME.npy` for every name; returns the files that it had to make.

    images: uint8 (n, H, W, 3). All 20 files of 10,000 images of 32 x 32 are 18 GB. reproduce: see
    `perturb`. Labels are not written, as their authors do not: flips need none.
    """
    check_images(images)
    chosen, folder = perturbation_names(names), Path(folder)
    with _claimed(folder, _facts(images, seed, kind="perturbations", reproduce=reproduce)):
        missing = [name for name in chosen if not array_path(folder, name).exists()]
        done = 0
        total = len(images) * sum(PERTURBATIONS[name].frames for name in missing)
        for name in missing:
            shape = (len(images), PERTURBATIONS[name].frames, *images.shape[1:])
            with new_array(array_path(folder, name), shape) as append:
                for frames in perturbed(images.to(device), name, seed, reproduce):
                    append(frames.cpu().numpy())
                    done += frames.shape[0] * frames.shape[1]
                    if progress is not None:
                        progress(done, total, name)
    return [array_path(folder, name) for name in missing]


def _check_labels(labels: Tensor, count: int) -> None:
    if labels.shape != (count,) or labels.is_floating_point():
        raise ValueError(
            f"labels: got {labels.dtype} {tuple(labels.shape)}, wanted whole numbers ({count},), "
            "one an image"
        )
    if count and not 0 <= int(labels.min()) <= int(labels.max()) <= 255:
        raise ValueError(
            f"labels: got {int(labels.min())} to {int(labels.max())}, wanted 0 to 255: the "
            "published layout holds them as bytes"
        )


def _facts(images: Tensor, seed: int, **more: Any) -> dict[str, Any]:
    """What two generations must share to fill one folder."""
    checksum = zlib.crc32(images.cpu().contiguous().numpy().data)
    shape = list(images.shape)
    # Through JSON, so that they equal what is read back.
    return json.loads(json.dumps({**more, "seed": seed, "images": shape, "checksum": checksum}))


@contextmanager
def _claimed(folder: Path, facts: dict[str, Any]) -> Iterator[None]:
    """The folder for this process alone, made if there is none, its set being the one of `facts`.

    What a killed process left of a file is swept away.
    """
    with held(folder / ".lock"):
        clear_leftovers(folder / "*.npy")
        known = generated(folder)
        if known is None:
            if strangers := sorted(path.name for path in folder.glob("*.npy")):
                raise ValueError(
                    f"{folder}: holds {strangers[0]}, which was not generated here; choose another "
                    "folder"
                )
            write_text(folder / GENERATED, json.dumps(facts, indent=1) + "\n")
        elif known != facts:
            names = sorted(n for n in known.keys() | facts.keys() if known.get(n) != facts.get(n))
            shown = [f"{name} {known.get(name)}, not {facts.get(name)}" for name in names]
            raise ValueError(
                f"{folder}: holds another set: {'; '.join(shown)}; choose another folder"
            )
        yield
