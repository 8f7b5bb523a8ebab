"""LinearPool2d against its formula written out in loops, and against the layers it contains.

Carrying it to another map size is tested in `test_resample.py`; copying, saving, compiling and
exporting it in `test_module_export.py`.
"""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foveapool.pooling.module import LinearPool2d, linear_pool2d

IN_SHAPE, OUT_SHAPE = (4, 6), (2, 3)
INPUTS, OUTPUTS = 24, 6
FORMATS = [torch.contiguous_format, torch.channels_last]

formats = pytest.mark.parametrize("memory_format", FORMATS, ids=["channels_first", "channels_last"])
trainable_or_not = pytest.mark.parametrize("trainable", [True, False])
fitted_or_not = pytest.mark.parametrize("fitted", [True, False])


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def random(*sizes: int) -> Tensor:
    return torch.randn(sizes, dtype=torch.float64)


def random_pool(
    components: int = 2, channels: int = 3, fitted: bool = True, trainable: bool = False
) -> LinearPool2d:
    """A layer of random weights in float64, with a mean for each channel when it was fitted."""
    weight = torch.randn(components, OUTPUTS, INPUTS)
    mean = 2 + torch.randn(channels) if fitted else None
    shapes = {"in_shape": IN_SHAPE, "out_shape": OUT_SHAPE}
    return LinearPool2d(weight, mean, **shapes, trainable=trainable).double()


def random_maps(batch: int = 5, channels: int = 3, memory_format: torch.memory_format = FORMATS[0]):
    return random(batch, channels, *IN_SHAPE).contiguous(memory_format=memory_format)


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


def relative_error(got: Tensor, wanted: Tensor) -> float:
    return ((got.double() - wanted.double()).norm() / wanted.double().norm()).item()


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
def test_normalising_pooling_and_scaling_back_is_the_same_whatever_the_deviations(memory_format):
    pool, maps = random_pool(), random_maps(memory_format=memory_format)
    for deviations in ([1.0, 1.0, 1.0], [0.3, 2.0, 17.0]):
        mean, std = (t.double()[:, None, None] for t in (pool.mean, torch.tensor(deviations)))
        normalised = (maps - mean) / std
        pooled = linear_pool2d(normalised, pool.weight, OUT_SHAPE).unflatten(1, (2, 3))
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
    assert torch.equal(pool(maps), linear_pool2d(maps, pool.weight, pool.out_shape, pool.mean))


# Memory formats, batches and number types


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
        return linear_pool2d(maps, weight, OUT_SHAPE, mean)

    torch.autograd.gradcheck(pool, (maps, weight))
    torch.autograd.gradcheck(pool, (maps, weight.detach()))
    torch.autograd.gradcheck(pool, (maps.detach(), weight))


@trainable_or_not
def test_a_training_step_changes_a_trainable_matrix_and_nothing_else_of_the_layer(trainable):
    network = nn.Sequential(nn.Conv2d(3, 3, 1), random_pool(trainable=trainable).float())
    before = {name: value.clone() for name, value in network.state_dict().items()}
    optimiser = torch.optim.SGD(network.parameters(), lr=0.1)
    network(random_maps().float()).square().mean().backward()
    optimiser.step()
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


# The layers it contains


@pytest.mark.parametrize("step", [(2, 2), (3, 2), (1, 4)])
@pytest.mark.parametrize("components", [1, 2])
def test_average_is_average_pooling_each_channel_as_often_as_there_are_components(step, components):
    maps = torch.randn(2, 3, 4 * step[0], 3 * step[1])
    pooled = LinearPool2d.average(maps.shape[2:], (4, 3), components)(maps)
    torch.testing.assert_close(pooled, F.avg_pool2d(maps, step).repeat(1, components, 1, 1))


@pytest.mark.parametrize("sizes", [((7, 7), (4, 4)), ((7, 5), (4, 2)), ((6, 6), (6, 1))])
def test_average_is_adaptive_average_pooling_where_blocks_do_not_divide_the_map(sizes):
    maps = torch.randn(2, 3, *sizes[0])
    pooled = LinearPool2d.average(*sizes)(maps)
    torch.testing.assert_close(pooled, F.adaptive_avg_pool2d(maps, sizes[1]))


@pytest.mark.parametrize("kernel", [(3, 3), (2, 3), (1, 3, 2), (3, 2, 2)], ids=str)
@pytest.mark.parametrize(
    ("stride", "padding"), [(2, 0), (2, 1), ((2, 3), 0), ((1, 2), (0, 1)), (3, (1, 0))]
)
def test_from_kernel_is_the_depthwise_strided_convolution(kernel, stride, padding):
    kernels = torch.randn(kernel)
    maps = torch.randn(2, 3, 7, 8)
    pooled = LinearPool2d.from_kernel(kernels, (7, 8), stride, padding)(maps)
    each = [
        F.conv2d(maps, one.expand(3, 1, -1, -1), stride=stride, padding=padding, groups=3)
        for one in kernels.reshape(-1, *kernel[-2:])
    ]
    torch.testing.assert_close(pooled, torch.cat(each, dim=1))


def test_a_single_one_as_kernel_is_subsampling():
    maps = torch.randn(2, 3, 7, 8)
    pool = LinearPool2d.from_kernel(torch.ones(1, 1), (7, 8), stride=2)
    assert torch.equal(pool(maps), maps[..., ::2, ::2])


