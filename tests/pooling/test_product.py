"""The product of channels-last maps: the plain formula, whatever torch does with it."""

import gc
import weakref

import pytest
import torch
from torch.autograd import forward_ad
from torch.utils.flop_counter import FlopCounterMode

from foveapool.pooling.product import pooled_rows

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


# Sixteen bytes hold two of these numbers: an odd count of them has to be copied one by one.
@pytest.mark.parametrize("channels", [4, 3])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("batch", [0, 1, 5])
def test_it_is_the_formula_and_leaves_its_operands_alone(batch, channels, dtype):
    given = operands(batch, channels, dtype)
    before = [each.clone() for each in given]
    tolerance = {"rtol": 2e-2, "atol": 5e-2} if dtype == torch.bfloat16 else {}
    torch.testing.assert_close(pooled_rows(*given), formula(*given), **tolerance)
    torch.testing.assert_close(pooled_rows(*given[:2], None), formula(*given[:2]), **tolerance)
    for each, copy in zip(given, before, strict=True):
        assert torch.equal(each, copy)


def test_a_bias_that_is_a_view_is_added_as_its_copy_would_be():
    rows, maps, _ = operands()
    wide = torch.arange(48.0, dtype=torch.float64).reshape(4, 12)
    bias = wide[:, ::2].T  # neither contiguous nor at the front of its memory
    torch.testing.assert_close(pooled_rows(rows, maps, bias), formula(rows, maps, bias))


def test_derivatives_are_those_of_finite_differences_forward_backward_and_twice():
    given = operands(requires_grad=True)
    assert torch.autograd.gradcheck(
        pooled_rows, given, check_forward_ad=True, check_batched_grad=True
    )
    assert torch.autograd.gradgradcheck(pooled_rows, given)
    assert torch.autograd.gradcheck(
        lambda rows, maps: pooled_rows(rows, maps, None), given[:2], check_forward_ad=True
    )


@pytest.mark.parametrize("wanted", [0, 1, 2])
def test_each_operand_may_be_the_only_one_with_a_derivative(wanted):
    given, tangents = operands(), operands(requires_grad=False)
    given[wanted].requires_grad_()
    pooled_rows(*given).square().sum().backward()
    found = [each.grad for each in given]
    (theirs,) = torch.autograd.grad(formula(*given).square().sum(), given[wanted])
    torch.testing.assert_close(found[wanted], theirs)
    assert [each is None for each in found] == [i != wanted for i in range(3)]
    with forward_ad.dual_level():
        given[wanted] = forward_ad.make_dual(given[wanted].detach(), tangents[wanted])
        ours, theirs = (forward_ad.unpack_dual(f(*given)).tangent for f in (pooled_rows, formula))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("dims", [(None, 0, None), (0, None, 0), (0, 1, None)])
def test_vmap_and_gradients_inside_of_it_are_those_of_a_loop(dims):
    copies = [
        torch.stack([each, -2 * each], 0 if dim is None else dim)
        for each, dim in zip(operands(), dims, strict=True)
    ]
    given = [each[0] if dim is None else each for each, dim in zip(copies, dims, strict=True)]

    def loss(rows, maps, bias):
        return pooled_rows(rows, maps, bias).sin().sum()

    ours = torch.func.vmap(torch.func.grad(loss, argnums=(0, 1, 2)), in_dims=dims)(*given)
    for i in range(2):
        one = [
            (each if dim is None else each.select(dim, i)).clone().requires_grad_()
            for each, dim in zip(given, dims, strict=True)
        ]
        theirs = torch.autograd.grad(formula(*one).sin().sum(), one)
        for mine, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(mine[i], other)


def test_a_frozen_matrix_does_not_keep_the_maps_in_memory():
    rows, maps, bias = operands()
    read = maps.requires_grad_() * 1
    kept = weakref.ref(read)
    pooled = pooled_rows(rows, read, bias)
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
        pooled_rows(rows, maps, bias)
    assert counter.get_total_flops() == 2 * ROWS * maps.numel()


def test_compiled_and_traced_it_is_plain_products():
    given = operands(requires_grad=True)
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph

    compiled = torch.compile(pooled_rows, backend=backend, fullgraph=True)
    torch.testing.assert_close(compiled(*given), formula(*given))
    assert len(graphs) == 1 and "autograd" not in graphs[0].code
    traced = torch.jit.trace(pooled_rows, operands())
    assert "Product" not in str(traced.graph)
