"""PoolingOperator: what solving found, how well it separates the classes, and its file."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, get_type_hints

import torch
from torch import Tensor

from foveapool._stored_names import from_stored, to_stored
from foveapool.pooling.grid import (
    Center,
    check_shapes,
    count_window,
    penalty,
    windows,
    write_out_checked,
)
from foveapool.pooling.module import LinearPool
from foveapool.pooling.storage import (
    Shapes,
    check_contents,
    check_names,
    check_types,
    load_tensors,
    save_tensors,
)


@dataclass(frozen=True)
class SolveSettings:
    """How an operator was solved for; names are those of `solve_pooling`.

    Attributes:
        alpha: The weight of locality, as a number in the unit given.
        alpha_unit: "absolute" or "trace".
        norm: "l1" or "l2".
        center: "paper", "aligned" or "first".
        sign: "neighbor" or "sum".
        solver: The one that did it, never "auto".
        window: The reach of each place; None for the whole map.
        tolerance: The residual asked for.
        weighting: That of the scatter.
        ridge: What was added to the diagonal, in the units of B.
    """

    alpha: float
    alpha_unit: str
    norm: str
    center: Center
    sign: str
    solver: str
    window: int | None
    tolerance: float
    weighting: str
    ridge: float


@dataclass(frozen=True, repr=False)
class PoolingOperator:
    """The learned pooling: k eigenvectors for each of the M output places.

    Attributes:
        rows: The weights of each row inside its window, (k, M, n), of unit norm, in raster order;
            n is N without a window.
        eigenvalues: mu of each row, (k, M).
        residuals: How far each row is from an eigenvector, (k, M).
        gaps: (mu_i - mu_(i+1)) / mu_1, (k, M): a component behind a small gap is only one of many
            nearly as good.
        separability: S_b / S_w of each pooled value, (k, M).
        average_separability: The same of average pooling on the same scatter, (M,), to hold it
            against.
        mean: The mean of each channel, (C,).
        in_shape: The spatial size of the input; N is its product.
        out_shape: The spatial size of the output; M is its product.
        settings: How it was solved for.

    Example:
        >>> from foveapool import compute_scatter, solve_pooling
        >>> scatter = compute_scatter(torch.randn(40, 3, 8, 8), torch.arange(40) % 4)
        >>> operator = solve_pooling(scatter, (4, 4), alpha=25.0)
        >>> operator
        PoolingOperator((8, 8) -> (4, 4), components=2, alpha=25, l2)
        >>> operator.alpha, operator.norm
        (25.0, 'l2')
        >>> operator.radius().shape, operator.gain().shape, operator.components
        (torch.Size([2, 16]), torch.Size([2, 16]), 2)
        >>> operator.module()(torch.randn(1, 3, 8, 8)).shape
        torch.Size([1, 6, 4, 4])
        >>> print(operator.summary().splitlines()[0])
        pooling (8, 8) -> (4, 4), 2 components, alpha 25 (absolute), l2
        >>> narrow = solve_pooling(scatter, (4, 4), alpha=25.0, window=1)
        >>> narrow.rows.shape, narrow.weight.shape
        (torch.Size([2, 16, 9]), torch.Size([2, 16, 64]))
    """

    rows: Tensor
    eigenvalues: Tensor
    residuals: Tensor
    gaps: Tensor
    separability: Tensor
    average_separability: Tensor
    mean: Tensor
    in_shape: tuple[int, ...]
    out_shape: tuple[int, ...]
    settings: SolveSettings

    def __repr__(self) -> str:
        found, settings = f"{self.in_shape} -> {self.out_shape}", self.settings
        alpha = f"alpha={settings.alpha:g}"
        return f"PoolingOperator({found}, components={self.components}, {alpha}, {settings.norm})"

    @property
    def components(self) -> int:
        """How many maps each channel is pooled to."""
        return self.rows.shape[0]

    @property
    def alpha(self) -> float:
        """The weight of locality that it was solved with, in the unit of `settings`."""
        return self.settings.alpha

    @property
    def norm(self) -> str:
        """The norm in which each row has length one, "l1" or "l2"."""
        return self.settings.norm

    @property
    def _index(self) -> Tensor | None:
        """The input place of each of the `rows`' weights, (M, n); None without a window."""
        settings = self.settings
        if settings.window is None:
            return None
        return windows(self.in_shape, self.out_shape, settings.window, settings.center)

    @property
    def weight(self) -> Tensor:
        """The matrix, (k, M, N); with a window it is written out anew whenever it is asked for.

        Raises a ValueError where the memory has no room for it; `rows` is there always.
        """
        index = self._index
        if index is None:
            return self.rows
        return write_out_checked(self.rows, index, torch.Size(self.in_shape).numel())

    def radius(self) -> Tensor:
        """Measures how far each row's weights lie from its center.

        Returns:
            The root mean squared distance in pixels, (k, M).
        """
        center, index = self.settings.center, self._index
        distance = penalty(self.in_shape, self.out_shape, center, index=index).to(self.rows)
        power = self.rows.square()
        return ((power * distance).sum(-1) / power.sum(-1)).sqrt()

    def gain(self) -> Tensor:
        """Compares the separability with average pooling's mean over the places.

        Its mean over the places is the ratio of the two means. Average pooling's own values are no
        unit: some places, those at the border above all, have next to none.

        Returns:
            The separability in that unit, (k, M).
        """
        return self.separability / self.average_separability.mean()

    def module(self, trainable: bool = False) -> LinearPool:
        """Makes a layer of the operator.

        Args:
            trainable: Whether the matrix is a parameter.

        Returns:
            The layer, with the mean of each channel; with a window, of the weights inside it.
        """
        return LinearPool.of(
            self.rows,
            self.mean,
            in_shape=self.in_shape,
            out_shape=self.out_shape,
            trainable=trainable,
            window=self.settings.window,
            center=self.settings.center,
        )

    def summary(self) -> str:
        """Tells what was found, in a few lines.

        Returns:
            The lines.
        """
        gain = self.gain().mean(1)
        settings = self.settings
        lines = [
            f"pooling {self.in_shape} -> {self.out_shape}, {self.components} components, "
            f"alpha {settings.alpha:g} ({settings.alpha_unit}), {settings.norm}"
            + ("" if settings.window is None else f", window {settings.window}"),
            f"separability S_b/S_w, mean over {len(self.average_separability)} places: "
            f"average pooling {self.average_separability.mean():.4g}",
        ]
        radius = self.radius()
        for i in range(self.components):
            lines.append(
                f"  component {i + 1}: {self.separability[i].mean():.4g} "
                f"({gain[i]:.2f} times), radius {radius[i].mean():.1f} pixels, "
                f"smallest gap {self.gaps[i].min():.2g}"
            )
        lines.append(
            f"largest residual {self.residuals.max():.1e} ({settings.solver}), "
            f"ridge {settings.ridge:.1e}"
        )
        return "\n".join(lines)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a safetensors file; with a window, only the weights inside it.

        Args:
            path: The file.

        Example:
            >>> import tempfile
            >>> from foveapool import compute_scatter, solve_pooling
            >>> scatter = compute_scatter(torch.randn(40, 3, 8, 8), torch.arange(40) % 4)
            >>> operator = solve_pooling(scatter, (4, 4), window=2)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     operator.save(f"{folder}/operator.safetensors")
            ...     again = PoolingOperator.load(f"{folder}/operator.safetensors")
            >>> torch.equal(again.weight, operator.weight)
            True
        """
        tensors = {f.name: getattr(self, f.name) for f in fields(self)}
        facts = {
            "in_shape": list(tensors.pop("in_shape")),
            "out_shape": list(tensors.pop("out_shape")),
            "settings": to_stored(asdict(tensors.pop("settings"))),
        }
        tensors["weight"] = tensors.pop("rows")
        save_tensors(path, "operator", tensors, facts)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PoolingOperator:
        """Reads what `save` wrote; `save` has an example.

        Args:
            path: The file.

        Returns:
            The operator, on the CPU.

        Raises:
            ValueError: If the file is damaged or of another kind.
        """
        tensors, header = load_tensors(path, "operator")
        check_contents(path, tensors, header, ("in_shape", "out_shape", "settings"), _shapes)
        in_shape, out_shape = tuple(header["in_shape"]), tuple(header["out_shape"])
        settings = SolveSettings(**from_stored(header["settings"]))
        tensors["rows"] = tensors.pop("weight")
        return cls(**tensors, in_shape=in_shape, out_shape=out_shape, settings=settings)


def _shapes(facts: Mapping[str, Any]) -> Shapes:
    known = from_stored(dict(facts["settings"]))
    check_names("setting", known, [each.name for each in fields(SolveSettings)])
    check_types(known, get_type_hints(SolveSettings))
    settings = SolveSettings(**known)
    source, target = check_shapes(facts["in_shape"], facts["out_shape"])
    outputs, seen = math.prod(target), math.prod(source)
    if settings.window is not None:
        seen = count_window(source, settings.window)
    figures = dict.fromkeys(
        ("eigenvalues", "residuals", "gaps", "separability"), ("components", outputs)
    )
    return {
        "weight": ("components", outputs, seen),
        **figures,
        "average_separability": (outputs,),
        "mean": ("channels",),
    }
