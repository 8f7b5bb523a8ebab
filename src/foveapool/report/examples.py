"""Examples: a few images and their feature maps before a pooling, in a file beside its operator.

They are what the page lays under the weights. Making them takes a network and data, which this
room does not know: it chooses among maps that it is given.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from foveapool.pooling.storage import (
    check_numbers,
    check_types,
    explain_damage,
    load_tensors,
    save_tensors,
)

IMAGES, CHANNELS = 8, 4


@dataclass(frozen=True, eq=False)
class Examples:
    """n images with c channels of their maps.

    Attributes:
        images: uint8 (n, 1 or 3, H, W).
        maps: float16 (n, c, h, w), what the pooling is given.
        labels: The names of the classes, (n,).
        channels: Which ones of all channels these are, (c,).
        means: `digest_means` of the operator that they were made for; nothing if that is not known.

    Raises:
        ValueError: If the sizes do not belong together.

    Example:
        >>> images, maps = torch.zeros(1, 3, 8, 8, dtype=torch.uint8), torch.zeros(1, 2, 4, 4)
        >>> Examples(images, maps, labels=("cat",), channels=(0, 5)).channels
        (0, 5)
    """

    images: Tensor
    maps: Tensor
    labels: tuple[str, ...]
    channels: tuple[int, ...]
    means: str = ""

    def __post_init__(self) -> None:
        images, maps = self.images, self.maps
        if images.dim() != 4 or images.dtype != torch.uint8 or images.shape[1] not in (1, 3):
            raise ValueError(
                f"images: got {images.dtype} {tuple(images.shape)}, wanted uint8 (n, 1 or 3, H, W)"
            )
        wanted = (len(self.labels), len(self.channels))
        if maps.dim() != 4 or tuple(maps.shape[:2]) != wanted or not all(wanted):
            raise ValueError(
                f"maps: got shape {tuple(maps.shape)}, wanted (n, c, h, w) with n {wanted[0]}, the "
                f"number of labels, and c {wanted[1]}, the number of channels, none of them 0"
            )
        if len(images) != wanted[0]:
            raise ValueError(f"images: got {len(images)}, wanted {wanted[0]}, one a label")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a safetensors file.

        Args:
            path: The file, by custom `get_examples_path(...)`.

        Example:
            >>> import tempfile
            >>> images, maps = torch.zeros(1, 3, 8, 8, dtype=torch.uint8), torch.zeros(1, 2, 4, 4)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     Examples(images, maps, ("cat",), (0, 5)).save(f"{folder}/examples.safetensors")
            ...     Examples.load(f"{folder}/examples.safetensors").labels
            ('cat',)
        """
        facts: dict[str, Any] = {"labels": list(self.labels), "channels": list(self.channels)}
        facts |= {"means": self.means} if self.means else {}
        tensors = {"images": self.images, "maps": self.maps.half()}
        save_tensors(path, "examples", tensors, facts)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Examples:
        """Reads what `save` wrote; `save` has an example.

        Args:
            path: The file.

        Returns:
            The examples, on the CPU.

        Raises:
            ValueError: If the file is damaged or of another kind.
        """
        tensors, header = load_tensors(path, "examples")
        with explain_damage(path, "remove it, then it is made again"):
            facts = {"means": "", **header}
            check_types(facts, {"labels": list[str], "channels": list[int], "means": str})
            check_numbers({"maps": tensors["maps"]})
            labels, channels = tuple(facts["labels"]), tuple(facts["channels"])
            return cls(tensors["images"], tensors["maps"], labels, channels, facts["means"])


def digest_means(means: Tensor) -> str:
    """Tells by the channels' means whether two operators, or examples, are of one network's maps.

    An operator may have been saved over one of another network, whose examples lie there still.
    """
    return hashlib.sha256(means.detach().cpu().double().numpy().tobytes()).hexdigest()


def get_examples_path(operator: Path) -> Path:
    """Where the examples of an operator's file lie: examples-3 beside operator-3.

    >>> get_examples_path(Path("run/operator-3.safetensors")).name
    'examples-3.safetensors'
    """
    rest = operator.name.removeprefix("operator")
    return operator.with_name("examples" + (rest if rest != operator.name else f"-{rest}"))


def choose_examples(
    images: Tensor,
    maps: Tensor,
    labels: Tensor,
    classes: Sequence[str],
    count: int = IMAGES,
    channels: int = CHANNELS,
) -> Examples:
    """Chooses the first image of each class, as many as asked for, and the channels that tell most.

    A channel tells much where its class means differ by more than its samples do.

    Args:
        images: uint8 (n, 1 or 3, H, W).
        maps: What the pooling is given for them, (n, C, h, w).
        labels: Their classes, (n,).
        classes: The names of the classes.
        count: How many images.
        channels: How many channels.

    Returns:
        The examples, on the CPU.

    Raises:
        ValueError: If there is no image, or not as many maps and labels.

    Example:
        >>> images, maps = torch.zeros(6, 3, 8, 8, dtype=torch.uint8), torch.randn(6, 5, 4, 4)
        >>> choose_examples(images, maps, torch.arange(6) % 2, ("cat", "dog")).labels
        ('cat', 'dog')
    """
    if not len(images) or len(maps) != len(images) or len(labels) != len(images):
        raise ValueError(
            f"images, maps and labels: got {len(images)}, {len(maps)} and {len(labels)}, wanted "
            "as many of each, and at least one"
        )
    present = labels.unique().tolist()
    firsts = [int((labels == label).nonzero()[0, 0]) for label in present[:count]]
    wide = maps.detach().double()
    means = torch.stack([wide[labels == label].mean(0) for label in present])
    between = means.var(0, unbiased=False).sum((1, 2))
    total = wide.var(0, unbiased=False).sum((1, 2))
    told = torch.where(total > 0, between / total, -1.0)
    chosen = told.topk(min(channels, len(told))).indices.tolist()
    return Examples(
        images[firsts].cpu(),
        maps[firsts][:, chosen].detach().half().cpu(),
        tuple(str(classes[int(labels[first])]) for first in firsts),
        tuple(chosen),
    )
