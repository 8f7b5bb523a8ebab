"""The product behind `linear_pool2d` for channels-last maps: `bias + rows @ maps` for each sample.

What torch makes of `baddbmm` by itself is right, and on a GPU slow at both ends: the bias is copied
into every sample number by number, and the gradient of a matrix that all samples share needs maps
turned forth and back. `_Product` spares that where nothing but a GPU and backward passes look on;
compilers, exporters and the transforms of torch.func get plain products, and so do CPUs: of all
samples at once where a sample has few channels, by sample where it has many.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

# Where the product of its own gains. Those of fewer columns are slower by sample than at once.
DEVICES = ("cuda",)
FEWEST_CHANNELS = 32
# Not public, but what `Function.apply` itself asks; without it the plain product is taken.
_transformed = getattr(torch._C, "_are_functorch_transforms_active", lambda: True)


def pooled_at_once(rows: Tensor, maps: Tensor, bias: Tensor | None) -> Tensor:
    """`rows` (R, N) times each sample of `maps` (B, N, C), plus `bias` (R, C): (B, R, C).

    All samples and channels in one product, and so in one for the matrix's gradient.
    """
    batch, inputs, channels = maps.shape
    flat = maps.transpose(1, 2).reshape(batch * channels, inputs) @ rows.transpose(0, 1)
    pooled = flat.unflatten(0, (batch, channels)).transpose(1, 2)
    return pooled if bias is None else pooled + bias


def pooled_by_sample(rows: Tensor, maps: Tensor, bias: Tensor | None, trained: bool) -> Tensor:
    """The same for maps whose channels are innermost in memory, as channels-last ones have them.

    trained: whether the rows are of a matrix that wants a gradient.
    """
    gains = maps.device.type in DEVICES and not _looked_at(rows, maps, bias)
    if gains and maps.shape[2] >= FEWEST_CHANNELS:
        return own_product(rows, maps, bias)
    if trained or _has_few_channels(maps):
        return pooled_at_once(rows, maps, bias)
    batch = maps.shape[0]
    matrix = rows.expand(batch, -1, -1)
    if bias is None:
        return torch.bmm(matrix, maps)
    return torch.baddbmm(bias.expand(batch, -1, -1), matrix, maps)


def _has_few_channels(maps: Tensor) -> bool:
    """Whether this is a CPU that multiplies faster at once, though it turns the maps for that."""
    if maps.device.type != "cpu" or torch.jit.is_tracing():  # a trace cannot look at sizes
        return False
    return maps.shape[2] < max(16, maps.shape[1] // 8)


def own_product(rows: Tensor, maps: Tensor, bias: Tensor | None) -> Tensor:
    """What `pooled_by_sample` is on a GPU; on any device the same numbers up to rounding."""
    if bias is not None:
        bias = bias.expand(len(rows), maps.shape[2])
    found: Tensor = _Product.apply(rows, maps, bias)
    return found


def _looked_at(*operands: Tensor | None) -> bool:
    """Whether someone follows the product who knows plain ones only, or refuses it in their words.

    A compiler, a tracer, a transform of torch.func, forward mode; or types that do not fit.
    """
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or _transformed():
        return True
    there = [each for each in operands if each is not None]
    return len({each.dtype for each in there}) > 1 or any(
        forward_ad.unpack_dual(each).tangent is not None for each in there
    )


def _repeated(level: Tensor, times: int) -> Tensor:
    """A new tensor that holds `level` as often as asked.

    Sixteen bytes at a time where they come out even: a GPU copies single numbers at half the speed.
    """
    found, level, wide = level.new_empty(times, *level.shape), level.contiguous(), torch.complex128
    offset = level.storage_offset() * level.itemsize
    if level.nbytes % wide.itemsize or offset % wide.itemsize:
        return found.copy_(level)
    found.view(times, level.numel()).view(wide).copy_(level.view(-1).view(wide))
    return found


def _turned(maps: Tensor) -> Tensor:
    """Maps (B, N, C) as (N, B C)."""
    return maps.transpose(0, 1).reshape(maps.shape[1], -1)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, maps: Tensor, bias: Tensor | None) -> Tensor:
        of_rows, of_maps, _ = ctx.needs_input_grad
        # A frozen matrix has no gradient, and does not keep the maps alive for one.
        ctx.save_for_backward(rows if of_maps else None, maps if of_rows else None)
        matrix = rows.expand(len(maps), -1, -1)
        if bias is None:
            return torch.bmm(matrix, maps)
        level = _repeated(bias, len(maps))
        return torch.baddbmm(level, matrix, maps, out=level)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        rows, maps = ctx.saved_tensors
        for_rows = for_maps = for_bias = None
        if ctx.needs_input_grad[0]:
            # The samples are summed over with the channels, which stay innermost.
            for_rows = _turned(grad) @ _turned(maps).mH
        if ctx.needs_input_grad[1]:
            for_maps = torch.bmm(rows.mH.expand(len(grad), -1, -1), grad)
        if ctx.needs_input_grad[2]:
            for_bias = grad.sum(0)
        return for_rows, for_maps, for_bias
