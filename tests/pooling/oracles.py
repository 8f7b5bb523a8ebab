"""The paper's formulas written out plainly in float64, and data to hold them against.

Nothing here knows how the package computes; loops stay loops.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Matrix = NDArray[np.float64]


def as_matrices(features: Tensor, normalize: bool = True) -> Matrix:
    """X_k of every sample, (K, N, C), its channels normalized over all samples and places."""
    maps = features.double().numpy().reshape(*features.shape[:2], -1)
    if normalize:
        mean = maps.mean((0, 2), keepdims=True)
        variance = ((maps - mean) ** 2).mean((0, 2), keepdims=True)
        maps = (maps - mean) / np.sqrt(variance)
    return maps.transpose(0, 2, 1)


def algorithm_1(features: Tensor, labels: Tensor, normalize: bool = True) -> tuple[Matrix, Matrix]:
    """A and B, line by line as Algorithm 1 sums them."""
    matrices = as_matrices(features, normalize)
    classes = sorted(set(labels.tolist()))
    _, places, channels = matrices.shape
    all_S, all_T = np.zeros((places, channels)), np.zeros((places, places))
    B = np.zeros((places, places))
    for q in classes:
        S, T, K = np.zeros((places, channels)), np.zeros((places, places)), 0
        for X, label in zip(matrices, labels.tolist(), strict=True):
            if label == q:
                K += 1
                S += X
                T += X @ X.T
        mean = S / K
        all_S += mean
        all_T += mean @ mean.T
        B += T / K - mean @ mean.T
    A = all_T - all_S @ all_S.T / len(classes)
    return A, B


def by_frequency(features: Tensor, labels: Tensor) -> tuple[Matrix, Matrix]:
    """A and B with classes weighted by size, Q in all, around the mean over all samples."""
    matrices, of = as_matrices(features), labels.numpy()
    classes = np.unique(of)
    middle = matrices.mean(0)
    A = np.zeros((matrices.shape[1],) * 2)
    B = np.zeros_like(A)
    for q in classes:
        members = matrices[of == q]
        weight = len(classes) * len(members) / len(matrices)
        mean = members.mean(0)
        A += weight * (mean - middle) @ (mean - middle).T
        B += weight * np.einsum("knc,kmc->nm", members - mean, members - mean) / len(members)
    return A, B


def distance(got: Tensor, wanted: Matrix | Tensor) -> float:
    """Of two matrices, relative to the one that was wanted (Frobenius norm)."""
    wanted = torch.as_tensor(wanted)
    return float((got - wanted).norm() / wanted.norm())


def class_maps(
    sizes: Sequence[int],
    in_shape: Sequence[int] = (5, 4),
    channels: int = 3,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> tuple[Tensor, Tensor]:
    """Shuffled maps of classes of the given sizes, with classes, channels and places unlike."""
    random = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    labels = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    labels = labels[torch.randperm(len(labels), generator=random)]
    middles = normal(len(sizes), channels, *in_shape)
    noise = normal(len(labels), channels, *in_shape)
    noise = noise + 0.5 * noise.roll(1, -1)
    levels, scales = normal(2, channels, *(1 for _ in in_shape))
    return ((middles[labels] + noise) * scales.exp() + 3 * levels).to(dtype), labels
