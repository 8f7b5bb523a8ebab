"""Spectral pooling and DiffStride against numpy's transform, against cosines, against the paper.

What they share with the other rivals is in test_baselines.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from foveapool.pooling.baselines import baseline_pooling

Shape = tuple[int, int]

SIZES: list[tuple[Shape, Shape]] = [
    ((8, 6), (4, 3)),
    ((9, 7), (5, 4)),
    ((32, 16), (16, 4)),
    ((6, 5), (2, 5)),
    ((1, 4), (1, 4)),
]
sizes = pytest.mark.parametrize(("in_shape", "out_shape"), SIZES)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def spectral(in_shape: Shape, out_shape: Shape) -> nn.Module:
    return baseline_pooling("spectral", 2, in_shape, out_shape)


def diffstride(in_shape: Shape, out_shape: Shape, strides: Sequence[float]) -> nn.Module:
    module = baseline_pooling("diffstride", 2, in_shape, out_shape).double()
    with torch.no_grad():
        module.get_parameter("learned_strides").copy_(torch.tensor(strides, dtype=torch.float64))
    return module


def random_maps(in_shape: Shape) -> Tensor:
    return torch.randn(3, 2, *in_shape, dtype=torch.float64)


def cosine(shape: Shape, periods: tuple[int, int]) -> Tensor:
    """A wave of so many periods down and across a map, the same at any resolution."""
    down, across = (
        torch.arange(size, dtype=torch.float64) / size * count
        for size, count in zip(shape, periods, strict=True)
    )
    return torch.cos(2 * math.pi * (down[:, None] + across) + 0.3).expand(1, 2, *shape)


def window(n: int, size: int, stride: float, ramp: float) -> float:
    """The paper's mask at the frequency n of an axis of `size` pixels."""
    return min(max((ramp + size / (2 * stride) - abs(n)) / ramp, 0.0), 1.0)


