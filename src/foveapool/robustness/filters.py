"""Filters, edges and resizing as the authors' libraries have them, on tensors."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from foveapool.robustness.images import get_scale

# What lies beyond the edge of a row "a b c d":  nearest  a a | a b c d | d d
#                                                 reflect  b a | a b c d | d c
#                                                 mirror   c b | a b c d | c b
Border = Literal["nearest", "reflect", "mirror"]


def fold_index(position: Tensor, size: int, border: Border) -> Tensor:
    """Whole positions, also outside of 0 to size - 1, as the pixels that stand in for them."""
    if border == "nearest" or size == 1:
        return position.clamp(0, size - 1)
    if border == "reflect":
        position = position.remainder(2 * size)
        return torch.minimum(position, 2 * size - 1 - position)
    position = position.remainder(2 * size - 2)
    return torch.minimum(position, 2 * size - 2 - position)


def pad(images: Tensor, rows: int, columns: int, border: Border) -> Tensor:
    """The images with so many rows above and below and columns left and right added."""
    for axis, reach in ((1, rows), (2, columns)):
        if reach:
            size = images.shape[axis]
            position = torch.arange(-reach, size + reach, device=images.device)
            images = images.index_select(axis, fold_index(position, size, border))
    return images


def gaussian_weights(sigma: float, truncate: float = 4.0) -> list[float]:
    """The weights from the center outwards, as scipy cuts and normalizes them."""
    reach = int(truncate * sigma + 0.5)
    if reach == 0:
        return [1.0]
    # In scipy's order: the last bit decides levels where the picture is flat. Python's own sum
    # rounds in another way from 3.12 on.
    half = [math.exp(t * (t * (-0.5 / (sigma * sigma)))) for t in range(reach + 1)]
    total = float(np.sum([*half[:0:-1], *half]))
    return [weight / total for weight in half]


def gaussian(
    images: Tensor, sigma: float, truncate: float = 4.0, border: Border = "nearest"
) -> Tensor:
    """Smoothed as `skimage.filters.gaussian` does: rows first, channels alone."""
    weights = gaussian_weights(sigma, truncate)
    reach = len(weights) - 1
    if reach == 0:
        return images
    for axis in (1, 2):
        size = images.shape[axis]
        padded = pad(images, *((reach, 0) if axis == 1 else (0, reach)), border)
        # Pairs from the outside in, as scipy adds them.
        images = images * weights[0]
        for t in range(reach, 0, -1):
            pair = padded.narrow(axis, reach - t, size) + padded.narrow(axis, reach + t, size)
            images += pair * weights[t]
    return images


def correlate(images: Tensor, kernel: Tensor, border: Border = "mirror") -> Tensor:
    """Each pixel as the sum of its neighbors times a kernel of odd sides, not turned round.

    By Fourier transforms, as OpenCV filters with large kernels: exact to the last few bits.
    """
    padded = pad(images, kernel.shape[0] // 2, kernel.shape[1] // 2, border)
    size = padded.shape[1:3]
    weights = torch.fft.rfft2(kernel.to(images), s=size).conj()
    weights = weights.reshape(*weights.shape, *[1] * (images.dim() - 3))
    spectrum = torch.fft.rfft2(padded, dim=(1, 2)) * weights
    result = torch.fft.irfft2(spectrum, s=size, dim=(1, 2))
    return result[:, : images.shape[1], : images.shape[2]]


def opencv_gaussian(image: Tensor, sigma: float) -> Tensor:
    """One float32 plane (H, W) smoothed as `cv2.GaussianBlur` does with 3 x 3 taps.

    The taps are normalized among themselves, however much of the bell they leave out.
    """
    position = torch.arange(-1, 2, dtype=torch.float64)
    taps = torch.exp(-0.5 * (position / sigma) ** 2)
    taps = (taps / taps.sum()).float()
    planes = image[None]
    for axis, reach in ((1, (1, 0)), (2, (0, 1))):
        padded = pad(planes, *reach, "mirror")
        planes = sum(
            (tap * padded.narrow(axis, i, planes.shape[axis]) for i, tap in enumerate(taps)),
            start=torch.zeros_like(planes),
        )
    return planes[0]


# tan(22.5 degrees) in 15 bits, by which OpenCV tells the four directions of a gradient.
_TAN = 13573
# What a step costs in the 5x5 chamfer distance: straight, diagonal, a knight's move.
_STEPS = {(0, 1): 1.0, (1, 1): 1.4, (1, 2): 2.1969}


def _shift(padded: Tensor, reach: int, down: int, right: int) -> Tensor:
    """What lies `down` and `right` of each pixel; padded: with `reach` pixels all round."""
    rows, columns = padded.shape[1] - 2 * reach, padded.shape[2] - 2 * reach
    return padded[:, reach + down :, reach + right :][:, :rows, :columns]


def _pad_with(layers: Tensor, reach: int, value: float) -> Tensor:
    return functional.pad(layers, (reach,) * 4, value=value)


def canny(levels: Tensor, low: int, high: int) -> Tensor:
    """Edges as booleans: ridges of the gradient above `low` that hang on a place above `high`."""
    padded = pad(levels.int(), 1, 1, "nearest")
    corner = {(y, x): _shift(padded, 1, y, x) for y in (-1, 0, 1) for x in (-1, 0, 1)}
    right = corner[-1, 1] + 2 * corner[0, 1] + corner[1, 1]
    left = corner[-1, -1] + 2 * corner[0, -1] + corner[1, -1]
    below = corner[1, -1] + 2 * corner[1, 0] + corner[1, 1]
    above = corner[-1, -1] + 2 * corner[-1, 0] + corner[-1, 1]
    across, along = right - left, below - above
    size = across.abs() + along.abs()

    around = _pad_with(size, 1, 0)
    flat, steep = across.abs() * _TAN, along.abs() << 15
    horizontal = steep < flat
    vertical = steep > flat + (across.abs() << 16)
    falling = (across ^ along) < 0
    # Of two equal neighbors along a row or a column only the first is a ridge; along a diagonal
    # neither is. So OpenCV compares.
    ridge = torch.where(
        horizontal,
        (size > _shift(around, 1, 0, -1)) & (size >= _shift(around, 1, 0, 1)),
        torch.where(
            vertical,
            (size > _shift(around, 1, -1, 0)) & (size >= _shift(around, 1, 1, 0)),
            torch.where(
                falling,
                (size > _shift(around, 1, -1, 1)) & (size > _shift(around, 1, 1, -1)),
                (size > _shift(around, 1, -1, -1)) & (size > _shift(around, 1, 1, 1)),
            ),
        ),
    )
    ridge &= size > low
    edges = ridge & (size > high)
    while True:
        near = functional.max_pool2d(edges.float()[:, None], 3, 1, 1)[:, 0] > 0
        grown = near & ridge
        if torch.equal(grown, edges):
            return edges
        edges = grown


def measure_distance_to(edges: Tensor, cap: int) -> Tensor:
    """Chamfer distance to the nearest edge in float32, `cap` where none is as near as that."""
    distance = torch.where(edges, 0.0, float(cap))
    signs = ((1, 1), (1, -1), (-1, 1), (-1, -1))
    moves = {
        (sign_y * y, sign_x * x): cost
        for (a, b), cost in _STEPS.items()
        for y, x in ((a, b), (b, a))
        for sign_y, sign_x in signs
    }
    while True:
        padded = _pad_with(distance, 2, cap)
        nearer = distance
        for (y, x), cost in moves.items():
            nearer = torch.minimum(nearer, _shift(padded, 2, y, x) + cost)
        if torch.equal(nearer, distance):
            return distance
        distance = nearer


def equalize(levels: Tensor) -> Tensor:
    """Levels spread so that their histogram is even; a layer of one level stays as it is."""
    flat = levels.flatten(1).long()
    pixels = flat.shape[1]
    histogram = torch.zeros(len(flat), 256, dtype=torch.long, device=levels.device)
    histogram.scatter_add_(1, flat, torch.ones_like(flat))
    lowest = (histogram > 0).int().argmax(1, keepdim=True)
    below = histogram.gather(1, lowest)
    above = histogram.cumsum(1) - below
    room = (pixels - below).clamp(min=1).float()
    # A true division: 255 / room would multiply by the reciprocal, and halves would round down.
    even = (above.float() * (torch.full_like(room, 255) / room)).round()
    table = torch.where(below == pixels, lowest, even.clamp(0, 255).long())
    return table.gather(1, flat).reshape(levels.shape).to(torch.uint8)


def layer_shape(images: Tensor) -> tuple[int, int]:
    """The (rows, columns) of a layer drawn for these images with a shorter side of 32 at most.

    Weather is drawn at the authors' size and then enlarged: drawn at the size of the images, its
    grains would shrink against the picture, and thresholds would mean something else.
    """
    scale = get_scale(images)
    return round(images.shape[1] / scale), round(images.shape[2] / scale)


def resize(layers: Tensor, height: int, width: int) -> Tensor:
    """(N, H, W) layers at another size, linearly between the middles of pixels."""
    if layers.shape[1:] == (height, width):
        return layers
    return functional.interpolate(layers[:, None], (height, width), mode="bilinear")[:, 0]


def magnify(picture: Tensor, factor: float) -> Tensor:
    """One uint8 picture (H, W, 3) at `factor` times its size, as `cv2.resize` reads it.

    Linear between pixels, without smoothing: shrunk five times, every fifth pixel is all it sees.
    """
    values = picture.double()
    for axis in (0, 1):
        size = picture.shape[axis]
        position = (torch.arange(round(size * factor), dtype=torch.float64) + 0.5) / factor - 0.5
        position = position.clamp(0, size - 1)
        low = position.floor().long()
        share = (position - low).reshape(-1, *[1] * (2 - axis))
        high = (low + 1).clamp(max=size - 1)
        near, far = values.index_select(axis, low), values.index_select(axis, high)
        values = near + share * (far - near)
    return values.round().to(torch.uint8)


def _make_boxes(size: int, cells: int) -> Tensor:
    """(cells, size) weights in units of 2^-22: each cell the mean of its whole pixels."""
    edges = torch.floor(torch.arange(cells + 1, dtype=torch.float64) * size / cells + 0.5)
    position = torch.arange(size)
    inside = ((position >= edges[:-1, None]) & (position < edges[1:, None])).double()
    return torch.floor(inside / inside.sum(1, keepdim=True) * 2**22 + 0.5) * inside


def shrink_by_boxes(images: Tensor, rows: int, columns: int) -> Tensor:
    """uint8 (N, H, W, C) shrunk as Pillow's BOX filter does: along rows, rounded, then columns."""
    values = images.double()
    for axis, cells in ((2, columns), (1, rows)):
        boxes = _make_boxes(images.shape[axis], cells).to(values)
        values = torch.tensordot(values, boxes, dims=([axis], [1])).movedim(-1, axis)
        values = torch.floor(values / 2**22 + 0.5)
    return values.to(torch.uint8)


