"""Trainings in words: those of one study that are no seeds of each other have different ones."""

from dataclasses import replace

import pytest

from foveapool.report.describe import describe_training
from foveapool.study.setting import Pool, Setting
from foveapool.study.spec import Source, TrainingSpec
from foveapool.training.recipe import Recipe

from .unusual_poolings import UNUSUAL

POOL = Pool("closed-form", 3)
RECIPE, SVHN = Recipe("sgd", 0.1, 2), Source("svhn")


def describe(setting, recipe=RECIPE, source=SVHN):
    return describe_training(TrainingSpec(setting, source, recipe, 0).facts)


def words(pool=POOL, recipe=RECIPE, source=SVHN, **setting):
    return describe(Setting((pool,), **setting), recipe, source)


def test_what_goes_without_saying_is_not_said():
    assert words() == "closed form, layer 3, alpha auto, l2"
    assert describe(Setting()) == "strided convolution"


def test_layers_of_one_pooling_name_it_once():
    pools = (POOL, replace(POOL, layer=2, alpha=65, norm="l1"))
    two = describe(Setting(pools))
    assert two == "closed form, layer 3, alpha auto, l2; layer 2, alpha 65, l1"
    pools = (POOL, Pool("average", 2, form="replace"))
    other = describe(Setting(pools))
    assert other == "closed form, layer 3, alpha auto, l2; average, layer 2"


def test_a_form_that_keeps_the_convolution_and_placements_that_differ_are_told_by_layer():
    pools = (Pool("blur", 1), Pool("closed-form", 3, form="mix"))
    told = "BlurPool, layer 1, after-activation; closed form, layer 3, mix, alpha auto, l2"
    assert describe(Setting(pools)) == told
    resnet = Setting(pools, "resnet18", placement="main")
    assert describe(resnet) == f"{told}, main"
    pools = (pools[0], replace(pools[1], placement="shortcut"))
    apart = describe(Setting(pools, "resnet18"))
    assert apart.split("; ") == [
        "BlurPool, layer 1, after-activation, both",
        "closed form, layer 3, mix, shortcut, alpha auto, l2",
    ]


@pytest.mark.parametrize("choice", [{"components": 4}, *UNUSUAL])
def test_every_unusual_choice_is_said(choice):
    ((key, value),) = choice.items()
    assert words(replace(POOL, **choice)) == f"{words()}, {key.replace('_', ' ')} {value}"


def test_the_placement_the_rate_and_the_share_of_the_data_are_said():
    places = {"network": "resnet18", "placement": "shortcut"}
    assert words(**places) == f"{words()}, shortcut"
    trained, slow = Pool("closed-form-trained", 3), replace(RECIPE, pooling_rate=0.1)
    assert words(trained, slow) == f"{words(trained)}, pooling rate 0.1"
    assert words(source=replace(SVHN, share=0.05)) == f"{words()}, 5 % of the data"


def test_alphas_that_differ_late_are_not_one_line():
    assert words(replace(POOL, alpha=1234567.25)) != words(replace(POOL, alpha=1234567.5))
