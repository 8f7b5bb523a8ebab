"""Every rival against its paper's formula, written out in loops, and against its limits.

The loops work in float64 on small maps, some of which the blocks do not divide. The formulas of
those that work on frequencies, keep a phase or convolve are in test_baseline_spectral.py,
test_baseline_polyphase.py and test_baseline_convolutions.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from foveapool.pooling import grid
from foveapool.pooling.baselines import LocalSgdPool, baseline_pooling
from foveapool.pooling.module import LinearPool2d

from .trained_baselines import LINEAR, Shape, random_maps, sizes, trained

BLOCKWISE = ["average", "max", "mixed", "gated", "soft", "lip"]


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


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


def blurred(
    maps: Tensor, strides: Shape, out_shape: Shape, taps: tuple[int, ...] = (1, 2, 1)
) -> Tensor:
    """The binomial filter over reflected borders by loops."""
    reach = len(taps) // 2

    def inside(place: int, size: int) -> int:
        while size > 1 and not 0 <= place < size:
            place = -place if place < 0 else 2 * (size - 1) - place
        return place if size > 1 else 0

    found = torch.zeros(*maps.shape[:2], *out_shape, dtype=torch.float64)
    for row in range(out_shape[0]):
        for column in range(out_shape[1]):
            for dy in range(-reach, reach + 1):
                for dx in range(-reach, reach + 1):
                    y = inside(row * strides[0] + dy, maps.shape[2])
                    x = inside(column * strides[1] + dx, maps.shape[3])
                    weight = taps[dy + reach] * taps[dx + reach] / sum(taps) ** 2
                    found[..., row, column] += weight * maps[..., y, x]
    return found


@sizes
def test_blur_is_the_binomial_filter_over_reflected_borders(
    in_shape: Shape, out_shape: Shape
) -> None:
    maps = random_maps(in_shape)
    height, width = (math.ceil(i / o) for i, o in zip(in_shape, out_shape, strict=True))
    for name, taps in (("blur", (1, 2, 1)), ("blur-5", (1, 4, 6, 4, 1))):
        wanted = blurred(maps, (height, width), out_shape, taps)
        torch.testing.assert_close(trained(name, in_shape, out_shape)(maps), wanted)


@sizes
def test_max_blur_blurs_the_largest_values_of_blocks_from_every_pixel(
    in_shape: Shape, out_shape: Shape
) -> None:
    maps = random_maps(in_shape)
    height, width = (math.ceil(i / o) for i, o in zip(in_shape, out_shape, strict=True))
    rows, columns = (out_shape[0] - 1) * height + 1, (out_shape[1] - 1) * width + 1
    dense = torch.zeros(2, 3, rows, columns, dtype=torch.float64)
    for y in range(rows):
        for x in range(columns):
            dense[..., y, x] = maps[..., y : y + height, x : x + width].amax((-2, -1))
    wanted = blurred(dense, (height, width), out_shape)
    torch.testing.assert_close(trained("max-blur", in_shape, out_shape)(maps), wanted)


def test_max_blur_of_whole_blocks_is_dense_max_pooling_and_blur() -> None:
    maps = random_maps((8, 6))
    dense = nn.functional.max_pool2d(maps, 2, stride=1)
    blur = baseline_pooling("blur", 3, (7, 5), (4, 3)).double()
    torch.testing.assert_close(trained("max-blur", (8, 6), (4, 3))(maps), blur(dense))


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


# Limits and beginnings


@pytest.mark.parametrize(("logit", "limit"), [(40.0, "max"), (-40.0, "average")])
def test_mixed_goes_from_average_to_max(logit: float, limit: str) -> None:
    module, maps = trained("mixed", (7, 7), (4, 4)), random_maps((7, 7))
    nn.init.constant_(module.get_parameter("logit"), logit)
    torch.testing.assert_close(module(maps), trained(limit, (7, 7), (4, 4))(maps))


@pytest.mark.parametrize("name", ["mixed", "gated"])
def test_max_and_average_have_equal_shares_at_first(name: str) -> None:
    maps = random_maps((7, 7))
    largest, average = (trained(limit, (7, 7), (4, 4))(maps) for limit in ("max", "average"))
    module = baseline_pooling(name, 3, (7, 7), (4, 4)).double()
    torch.testing.assert_close(module(maps), (largest + average) / 2)


def test_lip_starts_as_average_pooling_and_learns_from_there() -> None:
    maps = random_maps((7, 7))
    module = baseline_pooling("lip", 3, (7, 7), (4, 4)).double()
    torch.testing.assert_close(module(maps), trained("average", (7, 7), (4, 4))(maps))
    module(maps).square().sum().backward()
    assert module.get_parameter("project.weight").grad.abs().max() > 0


def test_soft_pool_of_huge_values_is_finite_and_their_maximum() -> None:
    maps = torch.tensor([[[[1e4, -1e4, 0.0], [9e3, 0.0, -1e4]]]])
    pooled = baseline_pooling("soft", 1, (2, 3), (1, 2))(maps)
    torch.testing.assert_close(pooled, torch.tensor([[[[1e4, 0.0]]]]))


# Locality as a penalty


def test_locality_penalty_is_the_double_sum_and_its_gradient_follows() -> None:
    module = LocalSgdPool(3, (5, 4), (3, 2), components=2, alpha=0.25).double()
    distance = grid.penalty((5, 4), (3, 2), center="paper")
    weight = module.linear.weight.detach()
    wanted = 0.0
    for k in range(2):
        for m in range(6):
            for n in range(20):
                wanted += 0.25 * float(distance[m, n]) * float(weight[k, m, n]) ** 2
    assert module.penalty().item() == pytest.approx(wanted)
    module.penalty().backward()
    torch.testing.assert_close(module.linear.weight.grad, 2 * 0.25 * distance * weight)


def test_penalty_alone_draws_every_row_to_its_center() -> None:
    module = LocalSgdPool(1, (4, 4), (2, 2), alpha=1.0)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.02)
    for _ in range(500):
        optimizer.zero_grad()
        module.penalty().backward()
        optimizer.step()
    centers = grid.penalty((4, 4), (2, 2), center="paper") == 0
    assert module.linear.weight[0][~centers].abs().max() < 1e-6
    assert (module.linear.weight[0][centers] != 0).all()


def test_sgd_is_trainable_and_its_distances_stay_out_of_the_file() -> None:
    assert isinstance(baseline_pooling("sgd", 3, (8, 8), (4, 4)), LinearPool2d)
    local = baseline_pooling("sgd-local", 3, (8, 8), (4, 4))
    assert [parameter.requires_grad for parameter in local.parameters()] == [True]
    assert "distance" not in local.state_dict()
    assert local.to(torch.float64).get_buffer("distance").dtype == torch.float64
