"""`replace`: which layers are meant, what stands in for them, and what is left alone."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from foveapool import LinearPool2d, baseline_pooling, replace, restore
from foveapool.surgery.wrapper import PooledLayer

from .toys import MAIN, POOL, SHORTCUT, anatomy, pictures, toy


def halving(size: int = 8, components: int = 1, trainable: bool = False) -> LinearPool2d:
    return LinearPool2d.average((size, size), (size // 2, size // 2), components, trainable)


def replaced_names(model: nn.Module) -> list[str]:
    return [name for name, module in model.named_modules() if isinstance(module, PooledLayer)]


# Which layers are meant


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        (MAIN, [MAIN]),
        ("shortcut", [SHORTCUT]),
        (r"block\..*", [MAIN, SHORTCUT]),
        ("block.(main|shortcut)", [MAIN, SHORTCUT]),
        ("pool", [POOL]),
    ],
)
def test_a_layer_is_named_in_full_or_by_its_end_or_by_a_pattern(key, meant):
    model = toy()
    done = replace(model, {key: halving(4 if key == POOL else 8)})
    assert replaced_names(model) == meant == [change.names[0] for change in done.changes]
    model(pictures())


def test_a_full_name_is_preferred_to_the_end_of_another():
    model = nn.ModuleDict({"conv": nn.Conv2d(3, 6, 2, 2)})
    model["inner"] = nn.ModuleDict({"conv": nn.Conv2d(3, 6, 2, 2)})
    replace(model, {"conv": halving()})
    assert replaced_names(model) == ["conv"]


def test_a_layer_with_several_names_is_replaced_once_under_all_of_them():
    model = nn.Sequential(nn.MaxPool2d(2), nn.ReLU())
    model.add_module("again", model[0])
    (change,) = replace(model, {"again": halving()}).changes
    assert change.names == ("0", "again") and model[0] is model[2] is change.new
    assert restore(model) == ["0", "again"]
    assert model[0] is model[2] is change.old


def network_of_equal_names() -> nn.Module:
    first = nn.ModuleDict({"convolution": nn.Conv2d(3, 3, 3, 1, 1)})
    return nn.Sequential(first, nn.ModuleDict({"convolution": nn.Conv2d(3, 6, 3, 2, 1)}))


@pytest.mark.parametrize("mode", ["replace", "after"])
@pytest.mark.parametrize("key", ["convolution", r".*convolution"])
def test_of_the_layers_that_a_key_names_those_of_stride_1_are_passed_over(key, mode):
    model = network_of_equal_names()
    replace(model, {key: halving()}, mode=mode)
    assert replaced_names(model) == ["1.convolution"]


@pytest.mark.parametrize(
    "pool", [halving(), nn.AvgPool2d(2), baseline_pooling("soft", 3, (8, 8), (4, 4))]
)
def test_layers_of_stride_1_give_way_to_a_pooling_that_shrinks_only_by_their_name(pool):
    model = network_of_equal_names()
    with pytest.raises(ValueError, match=r"shrinks maps for 0.convolution, of stride 1, wanted"):
        replace(model, {r"0\.conv.*": pool})
    replace(model, {r"0\.conv.*": nn.AvgPool2d(3, 1, 1)})
    assert replaced_names(model) == ["0.convolution"]
    restore(model)
    replace(model, {"0.convolution": pool})
    assert replaced_names(model) == ["0.convolution"]


# What stands in


@pytest.mark.parametrize("mode", ["replace", "after"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_stand_in_has_the_type_of_the_layer(dtype, mode):
    model = toy().to(dtype)
    replace(model, {SHORTCUT: halving()}, mode=mode)
    assert {tensor.dtype for tensor in model.block.shortcut.state_dict().values()} == {dtype}
    assert model(pictures().to(dtype)).dtype == dtype


def test_a_pooling_among_poolings_has_the_type_of_the_network():
    model = toy().double()
    replace(model, {POOL: halving(4)})
    assert model.pool.pool.weight.dtype == torch.float64


@pytest.mark.parametrize(("components", "projected"), [(1, True), (2, False), (3, True)])
def test_a_convolution_follows_where_the_channels_would_not_agree(components, projected):
    model = toy()
    replace(model, {MAIN: halving(8, components)})
    project = model.block.main.project
    assert (project is not None) == projected
    if projected:
        assert (project.in_channels, project.out_channels) == (4 * components, 8)
        assert project.kernel_size == (1, 1) and project.bias is not None
    assert model(pictures()).shape == (4, 3)


def test_no_bias_comes_where_there_was_none():
    model = nn.Sequential(nn.Conv2d(3, 5, 2, 2, bias=False))
    replace(model, {"0": halving()})
    assert model[0].project.bias is None


def test_in_mode_after_the_layer_works_at_stride_1_and_no_convolution_follows():
    model = toy()
    layer = model.block.main
    replace(model, {MAIN: halving()}, mode="after")
    assert layer.stride == (1, 1) and model.block.main.project is None
    wanted = nn.functional.avg_pool2d(layer(torch.ones(1, 4, 8, 8)), 2)
    torch.testing.assert_close(model.block.main(torch.ones(1, 4, 8, 8)), wanted)


def test_networks_can_read_the_settings_and_the_weights_type_of_the_old_layer():
    model = toy()
    layer = model.block.main
    for mode in ("replace", "after"):
        replace(model, {MAIN: halving()}, mode=mode)
        standin = model.block.main
        assert (standin.stride, standin.kernel_size, standin.padding) == ((2, 2), (3, 3), (1, 1))
        assert (standin.in_channels, standin.out_channels) == (4, 8)
        assert standin.weight.dtype == torch.float32
        restore(model)
    assert model.block.main.weight is layer.weight


def test_any_module_can_stand_in():
    model = toy()
    replace(model, {POOL: nn.AvgPool2d(2), MAIN: baseline_pooling("blur", 4, (8, 8), (4, 4), 2)})
    assert model(pictures()).shape == (4, 3)


def test_a_stand_in_has_the_mode_of_the_layer():
    model = toy().train()
    model.pool.eval()
    replace(model, {POOL: halving(4), MAIN: halving()})
    assert model.block.main.training and model.block.main.pool.training
    assert not model.pool.training and not model.pool.pool.training


# What is said of it


def test_what_was_changed_can_be_printed():
    model = toy()
    before = sum(p.numel() for p in model.parameters())
    main = sum(p.numel() for p in model.block.main.parameters())
    done = replace(model, {MAIN: halving(8, 1, trainable=True), POOL: halving(4)})
    own = f"parameters: {main:,} -> {sum(p.numel() for p in model.block.main.parameters()):,}"
    assert done.parameters == (before, sum(p.numel() for p in model.parameters()))
    assert str(done).splitlines() == [
        "block.main: Conv2d -> replace LinearPool2d((8, 8) -> (4, 4), components=1, "
        f"trainable=True) and a 1x1 convolution (random: it has to learn); {own}",
        "pool: MaxPool2d -> replace LinearPool2d((4, 4) -> (2, 2), components=1, "
        "trainable=False); parameters: 0 -> 0",
        f"parameters: {before:,} -> {done.parameters[1]:,}",
        f"optimizer: none was given, and {done.unfollowed:,} of these are new and want one: make "
        "yours from model.parameters() now, or pass replace(..., optimizer=...)",
    ]
    assert done.unfollowed == sum(p.numel() for p in model.block.main.parameters())
    assert "replace Conv2d" in repr(model.block.main)


def test_nothing_is_said_of_optimizers_where_nothing_new_trains_or_one_follows():
    fixed = replace(toy(), {POOL: halving(4)})
    assert fixed.unfollowed == 0 and "optimizer" not in str(fixed)
    model = toy()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    followed = replace(model, {MAIN: halving(8, 1, trainable=True)}, optimizer=optimizer)
    assert followed.unfollowed == 0 and "optimizer" not in str(followed)


# What is wrong


WRONG = {
    "no pools": ({}, {}, "pools: got none"),
    "a name near another": (
        {"block.shortcot": halving()},
        {},
        r"layer: got 'block.shortcot'.*near it are \['block.shortcut'",
    ),
    "a name near nothing": ({"xyzzy": halving()}, {}, r"model.named_modules\(\) lists them"),
    "a broken pattern": ({"block.(": halving()}, {}, r"layer: got 'block.\('"),
    "a layer that is no convolution": (
        {"norm": halving()},
        {},
        "layer: got 'norm', a BatchNorm2d, wanted a convolution or a pooling",
    ),
    "no module": ({MAIN: torch.ones(2)}, {}, "block.main: got a Tensor, wanted a pooling module"),
    "a mode": ({MAIN: halving()}, {"mode": "before"}, "mode: got 'before', wanted one of"),
    "an answer to resizing": ({MAIN: halving()}, {"on_resize": "crop"}, "on_resize: got 'crop'"),
    "two components after a layer": (
        {SHORTCUT: halving(), MAIN: halving(8, 2)},
        {"mode": "after"},
        "block.main: got a pooling with 2 components, wanted 1: in mode 'after'",
    ),
    "two components for a pooling": (
        {POOL: halving(4, 2)},
        {},
        "pool: got a pooling with 2 components, wanted 1: a MaxPool2d keeps",
    ),
    "another module after a layer": (
        {MAIN: nn.AvgPool2d(2)},
        {"mode": "after"},
        "block.main: got a AvgPool2d for mode 'after', wanted a LinearPool2d",
    ),
    "channels of another layer": (
        {MAIN: LinearPool2d(torch.ones(16, 64), torch.ones(8), in_shape=(8, 8), out_shape=(4, 4))},
        {},
        "block.main: got a pooling for 8 channels, wanted 4 in mode 'replace'",
    ),
    "channels of the other mode": (
        {MAIN: LinearPool2d(torch.ones(16, 64), torch.ones(4), in_shape=(8, 8), out_shape=(4, 4))},
        {"mode": "after"},
        "block.main: got a pooling for 4 channels, wanted 8 in mode 'after'",
    ),
    "two poolings for one layer": (
        {MAIN: halving(), "main": halving()},
        {},
        "block.main: got two poolings",
    ),
    "half a size": (
        {SHORTCUT: halving(), POOL: halving(4)},
        {"mode": "after", "in_shapes": {POOL: (4,)}},
        r"in_shapes: got \(4,\) for pool, wanted \(H, W\)",
    ),
}


@pytest.mark.parametrize(("pools", "more", "message"), WRONG.values(), ids=WRONG)
def test_nothing_is_changed_if_anything_is_wrong(pools, more, message):
    model = toy()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    before, groups = anatomy(model), copy.copy(optimizer.param_groups[0]["params"])
    with pytest.raises(ValueError, match=message):
        replace(model, pools, optimizer=optimizer, **more)
    assert anatomy(model) == before
    assert [id(p) for p in optimizer.param_groups[0]["params"]] == [id(p) for p in groups]


def test_nothing_is_changed_if_a_pooling_cannot_follow_the_network():
    class Heavy(LinearPool2d):
        def to(self, *_: object) -> LinearPool2d:
            raise MemoryError

    model = toy()
    before = anatomy(model)
    heavy = Heavy(torch.ones(4, 16), in_shape=(4, 4), out_shape=(2, 2))
    with pytest.raises(MemoryError):
        replace(model, {MAIN: halving(), POOL: heavy}, mode="after")
    assert anatomy(model) == before


def test_a_layer_cannot_be_replaced_twice():
    model = toy()
    replace(model, {MAIN: halving()})
    before = anatomy(model)
    with pytest.raises(ValueError, match=r"block.main: is replaced already; call restore\(model\)"):
        replace(model, {POOL: halving(4), MAIN: halving()})
    assert anatomy(model) == before


def test_what_is_inside_of_a_stand_in_is_not_offered():
    model = toy()
    replace(model, {MAIN: halving()}, mode="after")
    replace(model, {SHORTCUT: halving(8, 3)})
    for inside in ("layer", "project", r".*stage\.layer"):
        with pytest.raises(ValueError, match="layer: got"):
            replace(model, {inside: halving()})


@pytest.mark.parametrize("key", ["", ".*"])
def test_a_network_that_is_one_layer_has_no_place_for_another(key):
    with pytest.raises(ValueError, match="layer: got"):
        replace(nn.Conv2d(3, 6, 2, 2), {key: halving()})


def test_a_network_without_numbers_is_refused():
    model = toy().to("meta")
    with pytest.raises(ValueError, match="meta device"):
        replace(model, {MAIN: halving()})
    half = toy()
    half.head.to("meta")
    with pytest.raises(ValueError, match="meta device"):
        replace(half, {MAIN: halving()})
