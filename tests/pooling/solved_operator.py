"""An operator solved on smooth maps, once for all tests of operators."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from foveapool.pooling.accumulate import compute_scatter
from foveapool.pooling.operator import PoolingOperator
from foveapool.pooling.scatter import Scatter
from foveapool.pooling.solve import solve_pooling

WINDOWS = [None, 2]
windows = pytest.mark.parametrize("window", WINDOWS)


@cache
def smooth_maps() -> tuple[Tensor, Tensor]:
    """Blurred noise around a mean for each class; channels of unequal mean and scale."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(120) % 6
    maps = torch.randn(126, 4, 16, 10, generator=generator, dtype=torch.float64)
    for _ in range(2):
        maps = functional.avg_pool2d(maps, 3, stride=1, padding=1)
    maps = maps / maps.std()
    scale = torch.tensor([0.5, 1.0, 4.0, 9.0])[:, None, None]
    return (maps[6:] + 0.5 * maps[:6][labels]) * scale - 3 * scale, labels


@cache
def smooth_scatter() -> Scatter:
    return compute_scatter(*smooth_maps())


@cache
def solved(window: int | None = None, norm: str = "l2") -> PoolingOperator:
    choices = {"alpha": 25.0, "components": 2, "norm": norm, "window": window}
    return solve_pooling(smooth_scatter(), (8, 4), **choices)
