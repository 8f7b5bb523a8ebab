"""Pooling by rows that have weights inside a window only, on maps of any layout.

Output places are taken in small tiles: the windows of a tile overlap, so what they see together is
a little larger than one of them, and one batched product of small dense matrices pools all tiles.
A CPU does it strip by strip, in memory that stays in its cache; compilers, exporters, GPUs and the
transforms of torch.func get the same as a handful of plain operations.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from foveapool.pooling.functional import cast_operands, is_watched, order_channels_last
from foveapool.pooling.grid import Center, window_axes

# A tile has about as many rows as a batched product wants.
ROWS = 24
# As many columns of a product are taken from one image, or several, where a CPU goes by strips.
COLUMNS = 96
# Where tiles take fewer multiply-adds than the whole matrix by this factor, they are faster.
GAIN = 4


# For each slice of a volume's output the slices of the input that it sees.
Slices = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Tiling:
    """How maps are cut for windows.

    Attributes:
        in_shape: The size of the maps.
        out_shape: The size of the output.
        tile: The outputs of a tile along each axis.
        cuts: For each axis the input places of each tile, (tiles, places).
        inside: For each axis where in its tile each output has its weights, (outputs, width).
    """

    in_shape: tuple[int, ...]
    out_shape: tuple[int, ...]
    tile: tuple[int, ...]
    cuts: tuple[Tensor, ...]
    inside: tuple[Tensor, ...]

    @classmethod
    def of(
        cls,
        in_shape: Sequence[int],
        out_shape: Sequence[int],
        window: int,
        center: Center,
        components: int,
    ) -> Tiling:
        """For the windows that `grid.windows` gives."""
        side = max(1, round(math.sqrt(ROWS / components)))
        tile = tuple(_choose_side(side, outputs) for outputs in out_shape)
        cuts, inside = [], []
        axes = window_axes(in_shape, out_shape, window, center)
        for size, step, along in zip(in_shape, tile, axes, strict=True):
            first, width = along[:, 0], along.shape[1]
            begins = first[::step]
            ends = torch.stack([part[-1] for part in first.split(step)]) + width
            room = int((ends - begins).max())
            begins = begins.clamp(max=size - room)
            cuts.append(begins[:, None] + torch.arange(room))
            inside.append(along - begins.repeat_interleave(step)[: len(along), None])
        return cls(tuple(in_shape), tuple(out_shape), tile, tuple(cuts), tuple(inside))

    @property
    def seen(self) -> int:
        """How many places a tile sees."""
        return math.prod(cut.shape[1] for cut in self.cuts)


def _choose_side(wanted: int, outputs: int) -> int:
    """The side of a tile: as near to the one wanted as divides the outputs, if one does."""
    near = [each for each in range(1, min(2 * wanted, outputs + 1)) if not outputs % each]
    best = min(near, key=lambda each: (abs(each - wanted), -each))
    return best if 2 * best > wanted else min(wanted, outputs)


def pool_windowed(
    x: Tensor, rows: Tensor, tiling: Tiling, mean: Tensor | None, deep: Slices = ()
) -> Tensor:
    """Pools maps (B, C, H, W) by rows (k, M, n) of windows: (B, k C, H', W').

    A line (B, C, L) is pooled as a map of one row; a volume (B, C, D, H, W) slice by slice, where
    `deep` has for each slice of the output those of the input that it sees.
    """
    x, rows = cast_operands(x, rows)
    if deep:
        return _pool_volume(x, rows, tiling, mean, deep)
    if x.dim() == 3:
        return pool_windowed(x.unsqueeze(2), rows, tiling, mean).squeeze(2)
    level = None if mean is None else _make_level(rows, mean).unflatten(1, tiling.out_shape)
    rows = rows.unflatten(1, tiling.out_shape)
    if x.device.type != "cpu" or not x.numel() or is_watched(rows, x, level):
        return pool_tiles(x, rows, level, tiling)
    pooled: Tensor = _Strips.apply(x, rows, level, tiling)
    return pooled


def _pool_volume(
    x: Tensor, rows: Tensor, tiling: Tiling, mean: Tensor | None, deep: Slices
) -> Tensor:
    """The slices of (B, C, D, H, W) maps, each the sum of what it takes of those that it sees."""
    slices = x.unbind(2)
    split = rows.unflatten(2, (len(deep[0]), -1)).unflatten(1, (len(deep), -1))
    pooled = []
    for seen, own in zip(deep, split.unbind(1), strict=True):
        parts = zip(seen, own.unbind(2), strict=True)
        each = (pool_windowed(slices[at], some, tiling, None) for at, some in parts)
        pooled.append(reduce(torch.add, each))
    result = torch.stack(pooled, 2)
    if mean is not None:
        result = result + _make_level(rows, mean).unflatten(1, result.shape[2:])
    return result if x.is_contiguous() else order_channels_last(result)


def lay_out(
    in_shape: Sequence[int],
    out_shape: Sequence[int],
    window: int,
    center: Center,
    components: int,
) -> tuple[Tiling, Slices, bool]:
    """How maps of any number of axes are cut for windows: as planes, and a volume's slices.

    Last whether that is faster than the whole matrix.
    """
    deep: Slices = ()
    places = math.prod(in_shape)
    if len(in_shape) == 3:
        (along,) = window_axes(in_shape[:1], out_shape[:1], window, center)
        deep = tuple(map(tuple, along.tolist()))
        in_shape, out_shape = in_shape[1:], out_shape[1:]
    if len(in_shape) == 1:
        in_shape, out_shape = (1, *in_shape), (1, *out_shape)
    tiling = Tiling.of(in_shape, out_shape, window, center, components)
    seen = tiling.seen * (len(deep[0]) if deep else 1)
    return tiling, deep, GAIN * seen < places


def _make_level(rows: Tensor, mean: Tensor) -> Tensor:
    """What is added to each map for a constant one to keep its level, (k C, M)."""
    # Of the very numbers that multiply: a constant map then keeps its level in bf16 too.
    sums = rows.sum(-1, dtype=torch.promote_types(rows.dtype, torch.float32))
    return ((1 - sums)[:, None] * mean[:, None]).to(rows.dtype).flatten(0, 1)


def pool_tiles(x: Tensor, rows: Tensor, level: Tensor | None, tiling: Tiling) -> Tensor:
    """All tiles of all maps in one product; every operation is one that torch knows.

    rows: (k, H', W', n). level: what is added to each map, (k C, H', W').
    """
    (cut_y, cut_x), (height, across) = tiling.cuts, tiling.out_shape
    index = (cut_y[:, None, :, None] * x.shape[3] + cut_x[None, :, None, :]).flatten()
    blocks = _make_blocks(rows, tiling.inside, tiling)
    maps = x.permute(2, 3, 0, 1).flatten(0, 1).flatten(1)
    seen = maps.index_select(0, index).unflatten(0, (len(cut_y) * len(cut_x), -1))
    pooled = torch.bmm(blocks.flatten(0, 1), seen).unflatten(0, blocks.shape[:2])
    pooled = _join_tiles(pooled, x.shape[:2], tiling)[..., :height, :across].flatten(1, 2)
    if level is not None:
        pooled = pooled + level
    if x.is_contiguous():
        return pooled.contiguous()
    # Said as a permutation, because vmap knows no memory formats.
    return pooled.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)


def _make_blocks(rows: Tensor, inside: Sequence[Tensor], tiling: Tiling) -> Tensor:
    """Rows over all places that their tile sees, (tiles down, across, Ty Tx k, places)."""
    (tall, wide), (cut_y, cut_x) = tiling.tile, tiling.cuts
    height, across = rows.shape[1:3]
    index = _index_inside(inside, tiling).expand(len(rows), -1, -1, -1)
    blocks = rows.new_zeros(*rows.shape[:3], cut_y.shape[1] * cut_x.shape[1])
    blocks = blocks.scatter(3, index, rows)
    # The last tiles may have rows that nobody asks for.
    missing = (-height % tall, -across % wide)
    if any(missing):
        blocks = functional.pad(blocks, (0, 0, 0, missing[1], 0, missing[0]))
    blocks = blocks.unflatten(2, (-1, wide)).unflatten(1, (-1, tall))
    return blocks.permute(1, 3, 2, 4, 0, 5).flatten(2, 4)


def _index_inside(inside: Sequence[Tensor], tiling: Tiling) -> Tensor:
    """Where in its tile each output place has its weights, (places down, across, n)."""
    wide = tiling.cuts[1].shape[1]
    return (inside[0][:, None, :, None] * wide + inside[1][None, :, None, :]).flatten(2)


def _join_tiles(pooled: Tensor, maps: Sequence[int], tiling: Tiling) -> Tensor:
    """(tiles down, across, Ty Tx k, B C) as (B, k, C, places down, across); `maps` is (B, C)."""
    components = pooled.shape[2] // math.prod(tiling.tile)
    pooled = pooled.unflatten(3, maps).unflatten(2, (*tiling.tile, components))
    return pooled.permute(5, 4, 6, 0, 2, 1, 3).flatten(5).flatten(3, 4)


def _split_tiles(maps: Tensor, tiling: Tiling) -> Tensor:
    """(B, k, C, places down, across) as (tiles down, across, Ty Tx k, B C)."""
    (tall, wide), (height, across) = tiling.tile, maps.shape[3:]
    missing = (-height % tall, -across % wide)
    if any(missing):
        maps = functional.pad(maps, (0, missing[1], 0, missing[0]))
    maps = maps.unflatten(4, (-1, wide)).unflatten(3, (-1, tall))
    return maps.permute(3, 5, 4, 6, 1, 0, 2).flatten(5).flatten(2, 4)


class _Strip:
    """One line of tiles: its rows as matrices, and what it sees of some maps."""

    def __init__(self, number: int, rows: Tensor, tiling: Tiling) -> None:
        self.tiling, tall = tiling, tiling.tile[0]
        self.places = slice(number * tall, min((number + 1) * tall, tiling.out_shape[0]))
        begin, room = int(tiling.cuts[0][number, 0]), tiling.cuts[0].shape[1]
        self.lines = slice(begin, begin + room)
        self.inside = (tiling.inside[0][self.places], tiling.inside[1])
        self.blocks = _make_blocks(rows[:, self.places], self.inside, tiling)[0]
        local = torch.arange(room)[None, :, None] * tiling.in_shape[1]
        self.index = (local + tiling.cuts[1][:, None]).flatten()

    def see(self, x: Tensor) -> Tensor:
        """The places of each tile, (tiles, places, B C)."""
        maps = x[:, :, self.lines].permute(2, 3, 0, 1).flatten(2).flatten(0, 1)
        # Rows are picked one by one where they do not lie in one piece.
        return maps.contiguous().index_select(0, self.index).unflatten(0, (len(self.blocks), -1))

    def pool(self, x: Tensor, level: Tensor | None, pooled: Tensor) -> None:
        """Writes what it makes of maps, and a level, to (B, k, C, places of the strip)."""
        tall, wide = self.tiling.tile
        found = torch.bmm(self.blocks, self.see(x))
        # Whole tiles go to their places as they are; others are joined first, and cut.
        if pooled.shape[4] % wide == 0 and pooled.shape[3] == tall:
            found = found.unflatten(2, x.shape[:2]).unflatten(1, (tall, wide, -1))
            found = found.permute(4, 3, 5, 1, 0, 2)
            pooled = pooled.unflatten(4, (-1, wide))
            level = None if level is None else level.unflatten(3, (-1, wide))
        else:
            found = _join_tiles(found[None], x.shape[:2], self.tiling)
            found = found[..., : pooled.shape[3], : pooled.shape[4]]
        if level is None:
            pooled.copy_(found)
        else:
            torch.add(found, level, out=pooled)

    def split(self, grad: Tensor) -> Tensor:
        """Maps (B, k, C, H', W') of which this strip's tiles are taken, (tiles, Ty Tx k, B C)."""
        return _split_tiles(grad[:, :, :, self.places], self.tiling)[0]

    def add_to_maps(self, grad: Tensor, total: Tensor) -> None:
        """Adds what a gradient of the tiles means for the maps (B, C, H, W)."""
        seen = torch.bmm(self.blocks.mT, grad).flatten(0, 1)
        lines = total[:, :, self.lines]
        found = seen.new_zeros(lines.shape[2:].numel(), seen.shape[1])
        found.index_add_(0, self.index, seen)
        found = found.unflatten(0, lines.shape[2:]).unflatten(2, lines.shape[:2])
        lines += found.permute(2, 3, 0, 1)

    def read_rows(self, blocks: Tensor, components: int) -> Tensor:
        """The weights (k, places of the strip, n) of matrices such as `blocks`."""
        (tall, wide), (down, across) = self.tiling.tile, (x.shape[0] for x in self.inside)
        whole = blocks.unflatten(1, (tall, wide, components)).permute(3, 1, 0, 2, 4).flatten(2, 3)
        index = _index_inside(self.inside, self.tiling).expand(components, -1, -1, -1)
        return whole[:, :down, :across].gather(3, index)


