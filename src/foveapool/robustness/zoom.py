"""Enlarging the middle of a picture to its old size, as the authors' `clipped_zoom` does.

Sizes are rounded up and down on the way, so the zoom is not quite centred and grows in steps.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor


class ZoomGeometry(NamedTuple):
    """One axis: `crop` pixels from `start` become `resized`, of which those from `trim` stay."""

    crop: int
    start: int
    resized: int
    trim: int


def zoom_geometry(size: int, factor: float) -> ZoomGeometry:
    """What is cut out, enlarged and trimmed on an axis of `size` pixels; factor 1 or more."""
    crop = math.ceil(size / factor)
    resized = round(crop * factor)
    return ZoomGeometry(crop, (size - crop) // 2, resized, (resized - size) // 2)


def zoom_matrix(size: int, factor: float) -> Tensor:
    """One axis of the zoom as weights, (size of the new axis, size of the old one)."""
    crop, start, resized, trim = zoom_geometry(size, factor)
    position = torch.arange(trim, trim + size, dtype=torch.float64) * (crop - 1) / (resized - 1)
    low = position.floor().long().clamp(max=crop - 1)
    high = (low + 1).clamp(max=crop - 1)
    share = position - low
    weights = torch.zeros(size, size, dtype=torch.float64)
    weights.scatter_add_(1, (start + low)[:, None], (1 - share)[:, None])
    weights.scatter_add_(1, (start + high)[:, None], share[:, None])
    return weights


def clipped_zoom(images: Tensor, factor: float) -> Tensor:
    """The middle of (N, H, W) or (N, H, W, C) enlarged `factor` times, 1 or more, linearly.

    Works in float64 and returns the dtype of the images.
    """
    if factor < 1:
        raise ValueError(f"factor: got {factor}, wanted 1 or more; this zoom only enlarges")
    values = images.double()
    rows = zoom_matrix(images.shape[1], factor).to(values)
    columns = zoom_matrix(images.shape[2], factor).to(values)
    values = torch.tensordot(values, rows, dims=([1], [1])).movedim(-1, 1)
    values = torch.tensordot(values, columns, dims=([2], [1])).movedim(-1, 2)
    return values.to(images.dtype)
