"""The normalisation of a data set as a function of images, for those that no data set holds.

Corrupted test images go through it to a network that was trained on the clean ones. Batches of a
data set's own images are made in `batches.py`, with the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from foveapool.data.batches import _affine, _channel_statistics, _image_statistics
from foveapool.data.images import DataSet


def normaliser(data: DataSet) -> Callable[[Tensor], Tensor]:
    """What makes a network's input, float32 (B, C, H, W), of uint8 images (B, C, H, W).

    By "channel" with the statistics of the training images, as in training; by "image" with each
    image's own, as it is given.
    """
    if data.normalisation == "image":
        return lambda images: _normalised(images, *_affine(*_image_statistics(_last(images))))
    scale, shift = _affine(*_channel_statistics(_last(data.train.images)))
    return lambda images: _normalised(images, scale.to(images.device), shift.to(images.device))


def _last(images: Tensor) -> Tensor:
    return images.permute(0, 2, 3, 1)


def _normalised(images: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    # With the channels last, as in training: the same order of operations, the same bits.
    return (_last(images).float() * scale + shift).permute(0, 3, 1, 2)