def by_numpy(maps: Tensor, out_shape: Shape, strides: Sequence[float] | None = None) -> Tensor:
    """The whole complex transform, its coefficients moved one by one, and back."""
    (height, width), (rows, columns) = maps.shape[-2:], out_shape
    spectrum = np.fft.fft2(maps.numpy())
    cropped = np.zeros((*maps.shape[:2], rows, columns), complex)
    for u in range(-(rows // 2), rows // 2 + 1):
        for v in range(-(columns // 2), columns // 2 + 1):
            share = (0.5 if 2 * abs(u) == rows else 1) * (0.5 if 2 * abs(v) == columns else 1)
            if strides is not None:
                share *= window(u, height, strides[0], min(4, rows / 2))
                share *= window(v, width, strides[1], min(4, columns / 2))
            cropped[..., u % rows, v % columns] += share * spectrum[..., u % height, v % width]
    pooled = np.fft.ifft2(cropped) * (rows * columns) / (height * width)
    assert np.abs(pooled.imag).max() < 1e-12
    return torch.from_numpy(pooled.real)


@sizes
def test_spectral_is_the_crop_of_numpys_transform(in_shape: Shape, out_shape: Shape) -> None:
    maps = random_maps(in_shape)
    torch.testing.assert_close(spectral(in_shape, out_shape)(maps), by_numpy(maps, out_shape))


@sizes
@pytest.mark.parametrize("strides", [(2.9, 3.7), (1.3, 40.0)])
def test_diffstride_is_the_crop_times_the_papers_window(
    in_shape: Shape, out_shape: Shape, strides: tuple[float, float]
) -> None:
    maps = random_maps(in_shape)
    pooled = diffstride(in_shape, out_shape, strides)(maps)
    torch.testing.assert_close(pooled, by_numpy(maps, out_shape, strides))


@pytest.mark.parametrize("periods", [(0, 0), (1, 0), (0, 1), (-1, 1), (2, 1), (3, 0), (-3, 1)])
def test_a_wave_below_the_new_nyquist_frequency_is_sampled_anew(periods: Shape) -> None:
    for in_shape, out_shape in [((16, 6), (8, 3)), ((13, 8), (7, 4)), ((9, 7), (9, 4))]:
        pooled = spectral(in_shape, out_shape)(cosine(in_shape, periods))
        torch.testing.assert_close(pooled, cosine(out_shape, periods))


@pytest.mark.parametrize("periods", [(5, 0), (0, 2), (7, -1), (1, 3)])
def test_a_wave_above_the_new_nyquist_frequency_leaves_nothing(periods: Shape) -> None:
    pooled = spectral((16, 6), (8, 3))(cosine((16, 6), periods))
    torch.testing.assert_close(pooled, torch.zeros_like(pooled))


@pytest.mark.parametrize("shape", [(8, 6), (5, 7), (4, 1)])
def test_a_map_of_the_wanted_size_stays_as_it_is(shape: Shape) -> None:
    maps = random_maps(shape)
    pooled = spectral(shape, shape)(maps)
    torch.testing.assert_close(pooled, maps)
    torch.testing.assert_close(spectral(shape, shape)(pooled), maps)


def test_the_window_has_the_values_computed_by_hand() -> None:
    # Down: 32 / (2 * 4) = 4 frequencies are open, then a ramp of 4. Across: 3.2, a ramp of 4.
    module = diffstride((32, 16), (16, 8), (4.0, 2.5))
    for n, share in enumerate([1, 1, 1, 1, 1, 0.75, 0.5, 0.25]):
        pooled = module(cosine((32, 16), (n, 0)))
        torch.testing.assert_close(pooled, share * cosine((16, 8), (n, 0)))
    for n, share in enumerate([1, 1, 1, 1]):
        pooled = module(cosine((32, 16), (6, n)))
        torch.testing.assert_close(pooled, 0.5 * share * cosine((16, 8), (6, n)))
    # Down: one open frequency, then a ramp of half the output's four.
    small = diffstride((8, 8), (4, 4), (4.0, 8.0))
    torch.testing.assert_close(small(cosine((8, 8), (1, 0))), cosine((4, 4), (1, 0)))
    torch.testing.assert_close(small(cosine((8, 8), (1, 1))), 0.75 * cosine((4, 4), (1, 1)))


@sizes
@pytest.mark.parametrize("stride", [0.9, 0.0, -3.0])
def test_an_open_window_is_spectral_pooling_and_teaches_its_stride_nothing(
    in_shape: Shape, out_shape: Shape, stride: float
) -> None:
    maps = random_maps(in_shape)
    widest = [i / o for i, o in zip(in_shape, out_shape, strict=True)]
    for strides in ([stride, stride], [0.999 * value for value in widest]):
        module = diffstride(in_shape, out_shape, strides)
        pooled = module(maps)
        torch.testing.assert_close(pooled, spectral(in_shape, out_shape)(maps))
        pooled.square().sum().backward()
        assert module.get_parameter("learned_strides").grad.tolist() == [0.0, 0.0]


def test_strides_start_where_the_ramp_crosses_the_edge_of_the_crop() -> None:
    (strides,) = baseline_pooling("diffstride", 2, (32, 8), (16, 4)).parameters()
    torch.testing.assert_close(strides.data, torch.tensor([32 / 12, 8 / 2]))
    assert [window(n, 32, 32 / 12, 4) for n in (6, 7, 8)] == [1, 0.75, 0.5]
    assert [window(n, 8, 4, 2) for n in (0, 1, 2)] == [1, 1, 0.5]


@pytest.mark.parametrize("out", range(2, 17))
def test_both_strides_learn_from_the_start_at_every_size(out: int) -> None:
    module = baseline_pooling("diffstride", 2, (2 * out, 2 * out), (out, out)).double()
    module(random_maps((2 * out, 2 * out))).square().sum().backward()
    assert (module.get_parameter("learned_strides").grad < 0).all()  # narrower, and less is left


@sizes
def test_gradient_of_strides_is_the_finite_difference(in_shape: Shape, out_shape: Shape) -> None:
    maps, weights = random_maps(in_shape), random_maps(out_shape)
    first, step = [3.3, 4.7], 1e-6

    def loss(strides: Sequence[float]) -> Tensor:
        return (diffstride(in_shape, out_shape, strides)(maps) * weights).sum()

    module = diffstride(in_shape, out_shape, first)
    (module(maps) * weights).sum().backward()
    found = module.get_parameter("learned_strides").grad
    for axis in range(2):
        up, down = (
            [s + sign * step * (i == axis) for i, s in enumerate(first)] for sign in (1, -1)
        )
        wanted = (loss(up) - loss(down)) / (2 * step)
        torch.testing.assert_close(found[axis], wanted.detach(), rtol=1e-5, atol=1e-6)
        assert (wanted != 0) == (out_shape[axis] > 1)


def test_gradient_descent_finds_the_strides_of_another_window() -> None:
    maps = random_maps((16, 16))
    wanted = diffstride((16, 16), (8, 8), (6.0, 2.5))(maps).detach()
    module = baseline_pooling("diffstride", 2, (16, 16), (8, 8)).double()
    optimizer = torch.optim.Adam(module.parameters(), lr=0.05)
    for _ in range(200):
        optimizer.zero_grad()
        (module(maps) - wanted).square().mean().backward()
        optimizer.step()
    found = module.get_parameter("learned_strides").detach()
    torch.testing.assert_close(found, torch.tensor([6.0, 2.5]).double(), atol=0.02, rtol=0)


@pytest.mark.parametrize("name", ["spectral", "diffstride"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_transforms_are_in_float32_and_the_answer_in_the_type_of_the_maps(
    name: str, dtype: torch.dtype
) -> None:
    module, maps = baseline_pooling(name, 2, (9, 6), (5, 3)), random_maps((9, 6)).to(dtype)
    wanted = module(maps.float()).to(dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        pooled = module(maps.to(memory_format=torch.channels_last))
    assert pooled.dtype == dtype
    torch.testing.assert_close(pooled, wanted)
    assert torch.equal(module(maps), module(maps))


def test_the_inverse_transform_is_given_nothing_that_it_would_have_to_ignore(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The GPU's counts an imaginary part at the highest frequency of an even size; the CPU's not.
    ends, inverse = [], torch.fft.irfft

    def watched(spectrum: Tensor, n: int, dim: int, norm: str) -> Tensor:
        ends.append(spectrum.imag.index_select(dim, torch.tensor([0, n // 2])))
        return inverse(spectrum, n=n, dim=dim, norm=norm)

    monkeypatch.setattr(torch.fft, "irfft", watched)
    spectral((16, 8), (8, 4))(random_maps((16, 8)))
    assert len(ends) == 2 and all((part == 0).all() for part in ends)


@pytest.mark.parametrize("name", ["spectral", "diffstride"])
def test_an_empty_batch_gives_an_empty_one(name: str) -> None:
    pooled = baseline_pooling(name, 2, (8, 6), (4, 3), components=2)(torch.zeros(0, 2, 8, 6))
    assert pooled.shape == (0, 4, 4, 3)
