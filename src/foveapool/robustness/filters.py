"""Linear filters of batches of images, with the border rules of the libraries the authors used.

Images are (N, H, W) or (N, H, W, C), floating point, channels filtered alone. `gaussian` is the
one of scikit-image and scipy, `correlate` and `opencv_gaussian` are OpenCV's.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

# What lies beyond the edge of a row "a b c d":  nearest  a a | a b c d | d d
#                                                 reflect  b a | a b c d | d c
#                                                 mirror   c b | a b c d | c b
Border = Literal["nearest", "reflect", "mirror"]


def fold(position: Tensor, size: int, border: Border) -> Tensor:
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
            images = images.index_select(axis, fold(position, size, border))
    return images


def gaussian_weights(sigma: float, truncate: float = 4.0) -> list[float]:
    """The weights from the centre outwards, as scipy cuts and normalises them."""
    reach = int(truncate * sigma + 0.5)
    if reach == 0:
        return [1.0]
    # In scipy's order: the last bit decides levels where the picture is flat.
    half = [math.exp(t * (t * (-0.5 / (sigma * sigma)))) for t in range(reach + 1)]
    total = sum([*half[:0:-1], *half])
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
    """Each pixel as the sum of its neighbours times a kernel of odd sides, not turned round.

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

    The taps are normalised among themselves, however much of the bell they leave out.
    """
    place = torch.arange(-1, 2, dtype=torch.float64)
    taps = torch.exp(-0.5 * (place / sigma) ** 2)
    taps = (taps / taps.sum()).float()
    planes = image[None]
    for axis, reach in ((1, (1, 0)), (2, (0, 1))):
        padded = pad(planes, *reach, "mirror")
        planes = sum(
            (tap * padded.narrow(axis, i, planes.shape[axis]) for i, tap in enumerate(taps)),
            start=torch.zeros_like(planes),
        )
    return planes[0]
