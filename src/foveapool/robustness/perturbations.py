"""The perturbations of CIFAR-10-P: sequences of frames that change a picture little by little.

First the functions that draw them: each takes uint8 images (N, H, W, 3) and yields uint8 frames of
that shape; those that draw at random take one source of numbers an image. Lengths are meant for
images of 32 pixels and grow with larger ones, except in `translate`.

`PERTURBATIONS` lists the 14 of them, three noises at three levels each, with their parameters;
`perturb` makes the frames, `iterate_perturbed` of some images at a time: all frames of 10,000
images are 18 GB.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from foveapool.robustness.filters import gaussian, layer_shape, motion_weights, pad
from foveapool.robustness.geometry import (
    Move,
    Sampling,
    make_affine_sampling,
    make_tilt_sampling,
    pixel_rows,
    sample,
)
from foveapool.robustness.images import Draws, check_images, divide, get_scale, to_levels, to_unit
from foveapool.robustness.names import GEOMETRIC_PERTURBATIONS, check_name, is_noise, name_at_level
from foveapool.robustness.pixels import hsv_to_rgb, rgb_to_hsv
from foveapool.robustness.weather import draw_snow_flakes, find_wet_pixels, lay_snow, lay_water

LENGTH = 31
MOTION_LENGTH = 21
TRANSLATE_LENGTH = 16
# From one side to the other, the clean picture in the middle.
STEPS = range(-(LENGTH // 2), LENGTH // 2 + 1)

Frames = Iterator[Tensor]


def _draw_noise(images: Tensor, draws: Sequence[Draws]) -> Tensor:
    """Normal numbers for all frames but the first, (frames, N, H, W, 3)."""
    shape, device = (LENGTH - 1, *images.shape[1:]), images.device
    # In float32: a CPU draws them five times faster, and half of every level is cut off anyway.
    numbers = [torch.randn(shape, generator=each.generator, device=device) for each in draws]
    return torch.stack(numbers, 1)


def gaussian_noise(images: Tensor, draws: Sequence[Draws], deviation: float) -> Frames:
    """The clean images, then frames with fresh noise each."""
    yield images
    values = to_unit(images, torch.float32)
    for noise in _draw_noise(images, draws):
        yield to_levels(noise.mul_(deviation).add_(values))


def speckle_noise(images: Tensor, draws: Sequence[Draws], deviation: float) -> Frames:
    """As Gaussian noise, in proportion to the value of each pixel."""
    yield images
    values = to_unit(images, torch.float32)
    for noise in _draw_noise(images, draws):
        yield to_levels(noise.mul_(deviation).mul_(values).add_(values))


def shot_noise(images: Tensor, draws: Sequence[Draws], photons: float) -> Frames:
    """The clean images, then frames that count so many photons where a pixel is white."""
    yield images
    rates = (to_unit(images) * photons)[:, None].expand(-1, LENGTH - 1, -1, -1, -1)
    counts = [each.poisson(rate) for each, rate in zip(draws, rates, strict=True)]
    for count in torch.stack(counts, 1):
        yield to_levels(divide(count, photons))


def motion_blur(images: Tensor, radius: float, sigma: float) -> Frames:
    """Smeared from the left, from above, at last from the right: 9 degrees a frame."""
    for i in range(MOTION_LENGTH):
        yield _blow(images, radius, sigma, 9 * (i - 20))


def _blow(images: Tensor, radius: float, sigma: float, degrees: float) -> Tensor:
    """`motion.motion_blur` along one direction for all images, for which slices are enough."""
    height, width = images.shape[1:3]
    scale = get_scale(images)
    weights = motion_weights(scale * radius, scale * sigma)
    reach = len(weights)
    padded = pad(images, reach, reach, "nearest").double()
    total = torch.zeros(images.shape, dtype=torch.float64, device=images.device)
    # In ImageMagick's order of operations: at -150 and -30 degrees the last bit decides a pixel.
    y, x = (reach * each(math.pi * degrees / 180) for each in (math.sin, math.cos))
    for i, weight in enumerate(weights):
        down, right = (reach + math.ceil(i * each / math.hypot(y, x) - 0.5) for each in (y, x))
        total.add_(padded[:, down : down + height, right : right + width], alpha=weight)
    # 16-bit levels rounded, 8-bit ones cut.
    return (total.mul_(257).add_(0.5).int() // 257).to(torch.uint8)


def gaussian_blur(images: Tensor, start: float, step: float) -> Frames:
    """Blurred ever more."""
    values, scale = to_unit(images), get_scale(images)
    for i in range(LENGTH):
        yield to_levels(gaussian(values, scale * (start + step * i), truncate=7.0))


def zoom_blur(images: Tensor, step: float) -> Frames:
    """The mean of ever more enlarged images, from the clean ones on."""
    yield images
    total = to_unit(images, torch.float32)
    zooms = _move(images, [Move(scale=1 + step * i) for i in range(1, LENGTH)])
    for i, zoomed in enumerate(zooms, 2):
        total = total + to_unit(zoomed, torch.float32)
        yield to_levels(divide(total, i))


def translate(images: Tensor, first: int) -> Frames:
    """Shifted to the right, from `first` on, by one pixel a frame whatever the size."""
    return _move(images, [Move(shift=first + i) for i in range(TRANSLATE_LENGTH)])


def rotate(images: Tensor, step: float) -> Frames:
    """Turned from left to right by `step` degrees a frame."""
    return _move(images, [Move(angle=step * i) for i in STEPS])


def scale(images: Tensor, percent: float) -> Frames:
    """From smaller to larger by so many percent a frame."""
    return _move(images, [Move(scale=(100 + percent * i) / 100) for i in STEPS])


def shear(images: Tensor, step: float) -> Frames:
    """Sheared from one side to the other by `step` degrees a frame."""
    return _move(images, [Move(shear=step * i) for i in STEPS])


def tilt(images: Tensor, step: float) -> Frames:
    """Tilted about both axes, from one side to the other by `step` degrees a frame."""
    height, width = images.shape[1:3]
    depth = get_scale(images)
    samplings = (make_tilt_sampling(step * i, depth, height, width, images.device) for i in STEPS)
    return _sample_frames(images, samplings, rounded=True)


def _move(images: Tensor, moves: Sequence[Move]) -> Frames:
    height, width = images.shape[1:3]
    return _sample_frames(
        images, (make_affine_sampling(m, height, width, images.device) for m in moves)
    )


def _sample_frames(images: Tensor, samplings: Iterator[Sampling], rounded: bool = False) -> Frames:
    n, height, width, channels = images.shape
    pixels = pixel_rows(images)
    for sampling in samplings:
        frame = sample(pixels, sampling)
        levels = (frame.add_(0.5) if rounded else frame).to(torch.uint8)
        yield levels.view(height, width, n, channels).permute(2, 0, 1, 3)


def brightness(images: Tensor, percent: float) -> Frames:
    """From darker to brighter by so many percent a frame; the middle one is all but clean."""
    hue, saturation, value = rgb_to_hsv(to_unit(images))
    # Every channel is the value times something of hue and saturation alone.
    tint = hsv_to_rgb(hue, saturation, torch.ones_like(value))
    for i in STEPS:
        shifted = (value + i * percent / 100).clamp(0, 1)
        yield to_levels(tint * shifted[..., None])


def snow(
    images: Tensor,
    draws: Sequence[Draws],
    mean: float,
    deviation: float,
    zoom: float,
    threshold: float,
    radius: float,
    sigma: float,
    blend: float,
) -> Frames:
    """One layer of snow an image, blown from ever further left: 4 degrees a frame."""
    shape = layer_shape(images)
    values = mean + deviation * torch.stack([each.normal(*shape) for each in draws])
    flakes = draw_snow_flakes(images, values, zoom, threshold)
    for i in range(LENGTH):
        yield lay_snow(images, _blow(flakes, radius, sigma, 4 * i - 150), blend)


def spatter(
    images: Tensor,
    draws: Sequence[Draws],
    mean: float,
    deviation: float,
    sigma: float,
    threshold: float,
    strength: float,
    reproduce: bool,
) -> Frames:
    """Drops of water that slide down by 0.8 pixels a frame and leave at the bottom.

    reproduce: frames without a drop are black, as the authors' division of 0 by 0 makes them.
    """
    shape = layer_shape(images)
    values = mean + deviation * torch.stack([each.normal(*shape) for each in draws])
    layer = find_wet_pixels(values, sigma, threshold)
    for _ in range(LENGTH):
        yield lay_water(images, layer, strength, reproduce)
        above = torch.nn.functional.pad(layer, (0, 0, 1, 0))[:, :-1]
        layer = 0.2 * layer + 0.8 * above


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
    "gaussian_noise": (gaussian_noise, _GAUSSIAN, _ALIKE),
    "shot_noise": (shot_noise, _SHOT, _ALIKE),
    "motion_blur": (motion_blur, [{"radius": 6, "sigma": 1.8}], _SCALED),
    "zoom_blur": (zoom_blur, [{"step": 0.004}], _ALIKE),
    "snow": (snow, [_SNOW], _DRAWN),
    "brightness": (brightness, [{"percent": 1.5}], _ALIKE),
    "translate": (translate, [{"first": -7}], "one pixel a frame at any size"),
    "rotate": (rotate, [{"step": 1}], _ALIKE),
    "tilt": (tilt, [{"step": 0.75}], _SCALED),
    "scale": (scale, [{"percent": 2}], _ALIKE),
    "speckle_noise": (speckle_noise, _SPECKLE, _ALIKE),
    "gaussian_blur": (gaussian_blur, [{"start": 0.3, "step": 0.015}], _SCALED),
    "spatter": (spatter, [_SPATTER], _DRAWN),
    "shear": (shear, [{"step": 1}], _ALIKE),
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
    return _iterate_chunks(images, PERTURBATIONS[name], seed, reproduce, chunk)


def _iterate_chunks(
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
