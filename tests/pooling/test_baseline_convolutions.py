"""The rivals that convolve, against loops over places, and the convolutions that they contain."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from foveapool.pooling.baselines import baseline_pooling
from foveapool.pooling.baselines.filters import (
    CoordConvolution,
    FullConvolution,
    LowRankConvolution,
)

from .trained_baselines import CONVOLVING, SIZES, Shape, random_maps, sizes, trained


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def strides_of(in_shape: Shape, out_shape: Shape) -> Shape:
    return (math.ceil(in_shape[0] / out_shape[0]), math.ceil(in_shape[1] / out_shape[1]))


def window(maps: Tensor, row: int, column: int) -> Tensor:
    """The 3 x 3 window around a pixel, (B, C, 3, 3), with zeros outside the map."""
    found = torch.zeros(*maps.shape[:2], 3, 3, dtype=maps.dtype)
    for dy in range(3):
        for dx in range(3):
            y, x = row + dy - 1, column + dx - 1
            if 0 <= y < maps.shape[2] and 0 <= x < maps.shape[3]:
                found[..., dy, dx] = maps[..., y, x]
    return found


# LRLC


@sizes
@pytest.mark.parametrize("rank", [1, 3])
def test_lrlc_has_a_kernel_of_its_own_at_each_place(
    in_shape: Shape, out_shape: Shape, rank: int
) -> None:
    module = LowRankConvolution(3, in_shape, out_shape, components=2, rank=rank).double()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    maps, state = random_maps(in_shape), module.state_dict()
    down, right = strides_of(in_shape, out_shape)
    wanted = torch.zeros(2, 6, *out_shape, dtype=torch.float64)
    for i in range(out_shape[0]):
        for j in range(out_shape[1]):
            logits = [
                state["row_logits"][k, i, 0] + state["column_logits"][k, 0, j] for k in range(rank)
            ]
            weights = [math.exp(logit) / sum(map(math.exp, logits)) for logit in logits]
            kernel = sum(w * state["kernels"][6 * k : 6 * k + 6] for k, w in enumerate(weights))
            bias = state["row_bias"][i, 0] + state["column_bias"][0, j]
            seen = window(maps, down * i, right * j)
            wanted[..., i, j] = torch.einsum("bcyx,ocyx->bo", seen, kernel) + bias
    torch.testing.assert_close(module(maps), wanted)


def test_lrlc_of_rank_one_is_a_strided_convolution() -> None:
    module, maps = LowRankConvolution(3, (8, 6), (4, 3), 2, rank=1).double(), random_maps((8, 6))
    wanted = F.conv2d(maps, module.kernels, stride=2, padding=1)
    torch.testing.assert_close(module(maps), wanted)


def test_lrlc_starts_as_the_convolution_by_its_mean_kernel() -> None:
    module, maps = LowRankConvolution(3, (8, 6), (4, 3), 2).double(), random_maps((8, 6))
    mean = module.kernels.unflatten(0, (4, 6)).mean(0)
    torch.testing.assert_close(module(maps), F.conv2d(maps, mean, stride=2, padding=1))
    # He's uniform numbers: bound sqrt(6 / inputs).
    bound = math.sqrt(6 / 27)
    assert 0.9 * bound < module.kernels.abs().max() <= bound
    module(maps).square().sum().backward()
    for parameter in module.parameters():
        assert parameter.grad is not None and parameter.grad.abs().max() > 0


def test_lrlc_has_as_many_numbers_as_the_paper_counts() -> None:
    module = LowRankConvolution(8, (16, 12), (8, 6), components=2, rank=5)
    places = 8 + 6
    count = sum(parameter.numel() for parameter in module.parameters())
    assert count == 5 * 9 * 8 * 16 + 5 * places + places


def test_lrlc_refuses_no_rank() -> None:
    with pytest.raises(ValueError, match="rank: got 0, wanted 1 or more"):
        LowRankConvolution(3, (8, 6), (4, 3), rank=0)


# CoordConv


@sizes
def test_coordconv_sees_rows_and_columns_as_two_more_channels(
    in_shape: Shape, out_shape: Shape
) -> None:
    module, maps = trained("coordconv", in_shape, out_shape, components=2), random_maps(in_shape)
    height, width = in_shape
    extended = torch.zeros(2, 5, height, width, dtype=torch.float64)
    extended[:, :3] = maps
    for y in range(height):
        for x in range(width):
            extended[:, 3, y, x] = 2 * y / (height - 1) - 1 if height > 1 else 0
            extended[:, 4, y, x] = 2 * x / (width - 1) - 1 if width > 1 else 0
    down, right = strides_of(in_shape, out_shape)
    pooled = module(maps)
    for i in range(out_shape[0]):
        for j in range(out_shape[1]):
            seen = window(extended, down * i, right * j)
            wanted = torch.einsum("bcyx,ocyx->bo", seen, module.weight)
            # The module keeps its coordinates in float32.
            torch.testing.assert_close(pooled[..., i, j], wanted, atol=1e-5, rtol=0)


def test_coordconv_blind_to_coordinates_is_the_strided_convolution() -> None:
    module, maps = trained("coordconv", (8, 6), (4, 3), components=2), random_maps((8, 6))
    assert not torch.allclose(
        module(maps), F.conv2d(maps, module.weight[:, :3], stride=2, padding=1)
    )
    with torch.no_grad():
        module.weight[:, 3:] = 0
    wanted = F.conv2d(maps, module.weight[:, :3], stride=2, padding=1)
    torch.testing.assert_close(module(maps), wanted)


def test_coordinates_stay_out_of_the_file() -> None:
    assert list(CoordConvolution(3, (8, 6), (4, 3)).state_dict()) == ["weight"]


# F-Conv


@sizes
def test_fconv_is_the_full_convolution_with_outer_outputs_added_to_their_neighbors(
    in_shape: Shape, out_shape: Shape
) -> None:
    module, maps = trained("fconv", in_shape, out_shape, components=2), random_maps(in_shape)
    down, right = strides_of(in_shape, out_shape)
    wanted = torch.zeros(2, 6, *out_shape, dtype=torch.float64)
    # Far more windows than touch the map: those that do not add nothing.
    for i in range(-4, out_shape[0] + 4):
        for j in range(-4, out_shape[1] + 4):
            seen = window(maps, down * i, right * j)
            row, column = min(max(i, 0), out_shape[0] - 1), min(max(j, 0), out_shape[1] - 1)
            wanted[..., row, column] += torch.einsum("bcyx,ocyx->bo", seen, module.weight)
    torch.testing.assert_close(module(maps), wanted)


def meetings(module: FullConvolution | None, in_shape: Shape, strides: Shape) -> Tensor:
    """How often each weight of a kernel (3, 3) meets each pixel, (3, 3, H, W)."""
    ones = torch.zeros(1, 1, 3, 3, dtype=torch.float64, requires_grad=True)
    counts = torch.zeros(3, 3, *in_shape)
    for y in range(in_shape[0]):
        for x in range(in_shape[1]):
            maps = torch.zeros(1, 1, *in_shape, dtype=torch.float64)
            maps[..., y, x] = 1
            if module is None:
                made, weight = F.conv2d(maps, ones, stride=strides, padding=1), ones
            else:
                made, weight = module(maps), module.weight
            counts[:, :, y, x] = torch.autograd.grad(made.sum(), weight)[0][0, 0]
    return counts


@pytest.mark.parametrize(("in_shape", "out_shape"), [*SIZES, ((8, 8), (8, 8))])
def test_every_weight_meets_every_pixel_that_its_stride_brings_it_to(
    in_shape: Shape, out_shape: Shape
) -> None:
    down, right = strides = strides_of(in_shape, out_shape)
    counts = meetings(FullConvolution(1, in_shape, out_shape).double(), in_shape, strides)
    for a in range(3):
        for b in range(3):
            for y in range(in_shape[0]):
                for x in range(in_shape[1]):
                    on_grid = (y - a + 1) % down == 0 and (x - b + 1) % right == 0
                    assert counts[a, b, y, x] == on_grid


def test_a_strided_convolution_leaves_meetings_out() -> None:
    full = meetings(FullConvolution(1, (8, 8), (4, 4)).double(), (8, 8), (2, 2))
    plain = meetings(None, (8, 8), (2, 2))
    # The first row and column of the kernel never meet the last row and column of pixels.
    missed = (full - plain).nonzero()
    assert len(missed) > 0 and (plain <= full).all()
    assert all((a, y) == (0, 7) or (b, x) == (0, 7) for a, b, y, x in missed.tolist())


# All of them


@pytest.mark.parametrize("name", CONVOLVING)
def test_they_start_from_the_default_generator(name: str) -> None:
    def numbers(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return next(baseline_pooling(name, 3, (8, 6), (4, 3), 2).parameters()).detach()

    torch.testing.assert_close(numbers(1), numbers(1))
    assert not torch.allclose(numbers(1), numbers(2))
    module = baseline_pooling(name, 3, (8, 6), (4, 3), 2)
    torch.manual_seed(1)
    module.reset_parameters()
    torch.testing.assert_close(next(module.parameters()).detach(), numbers(1))


@pytest.mark.parametrize("name", ["coordconv", "fconv"])
def test_they_start_as_torch_starts_a_convolution(name: str) -> None:
    torch.manual_seed(3)
    weight = baseline_pooling(name, 3, (8, 6), (4, 3), 2).weight
    torch.manual_seed(3)
    convolution = torch.nn.Conv2d(weight.shape[1], 6, 3, bias=False)
    torch.testing.assert_close(weight, convolution.weight)
