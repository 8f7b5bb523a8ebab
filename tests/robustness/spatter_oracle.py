"""OpenCV's part of spatter for one grey layer, by plain loops over its pixels."""

from __future__ import annotations

import math

import numpy as np
from scipy import ndimage


def canny(levels, low=50, high=150):
    """Edges as booleans: gradient, ridges by direction, then a walk from the strong ones."""
    padded = np.pad(levels.astype(int), 1, "edge")
    sobel = np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]])
    across = ndimage.correlate(padded, sobel, mode="nearest")[1:-1, 1:-1]
    along = ndimage.correlate(padded, sobel.T, mode="nearest")[1:-1, 1:-1]
    size = np.pad(abs(across) + abs(along), 1)
    rows, columns = levels.shape
    state = np.zeros_like(levels, dtype=int)
    for y in range(rows):
        for x in range(columns):
            here = size[y + 1, x + 1]
            angle = math.degrees(math.atan2(abs(along[y, x]), abs(across[y, x])))
            if angle < 22.5:
                step, strict = (0, 1), False
            elif angle > 67.5:
                step, strict = (1, 0), False
            else:
                step, strict = (1, -1 if across[y, x] * along[y, x] < 0 else 1), True
            before = size[y + 1 - step[0], x + 1 - step[1]]
            after = size[y + 1 + step[0], x + 1 + step[1]]
            if here > low and here > before and (here > after or (here == after and not strict)):
                state[y, x] = 2 if here > high else 1
    waiting = list(np.argwhere(state == 2))
    while waiting:
        y, x = waiting.pop()
        for i in range(max(0, y - 1), min(rows, y + 2)):
            for j in range(max(0, x - 1), min(columns, x + 2)):
                if state[i, j] == 1:
                    state[i, j] = 2
                    waiting.append((i, j))
    return state == 2


def chamfer(edges, cap=20.0):
    """The nearest edge by the best mix of straight, diagonal and knight's steps to each edge."""
    distance = np.full(edges.shape, cap)
    y, x = np.mgrid[: edges.shape[0], : edges.shape[1]]
    for i, j in np.argwhere(edges):
        long = np.maximum(abs(y - i), abs(x - j))
        short = np.minimum(abs(y - i), abs(x - j))
        flat = (long - 2 * short) * 1.0 + short * 2.1969
        steep = (long - short) * 2.1969 + (2 * short - long) * 1.4
        distance = np.minimum(distance, np.where(2 * short <= long, flat, steep))
    return distance


def equalise(levels):
    counts = np.bincount(levels.ravel(), minlength=256)
    lowest = int(np.flatnonzero(counts)[0])
    if counts[lowest] == levels.size:
        return levels.copy()
    below = np.cumsum(counts) - counts[lowest]
    table = np.round(255 * below / (levels.size - counts[lowest])).clip(0, 255)
    return table.astype(np.uint8)[levels]


def water(levels):
    """Level times relief, before it is divided by its maximum."""
    box = np.full((3, 3), 1 / 9)
    heights = ndimage.correlate(chamfer(canny(levels)), box, mode="mirror")
    heights = equalise((heights + 1e-6).astype(np.uint8)).astype(float)
    light = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])
    lit = ndimage.correlate(heights, light, mode="mirror").clip(0, 255)
    return levels * np.round(ndimage.correlate(lit, box, mode="mirror"))
