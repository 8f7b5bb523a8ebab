"""Labeled images in memory, and parts of them drawn at random by a seed.

Every data set, however it is stored, becomes a `DataSet` of two `Images`. How the files are read
is told elsewhere in this room; how images become batches, in `loader.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

Normalization = Literal["channel", "image"]


@dataclass(frozen=True, eq=False)
class Images:
    """Labeled images of one size, held in memory as bytes.

    Attributes:
        images: uint8 (n, C, H, W).
        labels: int64 (n,), each the position of its class in `classes`.
        classes: The names of the classes.

    Raises:
        ValueError: If the tensors are something else, or a label is no position in `classes`.

    Example:
        >>> pixels = torch.zeros(4, 3, 8, 8, dtype=torch.uint8)
        >>> images = Images(pixels, torch.arange(4), tuple("abcd"))
        >>> len(images), images.part(torch.tensor([0, 2])).labels.tolist()
        (4, [0, 2])
    """

    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.images.dtype != torch.uint8 or self.images.dim() != 4:
            raise ValueError(
                f"images: got {self.images.dtype} {tuple(self.images.shape)}, "
                "wanted uint8 (n, C, H, W)"
            )
        if self.labels.dtype != torch.int64 or self.labels.shape != self.images.shape[:1]:
            raise ValueError(
                f"labels: got {self.labels.dtype} {tuple(self.labels.shape)}, wanted int64 "
                f"({len(self.images)},), one label an image"
            )
        if len(self.labels):
            low, high = int(self.labels.min()), int(self.labels.max())
            if low < 0 or high >= len(self.classes):
                raise ValueError(
                    f"labels: got {low} to {high}, wanted 0 to {len(self.classes) - 1}, "
                    f"the positions of the {len(self.classes)} classes"
                )

    def __len__(self) -> int:
        return len(self.labels)

    def part(self, index: Tensor) -> Images:
        """Takes some of the images.

        Args:
            index: Positions, or a mask of n booleans.

        Returns:
            These images, of the same classes.
        """
        return Images(self.images[index], self.labels[index], self.classes)


@dataclass(frozen=True)
class Augmentation:
    """What training may do to an image: pad with zeros, crop back at random, mirror half of them.

    Only a description: `loader.py` does it, after the normalization.
    """

    pad: int = 4
    flip: bool = True


@dataclass(frozen=True, eq=False)
class DataSet:
    """Images to train and to test on, with the treatment that the paper gives them.

    Attributes:
        name: What the set is called.
        train: The images to train on.
        test: The images to test on, of the same classes and the same size.
        normalization: "channel" by the mean and deviation of each channel over the training set,
            "image" by each image's own mean and deviation over its pixels and channels.
        augmentation: What training may do to an image; None is nothing.
    """

    name: str
    train: Images
    test: Images
    normalization: Normalization
    augmentation: Augmentation | None

    def __post_init__(self) -> None:
        if self.train.classes != self.test.classes:
            raise ValueError(
                f"{self.name}: train has the classes {self.train.classes}, test "
                f"{self.test.classes}; wanted the same ones in the same order"
            )
        if self.train.images.shape[1:] != self.test.images.shape[1:]:
            raise ValueError(
                f"{self.name}: train has images of {tuple(self.train.images.shape[1:])}, test of "
                f"{tuple(self.test.images.shape[1:])}; wanted one (C, H, W)"
            )


def hold_out(
    images: Images, size: float | int, data_seed: int, part: int = 0
) -> tuple[Images, Images]:
    """Two parts, (the rest, those held out), to choose hyper-parameters without the test set.

    size: a share between 0 and 1, or a number of images. Other values of `part` hold out other
    images, each drawn at random from all; the same (data_seed, part) always gives the same ones.
    """
    chosen = _draw_mask(images, size, (data_seed, 1, part))
    return images.part(~chosen), images.part(chosen)


def draw_subset(images: Images, size: float | int, data_seed: int) -> Images:
    """A share (0 to 1) or a number of the images, drawn at random by seed, in their old order."""
    return images.part(_draw_mask(images, size, (data_seed, 0)))


def _draw_mask(images: Images, size: float | int, seed: tuple[int, ...]) -> Tensor:
    """A mask of n booleans with the share or the number `size` of them true."""
    if min(seed) < 0:
        raise ValueError(f"data_seed and part: got {seed[0]} and {seed[-1]}, wanted none below 0")
    n = len(images)
    count = round(size * n) if isinstance(size, float) else size
    if (isinstance(size, float) and not 0 < size < 1) or not 0 < count < n:
        raise ValueError(
            f"size: got {size!r}, wanted a share between 0 and 1 or a number of images from 1 to "
            f"{n - 1}, so that of the {n} images neither part is empty"
        )
    # numpy keeps the bits of its bit generators for ever, but not those of its permutations.
    bits = np.random.Philox(np.random.SeedSequence(seed)).random_raw(n)
    chosen = torch.zeros(n, dtype=torch.bool)
    chosen[torch.from_numpy(np.argsort(bits, kind="stable")[:count])] = True
    return chosen
