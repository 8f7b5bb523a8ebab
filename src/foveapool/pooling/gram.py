"""Products of feature maps that add up to N x N sums: their layout, precision and memory.

Sums are held in panels, whole or as a band. Row panels are stored from their first column on, so
only the upper half is ever multiplied out. With a `window`, a panel also ends where no
neighborhood reaches any further: a 224 x 224 map, whose whole matrix would take 20 GB, then fits
into 3. What the second pass does with maps beside multiplying them (centering, weighting, class
sums) reads them once each: where maps are small, their product takes little longer than that.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from foveapool.pooling.grid import as_radius, as_shape


@dataclass(frozen=True)
class Panels:
    """The layout: `height` rows a panel, each `extent` columns from the panel's first row on.

    A whole matrix is held at its own columns, whatever the height.
    """

    size: int
    height: int
    extent: int

    @classmethod
    def for_grid(cls, in_shape: Sequence[int], window: int | None = None) -> Panels:
        """Whole for `window=None`, else the band in which two places share a neighborhood."""
        shape = as_shape(in_shape)
        size = math.prod(shape)
        if window is None:
            return cls(size, size, size)
        line = size // shape[0]
        height = min(size, line * -(-64 // line))
        return cls(size, height, min(size, height + 2 * as_radius(window) * line))

    @property
    def whole(self) -> bool:
        """Whether every pair of places is held."""
        return self.extent == self.size

    @property
    def bytes(self) -> int:
        """Memory of one matrix in float64."""
        return 8 * self.size * self.extent

    def _each(self, height: int) -> Iterator[tuple[slice, slice, slice]]:
        """Rows, their columns in the matrix, and these columns in memory, panel by panel."""
        for first in range(0, self.size, height):
            last, end = min(first + height, self.size), min(first + self.extent, self.size)
            columns = slice(first, end)
            yield slice(first, last), columns, columns if self.whole else slice(0, end - first)

    def zeros(self, device: torch.device | str | None = None) -> Tensor:
        """An empty sum, float64 (N, extent)."""
        return torch.zeros(self.size, self.extent, dtype=torch.float64, device=device)

    def add_gram(self, total: Tensor, rows: Tensor, sign: int = 1) -> None:
        """`total += sign * rows^T rows`, products in the dtype of `rows` (K, N).

        Of a whole matrix, the lower half is left as it is: eight panels spare nearly half of the
        product. A GPU wants them larger.
        """
        height = self.height
        if self.whole:
            height = max(-(-self.size // 8), 128 if rows.is_cuda else 64)
        for part, columns, memory in self._each(height):
            left, right = rows[:, part].mT, rows[:, columns]
            if rows.dtype == torch.bfloat16:
                product = torch.mm(left, right, out_dtype=torch.float32)
            else:
                product = left @ right
            total[part, memory].add_(product, alpha=sign)

    def dense(self, total: Tensor) -> Tensor:
        """The whole matrix (N, N), symmetric to the last bit; a whole one is written over."""
        full = total
        if not self.whole:
            full = torch.zeros(self.size, self.size, dtype=total.dtype, device=total.device)
            for part, columns, memory in self._each(self.height):
                full[part, columns] = total[part, memory]
        # Panel by panel, without another matrix.
        for part, _, _ in self._each(min(self.size, 256)):
            upper = full[part, part].triu()
            full[part, part] = upper + upper.triu(1).mT
            full[part.stop :, part] = full[part, part.stop :].mT
        return full

    def blocks(self, total: Tensor, index: Tensor) -> Tensor:
        """The square blocks (b, n, n) at the places `index` (b, n)."""
        low = torch.minimum(index[:, :, None], index[:, None, :])
        high = torch.maximum(index[:, :, None], index[:, None, :])
        column = high if self.whole else high - low // self.height * self.height
        if index.numel() and int(column.max()) >= self.extent:
            raise ValueError(
                "window: got a neighborhood wider than the scatter was accumulated for, wanted "
                "at most that; accumulate again with a larger window"
            )
        return total.flatten()[low * self.extent + column]


def check_memory(panels: Panels, device: torch.device, sums: int = 0, copies: int = 3) -> None:
    """Raises a ValueError that says the gigabytes if the sums cannot fit into the memory.

    sums: how many numbers are held beside the matrices, those of classes x channels x places.
    """
    if device.type == "cuda":
        memory = torch.cuda.mem_get_info(device)[1]
    else:
        try:
            memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        except (AttributeError, ValueError, OSError):
            return
    need = copies * panels.bytes + 8 * sums
    if need > memory:
        beside = f" and class sums ({8 * sums / 1e9:.1f} GB)" if sums else ""
        raise ValueError(
            f"in_shape: got maps of {panels.size} places, whose scatter needs "
            f"{need / 1e9:.1f} GB in {copies} matrices{beside}; {device.type} has "
            f"{memory / 1e9:.1f} GB. "
            "Pass a (smaller) window=r to relate only places up to r pixels from a center, or fit "
            "a layer with smaller maps"
        )


def subtract_and_weight(maps: Tensor, level: Tensor, weight: Tensor, out: Tensor) -> Tensor:
    """`(maps - level) * weight` into `out`, to the last bit, without a pass for each operation.

    torch has no such function but the gradient of a squared error, `2 (x - y) g`.
    """
    kernel = torch.ops.aten.mse_loss_backward.grad_input
    found: Tensor = kernel(weight / 2, maps, level, reduction=0, grad_input=out)
    return found


def sum_by_class(rows: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Sums of `rows` (B, ...) by label, (classes, ...), added up in the same order every time.

    >>> sum_by_class(torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([1, 0, 1]), 2).tolist()
    [[2.0], [5.0]]
    """
    if not rows.is_cuda:
        return rows.new_zeros(classes, *rows.shape[1:]).index_add_(0, labels, rows)
    # There `index_add_` takes any order; a product with the indicator of the classes does not.
    member = torch.arange(classes, device=labels.device)[:, None] == labels
    sums = member.to(rows.dtype) @ rows.flatten(1)
    return sums.unflatten(1, rows.shape[1:])


