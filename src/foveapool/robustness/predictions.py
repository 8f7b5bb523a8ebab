"""What a model said, checked and made comparable: classes from scores, means over groups of names.

Shared by the metrics of corruptions and of perturbations.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor

# Tensors on any device, numpy arrays and nested lists.
Values: TypeAlias = Any


def as_tensor(values: Values) -> Tensor:
    """The values as a tensor, without their gradients and without a copy where that can be."""
    return torch.as_tensor(values).detach()


def refuse_nan(name: str, scores: Tensor) -> None:
    """ValueError if a model returned NaN: argmax would call it a class."""
    if scores.is_floating_point():
        bad = scores.isnan().flatten(0, -2).any(-1)
        if count := int(bad.sum()):
            raise ValueError(
                f"{name}: the model returned NaN for {count} of {len(bad)} images, wanted a number "
                "for every class; look at its weights and at the normalisation of its input"
            )


def classes(name: str, predictions: Values, frames: bool = False) -> Tensor:
    """The predicted classes: integers as they are, of scores the largest, the first among equals.

    predictions: integers (n,) or scores (n, K); of sequences, (V, F) or (V, F, K).
    """
    given = as_tensor(predictions)
    dims, shape = (2, "(V, F)") if frames else (1, "(n,)")
    if given.dim() == dims and not given.is_floating_point() and given.dtype != torch.bool:
        return given
    if given.dim() == dims + 1 and given.is_floating_point() and given.shape[-1] > 0:
        refuse_nan(name, given)
        return given.argmax(-1)
    raise ValueError(
        f"{name}: got predictions of {given.dtype} {tuple(given.shape)}, wanted classes as "
        f"integers {shape} or scores as floats {shape[:-1].rstrip(',')}, K)"
    )


def mean_over(values: Mapping[str, float], names: Iterable[str]) -> float:
    """The plain mean of the values of these names; ValueError if one is missing."""
    names = list(names)
    if not names:
        raise ValueError("names: got none, wanted one or more to take the mean over")
    if missing := [name for name in names if name not in values]:
        raise ValueError(
            f"names: no value for {', '.join(missing)}; measure them too, or take the mean over "
            f"the names there are: {', '.join(values) or 'none'}"
        )
    return math.fsum(values[name] for name in names) / len(names)


def ratio(name: str, value: float, baseline: float) -> float:
    """`value / baseline`; ValueError if the baseline is 0."""
    if math.isclose(baseline, 0, abs_tol=1e-12):
        raise ValueError(
            f"{name}: the baseline is {baseline:.3g}, wanted another value than 0 to divide by; "
            "choose another baseline, more images, or the unnormalised mean"
        )
    return value / baseline
