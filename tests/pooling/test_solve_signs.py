"""Signs of eigenvectors: the same for neighbors, whatever the solver happened to return."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from foveapool.pooling import grid
from foveapool.pooling.accumulate import compute_scatter
from foveapool.pooling.solve import SIGNS, apply_signs, solve_pooling

Shape = tuple[int, ...]

SIZES: list[tuple[Shape, Shape]] = [
    ((12, 12), (6, 6)),
    ((12, 12), (4, 4)),
    ((9, 9), (4, 4)),
    ((10, 7), (4, 3)),
    ((5, 12), (5, 4)),
    ((20,), (7,)),
    ((6, 5, 4), (3, 2, 2)),
    ((8, 8), (1, 1)),
]
sizes = pytest.mark.parametrize(("in_shape", "out_shape"), SIZES)
both_rules = pytest.mark.parametrize("sign", SIGNS)


def number(shape: Shape) -> int:
    return math.prod(shape)


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def random_rows(in_shape: Shape, out_shape: Shape, components: int = 3) -> Tensor:
    return noise(components, number(out_shape), number(in_shape))


def random_signs(weight: Tensor, seed: int = 1) -> Tensor:
    return torch.where(noise(*weight.shape[:2], 1, seed=seed) < 0, -1.0, 1.0).double()


def moved_kernel(kernel: Tensor, in_shape: Shape, out_shape: Shape) -> Tensor:
    """One kernel (k, ...) around the paper's center of every output place; what is outside falls
    away. The stride must be whole.
    """
    middles = (grid.centers(in_shape, out_shape) - 1).long().tolist()
    weight = torch.zeros(len(kernel), len(middles), *in_shape, dtype=torch.float64)
    reach = kernel.shape[1] // 2
    for m, middle in enumerate(middles):
        for step in itertools.product(range(-reach, reach + 1), repeat=len(in_shape)):
            place = [a + b for a, b in zip(middle, step, strict=True)]
            if all(0 <= p < size for p, size in zip(place, in_shape, strict=True)):
                weight[:, m, *place] = kernel[:, *(s + reach for s in step)]
    return weight.flatten(2)


def inner_product_after_moving(
    row: Tensor, other: Tensor, in_shape: Shape, move: tuple[int, ...]
) -> float:
    """The sum of row(x + move) * other(x) over all x for which both are inside, place by place."""
    one, two = row.reshape(in_shape).numpy(), other.reshape(in_shape).numpy()
    total = 0.0
    for place in np.ndindex(*in_shape):
        there = tuple(p + d for p, d in zip(place, move, strict=True))
        if all(0 <= p < size for p, size in zip(there, in_shape, strict=True)):
            total += one[there] * two[place]
    return total


@both_rules
def test_only_signs_change(sign):
    for in_shape, out_shape in SIZES:
        weight = random_rows(in_shape, out_shape)
        signed = apply_signs(weight, in_shape, out_shape, sign=sign)
        flipped = (signed == -weight).all(-1)
        assert (flipped | (signed == weight).all(-1)).all(), (in_shape, out_shape)


@sizes
def test_by_the_sum_no_row_sums_to_less_than_zero(in_shape, out_shape):
    weight = random_rows(in_shape, out_shape)
    assert out_shape == (1, 1) or (weight.sum(-1) < 0).any()
    assert (apply_signs(weight, in_shape, out_shape, sign="sum").sum(-1) >= 0).all()


@sizes
@both_rules
def test_the_signs_that_the_solver_returned_do_not_matter(in_shape, out_shape, sign):
    weight = random_rows(in_shape, out_shape)
    expected = apply_signs(weight, in_shape, out_shape, sign=sign)
    for seed in range(3):
        shuffled = weight * random_signs(weight, seed)
        assert torch.equal(apply_signs(shuffled, in_shape, out_shape, sign=sign), expected)


@sizes
@both_rules
def test_signs_once_settled_stay(in_shape, out_shape, sign):
    once = apply_signs(random_rows(in_shape, out_shape), in_shape, out_shape, sign=sign)
    assert torch.equal(apply_signs(once, in_shape, out_shape, sign=sign), once)


@sizes
def test_whichever_the_centers_are_signs_are_the_same(in_shape, out_shape):
    # Centers of two kinds are one step apart, the same at all places: rows move alike.
    weight = random_rows(in_shape, out_shape)
    expected = apply_signs(weight, in_shape, out_shape)
    for center in grid.CENTERS:
        assert torch.equal(apply_signs(weight, in_shape, out_shape, center), expected), center


@sizes
def test_each_row_agrees_with_its_neighbor_towards_the_middle(in_shape, out_shape):
    weight = apply_signs(random_rows(in_shape, out_shape), in_shape, out_shape)
    middle = [size // 2 for size in out_shape]
    middles = grid.centers(in_shape, out_shape)
    pictures = weight.unflatten(1, out_shape)
    for place in np.ndindex(*out_shape):
        away = [p - m for p, m in zip(place, middle, strict=True)]
        furthest = max(map(abs, away))
        if furthest == 0:
            assert (pictures[:, *place].sum(-1) >= 0).all()
            continue
        agreements = []
        # Where two axes are as far, the neighbor along either of them will do.
        for axis in [a for a, distance in enumerate(away) if abs(distance) == furthest]:
            neighbor = list(place)
            neighbor[axis] -= int(math.copysign(1, away[axis]))
            here, there = (np.ravel_multi_index(p, out_shape) for p in (place, neighbor))
            shift = middles[here] - middles[there]
            move = tuple(math.floor(float(d) + 0.5) for d in shift)
            agreements.append(
                [
                    inner_product_after_moving(row, other, in_shape, move)
                    for row, other in zip(pictures[:, *place], pictures[:, *neighbor], strict=True)
                ]
            )
        assert np.max(agreements, axis=0).min() >= 0
        if len(agreements) == 1:
            assert min(agreements[0]) >= 0


@pytest.mark.parametrize(
    ("in_shape", "out_shape"),
    [
        ((12, 12), (6, 6)),
        ((12, 12), (4, 4)),
        ((8, 12), (4, 4)),
        ((24,), (8,)),
        ((6, 6, 6), (3, 3, 3)),
    ],
)
def test_one_kernel_everywhere_keeps_one_sign(in_shape, out_shape):
    # A bump, and a slope along the first axis, whose sum is zero wherever the border cuts nothing.
    ramp = torch.arange(-1, 2).double()
    bump = torch.ones(3)
    for _ in in_shape[1:]:
        bump = bump[..., None] * torch.ones(3)
    slope = ramp.reshape(-1, *[1] * (len(in_shape) - 1)) * bump
    kernel = torch.stack((bump, slope + 0.01)).double()
    expected = moved_kernel(kernel, in_shape, out_shape)
    for seed in range(3):
        shuffled = expected * random_signs(expected, seed)
        assert torch.equal(apply_signs(shuffled, in_shape, out_shape), expected)


def test_sums_alone_make_a_chessboard_of_a_slope():
    # The sum of a slope is rounding, noise or the border's doing; its neighbors are not.
    slope = torch.tensor([[-1.0, 0.0, 1.0]]).expand(3, 3)[None].double()
    weight = moved_kernel(slope, (16, 16), (8, 8))
    weight = (weight + 1e-3 * noise(*weight.shape)) * random_signs(weight)

    def disagreements(sign: str) -> int:
        rows = apply_signs(weight, (16, 16), (8, 8), sign=sign)[0].unflatten(0, (8, 8))
        # The weight to the left of the center has one sign everywhere, if signs agree.
        left = torch.stack(
            [rows[y, x, (2 * y + 1) * 16 + 2 * x] for y in range(8) for x in range(8)]
        )
        return int(min((left < 0).sum(), (left > 0).sum()))

    assert disagreements("neighbor") == 0
    assert disagreements("sum") > 8


@both_rules
def test_components_do_not_see_each_other(sign):
    weight = random_rows((12, 12), (6, 6))
    together = apply_signs(weight, (12, 12), (6, 6), sign=sign)
    alone = torch.cat([apply_signs(one[None], (12, 12), (6, 6), sign=sign) for one in weight])
    assert torch.equal(together, alone)


def test_rows_with_nothing_in_common_are_signed_by_their_sum():
    # Each row is one pixel, and no neighbor's pixel comes to lie on it: rounding must not decide.
    chosen = torch.randperm(144, generator=torch.Generator().manual_seed(5))[:36]
    weight = torch.eye(144, dtype=torch.float64)[chosen][None]
    for seed in range(3):
        dirty = weight * random_signs(weight, seed) + 1e-12 * noise(1, 36, 144, seed=seed)
        signed = apply_signs(dirty, (12, 12), (6, 6))
        assert (signed - weight).abs().max() < 1e-10


@both_rules
def test_single_precision_stays_single_precision(sign):
    weight = random_rows((12, 12), (6, 6))
    signed = apply_signs(weight.float(), (12, 12), (6, 6), sign=sign)
    assert signed.dtype == torch.float32
    assert torch.equal(signed, apply_signs(weight, (12, 12), (6, 6), sign=sign).float())


@both_rules
@pytest.mark.parametrize("out_shape", [(6, 6), (4, 4), (5, 7)])
def test_solved_operators_have_their_signs_settled(out_shape, sign):
    labels = torch.arange(120) % 4
    maps = noise(120, 3, 12, 12) + noise(4, 3, 12, 12, seed=2)[labels]
    scatter = compute_scatter(maps, labels)
    operator = solve_pooling(scatter, out_shape, sign=sign)
    again = apply_signs(operator.weight, (12, 12), out_shape, sign=sign)
    assert torch.equal(again, operator.weight)


def test_an_unknown_rule_is_named():
    with pytest.raises(ValueError, match=r"^sign: got 'random'"):
        apply_signs(random_rows((4, 4), (2, 2)), (4, 4), (2, 2), sign="random")  # type: ignore[arg-type]
