"""The product that channels-last maps have on a GPU: the plain formula, whoever looks on."""

import gc
import weakref

import pytest
import torch
from torch.autograd import forward_ad
from torch.utils.flop_counter import FlopCounterMode

from foveapool.pooling import functional
from foveapool.pooling.functional import multiply_by_sample, pool_by_sample
from foveapool.pooling.module import LinearPool2d

ROWS, INPUTS = 6, 10


def operands(batch=3, channels=4, dtype=torch.float64, requires_grad=False):
    generator = torch.Generator().manual_seed(0)
    shapes = ((ROWS, INPUTS), (batch, INPUTS, channels), (ROWS, channels))
    return [
        torch.randn(shape, generator=generator, dtype=dtype).requires_grad_(requires_grad)
        for shape in shapes
    ]


def formula(rows, maps, bias=None):
    product = torch.einsum("rn,bnc->brc", rows, maps)
    return product if bias is None else product + bias


# 6 x 3 numbers of four or two bytes do not come out even in sixteen: copied one by one.
@pytest.mark.parametrize("channels", [4, 3])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("batch", [0, 1, 5])
def test_it_is_the_formula_and_leaves_its_operands_alone(batch, channels, dtype):
    given = operands(batch, channels, dtype)
    before = [each.clone() for each in given]
    tolerance = {"rtol": 2e-2, "atol": 5e-2} if dtype == torch.bfloat16 else {}
    torch.testing.assert_close(multiply_by_sample(*given), formula(*given), **tolerance)
    torch.testing.assert_close(
        multiply_by_sample(*given[:2], None), formula(*given[:2]), **tolerance
    )
    for each, copy in zip(given, before, strict=True):
        assert torch.equal(each, copy)


def test_a_bias_that_is_a_view_is_added_as_its_copy_would_be():
    rows, maps, _ = operands()
    wide = torch.arange(48.0, dtype=torch.float64).reshape(4, 12)
    bias = wide[:, ::2].T  # neither contiguous nor at the front of its memory
    torch.testing.assert_close(multiply_by_sample(rows, maps, bias), formula(rows, maps, bias))


