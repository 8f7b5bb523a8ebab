"""The two rivals that pool by leaving out high frequencies: a fixed crop and a learned window.

Both see a map as periodic, as the discrete Fourier transform does. The rivals that look at blocks
of pixels are in `rivals`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from foveapool.pooling.baselines.blocks import Baseline


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
