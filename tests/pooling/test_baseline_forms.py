"""The form in which each rival is judged: one for each, and one that its module can stand in."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from foveapool.networks.sites import FORMS
from foveapool.pooling.baselines import BASELINES, PUBLISHED_FORMS, baseline_pooling, published_form

from .trained_baselines import CONVOLVING, LINEAR, NAMES


def test_every_rival_has_one_form_and_nothing_else_has() -> None:
    assert set(PUBLISHED_FORMS) == set(BASELINES)


@pytest.mark.parametrize("name", NAMES)
def test_forms_and_placements_are_known_and_have_a_source(name: str) -> None:
    found = published_form(name)
    assert found.form in FORMS and found.placement in ("both", "main", "shortcut")
    # A sentence with a year of publication.
    assert found.note.endswith(".") and any(part in found.note for part in (" 201", " 202"))


@pytest.mark.parametrize("name", NAMES)
def test_rivals_that_mix_channels_replace_the_convolution_and_others_stand_behind_it(
    name: str,
) -> None:
    replaces = published_form(name).form == "replace"
    assert replaces == (name in CONVOLVING + LINEAR)
    if not replaces:
        # Behind a convolution that has made all channels: one component, channel by channel.
        pooled = baseline_pooling(name, 3, (8, 8), (4, 4)).eval()(torch.ones(1, 3, 8, 8))
        torch.testing.assert_close(pooled, torch.ones(1, 3, 4, 4))


def test_forms_that_the_papers_tell() -> None:
    # Zhang's order is convolution, ReLU, blur; DiffStride stands before the norm.
    assert published_form("blur").form == published_form("aps").form == "after-activation"
    assert published_form("diffstride").form == "after"
    assert published_form("resnet-d").placement == "shortcut"
    assert published_form("sgd").form == "replace" and published_form("sgd").placement == "both"


def test_the_resnet_d_shortcut_is_average_pooling() -> None:
    maps = torch.randn(2, 3, 8, 8)
    pooled = baseline_pooling("resnet-d", 3, (8, 8), (4, 4))(maps)
    torch.testing.assert_close(pooled, nn.functional.avg_pool2d(maps, 2))


def test_unknown_names_are_refused_with_near_ones() -> None:
    with pytest.raises(ValueError, match=r"'blurr'.*did you mean 'blur'"):
        published_form("blurr")
