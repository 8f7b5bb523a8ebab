"""Where corrupted images come from: made on the way, or read from files.

Both give them in parts, in the order of the clean images, so that a set needs never be in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from foveapool.robustness.corruptions import block_length, corrupt
from foveapool.robustness.perturbations import PERTURBATIONS, perturbed
from foveapool.robustness.sets import (
    CORRUPTIONS_END,
    PERTURBATIONS_END,
    open_corruption,
    open_perturbation,
    read_labels,
    set_folder,
)

# Bytes of one part: several batches of a model, and little beside the model's own memory.
_PART = 64 * 2**20


class InFlight:
    """Corrupts images uint8 (n, H, W, 3) when asked to, on their device; nothing is kept."""

    def __init__(self, images: Tensor, seed: int = 0, frost: Path | str | None = None) -> None:
        self.images, self.seed, self.frost = images, seed, frost

    def corrupted(self, name: str, severity: int) -> Iterator[Tensor]:
        """All images at one severity, uint8 (N, H, W, 3), some at a time."""
        block = block_length(self.images)
        length = block * max(1, _PART // (block * self.images[0].numel()))
        for start in range(0, len(self.images), length):
            part = self.images[start : start + length]
            yield corrupt(part, name, severity, self.seed, start, self.frost)

    def perturbed(self, name: str) -> Iterator[Tensor]:
        """The sequences of all images, uint8 (N, frames, H, W, 3), some at a time."""
        return perturbed(self.images, name, self.seed)


class OnDisk:
    """Reads sets in the published layouts; what they lack is said before anything is computed."""

    def __init__(
        self,
        folder: Path,
        labels: Tensor,
        corruptions: Sequence[str] = (),
        severities: Sequence[int] = (),
        perturbations: Sequence[str] = (),
    ) -> None:
        self.labels = labels.cpu()
        if corruptions:
            self.corruptions = set_folder(folder, CORRUPTIONS_END)
            if not torch.equal(read_labels(self.corruptions, len(labels)), self.labels):
                raise ValueError(
                    f"{self.corruptions}: its labels are not those that were given; wanted the "
                    "test images that the set was made of, in their order"
                )
        if perturbations:
            self.perturbations = set_folder(folder, PERTURBATIONS_END)
        for name in corruptions:
            for severity in severities:
                self._corruption(name, severity)
        for name in perturbations:
            self._perturbation(name)

    def corrupted(self, name: str, severity: int) -> Iterator[Tensor]:
        """All images at one severity, uint8 (N, H, W, 3), some at a time."""
        return _parts(self._corruption(name, severity))

    def perturbed(self, name: str) -> Iterator[Tensor]:
        """The sequences of all images, uint8 (N, frames, H, W, 3), some at a time."""
        return _parts(self._perturbation(name))

    def _corruption(self, name: str, severity: int) -> np.ndarray:
        return open_corruption(self.corruptions, name, severity, len(self.labels))

    def _perturbation(self, name: str) -> np.ndarray:
        frames = PERTURBATIONS[name].frames
        return open_perturbation(self.perturbations, name, frames, len(self.labels))


def _parts(array: np.ndarray) -> Iterator[Tensor]:
    rows = max(1, _PART // array[0].size)
    for start in range(0, len(array), rows):
        # A copy: the map itself is not to be written to, and torch would warn of it.
        yield torch.from_numpy(np.array(array[start : start + rows]))
