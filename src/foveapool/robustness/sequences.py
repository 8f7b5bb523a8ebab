"""The frames of each perturbation, one after the other, for a batch of images at a time.

Every function takes uint8 images (N, H, W, 3) and yields uint8 frames of that shape; those that
draw at random take one source of numbers an image. Lengths are meant for images of 32 pixels and
grow with larger ones, except in `translate`. Which names there are stands in `perturbations.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

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
from foveapool.robustness.images import Draws, divide, get_scale, to_levels, to_unit
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
