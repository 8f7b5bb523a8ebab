"""The perturbations a second time, frame by frame, by Pillow, scipy, colorsys and plain loops.

Written from the description of the authors' generator, for one image and one frame at a time.
"""

from __future__ import annotations

import colorsys
import math

import numpy as np
from PIL import Image
from scipy import ndimage


def pictures(count: int, side: int = 32, seed: int = 0) -> np.ndarray:
    """Smooth colors with sharp edges, flat patches, and levels at both ends; uint8."""
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal((count, side, side, 3))
    smooth = ndimage.gaussian_filter(noise, (0, side / 16, side / 16, 0)) * side * 14
    fine = ndimage.gaussian_filter(noise, (0, 0.7, 0.7, 0)) * 40
    images = 120 + smooth + fine
    for image in images:
        y, x = rng.integers(0, side // 2, 2)
        image[y : y + side // 3, x : x + side // 4] = rng.integers(0, 256, 3)
    return np.clip(images, 0, 255).astype(np.uint8)


def moved(image, angle=0.0, shear=0.0, scale=1.0, shift=0.0, resample=Image.Resampling.BILINEAR):
    """torchvision 0.2's affine map, sampled by Pillow."""
    height, width = image.shape[:2]
    a, s = math.radians(angle), math.radians(shear)
    matrix = np.array([[math.cos(a + s), math.sin(a + s)], [-math.sin(a), math.cos(a)]])
    matrix *= 1 / scale / math.cos(s)
    center = np.array([width / 2 + 0.5, height / 2 + 0.5])
    constant = matrix @ (-center - [shift, 0]) + center
    data = (*matrix[0], constant[0], *matrix[1], constant[1])
    picture = Image.fromarray(image)
    return np.asarray(picture.transform(picture.size, Image.Transform.AFFINE, data, resample))


def translate(image, i):
    return moved(image, shift=i - 7, resample=Image.Resampling.NEAREST)


def rotate(image, i):
    return moved(image, angle=i - 15)


def scale(image, i):
    return moved(image, scale=(70 + 2 * i) / 100)


def shear(image, i):
    return moved(image, shear=i - 15)


def zoom_blur(image, i):
    total = np.float32(image) / np.float32(255)
    for k in range(1, i + 1):
        total = total + np.float32(moved(image, scale=1 + 0.004 * k)) / np.float32(255)
    return np.uint8(total / np.float32(i + 1) * np.float32(255))


def tilt(image, i):
    """The way of each corner of thought: turn, turn, project; then the way back for each pixel."""
    height, width = image.shape[:2]
    t = math.radians(0.75 * (i - 15))
    focus = math.hypot(width, height)

    def project(x, y):
        x, y, z = x - width / 2, y - height / 2, width / 32
        x, z = x * math.cos(t) - z * math.sin(t), x * math.sin(t) + z * math.cos(t)
        y, z = y * math.cos(t) - z * math.sin(t), y * math.sin(t) + z * math.cos(t)
        return np.array([width / 2 + focus * x / (z + focus), height / 2 + focus * y / (z + focus)])

    result = np.zeros_like(image)
    for y in range(height):
        for x in range(width):
            place = np.array([x, y], float)
            for _ in range(20):  # The map is close to the identity: Picard's iteration.
                place += np.array([x, y]) - project(*place)
            column, row = np.round(32 * place) / 32
            left, top = math.floor(column), math.floor(row)
            total = np.zeros(3)
            for v, u in ((0, 0), (0, 1), (1, 0), (1, 1)):
                share = abs(1 - v - (row - top)) * abs(1 - u - (column - left))
                if 0 <= top + v < height and 0 <= left + u < width:
                    total += share * image[top + v, left + u]
            result[y, x] = np.floor(total + 0.5)
    return result


def swept(image, radius, sigma, degrees):
    """ImageMagick's one-sided motion blur of (H, W, ...) in 16-bit levels."""
    height, width = image.shape[:2]
    count = 2 * math.ceil(radius) + 1
    weights = np.exp(-(np.arange(count) ** 2) / (2 * sigma**2))
    across, along = count * math.cos(math.radians(degrees)), count * math.sin(math.radians(degrees))
    total = np.zeros(image.shape)
    for i, weight in enumerate(weights / weights.sum()):
        right = math.ceil(i * across / math.hypot(across, along) - 0.5)
        down = math.ceil(i * along / math.hypot(across, along) - 0.5)
        rows = np.clip(np.arange(height) + down, 0, height - 1)
        columns = np.clip(np.arange(width) + right, 0, width - 1)
        total += weight * image[rows][:, columns]
    return np.uint8(np.floor(257 * total + 0.5) // 257)


def motion_blur(image, i):
    return swept(image, 6, 1.8, 9 * (i - 20))


def gaussian_blur(image, i):
    sigma = 0.3 + 0.015 * i
    values = ndimage.gaussian_filter(image / 255, (sigma, sigma, 0), mode="nearest", truncate=7)
    return np.uint8(255 * values)


def brightness(image, i):
    result = np.empty_like(image)
    for place in np.ndindex(image.shape[:2]):
        hue, saturation, value = colorsys.rgb_to_hsv(*(image[place] / 255))
        value = min(max(value + 0.015 * (i - 15), 0), 1)
        result[place] = np.uint8(np.array(colorsys.hsv_to_rgb(hue, saturation, value)) * 255)
    return result


def snow(image, i, normals):
    """normals: (32, 32). A zoom of 2 reads the middle half, corner on corner."""
    crop = 0.05 + 0.3 * normals[8:24, 8:24]
    place = np.linspace(0, 15, 32)
    grid = np.meshgrid(place, place, indexing="ij")
    layer = ndimage.map_coordinates(crop, grid, order=1, mode="nearest")
    layer[layer < 0.5] = 0
    flakes = swept(np.uint8(np.clip(layer, 0, 1) * 255), 10, 2, 4 * i - 150)[..., None] / 255
    values = image / 255
    grey = (values @ [0.299, 0.587, 0.114])[..., None]
    whitened = 0.85 * values + 0.15 * np.maximum(values, 1.5 * grey + 0.5)
    return np.uint8(np.clip(whitened + flakes + flakes[::-1, ::-1], 0, 1) * 255)


FRAME_BY_FRAME = {
    each.__name__: each
    for each in (
        translate,
        rotate,
        scale,
        shear,
        zoom_blur,
        tilt,
        motion_blur,
        gaussian_blur,
        brightness,
    )
}
