"""Choosing alpha from the scatter alone, before anything is trained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from foveapool.pooling.operator import PoolingOperator
from foveapool.pooling.scatter import Scatter
from foveapool.pooling.solve import sweep_pooling

CANDIDATES = (1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 200.0, 400.0, 800.0, 1600.0)


def joint_separability(scatter: Scatter, operator: PoolingOperator, ridge: float = 1e-3) -> float:
    """tr((P B P')^-1 P A P'): how well all pooled values together separate the classes.

    Rows that repeat each other add nothing to it, unlike to the separability of each row.
    """
    rows = operator.weight.flatten(0, 1).to(scatter.within)
    between, within = (rows @ each @ rows.T for each in (scatter.between, scatter.within))
    size = within.diagonal().mean()
    within = within + ridge * size * torch.eye(len(within)).to(within)
    return float(torch.linalg.solve(within, between, left=True).diagonal().sum())


def choose_alpha(
    scatter: Scatter,
    out_shape: Sequence[int],
    alphas: Sequence[float] = CANDIDATES,
    **settings: Any,
) -> float:
    """The alpha whose pooled values together separate the classes best."""
    swept = sweep_pooling(scatter, out_shape, alphas, **settings)
    scores = {each.settings.alpha: joint_separability(scatter, each) for each in swept}
    return max(scores, key=lambda alpha: scores[alpha])
