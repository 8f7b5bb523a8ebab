"""The replaced layers as a small adapter on disk, for a fresh network of the same kind.

What is no adapter, or one for another network, is in test_adapter_refusals.py.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import foveapool as fp
from foveapool import ClosedFormPooling, LinearPool2d, replace, restore
from foveapool.pooling.storage import load_tensors, save_tensors

from .adapters import CONFIG, LAYERS, WEIGHTS, fitted, modes, saved
from .toys import MAIN, SHORTCUT, anatomy, loader, pictures, toy
from .zoo import NETWORKS, answer, batches, images, network


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


@modes
@pytest.mark.parametrize("trainable", [True, False])
def test_a_fresh_network_with_the_adapter_gives_the_same_output(tmp_path, mode, trainable):
    model = saved(tmp_path / "deep" / "adapter", mode, trainable=trainable)
    fresh = toy()
    before = anatomy(fresh)
    done = fp.load(fresh, tmp_path / "deep" / "adapter")
    assert torch.equal(fresh(pictures()), model(pictures()))
    assert list(fresh.state_dict()) == list(model.state_dict())
    assert [change.names for change in done.changes] == [(name,) for name in LAYERS]
    count = sum(p.numel() for p in fresh.parameters())
    assert done.parameters == (sum(p.numel() for p in toy().parameters()), count)
    assert fresh.pool.pool.trainable == trainable
    restore(fresh)
    assert anatomy(fresh) == before


def test_two_files_and_a_card_hold_it_and_one_can_be_read_by_eye(tmp_path):
    saved(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["README.md", CONFIG, WEIGHTS]
    config = json.loads((tmp_path / CONFIG).read_text())
    assert config["kind"] == "foveapool adapter"
    assert [layer["names"] for layer in config["layers"]] == [[name] for name in LAYERS]
    assert config["layers"][0]["original"] == {
        "kind": "Conv2d",
        "in_channels": 4,
        "out_channels": 8,
        "groups": 1,
        "bias": True,
        "kernel_size": [3, 3],
        "stride": [2, 2],
    }


@pytest.mark.parametrize("trainable", [True, False])
def test_branches_with_equal_operators_share_one_on_disk_and_nothing_afterwards(
    tmp_path, trainable
):
    saved(tmp_path / "both", layers=[MAIN, SHORTCUT], trainable=trainable)
    saved(tmp_path / "one", layers=[MAIN])
    # Two components of 16 x 64 numbers, and a few hundred bytes of names.
    assert 0 < size(tmp_path / "both") - size(tmp_path / "one") < 2 * 16 * 64 * 4 // 2
    fresh = toy()
    fp.load(fresh, tmp_path / "both")
    main, shortcut = fresh.block.main.pool, fresh.block.shortcut.pool
    assert torch.equal(main.weight, shortcut.weight)
    assert main.weight.data_ptr() != shortcut.weight.data_ptr()


def test_branches_that_were_trained_apart_travel_apart(tmp_path):
    model = fitted(layers=[MAIN, SHORTCUT], trainable=True)
    with torch.no_grad():
        model.block.shortcut.pool.weight *= 2
    fp.save(model, tmp_path)
    fresh = toy()
    fp.load(fresh, tmp_path)
    assert torch.equal(fresh(pictures()), model(pictures()))


def test_adapters_of_earlier_versions_can_be_loaded(tmp_path):
    """They said less of the layers, and their branches shared one pooling."""
    model = saved(tmp_path, layers=[MAIN, SHORTCUT])
    tensors, header = load_tensors(tmp_path / WEIGHTS, "adapter")
    for layer in header["layers"]:
        assert layer["pool"] == "pool.0"
        del layer["original"]["stride"], layer["original"]["kernel_size"]
    facts = {"layers": header["layers"]}
    save_tensors(tmp_path / WEIGHTS, "adapter", tensors, facts)
    (tmp_path / CONFIG).write_text(json.dumps({"kind": "foveapool adapter", **facts}))
    fresh = toy()
    fp.load(fresh, tmp_path)
    assert torch.equal(fresh(pictures()), model(pictures()))


def test_a_projection_that_was_saved_is_not_called_random(tmp_path):
    model = saved(tmp_path, components=1, layers=[MAIN])
    assert model.block.main.project is not None
    assert "and a 1x1 convolution (as it was saved)" in str(fp.load(toy(), tmp_path))


def test_an_adapter_is_small(tmp_path):
    model = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.Conv2d(64, 128, 3, 2, 1))
    replace(model, {"1": LinearPool2d.random((32, 32), (16, 16), 2)})
    fp.save(model, tmp_path)
    assert size(tmp_path) < 5e6


def test_projections_travel_even_those_of_layers_with_odd_names(tmp_path):
    model = nn.ModuleDict({"pool": nn.ModuleDict({"0": nn.Conv2d(3, 5, 2, 2)})})
    replace(model, {"pool.0": LinearPool2d.random((8, 8), (4, 4))})
    fp.save(model, tmp_path)
    fresh = nn.ModuleDict({"pool": nn.ModuleDict({"0": nn.Conv2d(3, 5, 2, 2)})})
    fp.load(fresh, tmp_path)
    assert torch.equal(fresh["pool"]["0"](pictures()), model["pool"]["0"](pictures()))


@modes
def test_every_number_of_a_double_network_travels(tmp_path, mode):
    model = fitted(mode, trainable=True).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += torch.rand_like(parameter) * 1e-3
    fp.save(model, tmp_path)
    fresh = toy().double()
    restored = {
        k: v for k, v in model.state_dict().items() if ".pool." not in k and "project" not in k
    }
    fp.load(fresh, tmp_path)
    fresh.load_state_dict(restored, strict=False)
    assert torch.equal(fresh(pictures().double()), model(pictures().double()))


def test_how_to_take_other_sizes_travels_too(tmp_path):
    model = saved(tmp_path, on_resize="interpolate")
    fresh = toy()
    fp.load(fresh, tmp_path)
    assert torch.equal(fresh(pictures(2, 12)), model(pictures(2, 12)))


def test_poolings_without_a_stride_of_their_own_find_theirs_again(tmp_path):
    def make() -> nn.Module:
        return nn.Sequential(nn.AdaptiveAvgPool2d((3, 4)), nn.Flatten())

    model, fresh = make(), make()
    ClosedFormPooling().fit(model, loader(), "0", "after").replace(model)
    fp.save(model, tmp_path)
    fp.load(fresh, tmp_path)
    assert torch.equal(fresh(pictures()), model(pictures()))


def test_an_optimizer_follows(tmp_path):
    saved(tmp_path, trainable=True, components=1, layers=[MAIN, SHORTCUT])
    fresh = toy()
    optimizer = torch.optim.SGD(fresh.parameters(), 0.1)
    groups = [id(p) for p in optimizer.param_groups[0]["params"]]
    fp.load(fresh, tmp_path, optimizer=optimizer)
    held = {id(p) for p in optimizer.param_groups[0]["params"]}
    assert held == {id(p) for p in fresh.parameters()}
    restore(fresh, optimizer=optimizer)
    assert [id(p) for p in optimizer.param_groups[0]["params"]] == groups


def test_a_layer_with_several_names_travels(tmp_path):
    def make() -> nn.Module:
        pool = nn.MaxPool2d(2)
        return nn.Sequential(pool, nn.ReLU(), pool)

    model, fresh = make(), make()
    replace(model, {"0": LinearPool2d.average((8, 8), (4, 4))}, on_resize="interpolate")
    fp.save(model, tmp_path)
    fp.load(fresh, tmp_path)
    assert fresh[0] is fresh[2] and torch.equal(fresh(pictures()), model(pictures()))


def test_networks_of_other_makes_get_their_adapter_back(tmp_path):
    model, fresh = (network(NETWORKS["mobilenet-v1"]) for _ in range(2))
    names = [found.name for found in fp.downsampling_layers(model, images(1)[0])]
    ClosedFormPooling().fit(model, batches(), names).replace(model)
    fp.save(model, tmp_path)
    fp.load(fresh, tmp_path)
    assert torch.equal(answer(fresh, images(2)[0]), answer(model, images(2)[0]))
    assert size(tmp_path) < 5e6