@pytest.mark.parametrize("components", [1, 3])
def test_random_weights_fill_the_range_in_which_a_linear_layer_starts(components):
    pool = LinearPool2d.random((8, 9), (4, 3), components)
    bound = 1 / math.sqrt(72)
    assert pool.trainable and pool.weight.shape == (components, 12, 72)
    assert 0.99 * bound < pool.weight.abs().max() <= bound
    assert pool.weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)


def test_a_generator_makes_random_weights_repeatable_and_leaves_the_global_one_alone():
    def draw(number: int) -> Tensor:
        generator = torch.Generator().manual_seed(number)
        return LinearPool2d.random(IN_SHAPE, OUT_SHAPE, generator=generator).weight

    state = torch.get_rng_state()
    assert torch.equal(draw(1), draw(1))
    assert not torch.equal(draw(1), draw(2))
    assert torch.equal(torch.get_rng_state(), state)


def test_constructors_give_a_fixed_matrix_unless_asked():
    kernel = torch.ones(2, 2)
    assert not LinearPool2d.average(IN_SHAPE, OUT_SHAPE).trainable
    assert LinearPool2d.average(IN_SHAPE, OUT_SHAPE, trainable=True).trainable
    assert not LinearPool2d.from_kernel(kernel, IN_SHAPE).trainable
    assert LinearPool2d.from_kernel(kernel, IN_SHAPE, trainable=True).trainable


# What it says


def test_printing_shows_what_goes_in_and_what_comes_out():
    shown = repr(random_pool(components=2))
    assert shown == "LinearPool2d((4, 6) -> (2, 3), components=2, trainable=False)"


@pytest.mark.parametrize("shape", [(2, 3, 6, 4), (2, 3, 8, 8), (3, 4, 6)])
def test_a_map_of_another_size_is_refused_with_both_sizes_and_the_way_out(shape):
    with pytest.raises(ValueError, match="resized") as error:
        random_pool()(torch.zeros(shape))
    assert str(shape) in str(error.value)
    assert "(batch, channels, 4, 6)" in str(error.value)


def test_another_number_of_channels_is_refused_only_where_a_mean_was_fitted():
    maps = random_maps(channels=5)
    with pytest.raises(ValueError, match="got 5 channels, wanted 3"):
        random_pool(channels=3, fitted=True)(maps)
    assert random_pool(fitted=False)(maps).shape == (5, 10, *OUT_SHAPE)


@pytest.mark.parametrize("shape", [(2, 6, 23), (2, 24, 6), (5, 24), (0, 6, 24), (1, 2, 6, 24)])
def test_a_matrix_that_does_not_fit_the_maps_is_refused_with_the_shape_wanted(shape):
    with pytest.raises(ValueError, match=r"weight: .* wanted \(components, 6, 24\)") as error:
        LinearPool2d(torch.zeros(shape), in_shape=IN_SHAPE, out_shape=OUT_SHAPE)
    assert str(shape[-2:])[1:-1] in str(error.value)


@pytest.mark.parametrize("mean", [torch.tensor(1.0), torch.zeros(1, 3), torch.zeros(3, 1, 1)])
def test_a_mean_that_is_no_list_of_channels_is_refused(mean):
    with pytest.raises(ValueError, match=r"mean: .* wanted \(channels,\)"):
        LinearPool2d(torch.zeros(1, 6, 24), mean, in_shape=IN_SHAPE, out_shape=OUT_SHAPE)


@pytest.mark.parametrize(
    "make",
    [
        lambda: LinearPool2d(torch.zeros(1, 2, 4), in_shape=(4,), out_shape=(2,)),
        lambda: LinearPool2d.average((4,), (2,)),
        lambda: LinearPool2d.random((4, 4, 4), (2, 2, 2)),
        lambda: LinearPool2d.from_kernel(torch.ones(2, 2), (4,)),
    ],
)
def test_maps_of_one_or_three_axes_are_refused(make):
    with pytest.raises(ValueError, match=r"in_shape: got \(4.*wanted \(H, W\)"):
        make()


@pytest.mark.parametrize("shape", [(3,), (1, 1, 2, 2)])
def test_a_kernel_that_is_no_picture_is_refused(shape):
    with pytest.raises(ValueError, match=r"kernel: .* wanted \(h, w\) or \(k, h, w\)"):
        LinearPool2d.from_kernel(torch.ones(shape), IN_SHAPE)


@pytest.mark.parametrize(
    "make",
    [
        lambda: LinearPool2d(torch.zeros(1, 40, 24), in_shape=(4, 6), out_shape=(5, 8)),
        lambda: LinearPool2d.average((4, 6), (5, 8)),
        lambda: LinearPool2d.random((4, 6), (5, 8)),
        lambda: LinearPool2d.from_kernel(torch.ones(2, 1), (4, 6), stride=1, padding=(1, 1)),
    ],
)
def test_an_output_larger_than_the_input_is_refused(make):
    with pytest.raises(ValueError, match=r"out_shape: got \(5, 8\) .* does not enlarge"):
        make()


def test_the_state_dict_is_saved_by_plain_safetensors(tmp_path):
    from safetensors.torch import load_file, save_file

    pool = LinearPool2d(torch.randn(2, 4, 16), torch.randn(3), in_shape=(4, 4), out_shape=(2, 2))
    save_file(pool.state_dict(), tmp_path / "pool.safetensors")
    again = load_file(tmp_path / "pool.safetensors")
    assert torch.equal(again["weight"], pool.weight) and torch.equal(again["mean"], pool.mean)
