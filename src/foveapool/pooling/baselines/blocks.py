"""The rivals that pool blocks of a map, and what all have in common: which sizes fit, repetition.

A rival that keeps its channels says how it pools (B, C, H, W) to (B, C, H', W').
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foveapool.pooling.layer import Layer


def block_shape(in_shape: Sequence[int], out_shape: Sequence[int]) -> tuple[int, int]:
    """The block's height and width, ceil(in / out), where every block holds a real pixel."""
    sizes = (*in_shape, *out_shape)
    if len(in_shape) != 2 or len(out_shape) != 2 or min(sizes) < 1 or max(sizes) > 2**31:
        raise ValueError(
            f"in_shape, out_shape: got {tuple(in_shape)} and {tuple(out_shape)}, wanted two "
            "positive sizes each, such as (32, 32) and (16, 16); give the spatial sizes only"
        )
    height, width = (math.ceil(i / o) for i, o in zip(in_shape, out_shape, strict=True))
    wanted = (math.ceil(in_shape[0] / height), math.ceil(in_shape[1] / width))
    if wanted != tuple(out_shape):
        raise ValueError(
            f"out_shape: got {tuple(out_shape)} for in_shape {tuple(in_shape)}, wanted blocks of "
            f"{height} x {width} that each hold a pixel; {wanted} is possible with these blocks"
        )
    return height, width


def check_counts(channels: int, components: int) -> None:
    """Raises a ValueError unless there is one of each at least."""
    for name, count in (("channels", channels), ("components", components)):
        if count < 1:
            raise ValueError(f"{name}: got {count}, wanted 1 or more")


def split_blocks(maps: Tensor, strides: tuple[int, int]) -> Tensor:
    """The values of each block, (..., H', W', n), of maps (..., H, W) that are whole blocks."""
    height, width = strides
    split = maps.unflatten(-1, (-1, width)).unflatten(-3, (-1, height))
    return split.transpose(-3, -2).flatten(-2)


class Baseline(Layer):
    """Checks sizes, pools by `pool`, and gives the pooled channels `components` times.

    `strides` are the height and width of the block of input pixels behind one output pixel.
    """

    def __init__(
        self, channels: int, in_shape: Sequence[int], out_shape: Sequence[int], components: int = 1
    ) -> None:
        super().__init__()
        check_counts(channels, components)
        self.strides = block_shape(in_shape, out_shape)
        self.channels = channels
        self.in_shape = (in_shape[0], in_shape[1])
        self.out_shape = (out_shape[0], out_shape[1])
        self.components = components

    def pool(self, maps: Tensor) -> Tensor:
        """Pools (B, C, H, W) to (B, C, H', W')."""
        raise NotImplementedError

    def check_maps(self, maps: Tensor) -> None:
        """Raises a ValueError unless the maps are those that this pooling was built for."""
        wanted = (self.channels, *self.in_shape)
        if maps.dim() != 4 or tuple(maps.shape[1:]) != wanted:
            raise ValueError(
                f"maps: got shape {tuple(maps.shape)}, wanted (batch, {', '.join(map(str, wanted))}"
                "); build the pooling for the maps of this layer"
            )

    def repeat_channels(self, pooled: Tensor) -> Tensor:
        """The pooled channels (B, C, H', W') `components` times, (B, components * C, H', W')."""
        return pooled if self.components == 1 else torch.cat([pooled] * self.components, dim=1)

    def forward(self, maps: Tensor) -> Tensor:
        self.check_maps(maps)
        return self.repeat_channels(self.pool(maps))

    def extra_repr(self) -> str:
        return f"{self.channels}, {self.in_shape}, {self.out_shape}, components={self.components}"


def _split_with_mask(
    maps: Tensor, strides: tuple[int, int], out_shape: tuple[int, int]
) -> tuple[Tensor, Tensor]:
    """The values of each block, (B, C, H', W', n), and which of them are real, (H', W', n).

    Blocks that the lower or right edge cuts short are filled with zeros that the mask denies.
    """
    filling = _missing_pixels(maps, strides, out_shape)
    real = torch.ones(maps.shape[-2:], dtype=torch.bool, device=maps.device)
    return split_blocks(F.pad(maps, filling), strides), split_blocks(F.pad(real, filling), strides)


