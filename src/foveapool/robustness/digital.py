"""Pixelation and JPEG: what storing a picture badly does to it."""

from __future__ import annotations

import io

import numpy as np
import torch
from torch import Tensor

from foveapool.robustness.draws import Draws
from foveapool.robustness.resample import box_shrink, layer_shape, repeat_pixels


def pixelate(images: Tensor, draws: Draws, share: float) -> Tensor:
    """Shrunk to that share of 32 pixels, of the image if it is smaller, and enlarged in blocks."""
    rows, columns = (int(side * share) for side in layer_shape(images))
    return repeat_pixels(box_shrink(images, rows, columns), *images.shape[1:3])


def jpeg_compression(images: Tensor, draws: Draws, quality: int) -> Tensor:
    """Encoded and decoded by Pillow at that quality, colours at half the resolution."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(
            "jpeg_compression encodes with Pillow: pip install 'foveapool[data]'"
        ) from error
    pixels = images.cpu().numpy()
    result = np.empty_like(pixels)
    # One after the other: Pillow holds Python's lock, and threads only wait for each other.
    for place, image in zip(result, pixels, strict=True):
        with io.BytesIO() as file:
            Image.fromarray(image).save(file, "JPEG", quality=quality)
            with Image.open(file) as decoded:
                place[:] = np.asarray(decoded)
    return torch.from_numpy(result).to(images.device)
