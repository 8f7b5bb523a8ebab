"""The 19 corruptions of CIFAR-10-C: the table of their parameters, and applying one to images.

What each corruption does is told in the file of its kind: noise, blur, snow, frost, fog, spatter,
color, elastic, digital. Random ones are drawn anew here: the published files were made without a
seed, so their pixels cannot come back, but their statistics do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from foveapool.robustness import blur, geometry, pixels
from foveapool.robustness.images import SIDE, Draws, check_images, get_scale
from foveapool.robustness.names import check_name
from foveapool.robustness.weather import fog, frost, load_frost_pictures, snow, spatter


@dataclass(frozen=True)
class Corruption:
    """One corruption: what it does, how strongly at each severity, and which kind it is of.

    Attributes:
        name: Its name, as in CIFAR-10-C.
        function: What makes it of images, draws and parameters.
        group: "noise", "geometric" (pixels move; the paper's group), "weather" or "digital".
        columns: The names of the parameters.
        severities: Their values, a row each.
        sizes: What images of other sides than 32 pixels get.
        standard: Whether it is one of the 15 that mCE averages, not of the 4 extra.
        random: Whether it needs random numbers.
    """

    name: str
    function: Callable[..., Tensor]
    group: str
    columns: str
    severities: tuple[tuple[Any, ...], ...]
    sizes: str
    standard: bool = True
    random: bool = True


_ALIKE = "no lengths: the same at any size"
_SCALED = "above 32 pixels lengths grow with the shorter side"
_DRAWN = "above 32 pixels drawn at that size, then enlarged to the image"

# The parameters are the authors' for CIFAR-10; lengths are pixels of a 32-pixel image.
_TABLE = (
    Corruption(
        "gaussian_noise",
        pixels.gaussian_noise,
        "noise",
        "deviation",
        ((0.04,), (0.06,), (0.08,), (0.09,), (0.10,)),
        _ALIKE,
    ),
    Corruption(
        "shot_noise",
        pixels.shot_noise,
        "noise",
        "photons",
        ((500,), (250,), (100,), (75,), (50,)),
        _ALIKE,
    ),
    Corruption(
        "impulse_noise",
        pixels.impulse_noise,
        "noise",
        "share",
        ((0.01,), (0.02,), (0.03,), (0.05,), (0.07,)),
        _ALIKE,
    ),
    Corruption(
        "defocus_blur",
        blur.defocus_blur,
        "geometric",
        "radius sigma",
        ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
        _SCALED,
        random=False,
    ),
    Corruption(
        "glass_blur",
        blur.glass_blur,
        "geometric",
        "sigma shift passes",
        ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
        _SCALED,
    ),
    Corruption(
        "motion_blur",
        blur.motion_blur,
        "geometric",
        "radius sigma",
        ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
        _SCALED,
    ),
    Corruption(
        "zoom_blur",
        blur.zoom_blur,
        "geometric",
        "factors",
        ((7,), (12,), (16,), (21,), (26,)),
        _ALIKE,
        random=False,
    ),
    Corruption(
        "snow",
        snow,
        "weather",
        "mean deviation zoom threshold radius sigma blend",
        (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
        _DRAWN,
    ),
    Corruption(
        "frost",
        frost,
        "weather",
        "share ice_share",
        ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
        "pictures of ice grow as lengths do; refused where one is smaller than the image",
    ),
    Corruption(
        "fog",
        fog,
        "weather",
        "strength decay",
        ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
        "cut from a map whose side is the next power of two",
    ),
    Corruption(
        "brightness",
        pixels.brightness,
        "weather",
        "offset",
        ((0.05,), (0.1,), (0.15,), (0.2,), (0.3,)),
        _ALIKE,
        random=False,
    ),
    Corruption(
        "contrast",
        pixels.contrast,
        "digital",
        "share",
        ((0.75,), (0.5,), (0.4,), (0.3,), (0.15,)),
        _ALIKE,
        random=False,
    ),
    Corruption(
        "elastic_transform",
        geometry.elastic_transform,
        "geometric",
        "alpha sigma jitter",
        ((0, 0, 2.56), (1.6, 6.4, 2.24), (2.56, 1.92, 1.92), (3.2, 1.28, 1.6), (3.2, 0.96, 0.96)),
        _SCALED,
    ),
    Corruption(
        "pixelate",
        pixels.pixelate,
        "digital",
        "share",
        ((0.95,), (0.9,), (0.85,), (0.75,), (0.65,)),
        "to that share of 32 pixels, or of the shorter side where it is less",
        random=False,
    ),
    Corruption(
        "jpeg_compression",
        pixels.jpeg_compression,
        "digital",
        "quality",
        ((80,), (65,), (58,), (50,), (40,)),
        "blocks of 8 pixels at any size, so milder on large images",
        random=False,
    ),
    Corruption(
        "speckle_noise",
        pixels.speckle_noise,
        "noise",
        "deviation",
        ((0.06,), (0.1,), (0.12,), (0.16,), (0.2,)),
        _ALIKE,
        standard=False,
    ),
    Corruption(
        "gaussian_blur",
        blur.gaussian_blur,
        "geometric",
        "sigma",
        ((0.4,), (0.6,), (0.7,), (0.8,), (1,)),
        _SCALED,
        standard=False,
        random=False,
    ),
    Corruption(
        "spatter",
        spatter,
        "weather",
        "mean deviation sigma threshold strength kind",
        (
            (0.62, 0.1, 0.7, 0.7, 0.5, "water"),
            (0.65, 0.1, 0.8, 0.7, 0.5, "water"),
            (0.65, 0.3, 1, 0.69, 0.5, "water"),
            (0.65, 0.1, 0.7, 0.69, 0.6, "mud"),
            (0.65, 0.1, 0.5, 0.68, 0.6, "mud"),
        ),
        _DRAWN,
        standard=False,
    ),
    Corruption(
        "saturate",
        pixels.saturate,
        "digital",
        "factor offset",
        ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
        _ALIKE,
        standard=False,
        random=False,
    ),
)

CORRUPTIONS: dict[str, Corruption] = {corruption.name: corruption for corruption in _TABLE}


def corrupt(
    images: Tensor,
    name: str,
    severity: int,
    seed: int = 0,
    start: int = 0,
    frost_folder: Path | str | None = None,
) -> Tensor:
    """Corrupts uint8 images, on the device they are on.

    Args:
        images: uint8 (N, H, W, 3), 16 pixels or more a side.
        name: One of `CORRUPTIONS`.
        severity: 1 to 5.
        seed: The same one gives the same bytes on one device.
        start: Where in a larger set the images begin, for a set that is corrupted in parts: parts
            of whole blocks of `block_length(images)`, the last as short as it is, get the bytes
            that the set would get at once.
        frost_folder: Pictures of ice for "frost", see `load_frost_pictures`.

    Returns:
        The corrupted images, uint8 (N, H, W, 3).

    Raises:
        ValueError: If there is no such corruption or severity, the images are something else, or
            `start` is inside of a block.

    Example:
        >>> corrupt(torch.zeros(2, 32, 32, 3, dtype=torch.uint8), "fog", severity=3).shape
        torch.Size([2, 32, 32, 3])
    """
    check_name("corruption", name, CORRUPTIONS)
    corruption = CORRUPTIONS[name]
    check_images(images)
    rows = range(1, len(corruption.severities) + 1)
    if isinstance(severity, bool | float) or severity not in rows:
        raise ValueError(f"severity: got {severity!r}, wanted a whole number from 1 to 5")
    length = block_length(images)
    if start < 0 or start % length:
        raise ValueError(
            f"start: got {start}, wanted a multiple of {length}, the images of this size that "
            "share one stream of random numbers; see block_length"
        )
    options: dict[str, Any] = {}
    if name == "frost":
        options["pictures"] = load_frost_pictures(frost_folder, get_scale(images))
    parameters = corruption.severities[severity - 1]
    result = torch.empty_like(images, memory_format=torch.contiguous_format)
    for first in range(0, len(images), length):
        block = slice(first, first + length)
        draws = Draws(images.device, name, severity, seed, (start + first) // length)
        result[block] = corruption.function(images[block], draws, *parameters, **options)
    return result


def block_length(images: Tensor) -> int:
    """How many images of this size are corrupted at once: 1,000 of 32 x 32, fewer larger ones.

    It bounds the memory needed to some hundred megabytes, and each block has random numbers of
    its own.
    """
    return max(1, 1000 * SIDE * SIDE // (images.shape[1] * images.shape[2]))
