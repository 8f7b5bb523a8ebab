"""Pictures at other sizes: layers drawn at 32 pixels, Pillow's boxes, OpenCV's bilinear."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from foveapool.robustness.levels import scale_of


def layer_shape(images: Tensor) -> tuple[int, int]:
    """The (rows, columns) of a layer drawn for these images with a shorter side of 32 at most.

    Weather is drawn at the authors' size and then enlarged: drawn at the size of the images, its
    grains would shrink against the picture, and thresholds would mean something else.
    """
    scale = scale_of(images)
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
        place = (torch.arange(round(size * factor), dtype=torch.float64) + 0.5) / factor - 0.5
        place = place.clamp(0, size - 1)
        low = place.floor().long()
        share = (place - low).reshape(-1, *[1] * (2 - axis))
        high = (low + 1).clamp(max=size - 1)
        near, far = values.index_select(axis, low), values.index_select(axis, high)
        values = near + share * (far - near)
    return values.round().to(torch.uint8)


def _boxes(size: int, cells: int) -> Tensor:
    """(cells, size) weights in units of 2^-22: each cell the mean of its whole pixels."""
    edges = torch.floor(torch.arange(cells + 1, dtype=torch.float64) * size / cells + 0.5)
    place = torch.arange(size)
    inside = ((place >= edges[:-1, None]) & (place < edges[1:, None])).double()
    return torch.floor(inside / inside.sum(1, keepdim=True) * 2**22 + 0.5) * inside


def box_shrink(images: Tensor, rows: int, columns: int) -> Tensor:
    """uint8 (N, H, W, C) shrunk as Pillow's BOX filter does: along rows, rounded, then columns."""
    values = images.double()
    for axis, cells in ((2, columns), (1, rows)):
        boxes = _boxes(images.shape[axis], cells).to(values)
        values = torch.tensordot(values, boxes, dims=([axis], [1])).movedim(-1, axis)
        values = torch.floor(values / 2**22 + 0.5)
    return values.to(torch.uint8)


def repeat_pixels(images: Tensor, height: int, width: int) -> Tensor:
    """(N, h, w, C) enlarged by giving each pixel to its nearest ones, nothing in between."""
    for axis, size in ((1, height), (2, width)):
        place = torch.arange(size, dtype=torch.float64) + 0.5
        index = (place * images.shape[axis] / size).long()
        images = images.index_select(axis, index.to(images.device))
    return images
