"""Products of feature maps that add up to N x N sums: their layout, precision and memory.

Sums are held whole or as a band, and only the upper half is ever multiplied out. With a `window`,
pairs of places that no neighborhood has in common are not held: a 224 x 224 map, whose whole matrix
would take 20 GB, fits into 34 MB with a window of 3. What the second pass does with maps beside
multiplying them (centering, weighting, class sums) reads them once each: where maps are small,
their product takes little longer than that.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

import torch
from torch import Tensor

from foveapool.pooling.grid import as_radius, as_shape


@dataclass(frozen=True)
class Panels:
    """The layout of a sum over pairs of places: the whole matrix, or pairs that share a window.

    Of a band each place has a line: the pairs with the places behind it, in raster order, at each
    distance of at most `reach` along the axes.
    """

    shape: tuple[int, ...]
    window: int | None
    reach: tuple[int, ...] | None  # None for the whole

    @classmethod
    def for_grid(cls, in_shape: Sequence[int], window: int | None = None) -> Panels:
        """Whole for `window=None`, else the band in which two places share a neighborhood."""
        shape = as_shape(in_shape)
        if window is None:
            return cls(shape, None, None)
        found = cls(shape, window, tuple(min(2 * as_radius(window), size - 1) for size in shape))
        return found if found.extent < found.size else cls(shape, window, None)

    @property
    def size(self) -> int:
        """The number of places."""
        return math.prod(self.shape)

    @property
    def whole(self) -> bool:
        """Whether every pair of places is held."""
        return self.reach is None

    @property
    def extent(self) -> int:
        """How many pairs each place has."""
        if self.reach is None:
            return self.size
        return self.reach[0] * self._steps[0] + self._behind + 1

    @property
    def _steps(self) -> tuple[int, ...]:
        """How far apart in memory pairs are whose distance differs by one along an axis."""
        assert self.reach is not None
        widths = [2 * reach + 1 for reach in self.reach]
        return tuple(math.prod(widths[axis + 1 :]) for axis in range(len(widths)))

    @property
    def _behind(self) -> int:
        """How far a pair's number may lie below that of its first axis alone."""
        assert self.reach is not None
        return sum(r * step for r, step in zip(self.reach[1:], self._steps[1:], strict=True))

    @property
    def bytes(self) -> int:
        """Memory of one matrix in float64."""
        return 8 * self.size * self.extent

    def zeros(self, device: torch.device | str | None = None) -> Tensor:
        """An empty sum, float64 (N, extent)."""
        return torch.zeros(self.size, self.extent, dtype=torch.float64, device=device)

    def add_gram(self, total: Tensor, rows: Tensor, sign: int = 1) -> None:
        """`total += sign * rows^T rows`, products in the dtype of `rows` (K, N).

        Of a whole matrix, the lower half is left as it is: eight panels spare nearly half of the
        product. A GPU wants them larger.
        """
        if not self.whole:
            return self._add_band(total, rows, sign)
        height = max(-(-self.size // 8), 128 if rows.is_cuda else 64)
        for first in range(0, self.size, height):
            part, columns = slice(first, first + height), slice(first, self.size)
            total[part, columns].add_(_multiply(rows[:, part], rows[:, columns]), alpha=sign)

    def _add_band(self, total: Tensor, rows: Tensor, sign: int) -> None:
        """Tile by tile of the map: a product with all that any place of the tile is paired with."""
        assert self.reach is not None
        side = round((256 if rows.is_cuda else 64) ** (1 / len(self.shape)))
        maps, lines = rows.unflatten(1, self.shape), total.unflatten(0, self.shape)
        begins = [range(0, size, side) for size in self.shape]
        for corner in product(*begins):
            tile = tuple(
                slice(at, min(at + side, size)) for at, size in zip(corner, self.shape, strict=True)
            )
            around = tuple(
                slice(max(part.start - (axis and reach), 0), min(part.stop + reach, size))
                for axis, (part, reach, size) in enumerate(
                    zip(tile, self.reach, self.shape, strict=True)
                )
            )
            left, right = (maps[(slice(None), *part)].flatten(1) for part in (tile, around))
            index, paired = self._pair(tile, around, rows.device)
            found = _multiply(left, right).gather(1, index).double().mul_(paired)
            part = lines[tile]
            part.add_(found.view(part.shape), alpha=sign)

    def _pair(
        self, tile: Sequence[slice], around: Sequence[slice], device: torch.device
    ) -> tuple[Tensor, Tensor]:
        """For each place of a tile the number of each partner around it, and whether there is one.

        Both (places, extent).
        """
        assert self.reach is not None
        number = torch.arange(self.extent, device=device)
        index = torch.zeros(1, self.extent, dtype=torch.int64, device=device)
        paired = index == 0
        for own, near, step in zip(tile, around, self._steps, strict=True):
            # What is left of a pair's number is at most half a step to either side.
            away = torch.div(number + (step - 1) // 2, step, rounding_mode="floor")
            number = number - away * step
            place = torch.arange(own.start, own.stop, device=device)[:, None] + away - near.start
            room = near.stop - near.start
            inside = (place >= 0) & (place < room)
            place = torch.where(inside, place, 0)
            index = (index[:, None] * room + place).flatten(0, 1)
            paired = (paired[:, None] & inside).flatten(0, 1)
        return index, paired

    def symmetrize(self, total: Tensor) -> Tensor:
        """A whole matrix, symmetric to the last bit, written over."""
        # Panel by panel, without another matrix.
        height = min(self.size, 256)
        for first in range(0, self.size, height):
            part = slice(first, min(first + height, self.size))
            upper = total[part, part].triu()
            total[part, part] = upper + upper.triu(1).mT
            total[part.stop :, part] = total[part, part.stop :].mT
        return total

    def blocks(self, total: Tensor, index: Tensor) -> Tensor:
        """The square blocks (b, n, n) at the places `index` (b, n)."""
        low = torch.minimum(index[:, :, None], index[:, None, :])
        if self.reach is None:
            column = torch.maximum(index[:, :, None], index[:, None, :])
            return total.flatten()[low * self.extent + column]
        number, rest = torch.zeros_like(index), index
        for axis, (reach, step) in enumerate(zip(self.reach, self._steps, strict=True)):
            line = math.prod(self.shape[axis + 1 :])
            place, rest = rest // line, rest % line
            if index.numel() and int((place.amax(1) - place.amin(1)).max()) > reach:
                raise ValueError(
                    "window: got a neighborhood wider than the scatter was accumulated for, wanted "
                    "at most that; accumulate again with a larger window"
                )
            number = number + place * step
        column = (number[:, :, None] - number[:, None, :]).abs_()
        return total.flatten()[low * self.extent + column]

    def list_sizes(self, is_new: bool) -> tuple[int, int | str]:
        """What a file has for the sizes of a sum: of today's layout, or one for `read_lines`."""
        return self.size, self.extent if is_new or self.window is None else "extent"

    def read_lines(self, total: Tensor) -> Tensor:
        """A sum in this layout from one whose bands run on over all lines of the map.

        So they were once: panels of 64 places or a few more, each from its first column on.
        """
        if self.window is None:
            return total
        line = math.prod(self.shape[1:])
        height = min(self.size, line * -(-64 // line))
        extent = min(self.size, height + 2 * as_radius(self.window) * line)
        if total.shape[1] != extent:
            raise ValueError(f"got sums of {total.shape[1]} pairs a place, wanted {extent}")
        was_whole = extent == self.size
        if self.whole and was_whole:
            return total
        found, every = self.zeros(total.device), tuple(slice(0, size) for size in self.shape)
        for first in range(0, self.size, height):
            part = slice(first, min(first + height, self.size))
            if self.whole:
                end = min(first + total.shape[1], self.size)
                found[part, first:end] = total[part, : end - first]
                continue
            tile = (slice(part.start // line, part.stop // line), *every[1:])
            index, paired = self._pair(tile, every, total.device)
            index = index if was_whole else (index - first).clamp(0, total.shape[1] - 1)
            found[part] = total[part].gather(1, index) * paired
        return found


# What files call the layout of a band. Those without a name run on over the lines of the map.
LAYOUT = "distances"


def describe_layout(panels: Panels) -> dict[str, str]:
    """What a file of sums says of their layout; nothing without a window."""
    return {} if panels.window is None else {"layout": LAYOUT}


def take_layout(facts: dict[str, Any]) -> bool:
    """Takes what `describe_layout` wrote out of the facts of a file: whether it is of today."""
    if "layout" in facts and facts["layout"] != LAYOUT:
        return False
    return facts.pop("layout", None) is not None


def _multiply(left: Tensor, right: Tensor) -> Tensor:
    """left^T right, of bfloat16 added up in float32."""
    if left.dtype == torch.bfloat16:
        return torch.mm(left.mT, right, out_dtype=torch.float32)
    return left.mT @ right


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
