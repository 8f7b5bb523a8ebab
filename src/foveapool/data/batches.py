"""Batches from images that stay on the device as bytes: gathered, moved, mirrored and normalized.

All of an epoch's randomness is drawn from (seed, epoch) on the CPU before it begins, so the place
in an epoch is all there is to remember, and every device sees the same batches. Batches are made
by tensor operations alone and read their place from a tensor: a CUDA graph can replay them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from foveapool.data.images import Augmentation, DataSet, Images


@dataclass(frozen=True, eq=False)
class ResidentImages:
    """Images on a device, to be normalized as `pixel * scale + shift` when they are used.

    pixels: uint8 (n, H, W, C), so that a batch is channels-last without a transpose. scale and
    shift: (n, 1, 1, 1) for images normalized each by itself, else (1, 1, 1, C).
    """

    pixels: Tensor
    labels: Tensor
    scale: Tensor
    shift: Tensor

    def __len__(self) -> int:
        return len(self.labels)


def load_resident(
    data: DataSet, device: torch.device | str
) -> tuple[ResidentImages, ResidentImages]:
    """The training and the test images on the device, normalized as the data set wants it.

    Statistics of channels are those of the training images alone.
    """
    if data.normalization not in ("channel", "image"):
        raise ValueError(
            f"{data.name}: got the normalization {data.normalization!r}, wanted channel or image"
        )

    def moved(images: Images) -> tuple[Tensor, Tensor]:
        pixels = images.images.to(device).permute(0, 2, 3, 1).contiguous()
        return pixels, images.labels.to(device)

    parts = [moved(part) for part in (data.train, data.test)]
    if data.normalization == "channel":
        statistics = [_measure_channels(parts[0][0])] * 2
    else:
        statistics = [_measure_images(pixels) for pixels, _ in parts]
    train, test = (
        ResidentImages(pixels, labels, *_make_affine(mean, deviation))
        for (pixels, labels), (mean, deviation) in zip(parts, statistics, strict=True)
    )
    return train, test


def _measure_channels(pixels: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and deviation of each channel, (1, 1, 1, C) in float64; from counts, so exact."""
    values = torch.arange(256, dtype=torch.float64, device=pixels.device)
    means, deviations = [], []
    for channel in pixels.unbind(3):
        share = torch.bincount(channel.flatten(), minlength=256).double() / channel.numel()
        mean = (share * values).sum()
        means.append(mean)
        deviations.append((share * (values - mean) ** 2).sum().sqrt())
    return torch.stack(means).view(1, 1, 1, -1), torch.stack(deviations).view(1, 1, 1, -1)


