"""Every rival against its paper's formula, written out in loops, and against its limits.

The loops work in float64 on small maps, some of which the blocks do not divide. The formulas of
the two that work on frequencies are in test_spectral.py.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from foveapool.pooling import grid
from foveapool.pooling.module import LinearPool2d
from foveapool.pooling.rivals import RIVALS, LocalSgdPool, rival

Shape = tuple[int, int]

NAMES = sorted(RIVALS)
LINEAR = ["sgd", "sgd-local"]
KEEPING = [name for name in NAMES if name not in LINEAR]  # their channels as they are
BLOCKWISE = [name for name in KEEPING if name not in ("blur", "spectral", "diffstride")]
SIZES: list[tuple[Shape, Shape]] = [
    ((8, 6), (4, 3)),
    ((7, 7), (4, 4)),
    ((7, 6), (4, 2)),
    ((5, 8), (2, 8)),
    ((1, 5), (1, 3)),
]
sizes = pytest.mark.parametrize(("in_shape", "out_shape"), SIZES)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def trained(name: str, in_shape: Shape, out_shape: Shape, components: int = 1) -> nn.Module:
    """A rival for three channels in float64 whose parameters are no longer the first ones."""
    module = rival(name, 3, in_shape, out_shape, components).double()
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    return module


def random_maps(in_shape: Shape, channels: int = 3) -> Tensor:
    return torch.randn(2, channels, *in_shape, dtype=torch.float64)


def places(in_shape: Shape, out_shape: Shape, row: int, column: int) -> list[tuple[int, int, int]]:
    """The pixels of one block, each with its number in the whole block, the edge included."""
    height, width = (math.ceil(i / o) for i, o in zip(in_shape, out_shape, strict=True))
    found = []
    for down in range(height):
        for right in range(width):
            y, x = row * height + down, column * width + right
            if y < in_shape[0] and x < in_shape[1]:
                found.append((y, x, down * width + right))
    return found


def by_loops(
    maps: Tensor,
    out_shape: Shape,
    of_block: Callable[[int, int, list[tuple[int, int, int]]], float],
) -> Tensor:
    """`of_block(sample, channel, pixels)` for every block of every map."""
    in_shape = (maps.shape[2], maps.shape[3])
    pooled = torch.zeros(*maps.shape[:2], *out_shape, dtype=torch.float64)
    for b in range(maps.shape[0]):
        for c in range(maps.shape[1]):
            for row in range(out_shape[0]):
                for column in range(out_shape[1]):
                    pixels = places(in_shape, out_shape, row, column)
                    pooled[b, c, row, column] = of_block(b, c, pixels)
    return pooled


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def importance(maps: Tensor, module: nn.Module) -> Tensor:
    """LIP's G(x) by loops: 1 x 1 convolution, instance norm, 12 sigmoid."""
    state = module.state_dict()
    weight, scale, shift = state["project.weight"], state["norm.weight"], state["norm.bias"]
    logits = torch.zeros_like(maps)
    for b in range(maps.shape[0]):
        for c in range(maps.shape[1]):
            mapped = sum(weight[c, d, 0, 0] * maps[b, d] for d in range(maps.shape[1]))
            values = [float(value) for value in mapped.flatten()]
            level = mean(values)
            deviation = math.sqrt(mean([(value - level) ** 2 for value in values]) + 1e-5)
            normed = [scale[c] * (value - level) / deviation + shift[c] for value in values]
            gated = [12 * sigmoid(float(value)) for value in normed]
            logits[b, c] = torch.tensor(gated, dtype=maps.dtype).reshape(maps.shape[2:])
    return logits


