"""Blocks of pixels of several sizes, and matrices between them, once for all output places."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional

# Pixels along a side of the blocks of each level.
SIDES = (1, 2, 4)


class Pyramid:
    """A map cut into blocks at several levels, where a large block holds whole small ones.

    Attributes:
        parent: For each pixel the largest block that it lies in.
        size: The pixels of each of the largest blocks.
        unit: For each level, at each pixel, the unit vector of its block.
        children: For each level its blocks in each of the largest ones, (largest, children); blocks
            are numbered through all levels, and `none` stands for those that the border cut off.
        order: For each level, at each pixel, where its block stands among these.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._levels = [_number_blocks(shape, side) for side in SIDES]
        sizes = [torch.bincount(level) for level in self._levels]
        self._counts = [len(size) for size in sizes]
        self.parent, self.size = self._levels[-1], sizes[-1]
        pairs = zip(sizes, self._levels, strict=True)
        self.unit = [size[level].double().rsqrt() for size, level in pairs]

    @property
    def none(self) -> int:
        """The number behind those of all blocks."""
        return sum(self._counts)

    @cached_property
    def children(self) -> list[Tensor]:
        """See above."""
        found, first = [], 0
        for level, count, order in zip(self._levels, self._counts, self.order, strict=True):
            children = torch.full((len(self.size), int(order.max()) + 1), self.none)
            children[self.parent, order] = level + first
            found.append(children)
            first += count
        return found

    @cached_property
    def order(self) -> list[Tensor]:
        """See above."""
        found = []
        for level, count in zip(self._levels, self._counts, strict=True):
            parent = torch.empty(count, dtype=torch.int64)
            parent[level] = self.parent
            blocks = parent.argsort(stable=True)
            first = torch.searchsorted(parent[blocks], parent)
            place = torch.empty_like(blocks)
            place[blocks] = torch.arange(count)
            found.append((place - first)[level])
        return found

    def average(self, numbers: Tensor) -> Tensor:
        """Of numbers at each pixel, (b, n), the mean in each of the largest blocks."""
        total = numbers.new_zeros(len(numbers), len(self.size))
        return total.index_add_(1, self.parent, numbers) / self.size

    def join(self, matrix: Tensor) -> Tensor:
        """A matrix (n, n) between the blocks of all levels, float32; behind them zeros for none."""
        for axis in (0, 1):
            parts, shape = [matrix], list(matrix.shape)
            coarse = zip(self._levels[1:], self._counts[1:], self.unit[1:], strict=True)
            for level, count, unit in coarse:
                shape[axis] = count
                total = matrix.new_zeros(shape).index_add_(axis, level, matrix)
                scale = unit.new_empty(count).index_copy_(0, level, unit)
                parts.append(total.mul_(scale if axis else scale[:, None]))
            matrix = torch.cat(parts, axis)
        return functional.pad(matrix.float(), (0, 1, 0, 1))


def _number_blocks(shape: tuple[int, ...], side: int) -> Tensor:
    """For each pixel the number of its block."""
    number = torch.zeros(1, dtype=torch.int64)
    for size in shape:
        along = torch.arange(size) // side
        number = (number[:, None] * -(-size // side) + along).flatten()
    return number
