"""Rivals as training leaves them, maps for them, and the sizes between which they pool."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from foveapool.pooling.baselines import BASELINES, baseline_pooling

Shape = tuple[int, int]

NAMES = sorted(BASELINES)
LINEAR = ["sgd", "sgd-local"]
CONVOLVING = ["coordconv", "fconv", "lrlc"]
KEEPING = [name for name in NAMES if name not in LINEAR + CONVOLVING]  # their channels as they are
RANDOM = ["lps"]  # in training
SIZES: list[tuple[Shape, Shape]] = [
    ((8, 6), (4, 3)),
    ((7, 7), (4, 4)),
    ((7, 6), (4, 2)),
    ((5, 8), (2, 8)),
    ((1, 5), (1, 3)),
]
sizes = pytest.mark.parametrize(("in_shape", "out_shape"), SIZES)


def trained(name: str, in_shape: Shape, out_shape: Shape, components: int = 1) -> nn.Module:
    """A rival for three channels in float64 whose parameters are no longer the first ones."""
    module = baseline_pooling(name, 3, in_shape, out_shape, components).double()
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    return module


def random_maps(in_shape: Shape, channels: int = 3) -> Tensor:
    return torch.randn(2, channels, *in_shape, dtype=torch.float64)