def literal(name: str, maps: Tensor, out_shape: Shape, module: nn.Module) -> Tensor:
    """The paper's formula of each rival that looks at one block at a time."""
    state = module.state_dict()
    logits = importance(maps, module) if name == "lip" else maps

    def of_block(b: int, c: int, pixels: list[tuple[int, int, int]]) -> float:
        values = [float(maps[b, c, y, x]) for y, x, _ in pixels]
        if name == "average":
            return mean(values)
        if name == "max":
            return max(values)
        if name == "mixed":
            a = sigmoid(float(state["logit"]))
            return a * max(values) + (1 - a) * mean(values)
        if name == "gated":
            product = sum(float(state["gate"][n] * maps[b, c, y, x]) for y, x, n in pixels)
            return sigmoid(product) * max(values) + (1 - sigmoid(product)) * mean(values)
        weights = [math.exp(float(logits[b, c, y, x])) for y, x, _ in pixels]
        return sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)

    return by_loops(maps, out_shape, of_block)


@sizes
@pytest.mark.parametrize("name", BLOCKWISE)
def test_block_formula_of_the_paper(name: str, in_shape: Shape, out_shape: Shape) -> None:
    module, maps = trained(name, in_shape, out_shape), random_maps(in_shape)
    torch.testing.assert_close(module(maps), literal(name, maps, out_shape, module))


@sizes
def test_blur_is_the_binomial_filter_over_reflected_borders(
    in_shape: Shape, out_shape: Shape
) -> None:
    def inside(place: int, size: int) -> int:
        if size == 1:
            return 0
        return -place if place < 0 else 2 * (size - 1) - place if place >= size else place

    maps = random_maps(in_shape)
    height, width = (math.ceil(i / o) for i, o in zip(in_shape, out_shape, strict=True))
    wanted = torch.zeros(2, 3, *out_shape, dtype=torch.float64)
    for row in range(out_shape[0]):
        for column in range(out_shape[1]):
            for dy in (-1, 0, 1):
                for dx in (-1, 0, 1):
                    y = inside(row * height + dy, in_shape[0])
                    x = inside(column * width + dx, in_shape[1])
                    wanted[..., row, column] += (2 - abs(dy)) * (2 - abs(dx)) / 16 * maps[..., y, x]
    torch.testing.assert_close(trained("blur", in_shape, out_shape)(maps), wanted)


@sizes
@pytest.mark.parametrize("name", LINEAR)
def test_sgd_is_one_matrix_a_component_and_channels_come_before_components(
    name: str, in_shape: Shape, out_shape: Shape
) -> None:
    module, maps = trained(name, in_shape, out_shape, components=2), random_maps(in_shape)
    (weight,) = module.state_dict().values()
    wanted = torch.zeros(2, 6, *out_shape, dtype=torch.float64)
    for k in range(2):
        for c in range(3):
            for m in range(math.prod(out_shape)):
                row, column = divmod(m, out_shape[1])
                for n in range(math.prod(in_shape)):
                    y, x = divmod(n, in_shape[1])
                    wanted[:, 3 * k + c, row, column] += weight[k, m, n] * maps[:, c, y, x]
    torch.testing.assert_close(module(maps), wanted)


@sizes
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("components", [1, 2, 3])
def test_sizes_agree_with_a_learned_pooling(
    name: str, in_shape: Shape, out_shape: Shape, components: int
) -> None:
    pooled = rival(name, 3, in_shape, out_shape, components)(torch.randn(2, 3, *in_shape))
    assert pooled.shape == (2, components * 3, *out_shape)
    assert pooled.isfinite().all()


@pytest.mark.parametrize("name", KEEPING)
def test_all_channels_are_given_once_and_then_all_again(name: str) -> None:
    maps = random_maps((7, 6))
    once, twice = trained(name, (7, 6), (4, 3)), trained(name, (7, 6), (4, 3), components=2)
    twice.load_state_dict(once.state_dict())
    torch.testing.assert_close(twice(maps)[:, :3], once(maps))
    torch.testing.assert_close(twice(maps)[:, 3:], once(maps))


