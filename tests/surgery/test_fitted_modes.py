"""Fitted poolings know the mode they were fitted for, and `replace` follows it."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from foveapool import ClosedFormPooling, LinearPool2d, downsampling_layers, replace, restore

from .toys import MAIN, POOL, SHORTCUT, anatomy, loader, pictures, toy

modes = pytest.mark.parametrize("mode", ["replace", "after"])


@modes
def test_fitted_poolings_go_where_they_were_fitted(mode):
    model, twin = toy(), toy()
    fit = ClosedFormPooling().fit(model, loader(), POOL, mode)
    fit.replace(twin)
    done = replace(model, fit.modules(trainable=True))
    assert [change.new.role.mode for change in done.changes] == [mode]
    assert torch.equal(model(pictures()), twin(pictures()))


def test_behind_a_layer_without_a_stride_they_know_the_maps_that_it_read():
    def network():
        torch.manual_seed(0)
        head = (nn.Flatten(), nn.Linear(6 * 9, 3))
        return nn.Sequential(nn.Conv2d(3, 6, 3), nn.AdaptiveAvgPool2d(3), *head)

    model, twin = network(), network()
    # 14 x 14 in, 3 x 3 out: steps of 5, as no other size would tell.
    images, labels = torch.randn(60, 3, 16, 16), torch.arange(60) % 3
    fit = ClosedFormPooling().fit(model, [(images, labels)], "1", "after")
    fit.replace(twin)
    (change,) = replace(model, fit.modules()).changes
    assert change.new.stage.steps == (5, 5)
    assert torch.equal(model(images), twin(images))


@modes
@pytest.mark.parametrize(
    "handed_on",
    [
        lambda fit: {POOL: fit.module()},
        lambda fit: {POOL: fit.module(POOL, trainable=True)},
        lambda fit: copy.deepcopy(fit.modules()),
        lambda fit: {POOL: fit.module().resized((4, 4))},
    ],
    ids=["the only one", "by name", "a copy", "resized"],
)
def test_the_other_mode_is_refused_and_nothing_is_changed(mode, handed_on):
    model = toy()
    pools = handed_on(ClosedFormPooling().fit(model, loader(), POOL, mode))
    before = anatomy(model)
    other = "replace" if mode == "after" else "after"
    with pytest.raises(ValueError, match=f"mode: got '{other}' for pool, wanted '{mode}', which"):
        replace(model, pools, mode=other)
    assert anatomy(model) == before
    assert replace(model, pools, mode=mode).changes[0].new.role.mode == mode


def test_poolings_of_two_modes_can_go_in_together():
    model = toy()
    behind = ClosedFormPooling().fit(model, loader(), POOL, "after").modules()
    instead = ClosedFormPooling().fit(model, loader(), MAIN).modules()
    done = replace(model, behind | instead)
    assert {change.names: change.new.role.mode for change in done.changes} == {
        (POOL,): "after",
        (MAIN,): "replace",
    }


def test_layers_can_be_given_as_they_were_listed():
    model = toy()
    found = downsampling_layers(model, pictures())
    assert list(ClosedFormPooling().fit(model, loader(), found[0]).operators_) == [MAIN]
    every = ClosedFormPooling().fit(model, loader(), found)
    assert list(every.operators_) == [MAIN, SHORTCUT, POOL]


def test_a_size_may_be_told_by_the_end_of_a_name():
    model = nn.Sequential(nn.Sequential(nn.Conv2d(3, 6, 3), nn.AdaptiveAvgPool2d(3)))
    pool = LinearPool2d.average((15, 15), (3, 3))
    (change,) = replace(model, {"1": pool}, mode="after", in_shapes={"1": (14, 14)}).changes
    assert change.new.stage.steps == (5, 5)
    restore(model)
    with pytest.raises(ValueError, match=r"in_shapes: got '0.0', wanted a layer that gets"):
        replace(model, {"1": pool}, mode="after", in_shapes={"0.0": (14, 14)})
