"""LinearPool2d with random weights, maps for it, and the ways in which both are tried."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from foveapool.pooling.module import LinearPool2d

IN_SHAPE, OUT_SHAPE = (4, 6), (2, 3)
INPUTS, OUTPUTS = 24, 6
FORMATS = [torch.contiguous_format, torch.channels_last]

formats = pytest.mark.parametrize("memory_format", FORMATS, ids=["channels_first", "channels_last"])
trainable_or_not = pytest.mark.parametrize("trainable", [True, False])
fitted_or_not = pytest.mark.parametrize("fitted", [True, False])


def random(*sizes: int) -> Tensor:
    return torch.randn(sizes, dtype=torch.float64)


def random_pool(
    components: int = 2, channels: int = 3, fitted: bool = True, trainable: bool = False
) -> LinearPool2d:
    """A layer of random weights in float64, with a mean for each channel when it was fitted."""
    weight = torch.randn(components, OUTPUTS, INPUTS)
    mean = 2 + torch.randn(channels) if fitted else None
    shapes = {"in_shape": IN_SHAPE, "out_shape": OUT_SHAPE}
    return LinearPool2d(weight, mean, **shapes, trainable=trainable).double()


def random_maps(batch: int = 5, channels: int = 3, memory_format: torch.memory_format = FORMATS[0]):
    return random(batch, channels, *IN_SHAPE).contiguous(memory_format=memory_format)


def relative_error(got: Tensor, wanted: Tensor) -> float:
    return ((got.double() - wanted.double()).norm() / wanted.double().norm()).item()
