"""Scatter: between-class scatter A and within-class scatter B over the places of a map, as data.

How they come about is `accumulate.py`'s business, what is made of them `solve.py`'s.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import torch
from torch import Tensor

from foveapool.pooling.storage import Shapes, check_contents, load_tensors, save_tensors
from foveapool.pooling.symmetric import Panels

Weighting = Literal["balanced", "frequency"]
WEIGHTINGS: tuple[Weighting, ...] = ("balanced", "frequency")


@dataclass(frozen=True)
class Scatter:
    """A and B as the paper sums them, and what the module needs to undo the normalisation.

    `between` and `within` are (N, N), or bands in the layout of `panels` if a `window` was given.
    """

    between: Tensor
    within: Tensor
    mean: Tensor  # (C,)
    std: Tensor  # (C,)
    counts: Tensor  # (Q,)
    in_shape: tuple[int, ...]
    weighting: Weighting = "balanced"
    window: int | None = None

    @property
    def panels(self) -> Panels:
        """The layout of `between` and `within`."""
        return Panels.for_grid(self.in_shape, self.window)

    @property
    def rank_bound(self) -> int:
        """The most eigenvalues of A that can differ from zero: (classes - 1) * live channels."""
        return (len(self.counts) - 1) * int((self.std > 0).sum())

    def within_diagonal(self) -> Tensor:
        """The diagonal of B, (N,)."""
        if self.window is None:
            return self.within.diagonal()
        places = torch.arange(self.panels.size, device=self.within.device)
        return self.panels.blocks(self.within, places[:, None]).flatten()

    def blocks(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """A and B at the places `index` (b, n), each (b, n, n)."""
        if self.window is None:
            rows, columns = index[:, :, None], index[:, None, :]
            return self.between[rows, columns], self.within[rows, columns]
        return self.panels.blocks(self.between, index), self.panels.blocks(self.within, index)

    def to(self, device: torch.device | str) -> Scatter:
        """The same scatter on another device."""
        tensors = ("between", "within", "mean", "std", "counts")
        return replace(self, **{name: getattr(self, name).to(device) for name in tensors})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a safetensors file."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
        save_tensors(path, "scatter", tensors, {k: values[k] for k in values.keys() - tensors})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Scatter:
        """Reads what `save` wrote."""
        tensors, header = load_tensors(path, "scatter")
        check_contents(path, tensors, header, ("in_shape", "weighting", "window"), _shapes)
        shape = tuple(header["in_shape"])
        return cls(
            **tensors, in_shape=shape, weighting=header["weighting"], window=header["window"]
        )


def _shapes(facts: Mapping[str, Any]) -> Shapes:
    panels = Panels.for_grid(facts["in_shape"], facts["window"])
    sums, channels = (panels.size, panels.extent), ("channels",)
    return {
        "between": sums,
        "within": sums,
        "mean": channels,
        "std": channels,
        "counts": ("classes",),
    }