def test_a_bias_may_begin_anywhere_in_its_memory_and_be_one_number_for_all_channels():
    rows, maps, bias = operands()
    shifted = torch.cat([bias.flatten()[:1], bias.flatten()])[1:].view_as(bias)
    assert shifted.storage_offset() == 1 and shifted.is_contiguous()
    torch.testing.assert_close(multiply_by_sample(rows, maps, shifted), formula(rows, maps, bias))
    narrow = bias[:, :1].clone().requires_grad_()
    pooled = multiply_by_sample(rows, maps, narrow)
    torch.testing.assert_close(pooled, formula(rows, maps, narrow))
    pooled.sum().backward()
    assert narrow.grad.shape == narrow.shape


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_derivatives_are_those_of_finite_differences_and_of_second_order_too(dtype):
    given = operands(dtype=dtype, requires_grad=True)
    assert torch.autograd.gradcheck(multiply_by_sample, given, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(multiply_by_sample, given)
    assert torch.autograd.gradcheck(
        lambda rows, maps: multiply_by_sample(rows, maps, None), given[:2]
    )


@pytest.mark.parametrize("wanted", [0, 1, 2])
def test_each_operand_may_be_the_only_one_with_a_gradient(wanted):
    given = operands()
    given[wanted].requires_grad_()
    multiply_by_sample(*given).square().sum().backward()
    found = [each.grad for each in given]
    (theirs,) = torch.autograd.grad(formula(*given).square().sum(), given[wanted])
    torch.testing.assert_close(found[wanted], theirs)
    assert [each is None for each in found] == [i != wanted for i in range(3)]


def test_a_matrix_may_be_changed_before_the_backward_pass_that_does_not_need_it():
    rows, maps, bias = operands()
    pooled = multiply_by_sample(rows.requires_grad_(), maps, bias)
    with torch.no_grad():
        rows.mul_(2)
    pooled.sum().backward()
    torch.testing.assert_close(rows.grad, maps.sum((0, 2)).expand_as(rows))


def test_what_comes_after_may_write_into_the_output():
    rows, maps, bias = operands()
    maps.requires_grad_()
    pooled = multiply_by_sample(rows, maps, bias).unflatten(1, (3, 2)).permute(0, 2, 3, 1)
    torch.relu_(pooled).sum().backward()
    (theirs,) = torch.autograd.grad(formula(rows, maps, bias).relu().sum(), maps)
    torch.testing.assert_close(maps.grad, theirs)


def test_a_frozen_matrix_does_not_keep_the_maps_in_memory():
    rows, maps, bias = operands()
    read = maps.requires_grad_() * 1
    kept = weakref.ref(read)
    pooled = multiply_by_sample(rows, read, bias)
    del read
    gc.collect()
    assert kept() is None
    pooled.sum().backward()
    torch.testing.assert_close(maps.grad, rows.sum(0)[:, None].expand_as(maps))


@pytest.mark.parametrize("trainable", [False, True])
def test_multiply_adds_are_counted(trainable):
    rows, maps, bias = operands()
    rows.requires_grad_(trainable)
    with FlopCounterMode(display=False) as counter:
        multiply_by_sample(rows, maps, bias)
    assert counter.get_total_flops() == 2 * ROWS * maps.numel()


class Seen(Exception):
    pass


@pytest.fixture
def own_on_the_cpu(monkeypatch):
    """Takes maps on the CPU for some on a GPU, and says when its product is asked for."""

    def seen(*operands):
        raise Seen

    monkeypatch.setattr(functional, "DEVICES", ("cpu",))
    monkeypatch.setattr(functional, "multiply_by_sample", seen)


def pooled(given, trained=False):
    return pool_by_sample(*given, trained=trained)


@pytest.mark.parametrize("trained", [False, True])
def test_it_is_taken_on_a_gpu_where_there_are_channels_enough(trained, monkeypatch, own_on_the_cpu):
    with pytest.raises(Seen):
        pooled(operands(channels=32), trained)
    few = operands(channels=31)
    torch.testing.assert_close(pooled(few, trained), formula(*few))
    monkeypatch.undo()
    many = operands(channels=32)
    torch.testing.assert_close(pooled(many, trained), formula(*many))


@pytest.mark.parametrize(
    ("places", "channels", "at_once"),
    [(64, 15, True), (64, 16, False), (1024, 127, True), (1024, 128, False)],
)
def test_a_cpu_multiplies_all_samples_at_once_where_they_have_few_channels(
    places, channels, at_once, monkeypatch
):
    asked = []
    plain = functional.pool_at_once

    def watched(*given):
        asked.append(given)
        return plain(*given)

    monkeypatch.setattr(functional, "pool_at_once", watched)
    rows, maps = torch.randn(3, places), torch.randn(2, places, channels)
    found = pooled((rows, maps, None))
    torch.testing.assert_close(found, formula(rows, maps), rtol=1e-4, atol=1e-3)
    assert bool(asked) == at_once


def compiled(given):
    return torch.compile(pooled, backend="eager", fullgraph=True)(given)


def traced(given):
    return torch.jit.trace(lambda *each: pooled(each), given, check_trace=False)(*given)


def mapped(given):
    rows, maps, bias = given
    return torch.func.vmap(lambda each: pooled((rows, each[None], bias)))(maps)[:, 0]


def functionalised(given):
    return torch.func.functionalize(pooled)(given)


def dual(given):
    with forward_ad.dual_level():
        rows, maps, bias = given
        found = pooled((rows, forward_ad.make_dual(maps, maps), bias))
        torch.testing.assert_close(forward_ad.unpack_dual(found).tangent, formula(rows, maps))
        return forward_ad.unpack_dual(found).primal


@pytest.mark.parametrize("way", [compiled, traced, mapped, functionalised, dual])
def test_others_that_look_on_get_the_plain_product(way, own_on_the_cpu):
    given = operands(channels=32)
    torch.testing.assert_close(way(given), formula(*given))


def test_types_that_do_not_fit_are_refused_in_the_words_of_the_plain_product(own_on_the_cpu):
    rows, maps, bias = operands(channels=32)
    with pytest.raises(RuntimeError, match="expected scalar type"):
        pooled((rows, maps.float(), bias))


@pytest.mark.parametrize("trainable", [False, True])
@pytest.mark.parametrize("with_mean", [False, True])
def test_a_network_with_it_trains_past_a_layer_that_works_in_place(
    trainable, with_mean, monkeypatch
):
    """As on a GPU, but for the device."""
    torch.manual_seed(0)
    mean = torch.randn(32) if with_mean else None
    weight, shapes = torch.randn(2, 16, 64), {"in_shape": (8, 8), "out_shape": (4, 4)}
    pool = LinearPool2d(weight, mean, **shapes, trainable=trainable)
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 32, 1), pool, torch.nn.ReLU(inplace=True))
    x = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    asked, own = [], multiply_by_sample
    monkeypatch.setattr(
        functional, "multiply_by_sample", lambda *each: asked.append(each) or own(*each)
    )
    gradients = []
    for devices in (("cpu",), ("cuda",)):
        monkeypatch.setattr(functional, "DEVICES", devices)
        network.zero_grad()
        network(x).square().sum().backward()
        gradients.append([each.grad.clone() for each in network.parameters()])
    assert len(asked) == 1
    for ours, plain in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-2)
