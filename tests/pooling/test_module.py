"""LinearPool2d against its formula written out in loops, and who may change its matrix.

Memory formats and number types are in `test_module_formats.py`, constructors and refusals in
`test_module_constructors.py`, other map sizes in `test_module_resample.py`; copying, saving,
compiling and exporting in `test_module_export.py`.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from foveapool.pooling.functional import linear_pool
from foveapool.pooling.module import LinearPool2d

from .random_layers import (
    IN_SHAPE,
    INPUTS,
    OUT_SHAPE,
    OUTPUTS,
    fitted_or_not,
    formats,
    random_maps,
    random_pool,
    trainable_or_not,
)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def by_loops(maps: Tensor, pool: LinearPool2d) -> Tensor:
    """P x + mean_c (1 - P 1), one number at a time."""
    batch, channels = maps.shape[:2]
    pooled = torch.zeros(batch, pool.components * channels, *pool.out_shape, dtype=torch.float64)
    height, width = pool.in_shape
    for b in range(batch):
        for k in range(pool.components):
            for c in range(channels):
                level = 0.0 if pool.mean is None else pool.mean[c].item()
                for m in range(OUTPUTS):
                    row = pool.weight[k, m].tolist()
                    value = level * (1 - sum(row)) if level else 0.0
                    for y in range(height):
                        for x in range(width):
                            value += row[y * width + x] * maps[b, c, y, x].item()
                    place = divmod(m, pool.out_shape[1])
                    pooled[b, k * channels + c, place[0], place[1]] = value
    return pooled


# What the layer computes


@formats
@trainable_or_not
@fitted_or_not
@pytest.mark.parametrize("components", [1, 2, 3])
@pytest.mark.parametrize(("batch", "channels"), [(2, 3), (1, 2), (2, 1), (1, 1)])
def test_output_is_the_formula_written_out(
    memory_format, trainable, fitted, components, batch, channels
):
    pool = random_pool(components, channels, fitted, trainable)
    maps = random_maps(batch, channels, memory_format)
    torch.testing.assert_close(pool(maps).detach(), by_loops(maps, pool))


@formats
def test_normalizing_pooling_and_scaling_back_is_the_same_whatever_the_deviations(memory_format):
    pool, maps = random_pool(), random_maps(memory_format=memory_format)
    for deviations in ([1.0, 1.0, 1.0], [0.3, 2.0, 17.0]):
        mean, std = (t.double()[:, None, None] for t in (pool.mean, torch.tensor(deviations)))
        normalized = (maps - mean) / std
        pooled = linear_pool(normalized, pool.weight, OUT_SHAPE).unflatten(1, (2, 3))
        torch.testing.assert_close(pool(maps), (pooled * std + mean).flatten(1, 2))


@formats
def test_a_constant_map_at_its_channels_mean_stays_that_constant(memory_format):
    pool = random_pool(components=2)
    level = pool.mean[:, None, None]
    maps = level.expand(2, 3, *IN_SHAPE).contiguous(memory_format=memory_format)
    torch.testing.assert_close(pool(maps), level.repeat(2, 1, 1).expand(2, 6, *OUT_SHAPE))


def test_without_a_mean_a_constant_map_is_multiplied_by_its_rows_sum():
    pool = random_pool(components=1, fitted=False)
    sums = pool.weight.sum(-1).reshape(OUT_SHAPE)
    torch.testing.assert_close(pool(torch.full_like(random_maps(), 3.0))[0, 0], 3 * sums)


@formats
@trainable_or_not
def test_all_channels_come_under_the_first_component_then_under_the_second(
    memory_format, trainable
):
    pool = random_pool(components=2, trainable=trainable)
    maps = random_maps(memory_format=memory_format)
    alone = [
        LinearPool2d(weight, pool.mean, in_shape=IN_SHAPE, out_shape=OUT_SHAPE).double()
        for weight in pool.weight
    ]
    torch.testing.assert_close(pool(maps), torch.cat([one(maps) for one in alone], dim=1))


@fitted_or_not
def test_the_module_is_the_function(fitted):
    pool, maps = random_pool(fitted=fitted), random_maps()
    assert torch.equal(pool(maps), linear_pool(maps, pool.weight, pool.out_shape, pool.mean))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"x": (2, 3, 4, 5)}, r"x: got shape \(2, 3, 4, 5\), wanted .* H \* W = 24"),
        ({"x": (3, 4, 6)}, r"x: got shape \(3, 4, 6\), wanted \(batch, channels, H, W\)"),
        ({"weight": (6, 24)}, r"weight: got shape \(6, 24\), wanted .* weight\[None\]"),
        ({"weight": (2, 24)}, r"weight: got shape \(2, 24\), wanted \(components, outputs"),
        ({"weight": (1, 6, 25)}, r"x: got shape \(2, 3, 4, 6\), wanted .* H \* W = 25"),
        ({"out_shape": (2, 2)}, r"out_shape: got \(2, 2\), wanted \(H, W\) of 6 places"),
        ({"out_shape": (6,)}, r"out_shape: got \(6,\), wanted \(H, W\)"),
        ({"out_shape": (-2, -3)}, r"out_shape: got \(-2, -3\), wanted"),
        ({"out_shape": 6}, r"out_shape: got 6, wanted"),
        ({"mean": (4,)}, r"mean: got shape \(4,\), wanted \(3,\)"),
        ({"mean": (3, 1)}, r"mean: got shape \(3, 1\), wanted \(3,\)"),
        ({"mean": ()}, r"mean: got shape \(\), wanted \(3,\)"),
    ],
    ids=str,
)
def test_the_function_refuses_sizes_that_do_not_fit_each_other(changed, message):
    sizes = {"x": (2, 3, *IN_SHAPE), "weight": (2, OUTPUTS, INPUTS), "mean": (3,), **changed}
    x, weight, mean = (torch.zeros(sizes[name]) for name in ("x", "weight", "mean"))
    with pytest.raises(ValueError, match=f"^{message}"):
        linear_pool(x, weight, changed.get("out_shape", OUT_SHAPE), mean)


# Who may change the matrix


def test_a_trainable_matrix_is_a_parameter():
    pool = random_pool(trainable=True)
    assert pool.trainable
    assert [name for name, _ in pool.named_parameters()] == ["weight"]
    assert [name for name, _ in pool.named_buffers()] == ["mean"]


def test_a_fixed_matrix_is_saved_with_the_network_but_is_no_parameter():
    pool = random_pool(trainable=False)
    assert not pool.trainable
    assert list(pool.parameters()) == []
    assert set(pool.state_dict()) == {"weight", "mean"}


@formats
@fitted_or_not
def test_gradients_are_those_of_finite_differences(memory_format, fitted):
    maps = random_maps(2, 2, memory_format).requires_grad_()
    weight = torch.randn(2, OUTPUTS, INPUTS, dtype=torch.float64, requires_grad=True)
    mean = torch.randn(2, dtype=torch.float64) if fitted else None

    def pool(maps: Tensor, weight: Tensor) -> Tensor:
        return linear_pool(maps, weight, OUT_SHAPE, mean)

    torch.autograd.gradcheck(pool, (maps, weight))
    torch.autograd.gradcheck(pool, (maps, weight.detach()))
    torch.autograd.gradcheck(pool, (maps.detach(), weight))


@trainable_or_not
def test_a_training_step_changes_a_trainable_matrix_and_nothing_else_of_the_layer(trainable):
    network = nn.Sequential(nn.Conv2d(3, 3, 1), random_pool(trainable=trainable).float())
    before = {name: value.clone() for name, value in network.state_dict().items()}
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    network(random_maps().float()).square().mean().backward()
    optimizer.step()
    changed = {n for n, value in network.state_dict().items() if not torch.equal(value, before[n])}
    assert changed == {"0.weight", "0.bias"} | ({"1.weight"} if trainable else set())


def test_the_layer_keeps_its_own_copy_in_the_default_type():
    weight = torch.randn(2, OUTPUTS, INPUTS, dtype=torch.float64, requires_grad=True)
    mean = torch.randn(3)
    pool = LinearPool2d(weight, mean, in_shape=IN_SHAPE, out_shape=OUT_SHAPE)
    before = pool(random_maps().float())
    with torch.no_grad():
        weight.zero_()
        mean.zero_()
    assert pool.weight.dtype == pool.mean.dtype == torch.get_default_dtype()
    assert not before.requires_grad
    assert pool.weight.abs().min() > 0 and pool.mean.abs().min() > 0


def test_the_state_dict_is_saved_by_plain_safetensors(tmp_path):
    from safetensors.torch import load_file, save_file

    pool = LinearPool2d(torch.randn(2, 4, 16), torch.randn(3), in_shape=(4, 4), out_shape=(2, 2))
    save_file(pool.state_dict(), tmp_path / "pool.safetensors")
    again = load_file(tmp_path / "pool.safetensors")
    assert torch.equal(again["weight"], pool.weight) and torch.equal(again["mean"], pool.mean)
