"""The product behind `linear_pool` for channels-last maps: `bias + rows @ maps` for each sample.

What torch makes of `baddbmm` by itself is right, and on a GPU slow at both ends: the bias is copied
into every sample number by number, and the gradient of a matrix that all samples share needs maps
turned forth and back. `_Product` spares that where nothing but a GPU and backward passes look on;
compilers, exporters and the transforms of torch.func get plain products, and so do CPUs: of all
samples at once where a sample has few channels, by sample where it has many.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from foveapool.pooling.grid import as_shape, name_sizes

# Where the product of its own gains. Those of fewer columns are slower by sample than at once.
DEVICES = ("cuda",)
FEWEST_CHANNELS = 32
# Not public, but what `Function.apply` itself asks; without it the plain product is taken.
_transformed = getattr(torch._C, "_are_functorch_transforms_active", lambda: True)


def pool_at_once(rows: Tensor, maps: Tensor, bias: Tensor | None) -> Tensor:
    """`rows` (R, N) times each sample of `maps` (B, N, C), plus `bias` (R, C): (B, R, C).

    All samples and channels in one product, and so in one for the matrix's gradient.
    """
    batch, inputs, channels = maps.shape
    flat = maps.transpose(1, 2).reshape(batch * channels, inputs) @ rows.transpose(0, 1)
    pooled = flat.unflatten(0, (batch, channels)).transpose(1, 2)
    return pooled if bias is None else pooled + bias


def pool_by_sample(rows: Tensor, maps: Tensor, bias: Tensor | None, trained: bool) -> Tensor:
    """The same for maps whose channels are innermost in memory, as channels-last ones have them.

    trained: whether the rows are of a matrix that wants a gradient.
    """
    gains = maps.device.type in DEVICES and not is_watched(rows, maps, bias)
    if gains and maps.shape[2] >= FEWEST_CHANNELS:
        return multiply_by_sample(rows, maps, bias)
    if trained or _has_few_channels(maps):
        return pool_at_once(rows, maps, bias)
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


def multiply_by_sample(rows: Tensor, maps: Tensor, bias: Tensor | None) -> Tensor:
    """What `pooled_by_sample` is on a GPU; on any device the same numbers up to rounding."""
    if bias is not None:
        bias = bias.expand(len(rows), maps.shape[2])
    found: Tensor = _Product.apply(rows, maps, bias)
    return found


def is_watched(*operands: Tensor | None) -> bool:
    """Whether someone follows the product who knows plain ones only, or refuses it in their words.

    A compiler, a tracer, a transform of torch.func, forward mode; or types that do not fit.
    """
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or _transformed():
        return True
    there = [each for each in operands if each is not None]
    return len({each.dtype for each in there}) > 1 or any(
        forward_ad.unpack_dual(each).tangent is not None for each in there
    )


def _repeat(level: Tensor, times: int) -> Tensor:
    """A new tensor that holds `level` as often as asked.

    Sixteen bytes at a time where they come out even: a GPU copies single numbers at half the speed.
    """
    found, level, wide = level.new_empty(times, *level.shape), level.contiguous(), torch.complex128
    offset = level.storage_offset() * level.itemsize
    if level.nbytes % wide.itemsize or offset % wide.itemsize:
        return found.copy_(level)
    found.view(times, level.numel()).view(wide).copy_(level.view(-1).view(wide))
    return found


def _join_samples(maps: Tensor) -> Tensor:
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
        level = _repeat(bias, len(maps))
        return torch.baddbmm(level, matrix, maps, out=level)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        rows, maps = ctx.saved_tensors
        for_rows = for_maps = for_bias = None
        if ctx.needs_input_grad[0]:
            # The samples are summed over with the channels, which stay innermost.
            for_rows = _join_samples(grad) @ _join_samples(maps).mH
        if ctx.needs_input_grad[1]:
            for_maps = torch.bmm(rows.mH.expand(len(grad), -1, -1), grad)
        if ctx.needs_input_grad[2]:
            for_bias = grad.sum(0)
        return for_rows, for_maps, for_bias


def linear_pool(
    x: Tensor, weight: Tensor, out_shape: Sequence[int], mean: Tensor | None = None
) -> Tensor:
    """Pools maps of one to three axes by a matrix; `LinearPool2d` is the layer of it for two.

    Args:
        x: The maps, (B, C, H, W), or with one or three spatial axes.
        weight: The matrix, (k, M, N) with M = H' W' and N = H W, rows in raster order.
        out_shape: The output's size, (H', W'), with as many axes as the maps have.
        mean: The level of each channel that a constant map keeps, (C,). Without it, a row that does
            not sum to one changes the level of its channel.

    Returns:
        (B, k C, H', W'): all channels under the first component, then all under the second.

    Raises:
        ValueError: If the sizes do not fit.

    Example:
        >>> weight = torch.full((1, 1, 4), 0.25)
        >>> linear_pool(torch.ones(2, 3, 2, 2), weight, (1, 1)).shape
        torch.Size([2, 3, 1, 1])
        >>> linear_pool(torch.ones(2, 3, 4), weight, (1,)).shape
        torch.Size([2, 3, 1])
    """
    target = as_shape(out_shape, "out_shape")
    _check_sizes(x, weight, target, mean)
    return pool_checked(x, weight, target, mean)


def _check_sizes(
    x: Tensor, weight: Tensor, out_shape: tuple[int, ...], mean: Tensor | None
) -> None:
    if weight.dim() != 3:
        raise ValueError(
            f"weight: got shape {tuple(weight.shape)}, wanted (components, outputs, inputs); give "
            "a single matrix as weight[None]"
        )
    _, outputs, inputs = weight.shape
    axes = x.dim() - 2
    if not 1 <= axes <= 3 or math.prod(x.shape[2:]) != inputs:
        raise ValueError(
            f"x: got shape {tuple(x.shape)}, wanted (batch, channels, H, W) with H * W = {inputs}, "
            "or one or three sizes of that product, a place for each column of the weight; "
            "`LinearPool2d.resized` carries it to another map size"
        )
    if len(out_shape) != axes or math.prod(out_shape) != outputs:
        raise ValueError(
            f"out_shape: got {out_shape}, wanted {name_sizes(axes)} of {outputs} places "
            "in all, one for each row of the weight"
        )
    if mean is not None and (mean.dim() != 1 or mean.shape[0] != x.shape[1]):
        raise ValueError(
            f"mean: got shape {tuple(mean.shape)}, wanted ({x.shape[1]},), a level for each channel"
            " of x"
        )


def pool_checked(
    x: Tensor, weight: Tensor, out_shape: tuple[int, ...], mean: Tensor | None
) -> Tensor:
    """`linear_pool` of sizes that are known to fit."""
    batch, channels = x.shape[:2]
    components, outputs, _ = weight.shape
    # Positions before components: then a channels-last product already is a channels-last output.
    rows = weight.transpose(0, 1)
    x, rows = cast_operands(x, rows)
    rows = rows.flatten(0, 1)
    bias = None
    if mean is not None:
        # Of the very numbers that multiply: a constant map then keeps its level in bf16 too.
        sums = rows.sum(-1, dtype=torch.promote_types(rows.dtype, torch.float32))
        bias = ((1 - sums)[:, None] * mean).to(rows.dtype)
    channels_last, maps = not x.is_contiguous(), x.flatten(2).transpose(1, 2)
    if channels_last:
        pooled = pool_by_sample(rows, maps, bias, trained=weight.requires_grad)
    else:
        pooled = pool_at_once(rows, maps, bias)
    pooled = pooled.unflatten(1, (outputs, components)).permute(0, 2, 3, 1)
    result = pooled.reshape(batch, components * channels, *out_shape)
    return order_channels_last(result) if channels_last else result


def order_channels_last(maps: Tensor) -> Tensor:
    """The same maps with their channels innermost in memory, however many axes they have."""
    last = maps.dim() - 1
    # Said as a permutation, because vmap knows no memory formats.
    ordered = maps.permute(0, *range(2, last + 1), 1).contiguous()
    return ordered.permute(0, last, *range(1, last))


def cast_operands(x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Maps and rows in the type that autocast wants, if it is on.

    Left to autocast itself, which spares doubles too, the matrix would be cast once a sample.
    """
    kind = x.device.type
    # The meta device knows no autocast; asking torch which ones do would break a compiled graph.
    autocast = kind != "meta" and torch.is_autocast_enabled(kind)
    if not autocast or x.dtype == torch.float64:
        return x, rows
    dtype = torch.get_autocast_dtype(kind)
    return x.to(dtype), rows.to(dtype, memory_format=torch.contiguous_format)
