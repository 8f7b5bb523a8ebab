"""A strided convolution with one kernel for all channels, as a pooling matrix.

What cannot be convolved is refused here, in the words of the caller's arguments.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from foveapool.pooling.grid import as_shape


def kernel_weights(
    kernel: Tensor,
    in_shape: Sequence[int],
    stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] = 0,
) -> tuple[Tensor, tuple[int, int]]:
    """The convolution with `kernel` (h, w), or (k, h, w), float64 (k, M, N); and its output's size.

    >>> weight, out_shape = kernel_weights(torch.ones(1, 2), (1, 4), stride=2)
    >>> weight.tolist(), out_shape
    ([[[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]]], (1, 2))
    """
    source = as_shape(in_shape)
    if len(source) != 2:
        raise ValueError(f"in_shape: got {source}, wanted (H, W)")
    if kernel.dim() not in (2, 3) or not kernel.numel():
        raise ValueError(
            f"kernel: got shape {tuple(kernel.shape)}, wanted (h, w) or (k, h, w), each 1 or more"
        )
    steps, margins = _pair("stride", stride, 1), _pair("padding", padding, 0)
    height, width = source
    room = (height + 2 * margins[0], width + 2 * margins[1])
    if kernel.shape[-2] > room[0] or kernel.shape[-1] > room[1]:
        raise ValueError(
            f"kernel: got shape {tuple(kernel.shape)}, wanted at most {room} in height and width, "
            f"the map {source} with its padding; give a smaller kernel or more padding"
        )
    kernels = kernel.detach().double().cpu()
    kernels = kernels[None, None] if kernel.dim() == 2 else kernels[:, None]
    # The matrix of a linear map is its answer to the unit vectors.
    units = torch.eye(height * width, dtype=torch.float64).reshape(-1, 1, height, width)
    answer = functional.conv2d(units, kernels, stride=steps, padding=margins)
    return answer.flatten(2).permute(1, 2, 0), (answer.shape[2], answer.shape[3])


def _pair(name: str, value: int | tuple[int, int], least: int) -> tuple[int, int]:
    """The numbers for both axes, or a ValueError."""
    pair = tuple(value) if isinstance(value, Sequence) else (value, value)
    if len(pair) != 2 or any(int(each) != each or each < least for each in pair):
        raise ValueError(
            f"{name}: got {value!r}, wanted a whole number, {least} or more, or two of them"
        )
    return int(pair[0]), int(pair[1])