@pytest.mark.parametrize("name", KEEPING)
@pytest.mark.parametrize("level", [-3.0, 2.0])
def test_constant_map_keeps_its_value_up_to_the_cut_edge(name: str, level: float) -> None:
    # Zeros that count anywhere would pull the last row and column towards 0.
    pooled = trained(name, (7, 8), (4, 3))(torch.full((1, 3, 7, 8), level, dtype=torch.float64))
    torch.testing.assert_close(pooled, torch.full_like(pooled, level))


@pytest.mark.parametrize(("logit", "limit"), [(40.0, "max"), (-40.0, "average")])
def test_mixed_goes_from_average_to_max(logit: float, limit: str) -> None:
    module, maps = trained("mixed", (7, 7), (4, 4)), random_maps((7, 7))
    nn.init.constant_(module.get_parameter("logit"), logit)
    torch.testing.assert_close(module(maps), trained(limit, (7, 7), (4, 4))(maps))


@pytest.mark.parametrize("name", ["mixed", "gated"])
def test_max_and_average_have_equal_shares_at_first(name: str) -> None:
    maps = random_maps((7, 7))
    largest, average = (trained(limit, (7, 7), (4, 4))(maps) for limit in ("max", "average"))
    module = rival(name, 3, (7, 7), (4, 4)).double()
    torch.testing.assert_close(module(maps), (largest + average) / 2)


def test_lip_starts_as_average_pooling_and_learns_from_there() -> None:
    maps = random_maps((7, 7))
    module = rival("lip", 3, (7, 7), (4, 4)).double()
    torch.testing.assert_close(module(maps), trained("average", (7, 7), (4, 4))(maps))
    module(maps).square().sum().backward()
    assert module.get_parameter("project.weight").grad.abs().max() > 0


def test_soft_pool_of_huge_values_is_finite_and_their_maximum() -> None:
    maps = torch.tensor([[[[1e4, -1e4, 0.0], [9e3, 0.0, -1e4]]]])
    pooled = rival("soft", 1, (2, 3), (1, 2))(maps)
    torch.testing.assert_close(pooled, torch.tensor([[[[1e4, 0.0]]]]))


@pytest.mark.parametrize("name", NAMES)
def test_gradients_of_maps_and_parameters(name: str) -> None:
    module = trained(name, (5, 4), (3, 2), components=2)
    maps = random_maps((5, 4)).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, *_: module(x), (maps, *module.parameters()))


@pytest.mark.parametrize("name", NAMES)
def test_training_and_evaluation_pool_alike_and_copies_are_independent(name: str) -> None:
    module, maps = trained(name, (7, 6), (4, 3), components=2), random_maps((7, 6))
    pooled = module.train()(maps)
    torch.testing.assert_close(module.eval()(maps), pooled)
    clone, loaded = copy.deepcopy(module), trained(name, (7, 6), (4, 3), components=2)
    loaded.load_state_dict(module.state_dict())
    for parameter in module.parameters():
        nn.init.zeros_(parameter)
    torch.testing.assert_close(clone(maps), pooled)
    torch.testing.assert_close(loaded(maps), pooled)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_half_precision_under_autocast(name: str, layout: torch.memory_format) -> None:
    module = trained(name, (7, 6), (4, 3), components=2).float()
    maps = random_maps((7, 6)).bfloat16().to(memory_format=layout)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        pooled = module(maps)
    assert pooled.dtype == torch.bfloat16
    torch.testing.assert_close(pooled.float(), module(maps.float()), atol=0.1, rtol=0.05)


@pytest.mark.parametrize("name", NAMES)
def test_no_graph_break(name: str) -> None:
    module, maps = trained(name, (7, 6), (4, 3), components=2), random_maps((7, 6))
    torch.compiler.reset()  # the rivals share one forward, and more than eight are too many for it
    compiled = torch.compile(module, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(maps), module(maps))


