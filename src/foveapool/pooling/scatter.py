"""Scatter: between-class scatter A and within-class scatter B over the places of a map, as data.

How they come about is `accumulate.py`'s business, what is made of them `solve.py`'s.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from foveapool.pooling.gram import Panels, describe_layout, take_layout
from foveapool.pooling.storage import (
    Shapes,
    check_contents,
    check_types,
    explain_damage,
    load_tensors,
    save_tensors,
)

Weighting = Literal["balanced", "frequency"]
WEIGHTINGS: tuple[Weighting, ...] = ("balanced", "frequency")


@dataclass(frozen=True)
class Scatter:
    """A and B as the paper sums them, and what the module needs to undo the normalization.

    Attributes:
        between: A, (N, N) float64, or a band in the layout of `panels` if a `window` was given.
        within: B, in the same layout.
        mean: The mean of each channel, (C,).
        std: Its standard deviation, (C,); 0 for a channel that took no part.
        counts: The samples of each class, (Q,).
        in_shape: The spatial size of the maps; N is its product.
        weighting: How the classes were weighted, see `ScatterAccumulator`.
        window: The largest window that it can be solved with; None for any, and for none.

    Example:
        >>> from foveapool import compute_scatter
        >>> scatter = compute_scatter(torch.randn(20, 3, 4, 4), torch.arange(20) % 2)
        >>> scatter.between.shape, scatter.within.shape, scatter.counts.tolist()
        (torch.Size([16, 16]), torch.Size([16, 16]), [10, 10])
        >>> scatter.panels.whole, scatter.rank_bound
        (True, 3)
    """

    between: Tensor
    within: Tensor
    mean: Tensor
    std: Tensor
    counts: Tensor
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
        """Reads the diagonal of B.

        Returns:
            The variance within the classes at each place, (N,).

        Example:
            >>> from foveapool import compute_scatter
            >>> scatter = compute_scatter(torch.randn(20, 3, 4, 4), torch.arange(20) % 2, window=1)
            >>> scatter.within_diagonal().shape
            torch.Size([16])
        """
        if self.window is None:
            return self.within.diagonal()
        places = torch.arange(self.panels.size, device=self.within.device)
        return self.panels.blocks(self.within, places[:, None]).flatten()

    def blocks(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Cuts A and B at some places out, as solving with a window does.

        Args:
            index: n places for each of b blocks, (b, n), in raster order.

        Returns:
            A and B at these places, each (b, n, n).

        Example:
            >>> from foveapool import compute_scatter
            >>> scatter = compute_scatter(torch.randn(20, 3, 4, 4), torch.arange(20) % 2)
            >>> between, within = scatter.blocks(torch.tensor([[0, 1, 4, 5]]))
            >>> between.shape
            torch.Size([1, 4, 4])
        """
        if self.window is None:
            rows, columns = index[:, :, None], index[:, None, :]
            return self.between[rows, columns], self.within[rows, columns]
        return self.panels.blocks(self.between, index), self.panels.blocks(self.within, index)

    def to(self, device: torch.device | str) -> Scatter:
        """Copies the scatter to another device.

        Args:
            device: Where to.

        Returns:
            The same scatter there.

        Example:
            >>> from foveapool import compute_scatter
            >>> scatter = compute_scatter(torch.randn(20, 3, 4, 4), torch.arange(20) % 2)
            >>> scatter.to("cpu").within.device
            device(type='cpu')
        """
        tensors = ("between", "within", "mean", "std", "counts")
        return replace(self, **{name: getattr(self, name).to(device) for name in tensors})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a safetensors file.

        Args:
            path: The file.

        Example:
            >>> import tempfile
            >>> from foveapool import compute_scatter
            >>> scatter = compute_scatter(torch.randn(20, 3, 4, 4), torch.arange(20) % 2)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     scatter.save(f"{folder}/scatter.safetensors")
            ...     again = Scatter.load(f"{folder}/scatter.safetensors")
            >>> torch.equal(again.within, scatter.within)
            True
        """
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
        facts = {k: values[k] for k in values.keys() - tensors} | describe_layout(self.panels)
        save_tensors(path, "scatter", tensors, facts)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Scatter:
        """Reads what `save` wrote; `save` has an example.

        Args:
            path: The file.

        Returns:
            The scatter, on the CPU.

        Raises:
            ValueError: If the file is damaged or of another kind.
        """
        tensors, header = load_tensors(path, "scatter")
        is_new, names = take_layout(header), ("in_shape", "weighting", "window")
        check_contents(path, tensors, header, names, partial(_shapes, is_new=is_new))
        shape = tuple(header["in_shape"])
        if not is_new:
            panels = Panels.for_grid(shape, header["window"])
            with explain_damage(path):
                tensors |= {key: panels.read_lines(tensors[key]) for key in ("between", "within")}
        return cls(
            **tensors, in_shape=shape, weighting=header["weighting"], window=header["window"]
        )


def _shapes(facts: Mapping[str, Any], is_new: bool) -> Shapes:
    check_types(facts, {"weighting": Weighting, "window": int | None})
    panels = Panels.for_grid(facts["in_shape"], facts["window"])
    sums, channels = panels.list_sizes(is_new), ("channels",)
    return {
        "between": sums,
        "within": sums,
        "mean": channels,
        "std": channels,
        "counts": ("classes",),
    }
