"""The same on a GPU as on the CPU; skipped where there is none."""

from __future__ import annotations

import pytest
import torch

import foveapool as fp
from foveapool import ClosedFormPooling, capture, replace, restore

from .toys import MAIN, POOL, SHORTCUT, anatomy, loader, pictures, toy

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
LAYERS = [MAIN, SHORTCUT, POOL]
modes = pytest.mark.parametrize("mode", ["replace", "after"])


@pytest.fixture(autouse=True)
def exact():
    """Convolutions in float32, as on the CPU."""
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield


@modes
def test_maps_come_from_where_the_network_is(mode):
    model = toy().cuda()
    before = anatomy(model)
    there = capture(model, loader(), LAYERS, mode=mode)
    here = capture(toy(), loader(), LAYERS, mode=mode)
    for (ours, batch), (wanted, _) in zip(there, here, strict=True):
        assert batch.labels.is_cuda and all(maps.is_cuda for maps in ours.values())
        for name in LAYERS:
            torch.testing.assert_close(ours[name].cpu(), wanted[name], rtol=1e-4, atol=1e-5)
    assert anatomy(model) == before


@modes
def test_a_fit_on_the_gpu_is_the_fit_on_the_cpu(mode):
    model = toy().cuda()
    fit = ClosedFormPooling().fit(model, loader(), LAYERS, mode)
    wanted = ClosedFormPooling().fit(toy(), loader(), LAYERS, mode)
    for name in LAYERS:
        trusted = (wanted.operators_[name].gaps > 1e-2).all(0)
        ours, theirs = (each.operators_[name].weight.cpu()[:, trusted] for each in (fit, wanted))
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-3)
    fit.replace(model)
    assert model(pictures().cuda()).is_cuda


def test_mixings_on_the_gpu_are_those_on_the_cpu():
    model, both = toy().cuda(), [MAIN, SHORTCUT]
    fit = ClosedFormPooling(components=1).fit(model, loader(), both, "mix")
    wanted = ClosedFormPooling(components=1).fit(toy(), loader(), both, "mix")
    for name in both:
        ours, theirs = fit.mixings_[name], wanted.mixings_[name]
        assert ours.weight.is_cuda and abs(ours.explained - theirs.explained) < 1e-3
    fit.replace(model, trainable=True)
    model(pictures().cuda()).sum().backward()
    assert model.block.main.mixing.weight.grad.is_cuda
    restore(model)
    ClosedFormPooling().fit(model, loader(), both, "mix", mixing="random").replace(model)
    assert model(pictures().cuda()).is_cuda


def test_autocast_gives_maps_of_its_type_and_a_fit():
    model = toy().cuda()
    maps, _ = next(capture(model, loader(), POOL, autocast=torch.bfloat16))
    assert maps[POOL].dtype == torch.bfloat16
    ClosedFormPooling().fit(model, loader(), LAYERS, autocast=torch.bfloat16)


@modes
def test_a_network_moves_with_what_stands_in_and_what_comes_back(mode):
    model, fit = toy(), ClosedFormPooling().fit(toy(), loader(), LAYERS, mode)
    wanted = model(pictures())
    fit.replace(model, on_resize="interpolate")
    small, large = model(pictures()), model(pictures(2, 12))
    model.cuda()
    torch.testing.assert_close(model(pictures().cuda()).cpu(), small, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(model(pictures(2, 12).cuda()).cpu(), large, rtol=1e-4, atol=1e-4)
    restore(model)
    assert all(tensor.is_cuda for tensor in model.state_dict().values())
    torch.testing.assert_close(model(pictures().cuda()).cpu(), wanted, rtol=1e-4, atol=1e-4)


def test_a_network_moves_with_a_pooling_that_has_no_numbers():
    model = toy()
    replace(model, {MAIN: fp.baseline_pooling("average", 4, (8, 8), (4, 4), 2)})
    model.cuda()
    restore(model)
    assert model(pictures().cuda()).is_cuda


@modes
def test_a_stopped_fit_goes_on_and_adapters_travel_between_devices(tmp_path, mode, monkeypatch):
    monkeypatch.setattr("foveapool.surgery.passes.SAVE_SECONDS", -1.0)
    model = toy().cuda()

    def stop(now: fp.Progress) -> None:
        if (now.number, now.batches) == (2, 2):
            raise KeyboardInterrupt

    wanted = ClosedFormPooling().fit(model, loader(), LAYERS, mode)
    with pytest.raises(KeyboardInterrupt):
        ClosedFormPooling().fit(model, loader(), LAYERS, mode, progress=stop, resume=tmp_path / "s")
    fit = ClosedFormPooling().fit(model, loader(), LAYERS, mode, resume=tmp_path / "s")
    for name in LAYERS:
        assert torch.equal(fit.operators_[name].weight, wanted.operators_[name].weight)
    fit.replace(model)
    fp.save(model, tmp_path / "adapter")
    fresh = toy()
    fp.load(fresh, tmp_path / "adapter")
    ours, theirs = fresh(pictures()), model(pictures().cuda()).cpu()
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_the_default_compiler_follows_on_the_gpu():
    torch.compiler.reset()
    model = toy().cuda()
    ClosedFormPooling().fit(model, loader(), [MAIN, POOL], "after").replace(model)
    compiled = torch.compile(model)
    maps = pictures().cuda()
    with torch.no_grad():
        torch.testing.assert_close(compiled(maps), model(maps), rtol=1e-4, atol=1e-4)
    found, _ = next(capture(compiled, loader(), SHORTCUT))
    assert found[SHORTCUT].is_cuda