def test_locality_penalty_is_the_double_sum_and_its_gradient_follows() -> None:
    module = LocalSgdPool(3, (5, 4), (3, 2), components=2, alpha=0.25).double()
    distance = grid.penalty((5, 4), (3, 2), centre="paper")
    weight = module.linear.weight.detach()
    wanted = 0.0
    for k in range(2):
        for m in range(6):
            for n in range(20):
                wanted += 0.25 * float(distance[m, n]) * float(weight[k, m, n]) ** 2
    assert module.penalty().item() == pytest.approx(wanted)
    module.penalty().backward()
    torch.testing.assert_close(module.linear.weight.grad, 2 * 0.25 * distance * weight)


def test_penalty_alone_draws_every_row_to_its_centre() -> None:
    module = LocalSgdPool(1, (4, 4), (2, 2), alpha=1.0)
    optimiser = torch.optim.SGD(module.parameters(), lr=0.02)
    for _ in range(500):
        optimiser.zero_grad()
        module.penalty().backward()
        optimiser.step()
    centres = grid.penalty((4, 4), (2, 2), centre="paper") == 0
    assert module.linear.weight[0][~centres].abs().max() < 1e-6
    assert (module.linear.weight[0][centres] != 0).all()


def test_sgd_is_trainable_and_its_distances_stay_out_of_the_file() -> None:
    assert isinstance(rival("sgd", 3, (8, 8), (4, 4)), LinearPool2d)
    local = rival("sgd-local", 3, (8, 8), (4, 4))
    assert [parameter.requires_grad for parameter in local.parameters()] == [True]
    assert "distance" not in local.state_dict()
    assert local.to(torch.float64).get_buffer("distance").dtype == torch.float64


def test_unknown_name_offers_near_ones() -> None:
    with pytest.raises(ValueError, match=r"'averge'.*did you mean 'average'"):
        rival("averge", 3, (8, 8), (4, 4))
    with pytest.raises(ValueError, match="wanted one of average, max, blur"):
        rival("stochastic", 3, (8, 8), (4, 4))


@pytest.mark.parametrize("name", KEEPING)
@pytest.mark.parametrize("shape", [(2, 3, 8, 7), (2, 4, 8, 8), (3, 8, 8)])
def test_wrong_maps_are_named_with_both_shapes(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError) as error:
        rival(name, 3, (8, 8), (4, 4))(torch.zeros(shape))
    assert str(shape) in str(error.value)
    assert "(batch, 3, 8, 8)" in str(error.value)


@pytest.mark.parametrize("name", LINEAR)
def test_wrong_map_size_of_sgd(name: str) -> None:
    with pytest.raises(ValueError, match="8, 7"):
        rival(name, 3, (8, 8), (4, 4))(torch.zeros(2, 3, 8, 7))


@pytest.mark.parametrize("name", KEEPING)
@pytest.mark.parametrize(
    ("in_shape", "out_shape", "possible"),
    [((9, 8), (4, 4), "(3, 4)"), ((8, 5), (4, 4), "(4, 3)"), ((4, 4), (5, 4), "(4, 4)")],
)
def test_blocks_without_a_pixel_are_refused(
    name: str, in_shape: Shape, out_shape: Shape, possible: str
) -> None:
    with pytest.raises(ValueError) as error:
        rival(name, 3, in_shape, out_shape)
    assert all(str(part) in str(error.value) for part in (in_shape, out_shape, possible))


@pytest.mark.parametrize("in_shape", [(8,), (2, 8, 8), (0, 8)])
def test_shapes_are_two_positive_sizes(in_shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="wanted two positive sizes"):
        rival("average", 3, in_shape, (4, 4))


def test_counts_and_alpha_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="channels: got 0"):
        rival("average", 0, (8, 8), (4, 4))
    with pytest.raises(ValueError, match="components: got 0"):
        rival("average", 3, (8, 8), (4, 4), components=0)
    with pytest.raises(ValueError, match="alpha: got -1"):
        LocalSgdPool(3, (8, 8), (4, 4), alpha=-1.0)
