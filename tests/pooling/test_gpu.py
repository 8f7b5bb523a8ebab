"""The same answers on a GPU as on the CPU; skipped where there is none."""

import pytest
import torch

import foveapool as fp

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


def maps_and_labels(offset=0.0):
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(200) % 5
    maps = torch.randn(200, 6, 16, 16, generator=generator)
    maps = torch.nn.functional.avg_pool2d(maps, 3, 1, 1)
    signal = torch.randn(5, 6, 16, 16, generator=generator)
    return maps + 0.3 * signal[labels] + offset, labels


def difference(ours, theirs):
    return float((ours.cpu() - theirs.cpu()).norm() / theirs.norm())


@pytest.mark.parametrize("offset", [0.0, 1.0, 1e4])
def test_scatter_is_the_same(offset):
    maps, labels = maps_and_labels(offset)
    cpu, gpu = (fp.compute_scatter(maps.to(d), labels.to(d)) for d in ("cpu", "cuda"))
    tolerance = 1e-6 if offset < 10 else 1e-3
    assert difference(gpu.within, cpu.within) < tolerance
    assert difference(gpu.between, cpu.between) < tolerance


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_faster_products_come_near(precision):
    maps, labels = (part.cuda() for part in maps_and_labels())
    exact = fp.compute_scatter(maps, labels)
    fast = fp.compute_scatter(maps, labels, precision=precision)
    assert 0 < difference(fast.within, exact.within) < 1e-2


@pytest.mark.parametrize("window", [None, 6])
@pytest.mark.parametrize("alpha", [1.0, 25.0, 400.0])
def test_the_operator_is_the_same_signs_included(alpha, window):
    scatter = fp.compute_scatter(*maps_and_labels())
    cpu, gpu = (
        fp.solve_pooling(scatter.to(d), (8, 8), alpha=alpha, window=window) for d in ("cpu", "cuda")
    )
    trusted = (cpu.gaps > 1e-3).all(0)
    assert trusted.float().mean() > 0.5
    assert (cpu.weight - gpu.weight.cpu())[:, trusted].abs().max() < 1e-6


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("trainable", [False, True])
def test_the_layer_is_the_same_and_keeps_to_autocast(memory_format, trainable):
    maps, labels = maps_and_labels()
    operator = fp.solve_pooling(fp.compute_scatter(maps, labels), (8, 8))
    pool = operator.module(trainable=trainable)
    wanted = pool(maps)
    x = maps.cuda().to(memory_format=memory_format)
    pool.cuda()
    assert difference(pool(x).detach(), wanted.detach()) < 1e-5
    with torch.autocast("cuda", dtype=torch.bfloat16):
        got = pool(x)
    assert got.dtype == torch.bfloat16
    assert got.is_contiguous(memory_format=memory_format)
    assert difference(got.detach().float(), wanted.detach()) < 2e-2
