"""The product behind `linear_pool2d` for channels-last maps: `bias + rows @ maps` for each sample.

What torch makes of `baddbmm` by itself is right and slow at both ends: the bias is copied into
every sample number by number, and the gradient of a matrix that all samples share is first taken
for each of them. `_Product` does both as a GPU likes it. Compilers and exporters see plain ones.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def pooled_rows(rows: Tensor, maps: Tensor, bias: Tensor | None) -> Tensor:
    """`rows` (R, N) times each sample of `maps` (B, N, C), plus `bias` (R, C): (B, R, C)."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return _plain_product(rows, maps, bias)
    found: Tensor = _Product.apply(rows, maps, bias)
    return found


def _plain_product(rows: Tensor, maps: Tensor, bias: Tensor | None) -> Tensor:
    batch, inputs, channels = maps.shape
    if rows.requires_grad:
        # All samples and channels in one product, and so in one for the matrix's gradient.
        flat = maps.transpose(1, 2).reshape(batch * channels, inputs) @ rows.transpose(0, 1)
        pooled = flat.unflatten(0, (batch, channels)).transpose(1, 2)
        return pooled if bias is None else pooled + bias
    matrix = rows.expand(batch, -1, -1)
    if bias is None:
        return torch.bmm(matrix, maps)
    return torch.baddbmm(bias.expand(batch, -1, -1), matrix, maps)


def _repeated(level: Tensor, times: int) -> Tensor:
    """A new tensor that holds `level` as often as asked.

    Sixteen bytes at a time where they come out even: a GPU copies single numbers at half the speed.
    Not every kind of device knows a type that wide.
    """
    flat, wide = level.contiguous().flatten(), torch.complex128
    if flat.nbytes % wide.itemsize == 0 and flat.device.type in ("cpu", "cuda"):
        flat = flat.view(wide)
    copies = flat.expand(times, -1).clone(memory_format=torch.contiguous_format)
    return copies.view(level.dtype).view(times, *level.shape)


def _turned(maps: Tensor) -> Tensor:
    """Maps (B, N, C) as (N, B C)."""
    return maps.transpose(0, 1).reshape(maps.shape[1], -1)


class _Product(torch.autograd.Function):
    """`_plain_product` with gradients of any order, forward mode and vmap."""

    @staticmethod
    def forward(rows: Tensor, maps: Tensor, bias: Tensor | None) -> Tensor:
        matrix = rows.expand(len(maps), -1, -1)
        if bias is None:
            return torch.bmm(matrix, maps)
        level = _repeated(bias, len(maps))
        return torch.baddbmm(level, matrix, maps, out=level)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        rows, maps, _ = inputs
        # A frozen matrix has no gradient, and does not keep the maps alive for one.
        ctx.save_for_backward(rows, maps if ctx.needs_input_grad[0] else None)
        ctx.save_for_forward(rows, maps)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        rows, maps = ctx.saved_tensors
        for_rows = for_maps = for_bias = None
        if ctx.needs_input_grad[0]:
            # The samples are summed over with the channels, which stay innermost.
            for_rows = _turned(grad) @ _turned(maps).transpose(0, 1)
        if ctx.needs_input_grad[1]:
            for_maps = torch.bmm(rows.transpose(0, 1).expand(len(grad), -1, -1), grad)
        if ctx.needs_input_grad[2]:
            for_bias = grad.sum(0)
        return for_rows, for_maps, for_bias

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> Tensor:
        rows, maps = ctx.saved_tensors
        of_rows, of_maps, of_bias = tangents
        terms = [] if of_rows is None else [_plain_product(of_rows, maps, None)]
        terms += [] if of_maps is None else [_plain_product(rows, of_maps, None)]
        terms += [] if of_bias is None else [of_bias.expand(len(maps), -1, -1)]
        return torch.stack(terms).sum(0)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], rows: Tensor, maps: Tensor, bias: Tensor | None
    ) -> tuple[Tensor, int]:
        return torch.func.vmap(_plain_product, in_dims=in_dims)(rows, maps, bias), 0