def _measure_images(pixels: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and deviation of each image over its pixels and channels, (n, 1, 1, 1) in float64."""
    if not len(pixels):
        empty = torch.zeros(0, 1, 1, 1, dtype=torch.float64, device=pixels.device)
        return empty, empty
    # Sums of bytes and of their squares are whole numbers: the same on every device.
    sums = torch.empty(2, len(pixels), dtype=torch.int64, device=pixels.device)
    for part, (first, second) in zip(pixels.split(1024), sums.split(1024, 1), strict=True):
        wide = part.flatten(1).long()
        first.copy_(wide.sum(1))
        second.copy_(wide.square_().sum(1))
    mean, square = sums.double() / pixels[0].numel()
    deviation = (square - mean**2).clamp(min=0).sqrt()
    return mean.view(-1, 1, 1, 1), deviation.view(-1, 1, 1, 1)


def _make_affine(mean: Tensor, deviation: Tensor) -> tuple[Tensor, Tensor]:
    """Scale and shift that normalize; what does not vary becomes 0."""
    scale = torch.where(deviation > 0, 1 / deviation, 0.0)
    return scale.float(), (-mean * scale).float()


def draw_epoch_plan(
    count: int, seed: int, epoch: int, augmentation: Augmentation | None = None
) -> Tensor:
    """What an epoch does, int64 (count, 4): image, shift down, shift right, mirrored or not.

    A row an image, in the order of the epoch; drawn from (seed, epoch) and nothing else.
    """
    generator = torch.Generator().manual_seed(
        random.Random(f"{seed} epoch {epoch}").getrandbits(63)
    )
    plan = torch.zeros(count, 4, dtype=torch.int64)
    plan[:, 0] = torch.randperm(count, generator=generator)
    if augmentation is not None:
        low, high = -augmentation.pad, augmentation.pad + 1
        plan[:, 1:3] = torch.randint(low, high, (count, 2), generator=generator)
        if augmentation.flip:
            plan[:, 3] = torch.randint(2, (count,), generator=generator)
    return plan


def assemble_batch(images: ResidentImages, rows: Tensor, augmented: bool) -> tuple[Tensor, Tensor]:
    """The images (B, C, H, W), float32 and normalized, and labels (B,) of some rows of a plan."""
    index = rows[:, 0]
    if augmented:
        height, width = images.pixels.shape[1:3]
        across = torch.arange(width, device=rows.device)
        across = torch.where(rows[:, 3, None] == 1, width - 1 - across, across)
        y = rows[:, 1, None] + torch.arange(height, device=rows.device)
        x = rows[:, 2, None] + across
        y_inside, x_inside = (y >= 0) & (y < height), (x >= 0) & (x < width)
        y, x = y.clamp(0, height - 1), x.clamp(0, width - 1)
        pixels = images.pixels[index[:, None, None], y[:, :, None], x[:, None, :]]
    else:
        pixels = images.pixels[index]
    scale, shift = images.scale, images.shift
    if len(scale) != 1:
        scale, shift = scale[index], shift[index]
    values = pixels.float() * scale + shift
    if augmented:
        # The border is 0 after the normalization: the mean, not black.
        values = values * (y_inside[:, :, None] & x_inside[:, None, :])[..., None]
    return values.permute(0, 3, 1, 2), images.labels[index]


def iterate_batches(images: ResidentImages, size: int = 500) -> Iterator[tuple[Tensor, Tensor]]:
    """All images in their order, normalized and not augmented: to evaluate and to fit on."""
    for first in range(0, len(images), size):
        index = torch.arange(first, min(first + size, len(images)), device=images.labels.device)
        yield assemble_batch(images, index[:, None], augmented=False)


@dataclass(frozen=True, eq=False)
class OrderedBatches:
    """All images in their order as often as it is read: what a fit takes for a loader."""

    images: ResidentImages
    size: int = 500

    def __len__(self) -> int:
        return -(-len(self.images) // self.size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iterate_batches(self.images, self.size)


class Feed:
    """The batches of one epoch after another, from buffers that never move.

    Each of `ranks` processes gets its own part of every batch. Images that do not fill a last
    batch are left out, other ones in each epoch.
    """

    def __init__(
        self,
        images: ResidentImages,
        batch_size: int,
        seed: int,
        augmentation: Augmentation | None = None,
        rank: int = 0,
        ranks: int = 1,
    ) -> None:
        if not 1 <= batch_size <= len(images):
            raise ValueError(
                f"batch_size: got {batch_size}, wanted 1 to {len(images)}, the number of training "
                "images"
            )
        if batch_size % ranks:
            raise ValueError(
                f"batch_size: got {batch_size}, wanted a multiple of the {ranks} processes that "
                "share a batch"
            )
        device, part = images.labels.device, batch_size // ranks
        self.images, self.batch_size = images, batch_size
        self.seed, self.augmentation = seed, augmentation
        self.steps = len(images) // batch_size
        self.plan = torch.zeros(len(images), 4, dtype=torch.int64, device=device)
        self.step = torch.zeros(1, dtype=torch.int64, device=device)
        self.places = torch.arange(rank * part, (rank + 1) * part, device=device)
        self._drawn: tuple[int, Tensor] | None = None

    def prepare(self, epoch: int) -> Tensor:
        """Draws that epoch's plan: call it early, and a GPU need not wait for it between epochs."""
        if self._drawn is None or self._drawn[0] != epoch:
            plan = draw_epoch_plan(len(self.images), self.seed, epoch, self.augmentation)
            self._drawn = (epoch, plan)
        return self._drawn[1]

    def start(self, epoch: int, step: int = 0) -> None:
        """Goes to that step of that epoch."""
        self.plan.copy_(self.prepare(epoch))
        self.step.fill_(step)

    def batch(self) -> tuple[Tensor, Tensor]:
        """The images and labels at this step; `step` is the caller's to move on."""
        rows = self.plan[self.step * self.batch_size + self.places]
        return assemble_batch(self.images, rows, self.augmentation is not None)


def make_normalizer(data: DataSet) -> Callable[[Tensor], Tensor]:
    """What makes a network's input, float32 (B, C, H, W), of uint8 images (B, C, H, W).

    By "channel" with the statistics of the training images, as in training; by "image" with each
    image's own, as it is given.
    """
    if data.normalization == "image":
        return lambda images: _normalized(images, *_make_affine(*_measure_images(_last(images))))
    scale, shift = _make_affine(*_measure_channels(_last(data.train.images)))
    return lambda images: _normalized(images, scale.to(images.device), shift.to(images.device))


def _last(images: Tensor) -> Tensor:
    return images.permute(0, 2, 3, 1)


def _normalized(images: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    # With the channels last, as in training: the same order of operations, the same bits.
    return (_last(images).float() * scale + shift).permute(0, 3, 1, 2)