Precision = Literal["ieee", "tf32", "bf16"]
PRECISIONS: tuple[Precision, ...] = ("ieee", "tf32", "bf16")


def check_precision(precision: str, device: torch.device) -> None:
    """Raises a ValueError unless sums can be taken so on that device; before data is read, say."""
    if precision not in PRECISIONS or (precision == "bf16" and device.type != "cuda"):
        raise ValueError(
            f"precision: got {precision!r} on {device.type}, wanted 'ieee', 'tf32', or on a "
            "GPU 'bf16'"
        )


@contextmanager
def float32_products(precision: Precision = "ieee") -> Iterator[None]:
    """Within it, float32 matrix products are true float32, or TF32 if `precision` says so.

    For `bf16` the operands themselves are rounded, by whoever multiplies them.
    A user's `torch.set_float32_matmul_precision("high")`, or an autocast around the fit, must not
    change what is fitted; they are put back afterwards.
    """
    switches = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)  # type: ignore[attr-defined]
    before = [switch.fp32_precision for switch in switches]
    try:
        for switch in switches:
            switch.fp32_precision = "tf32" if precision == "tf32" else "ieee"
        with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
            yield
    finally:
        for switch, value in zip(switches, before, strict=True):
            switch.fp32_precision = value


class Workspace:
    """Named pieces of uninitialized memory, kept between calls. Not for two threads at once."""

    def __init__(self) -> None:
        self._held: dict[str, Tensor] = {}

    def take(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: torch.dtype,
        device: torch.device,
    ) -> Tensor:
        """A contiguous tensor of that shape; what was taken under the name before is lost."""
        wanted = torch.Size(shape).numel()
        held = self._held.get(name)
        if held is None or held.dtype != dtype or held.device != device or held.numel() < wanted:
            self._held[name] = held = torch.empty(wanted, dtype=dtype, device=device)
        return held[:wanted].view(shape)
