"""The perturbations of CIFAR-10-P: sequences of frames that change a picture little by little.

`PERTURBATIONS` lists the 14 of them, three noises at three levels each, with their parameters;
`perturb` makes the frames, `perturbed` a part of the images at a time: all frames of 10,000 images
are 18 GB. How each is drawn stands in `perturbations.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from foveapool.robustness import sequences
from foveapool.robustness.images import Draws, check_images
from foveapool.robustness.names import GEOMETRIC_PERTURBATIONS, check_name, is_noise, name_at_level
from foveapool.robustness.sequences import LENGTH, MOTION_LENGTH, TRANSLATE_LENGTH, Frames

# Frames of so many pixels a chunk: they fit a processor's cache, or fill a GPU.
_CHUNK_PIXELS = {"cpu": 2**17, "cuda": 2**20}


@dataclass(frozen=True)
class Perturbation:
    """One file of CIFAR-10-P.

    Attributes:
        name: Its name, as in CIFAR-10-P; a noise of level 2 is "shot_noise_2".
        make: What makes the frames.
        parameters: Of `make`, as the authors chose them.
        sizes: What images of other sides than 32 pixels get.
        frames: The length of a sequence.
        noise: Whether frames are compared with the first one, not with the one before.
        geometric: Whether pixels move.
        level: Of a noise 1 to 3, else 1.
        random: Whether the seed matters.
    """

    name: str
    make: Callable[..., Frames]
    parameters: dict[str, float]
    sizes: str
    frames: int
    noise: bool
    geometric: bool
    level: int
    random: bool


_ALIKE = "no lengths: the same at any size"
_SCALED = "lengths grow with the shorter side"
_DRAWN = "drawn at 32 pixels, then enlarged to the image"

_GAUSSIAN = [{"deviation": deviation} for deviation in (0.02, 0.04, 0.06)]
_SPECKLE = [{"deviation": deviation} for deviation in (0.05, 0.07, 0.10)]
_SHOT = [{"photons": photons} for photons in (700.0, 400.0, 200.0)]
_SNOW = {
    "mean": 0.05,
    "deviation": 0.3,
    "zoom": 2,
    "threshold": 0.5,
    "radius": 10,
    "sigma": 2,
    "blend": 0.85,
}
_SPATTER = {"mean": 0.6, "deviation": 0.265, "sigma": 1.75, "threshold": 0.7, "strength": 0.6}

# What makes the frames, its parameters for each level, and what other sizes get.
_TABLE: dict[str, tuple[Callable[..., Frames], Sequence[dict[str, float]], str]] = {
    "gaussian_noise": (sequences.gaussian_noise, _GAUSSIAN, _ALIKE),
    "shot_noise": (sequences.shot_noise, _SHOT, _ALIKE),
    "motion_blur": (sequences.motion_blur, [{"radius": 6, "sigma": 1.8}], _SCALED),
    "zoom_blur": (sequences.zoom_blur, [{"step": 0.004}], _ALIKE),
    "snow": (sequences.snow, [_SNOW], _DRAWN),
    "brightness": (sequences.brightness, [{"percent": 1.5}], _ALIKE),
    "translate": (sequences.translate, [{"first": -7}], "one pixel a frame at any size"),
    "rotate": (sequences.rotate, [{"step": 1}], _ALIKE),
    "tilt": (sequences.tilt, [{"step": 0.75}], _SCALED),
    "scale": (sequences.scale, [{"percent": 2}], _ALIKE),
    "speckle_noise": (sequences.speckle_noise, _SPECKLE, _ALIKE),
    "gaussian_blur": (sequences.gaussian_blur, [{"start": 0.3, "step": 0.015}], _SCALED),
    "spatter": (sequences.spatter, [_SPATTER], _DRAWN),
    "shear": (sequences.shear, [{"step": 1}], _ALIKE),
}
_LENGTHS = {"motion_blur": MOTION_LENGTH, "translate": TRANSLATE_LENGTH}

PERTURBATIONS: dict[str, Perturbation] = {
    name_at_level(name, level): Perturbation(
        name_at_level(name, level),
        make,
        parameters,
        sizes,
        frames=_LENGTHS.get(name, LENGTH),
        noise=is_noise(name),
        geometric=name in GEOMETRIC_PERTURBATIONS,
        level=level,
        random=is_noise(name) or name in ("snow", "spatter"),
    )
    for name, (make, levels, sizes) in _TABLE.items()
    for level, parameters in enumerate(levels, 1)
}


def perturb(images: Tensor, name: str, seed: int = 0, reproduce: bool = False) -> Tensor:
    """Makes the sequences of all images, on their device.

    Args:
        images: uint8 (N, H, W, 3), 16 pixels or more a side.
        name: One of `PERTURBATIONS`.
        seed: Numbers are drawn for each image by (seed, name, its position) and kind of device, so
            that the same images in the same order give the same bytes.
        reproduce: Whether frames of "spatter" without a drop are black, as in the authors' code;
            without it they are clean.

    Returns:
        The sequences, uint8 (N, frames, H, W, 3).

    Example:
        >>> import torch
        >>> perturb(torch.zeros(2, 32, 32, 3, dtype=torch.uint8), "translate").shape
        torch.Size([2, 16, 32, 32, 3])
    """
    chunks = iterate_perturbed(images, name, seed, reproduce)
    frames = images.new_empty(len(images), PERTURBATIONS[name].frames, *images.shape[1:])
    done = 0
    for chunk in chunks:
        frames[done : done + len(chunk)] = chunk
        done += len(chunk)
    return frames


def iterate_perturbed(
    images: Tensor,
    name: str,
    seed: int = 0,
    reproduce: bool = False,
    chunk: int | None = None,
) -> Iterator[Tensor]:
    """Makes what `perturb` gives, for some images at a time; their number changes no byte.

    Args:
        images: uint8 (N, H, W, 3), 16 pixels or more a side.
        name: One of `PERTURBATIONS`.
        seed: As for `perturb`.
        reproduce: As for `perturb`.
        chunk: How many images at a time; by default 128 of 32 x 32 on a CPU and 1,024 on a GPU,
            fewer of larger ones.

    Returns:
        An iterator over the sequences, uint8 (chunk, frames, H, W, 3).

    Raises:
        ValueError: If there is no such perturbation, the images are something else, or `chunk` is
            below 1.

    Example:
        >>> import torch
        >>> images = torch.zeros(5, 32, 32, 3, dtype=torch.uint8)
        >>> [len(part) for part in iterate_perturbed(images, "rotate", chunk=2)]
        [2, 2, 1]
    """
    check_name("perturbation", name, PERTURBATIONS)
    check_images(images)
    if chunk is None:
        pixels = _CHUNK_PIXELS.get(images.device.type, _CHUNK_PIXELS["cpu"])
        chunk = max(1, pixels // (images.shape[1] * images.shape[2]))
    if chunk < 1:
        raise ValueError(f"chunk: got {chunk}, wanted 1 image or more at a time")
    return _chunks(images, PERTURBATIONS[name], seed, reproduce, chunk)


def _chunks(
    images: Tensor, perturbation: Perturbation, seed: int, reproduce: bool, chunk: int
) -> Iterator[Tensor]:
    options: dict[str, Any] = dict(perturbation.parameters)
    if perturbation.name == "spatter":
        options["reproduce"] = reproduce
    for first in range(0, len(images), chunk):
        # Poisson numbers come in the order of memory.
        part = images[first : first + chunk].contiguous()
        if perturbation.random:
            options["draws"] = [
                Draws(images.device, "perturbation", perturbation.name, seed, position)
                for position in range(first, first + len(part))
            ]
        frames = part.new_empty(len(part), perturbation.frames, *part.shape[1:])
        for i, frame in enumerate(perturbation.make(part, **options)):
            frames[:, i] = frame
        yield frames
