"""LinearPool2d on maps of any memory format, any batch and any type of number."""

from __future__ import annotations

import pytest
import torch

from .random_layers import (
    FORMATS,
    OUT_SHAPE,
    fitted_or_not,
    formats,
    random,
    random_maps,
    random_pool,
    relative_error,
    trainable_or_not,
)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


# Memory formats and batches


@trainable_or_not
@fitted_or_not
def test_channels_last_gives_the_same_values_and_stays_channels_last(trainable, fitted):
    pool, maps = random_pool(fitted=fitted, trainable=trainable), random_maps()
    pooled = pool(maps)
    last = pool(maps.contiguous(memory_format=torch.channels_last))
    torch.testing.assert_close(last, pooled)
    assert pooled.is_contiguous()
    assert last.is_contiguous(memory_format=torch.channels_last)


@trainable_or_not
@pytest.mark.parametrize(
    "cut",
    [
        lambda: random(4, 6, 4, 6)[:, ::2],
        lambda: random(4, 3, 8, 12)[:, :, 2:6, ::2],
        lambda: random(4, 3, 6, 4).transpose(2, 3),
        lambda: random(3, 4, 4, 6).transpose(0, 1),
        lambda: random(1, 3, 4, 6).expand(4, -1, -1, -1),
        lambda: random(4, 3, 1, 1).expand(-1, -1, 4, 6),
    ],
    ids=["channels", "window", "axes", "batch", "repeated", "constant"],
)
def test_a_view_into_a_larger_tensor_is_pooled_like_its_copy(cut, trainable):
    pool, view = random_pool(trainable=trainable), cut()
    assert not view.is_contiguous()
    torch.testing.assert_close(pool(view), pool(view.clone(memory_format=FORMATS[0])))


@formats
@trainable_or_not
def test_vmap_pools_like_a_loop(memory_format, trainable):
    pool = random_pool(trainable=trainable)
    stacks = torch.stack([random_maps(memory_format=memory_format) for _ in range(3)])
    if memory_format == torch.channels_last:
        stacks = stacks.permute(0, 1, 3, 4, 2).contiguous().permute(0, 1, 4, 2, 3)
    torch.testing.assert_close(torch.func.vmap(pool)(stacks), torch.stack([*map(pool, stacks)]))


@formats
@trainable_or_not
def test_an_empty_batch_gives_an_empty_batch_and_no_gradient(memory_format, trainable):
    pool = random_pool(trainable=trainable)
    maps = random_maps(0, memory_format=memory_format).requires_grad_()
    pooled = pool(maps)
    assert pooled.shape == (0, 6, *OUT_SHAPE)
    pooled.sum().backward()
    assert maps.grad is not None and maps.grad.shape == maps.shape


# Number types


@formats
@trainable_or_not
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_computes_in_its_own_type_and_stays_near_float32(dtype, trainable, memory_format):
    pool = random_pool(trainable=trainable).float()
    maps = random_maps(memory_format=memory_format).float()
    with torch.autocast("cpu", dtype):
        pooled = pool(maps)
    assert pooled.dtype == dtype
    assert pooled.is_contiguous(memory_format=memory_format)
    assert 0 < relative_error(pooled, pool(maps)) < torch.finfo(dtype).eps


@formats
def test_autocast_leaves_doubles_alone_as_it_does_in_every_layer(memory_format):
    pool, maps = random_pool(), random_maps(memory_format=memory_format)
    with torch.autocast("cpu", torch.bfloat16):
        pooled = pool(maps)
    assert torch.equal(pooled, pool(maps))


def test_a_gradient_through_autocast_arrives_in_the_weights_own_type():
    pool, maps = random_pool(trainable=True).float(), random_maps().float()
    pool(maps).square().sum().backward()
    wanted, pool.weight.grad = pool.weight.grad, None
    with torch.autocast("cpu", torch.bfloat16):
        pooled = pool(maps)
    pooled.float().square().sum().backward()
    assert pool.weight.grad.dtype == torch.float32
    assert relative_error(pool.weight.grad, wanted) < 4 * torch.finfo(torch.bfloat16).eps


@formats
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_a_layer_cast_to_another_type_computes_in_it(dtype, memory_format):
    pool, maps = random_pool().float(), random_maps(memory_format=memory_format).float()
    wanted = pool(maps)
    pooled = pool.to(dtype)(maps.to(dtype))
    assert pooled.dtype == dtype
    assert relative_error(pooled, wanted) < max(4 * torch.finfo(dtype).eps, 1e-6)