class _Strips(torch.autograd.Function):
    """`pool_tiles` in the cache of a CPU."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: Tensor, level: Tensor | None, tiling: Tiling) -> Tensor:
        of_rows = ctx.needs_input_grad[1]
        # Frozen rows have no gradient, and do not keep the maps alive for one.
        ctx.save_for_backward(x if of_rows else None, rows)
        ctx.tiling, ctx.shape = tiling, x.shape
        shape = (len(x), len(rows), x.shape[1], *tiling.out_shape)
        pooled = _empty_like(x, shape)
        if level is not None:
            # In the layout of what it is added to.
            level = _empty_like(x, (1, *shape[1:]))[0].copy_(level.unflatten(0, shape[1:3]))
        for strip in _cut_strips(rows, tiling):
            shift = None if level is None else level[:, :, strip.places]
            for some in _group(x):
                strip.pool(x[some], shift, pooled[some, :, :, strip.places])
        return pooled.flatten(1, 2)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, rows = ctx.saved_tensors
        tiling, (of_x, of_rows, of_level, _) = ctx.tiling, ctx.needs_input_grad
        if torch.is_grad_enabled():
            return *_differentiate(x, rows, grad, ctx), None
        for_x = _like(grad, ctx.shape).zero_() if of_x else None
        for_rows = torch.empty_like(rows) if of_rows else None
        shared = grad.unflatten(1, (len(rows), -1))
        for strip in _cut_strips(rows, tiling):
            total = torch.zeros_like(strip.blocks)
            for some in _group(shared[:, 0]):
                part = strip.split(shared[some])
                if for_x is not None:
                    strip.add_to_maps(part, for_x[some])
                if for_rows is not None:
                    total.baddbmm_(part, strip.see(x[some]).mT)
            if for_rows is not None:
                for_rows[:, strip.places] = strip.read_rows(total, len(rows))
        return for_x, for_rows, grad.sum(0) if of_level else None, None


def _differentiate(x: Tensor | None, rows: Tensor, grad: Tensor, ctx: Any) -> list[Tensor | None]:
    """The gradients by operations that have gradients in turn."""
    if x is None:  # which the map's gradient does not depend on
        x = grad.new_zeros(ctx.shape, requires_grad=True)
    asked = ctx.needs_input_grad[:3]
    with torch.enable_grad():
        pooled = pool_tiles(x, rows, None, ctx.tiling)
        inputs = [each for each, wanted in zip((x, rows), asked, strict=False) if wanted]
        found = iter(torch.autograd.grad(pooled, inputs, grad, create_graph=True) if inputs else ())
    gradients = [next(found) if wanted else None for wanted in asked[:2]]
    return [*gradients, grad.sum(0) if asked[2] else None]


def _like(grad: Tensor, shape: Sequence[int]) -> Tensor:
    """Memory for maps in the layout of their gradient."""
    if grad.is_contiguous():
        return grad.new_empty(shape)
    batch, channels, height, width = shape
    return grad.new_empty(batch, height, width, channels).permute(0, 3, 1, 2)


def _empty_like(x: Tensor, shape: Sequence[int]) -> Tensor:
    """(B, k, C, H', W') in the layout of the maps."""
    if x.is_contiguous():
        return x.new_empty(shape)
    batch, components, channels, height, across = shape
    return x.new_empty(batch, height, across, components, channels).permute(0, 3, 4, 1, 2)


def _cut_strips(rows: Tensor, tiling: Tiling) -> Iterator[_Strip]:
    return (_Strip(number, rows, tiling) for number in range(len(tiling.cuts[0])))


def _group(x: Tensor) -> Iterator[slice]:
    """Images, as many at once as make a product wide enough."""
    step = -(-COLUMNS // x.shape[1])
    return (slice(first, first + step) for first in range(0, len(x), step))