def repeat_pixels(images: Tensor, height: int, width: int) -> Tensor:
    """(N, h, w, C) enlarged by giving each pixel to its nearest ones, nothing in between."""
    for axis, size in ((1, height), (2, width)):
        position = torch.arange(size, dtype=torch.float64) + 0.5
        index = (position * images.shape[axis] / size).long()
        images = images.index_select(axis, index.to(images.device))
    return images


def motion_weights(radius: float, sigma: float) -> list[float]:
    """The weights of the pixel itself and of those ever further along the tail."""
    half = [math.exp(-0.5 * i * i / (sigma * sigma)) for i in range(2 * math.ceil(radius) + 1)]
    # One after the other, as ImageMagick adds them, and Python's own sum until 3.12.
    total = float(np.cumsum(half)[-1])
    return [weight / total for weight in half]


def motion_blur(images: Tensor, radius: float, sigma: float, angles: Tensor) -> Tensor:
    """uint8 (N, H, W) or (N, H, W, C) blurred along `angles`, N degrees: one for each image.

    Zero degrees draws from the right, 90 from below; outside the picture its edge is repeated.
    Levels are cut down, so about half of them are one lower than rounding would leave them.
    """
    height, width = images.shape[1:3]
    weights = motion_weights(radius, sigma)
    direction = torch.deg2rad(angles.to(images.device, torch.float64))[:, None]
    steps = torch.arange(len(weights), device=images.device)
    # The nearest whole pixel, halves down.
    down = torch.ceil(steps * direction.sin() - 0.5).long()
    right = torch.ceil(steps * direction.cos() - 0.5).long()
    y = torch.arange(height, device=images.device)
    x = torch.arange(width, device=images.device)
    image = torch.arange(len(images), device=images.device)[:, None, None]
    total = torch.zeros(images.shape, dtype=torch.float64, device=images.device)
    for i, weight in enumerate(weights):
        rows = (y + down[:, i, None]).clamp(0, height - 1)
        columns = (x + right[:, i, None]).clamp(0, width - 1)
        moved = images[image, rows[:, :, None], columns[:, None, :]]
        total.add_(moved.double(), alpha=weight)
    quanta = (total * 257 + 0.5).long()
    return (quanta // 257).to(torch.uint8)
