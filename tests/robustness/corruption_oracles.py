"""The corruptions a second time, one image at a time, by numpy, scipy, colorsys, Pillow and loops.

Written from the description of the authors' generator. Each function takes an image uint8
(32, 32, 3), the parameters of its severity, and the random numbers of `authors.scripted`.
"""

from __future__ import annotations

import colorsys
import io
import math

import numpy as np
from PIL import Image
from scipy import ndimage

from . import spatter_oracle


def levels(values):
    return (np.clip(values, 0, 1) * 255).astype(np.uint8)


def smooth(image, sigma, **options):
    sigmas = (sigma, sigma, 0)[: image.ndim]
    return ndimage.gaussian_filter(image, sigmas, **{"mode": "nearest", **options})


def gaussian_noise(image, deviation, normal):
    return levels(image / 255 + deviation * normal)


def shot_noise(image, photons, counts):
    return levels(counts / photons)


def impulse_noise(image, share, hit, salt):
    result = image.copy()
    for place in np.argwhere(hit < share):
        result[tuple(place)] = 255 if salt[tuple(place)] < 0.5 else 0
    return result


def speckle_noise(image, deviation, normal):
    return levels(image / 255 * (1 + deviation * normal))


def defocus_blur(image, radius, sigma):
    place = np.arange(-8, 9)
    disk = (place[:, None] ** 2 + place**2 <= radius**2).astype(float)
    taps = np.exp([-0.5 / sigma**2, 0, -0.5 / sigma**2])
    taps = (taps / taps.sum()).astype(np.float32)
    kernel = (disk / disk.sum()).astype(np.float32)
    for axis in (0, 1):
        kernel = ndimage.correlate1d(kernel, taps, axis, mode="mirror")
    return levels(ndimage.correlate(image / 255, kernel[..., None], mode="mirror"))


def glass_blur(image, sigma, shift, passes, *steps):
    glass = levels(smooth(image / 255, sigma))
    for each in steps:
        for h in range(31, 1, -1):
            for w in range(31, 1, -1):
                dx, dy = (-1 if u < 0.5 else 0 for u in each[:, h - 2, w - 2])
                glass[h, w] = glass[h + dy, w + dx]
    return levels(smooth(glass / 255, sigma))


