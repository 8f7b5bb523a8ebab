"""The rivals that filter a map: strided 3 x 3 convolutions, and crops of its spectrum.

The convolutions, with or without a sense of place, take C channels to components * C and stand in
the place of a convolution; they start from numbers of torch's default generator. The crops leave
out high frequencies and see a map as periodic, as the discrete Fourier transform does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foveapool.pooling.baselines.blocks import Baseline


class ConvolutionBaseline(Baseline):
    """Checks sizes, and gives what `pool` makes of the maps: all components at once."""

    def forward(self, maps: Tensor) -> Tensor:
        self.check_maps(maps)
        return self.pool(maps)


class LowRankConvolution(ConvolutionBaseline):
    """A convolution whose kernel is another mean of `rank` kernels at each place.

    Elsayed, Ramachandran, Shlens and Kornblith 2020, "Revisiting Spatial Invariance with Low-Rank
    Local Connectivity" (LRLC). The kernels' weights at a place are the softmax of a logit for its
    row plus one for its column; so is the bias the sum of one for the row and one for the column,
    the same for all channels. It starts as one convolution, the mean of the kernels.

    Args:
        rank: The number of kernels. 1 is a convolution with a bias for each place.
    """

    def __init__(
        self,
        channels: int,
        in_shape: Sequence[int],
        out_shape: Sequence[int],
        components: int = 1,
        *,
        rank: int = 4,
    ) -> None:
        super().__init__(channels, in_shape, out_shape, components)
        if rank < 1:
            raise ValueError(f"rank: got {rank}, wanted 1 or more; 1 is a plain convolution")
        self.rank = rank
        rows, columns = self.out_shape
        self.kernels = nn.Parameter(torch.empty(rank * components * channels, channels, 3, 3))
        self.row_logits = nn.Parameter(torch.empty(rank, rows, 1))
        self.column_logits = nn.Parameter(torch.empty(rank, 1, columns))
        self.row_bias = nn.Parameter(torch.empty(rows, 1))
        self.column_bias = nn.Parameter(torch.empty(1, columns))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """As the authors' code: He's uniform numbers for the kernels, equal weights, no bias."""
        nn.init.kaiming_uniform_(self.kernels, nonlinearity="relu")
        for parameter in (self.row_logits, self.column_logits, self.row_bias, self.column_bias):
            nn.init.zeros_(parameter)

    def place_weights(self) -> Tensor:
        """The weight of each kernel at each output place, (rank, H', W'), with sum 1 over them."""
        return (self.row_logits + self.column_logits).softmax(0)

    def pool(self, maps: Tensor) -> Tensor:
        # The mean of the outputs is the output of the mean kernel, and needs no kernel per place.
        outputs = F.conv2d(maps, self.kernels, stride=self.strides, padding=1)
        outputs = outputs.unflatten(1, (self.rank, -1))
        weights = self.place_weights()[:, None].to(outputs.dtype)
        bias = (self.row_bias + self.column_bias).to(outputs.dtype)
        return (outputs * weights).sum(1) + bias

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, rank={self.rank}"


class CoordConvolution(ConvolutionBaseline):
    """A convolution of the maps and of two more channels: each pixel's row and column, -1 to 1.

    Liu et al. 2018, "An Intriguing Failing of Convolutional Neural Networks and the CoordConv
    Solution".
    """

    coordinates: Tensor

    def __init__(
        self, channels: int, in_shape: Sequence[int], out_shape: Sequence[int], components: int = 1
    ) -> None:
        super().__init__(channels, in_shape, out_shape, components)
        self.weight = nn.Parameter(torch.empty(components * channels, channels + 2, 3, 3))
        # An axis of one pixel lies in the middle of itself.
        along_rows, along_columns = (
            torch.linspace(-1, 1, size) if size > 1 else torch.zeros(1) for size in self.in_shape
        )
        coordinates = torch.stack(torch.meshgrid(along_rows, along_columns, indexing="ij"))
        self.register_buffer("coordinates", coordinates[None], persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """The numbers that torch gives a convolution of as many channels."""
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))

    def pool(self, maps: Tensor) -> Tensor:
        # Coordinates are the same for all samples: convolved once, they need no place in a batch.
        of_maps, of_coordinates = self.weight.split([self.channels, 2], dim=1)
        convolved = F.conv2d(maps, of_maps, stride=self.strides, padding=1)
        return convolved + F.conv2d(
            self.coordinates, of_coordinates, stride=self.strides, padding=1
        )


class FullConvolution(ConvolutionBaseline):
    """A convolution in which every weight meets every pixel that its stride can bring it to.

    Kayhan and van Gemert 2020, "On Translation Invariance in CNNs: Convolutional Layers can
    Exploit Absolute Spatial Location" (F-Conv). Their maps grow: a full convolution has outputs
    for all windows that touch the map, more than `out_shape`. Cropping them would leave the plain
    strided convolution. So an output beyond the edge is added to its neighbor within: the sum
    over the map, which an average at the network's end sees, stays that of the full convolution.
    Outputs lie where the strided convolution has them, so that a shortcut still fits.
    """

    def __init__(
        self, channels: int, in_shape: Sequence[int], out_shape: Sequence[int], components: int = 1
    ) -> None:
        super().__init__(channels, in_shape, out_shape, components)
        self.weight = nn.Parameter(torch.empty(components * channels, channels, 3, 3))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """The numbers that torch gives a convolution of as many channels."""
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))

    def pool(self, maps: Tensor) -> Tensor:
        # Only without a stride is there a window whose center lies before the first pixel.
        above, left = (1 if stride == 1 else 0 for stride in self.strides)
        padded = F.pad(maps, (1 + left, 2, 1 + above, 2))
        convolved = F.conv2d(padded, self.weight, stride=self.strides)
        rows, columns = self.out_shape
        return _fold_edges(_fold_edges(convolved, -2, above, rows), -1, left, columns)


def _fold_edges(maps: Tensor, axis: int, before: int, size: int) -> Tensor:
    """The `size` places behind the first `before`, with those outside added to the nearest."""
    behind = maps.shape[axis] - before - size
    kept = maps.narrow(axis, before, size)
    # Padding counts from the last axis; zeros take the strip to its end of the map.
    skip = [0, 0] * (-1 - axis)
    if before:
        kept = kept + F.pad(maps.narrow(axis, 0, 1), [*skip, 0, size - 1])
    if behind:
        kept = kept + F.pad(maps.narrow(axis, before + size, 1), [*skip, size - 1, 0])
    return kept


class SpectralPool(Baseline):
    """The map's low frequencies, as many as the output can hold, seen as a smaller map.

    Rippel, Snoek and Adams 2015, "Spectral Representations for Convolutional Neural Networks".
    The crop is a box, so the axes follow one another; an output of even size keeps its highest
    frequency as the mean of the two signs, which makes the output real.
    """

    def windowed(self, spectrum: Tensor, frequencies: Tensor, axis: int) -> Tensor:
        """The kept part of the spectrum along an axis, -2 or -1, as it goes into the output."""
        return spectrum

    def pool(self, maps: Tensor) -> Tensor:
        if not len(maps):
            # No transform takes an empty batch.
            return maps.new_empty(0, self.channels, *self.out_shape)
        # No transform has bfloat16, and float16 needs sizes that are powers of two.
        pooled = maps.to(torch.promote_types(maps.dtype, torch.float32))
        for axis, size in zip((-2, -1), self.out_shape, strict=True):
            count = size // 2 + 1
            # Divided by the input's size here and by nothing below: a constant keeps its value.
            spectrum = torch.fft.rfft(pooled, dim=axis, norm="forward").narrow(axis, 0, count)
            frequencies = torch.arange(count, device=maps.device).reshape(-1, *[1] * (-1 - axis))
            # At 0 and at the new Nyquist frequency no sine can be seen. The inverse transform of
            # the CPU ignores an imaginary part there, that of the GPU does not for every size.
            seen = 2 * frequencies % size != 0
            spectrum = torch.complex(spectrum.real, seen * spectrum.imag)
            spectrum = self.windowed(spectrum, frequencies, axis)
            pooled = torch.fft.irfft(spectrum, n=size, dim=axis, norm="forward")
        return pooled.to(maps.dtype)


class DiffStridePool(SpectralPool):
    """Spectral pooling through a window of learned width, two numbers for the layer.

    Riad, Teboul, Grangier and Zeghidour 2022, "Learning Strides in Convolutional Neural Networks".
    Along an axis of `size` pixels, frequency n counts clamp((R + size / (2 S) - |n|) / R, 0, 1):
    fully up to the Nyquist frequency of the learned stride S >= 1, then along a ramp of R.

    In the paper the output's size follows S. Here the network behind wants `out_shape`, so the
    crop is fixed and S can only narrow the window within it: at S <= in / out the window is open,
    the result is that of spectral pooling, and S has no gradient. So S starts at in / (out - R),
    where the middle of the ramp lies on the edge of the crop; the authors stop a widening window
    in the same way at the edge of the spectrum. R is their 4, for small outputs half the size.
    """

    SMOOTHNESS = 4.0

    def __init__(
        self, channels: int, in_shape: Sequence[int], out_shape: Sequence[int], components: int = 1
    ) -> None:
        super().__init__(channels, in_shape, out_shape, components)
        self.ramps = tuple(min(self.SMOOTHNESS, size / 2) for size in self.out_shape)
        first = [
            size / (kept - ramp)
            for size, kept, ramp in zip(self.in_shape, self.out_shape, self.ramps, strict=True)
        ]
        self.learned_strides = nn.Parameter(torch.tensor(first))

    def windowed(self, spectrum: Tensor, frequencies: Tensor, axis: int) -> Tensor:
        ramp = self.ramps[axis]
        stride = self.learned_strides[axis].to(spectrum.real.dtype).clamp(min=1)
        open_until = self.in_shape[axis] / (2 * stride)
        return spectrum * ((ramp + open_until - frequencies) / ramp).clamp(0, 1)