def _missing_pixels(
    maps: Tensor, strides: tuple[int, int], out_shape: tuple[int, int]
) -> list[int]:
    """What is missing at the right and below for whole blocks, as `F.pad` wants it."""
    (height, width), (rows, columns) = strides, out_shape
    return [0, columns * width - maps.shape[-1], 0, rows * height - maps.shape[-2]]


def _average_by_logits(values: Tensor, logits: Tensor, mask: Tensor) -> Tensor:
    """The block's average with weights exp(logits), (B, C, H', W'), in the dtype of `values`."""
    # bfloat16 has 8 bits: exponentials and their sum need the wider type.
    wide = torch.promote_types(logits.dtype, torch.float32)
    weights = logits.to(wide).masked_fill(~mask, -math.inf).softmax(-1)
    return (weights * values.to(wide)).sum(-1).to(values.dtype)


def _mix_max_and_average(maps: Tensor, strides: tuple[int, int], share: Tensor) -> Tensor:
    """`share * max + (1 - share) * average` of each block, (B, C, H', W')."""
    share = share.to(maps.dtype)
    largest = F.max_pool2d(maps, strides, ceil_mode=True)
    average = F.avg_pool2d(maps, strides, ceil_mode=True)
    return share * largest + (1 - share) * average


def _make_filter_matrix(taps: Sequence[int], inputs: int, outputs: int, stride: int) -> Tensor:
    """A filter, divided by its sum, at every `stride`-th of `inputs` pixels, (outputs, inputs).

    The border is reflected, as often as a short axis needs; one pixel is repeated.
    """
    matrix, period = torch.zeros(outputs, inputs), max(1, 2 * (inputs - 1))
    for output in range(outputs):
        for offset, weight in enumerate(taps, -(len(taps) // 2)):
            pixel = (output * stride + offset) % period
            matrix[output, min(pixel, period - pixel) if inputs > 1 else 0] += weight / sum(taps)
    return matrix


class AveragePool(Baseline):
    """The mean of each block."""

    def pool(self, maps: Tensor) -> Tensor:
        # With no padding, torch divides a block that the edge cuts short by its real pixels only.
        return F.avg_pool2d(maps, self.strides, ceil_mode=True)


class MaxPool(Baseline):
    """The largest value of each block."""

    def pool(self, maps: Tensor) -> Tensor:
        return F.max_pool2d(maps, self.strides, ceil_mode=True)


class BlurPool(Baseline):
    """A binomial 3 x 3 filter, then every s-th pixel.

    Zhang 2019, "Making Convolutional Networks Shift-Invariant Again".
    """

    taps: tuple[int, ...] = (1, 2, 1)
    rows: Tensor  # (H', H), the filter along an axis
    columns: Tensor  # (W', W)

    def __init__(
        self, channels: int, in_shape: Sequence[int], out_shape: Sequence[int], components: int = 1
    ) -> None:
        super().__init__(channels, in_shape, out_shape, components)
        sizes = zip(self.filtered_shape(), self.out_shape, self.strides, strict=True)
        rows, columns = (_make_filter_matrix(self.taps, *each) for each in sizes)
        self.register_buffer("rows", rows, persistent=False)
        self.register_buffer("columns", columns, persistent=False)

    def filtered_shape(self) -> tuple[int, int]:
        """The size of the maps that the filter meets."""
        return self.in_shape

    def pool(self, maps: Tensor) -> Tensor:
        # Two small products. A depthwise convolution of padded maps is the same; with it a network
        # took several times as long to train on a GPU as with other poolings in its place.
        rows, columns = self.rows.to(maps.dtype), self.columns.to(maps.dtype)
        batch, channels, height, width = maps.shape
        if maps.is_contiguous():
            count = batch * channels
            narrow = maps.reshape(count * height, width) @ columns.mT
            narrow = narrow.reshape(count, height, len(columns))
            pooled = torch.bmm(rows.expand(count, -1, -1), narrow)
            return pooled.reshape(batch, channels, *self.out_shape)
        last = maps.permute(0, 2, 3, 1).reshape(batch, height, width * channels)
        low = torch.bmm(rows.expand(batch, -1, -1), last)
        low = low.reshape(batch * len(rows), width, channels)
        pooled = torch.bmm(columns.expand(len(low), -1, -1), low)
        return pooled.reshape(batch, *self.out_shape, channels).permute(0, 3, 1, 2)


class WideBlurPool(BlurPool):
    """A binomial 5 x 5 filter, then every s-th pixel: the widest that its author has.

    Zhang 2019, as above.
    """

    taps = (1, 4, 6, 4, 1)


class MaxBlurPool(BlurPool):
    """The largest value of the block that begins at each pixel, then as `BlurPool`.

    Zhang 2019, as above: max pooling without its stride, whose result is blurred and subsampled.
    """

    def filtered_shape(self) -> tuple[int, int]:
        """The size after max pooling without its stride, over whole blocks."""
        (height, width), (rows, columns) = self.strides, self.out_shape
        return (rows - 1) * height + 1, (columns - 1) * width + 1

    def pool(self, maps: Tensor) -> Tensor:
        filled = F.pad(maps, _missing_pixels(maps, self.strides, self.out_shape), value=-math.inf)
        return super().pool(F.max_pool2d(filled, self.strides, stride=1))


class MixedPool(Baseline):
    """`a max + (1 - a) average` with one learned a = sigmoid(logit) for the layer, at first 1/2.

    Lee, Gallagher and Tu 2016, "Generalizing Pooling Functions in Convolutional Neural Networks".
    """

    def __init__(
        self, channels: int, in_shape: Sequence[int], out_shape: Sequence[int], components: int = 1
    ) -> None:
        super().__init__(channels, in_shape, out_shape, components)
        self.logit = nn.Parameter(torch.zeros(()))

    def pool(self, maps: Tensor) -> Tensor:
        return _mix_max_and_average(maps, self.strides, self.logit.sigmoid())


class GatedPool(Baseline):
    """As mixed, but a = sigmoid(w . block) answers to the block; one mask w for the layer.

    Lee, Gallagher and Tu 2016, as above; w is shared by all channels and starts at 0.
    """

    def __init__(
        self, channels: int, in_shape: Sequence[int], out_shape: Sequence[int], components: int = 1
    ) -> None:
        super().__init__(channels, in_shape, out_shape, components)
        self.gate = nn.Parameter(torch.zeros(math.prod(self.strides)))

    def pool(self, maps: Tensor) -> Tensor:
        # Pixels outside the map are 0 and add nothing to the product.
        values, _ = _split_with_mask(maps, self.strides, self.out_shape)
        return _mix_max_and_average(maps, self.strides, (values @ self.gate).sigmoid())


class SoftPool(Baseline):
    """The block's average with weights exp(x).

    Stergiou, Poppe and Kalliatakis 2021, "Refining Activation Downsampling with SoftPool".
    """

    def pool(self, maps: Tensor) -> Tensor:
        values, mask = _split_with_mask(maps, self.strides, self.out_shape)
        return _average_by_logits(values, values, mask)


class LocalImportancePool(Baseline):
    """The block's average with weights exp(G(x)), G learned.

    Gao, Wang and Wu 2019, "LIP: Local Importance-based Pooling". G is the paper's projection form:
    1 x 1 convolution, instance norm, 12 sigmoid. The paper pools 3 x 3 windows at stride 2; here
    the window is the block, so that all rivals see the same region.
    """

    COEFFICIENT = 12.0

    def __init__(
        self, channels: int, in_shape: Sequence[int], out_shape: Sequence[int], components: int = 1
    ) -> None:
        super().__init__(channels, in_shape, out_shape, components)
        self.project = nn.Conv2d(channels, channels, kernel_size=1, bias=False)
        self.norm = nn.InstanceNorm2d(channels, affine=True)
        # As its authors' code does: equal importance everywhere, so training starts at average.
        nn.init.zeros_(self.project.weight)

    def pool(self, maps: Tensor) -> Tensor:
        normed = self.project(maps)
        # torch normalizes neither an empty batch nor maps of one pixel, whose weight is 1 anyway.
        if len(maps) and self.in_shape != (1, 1):
            normed = self.norm(normed)
        wide = torch.promote_types(normed.dtype, torch.float32)
        logits, mask = _split_with_mask(
            self.COEFFICIENT * normed.to(wide).sigmoid(), self.strides, self.out_shape
        )
        values, _ = _split_with_mask(maps, self.strides, self.out_shape)
        return _average_by_logits(values, logits, mask)