def moved(image, radius, sigma, angle):
    """ImageMagick's motion blur."""
    weights = np.exp(-(np.arange(2 * math.ceil(radius) + 1) ** 2) / (2 * sigma**2))
    y, x = np.mgrid[: image.shape[0], : image.shape[1]]
    total = 0
    for i, weight in enumerate(weights / weights.sum()):
        dx = math.ceil(i * math.cos(math.radians(angle)) - 0.5)
        dy = math.ceil(i * math.sin(math.radians(angle)) - 0.5)
        rows = np.clip(y + dy, 0, image.shape[0] - 1)
        total = total + weight * image[rows, np.clip(x + dx, 0, image.shape[1] - 1)]
    return (np.floor(257 * total + 0.5) // 257).astype(np.uint8)


def motion_blur(image, radius, sigma, place):
    return moved(image, radius, sigma, -45 + 90 * place)


def zoomed(image, factor):
    """The authors' clipped zoom of (n, n) or (n, n, 3)."""
    size = len(image)
    crop = math.ceil(size / factor)
    top = (size - crop) // 2
    part = image[top : top + crop, top : top + crop]
    large = ndimage.zoom(part, (factor, factor, 1)[: image.ndim], order=1)
    trim = (len(large) - size) // 2
    return large[trim : trim + size, trim : trim + size]


def zoom_blur(image, factors):
    values = (image / 255).astype(np.float32)
    total = sum(zoomed(values, factor) for factor in np.arange(1, 1.3, 0.01)[:factors])
    return levels((values + total) / (factors + 1))


def snow(image, mean, deviation, zoom, threshold, radius, sigma, blend, normal, place):
    layer = zoomed(mean + deviation * normal, zoom)
    layer[layer < threshold] = 0
    layer = moved(levels(layer), radius, sigma, -135 + 90 * place) / 255
    values = image / 255
    grey = values @ [0.299, 0.587, 0.114]
    white = np.maximum(values, grey[..., None] * 1.5 + 0.5)
    values = blend * values + (1 - blend) * white
    return levels(values + layer[..., None] + layer[::-1, ::-1, None])


def frost(image, share, ice_share, chosen, start, pictures):
    picture = pictures[int(chosen * len(pictures))]
    y, x = (np.floor(start * (np.array(picture.shape[:2]) - 32))).astype(int)
    ice = picture[y : y + 32, x : x + 32]
    return np.clip(share * image + ice_share * ice, 0, 255).astype(np.uint8)


def fog_map(decay, draws):
    """Diamond-square on a torus, pixel by pixel."""
    cloud, draws = np.zeros((32, 32)), list(draws)
    step, amplitude = 32, 100.0

    def fill(dy, dx, neighbors):
        noise = draws.pop(0)
        found = {}
        for i in range(32 // step):
            for j in range(32 // step):
                y, x = i * step + dy, j * step + dx
                near = [cloud[(y + a) % 32, (x + b) % 32] for a, b in neighbors]
                found[y, x] = np.mean(near) + amplitude**2 * (2 * noise[i, j] - 1)
        for place, value in found.items():
            cloud[place] = value

    while step >= 2:
        half = step // 2
        cross = [(-half, 0), (half, 0), (0, -half), (0, half)]
        fill(half, half, [(a, b) for a in (-half, half) for b in (-half, half)])
        fill(0, half, cross)
        fill(half, 0, cross)
        step, amplitude = half, amplitude / decay
    cloud -= cloud.min()
    return cloud / cloud.max()


def fog(image, strength, decay, *draws):
    values = image / 255
    brightest = values.max()
    cloud = fog_map(decay, draws)[..., None]
    return levels((values + strength * cloud) * brightest / (brightest + strength))


def _through_hsv(image, change):
    flat = [
        colorsys.hsv_to_rgb(*change(*colorsys.rgb_to_hsv(*pixel)))
        for pixel in image.reshape(-1, 3) / 255
    ]
    return levels(np.array(flat).reshape(image.shape))


def brightness(image, offset):
    return _through_hsv(image, lambda h, s, v: (h, s, min(1, v + offset)))


def saturate(image, factor, offset):
    return _through_hsv(image, lambda h, s, v: (h, min(1, s * factor + offset), v))


def contrast(image, share):
    values = image / 255
    mean = values.mean((0, 1))
    return levels((values - mean) * share + mean)


def elastic_transform(image, alpha, sigma, jitter, places, fields):
    points = np.array([[26, 26], [26, 6], [6, 6]], float)
    moved_points = points + (jitter * (2 * places - 1)).astype(np.float32)
    back = np.linalg.solve(np.c_[moved_points, np.ones(3)], points)
    # OpenCV rounds what x and what y add to a position to 1024ths, and their sum to 32nds.
    across = np.round(np.arange(32)[:, None] * back[0] * 1024)
    along = np.round((np.arange(32)[:, None] * back[1] + back[2]) * 1024)
    place = (along[:, None] + across + 16) // 32 / 32
    values = np.stack(
        [
            ndimage.map_coordinates(plane, (place[..., 1], place[..., 0]), order=1, mode="mirror")
            for plane in np.moveaxis(image / 255, -1, 0)
        ],
        -1,
    )
    right, down = (
        smooth(2 * field - 1, sigma, mode="reflect", truncate=3) * alpha if sigma else 0 * field
        for field in fields
    )
    result = np.empty_like(values)
    for row in range(32):
        for column in range(32):
            pairs = _old_reflect(row + down[row, column]), _old_reflect(column + right[row, column])
            result[row, column] = sum(
                a * b * values[i, j] for i, a in pairs[0] for j, b in pairs[1]
            )
    return levels(result)


def _old_reflect(position, size=32):
    """Two (pixel, weight) as scipy before 1.6 had them around a position."""
    if position <= -1 or position >= size:
        position = -position - 1 if position < 0 else 2 * size - 1 - position
    if -1 < position < 0:
        return [(1, 1 + position), (0, -position)]
    low = math.floor(position)
    share = position - low
    return [(low, 1 - share), (low + 1 if low + 1 < size else size - 2, share)]


def pixelate(image, share):
    picture = Image.fromarray(image)
    small = picture.resize([int(side * share) for side in picture.size], Image.Resampling.BOX)
    return np.asarray(small.resize(picture.size, Image.Resampling.BOX))


def jpeg_compression(image, quality):
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=quality)
    return np.asarray(Image.open(file))


def gaussian_blur(image, sigma):
    return levels(smooth(image / 255, sigma))


def spatter(image, mean, deviation, sigma, threshold, strength, kind, normal):
    layer = smooth(mean + deviation * normal, sigma)
    layer[layer < threshold] = 0
    if kind == "water":
        water = spatter_oracle.water((layer * 255).astype(np.uint8))
        water = water / water.max() * strength
        return levels(image / 255 + water[..., None] * np.array([175, 238, 238]) / 255)
    mud = smooth((layer > threshold).astype(float), strength)
    mud[mud < 0.8] = 0
    mud = mud[..., None]
    return levels(image / 255 * (1 - mud) + np.array([63, 42, 20]) / 255 * mud)
