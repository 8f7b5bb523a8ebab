"""Settings: what they are fitted on, what makes two of them differ, and which are refused."""

from dataclasses import replace

import pytest

from foveapool.study.setting import POOLINGS, Pool, Setting, list_choices

FIRST, SECOND = Pool("closed-form", 3, 25.0), Pool("closed-form", 1, 65.0, "l1")
# Each choice as no pooling has it by itself.
OTHERS = {
    "layer": 2,
    "alpha": 5.0,
    "alpha_unit": "trace",
    "norm": "l1",
    "components": 3,
    "normalize": False,
    "weighting": "frequency",
    "center": "aligned",
    "sign": "sum",
    "class_cap": 30,
    "window": 3,
    "form": "replace",
    "placement": "main",
}


def test_a_second_pooling_is_fitted_on_the_network_with_the_first():
    both = Setting((FIRST, SECOND))
    assert both.fitted_on == Setting((FIRST,))
    assert both.fitted_on.fitted_on == Setting()
    assert Setting().fitted_on is None
    assert Setting((Pool("sgd", 3),)).fitted_on is None
    assert Setting((FIRST, Pool("average", 1))).fitted_on is None


def test_a_setting_is_called_after_its_last_pooling():
    assert Setting().pooling == "baseline"
    assert Setting((FIRST, Pool("closed-form-trained", 1))).pooling == "closed-form-trained"


@pytest.mark.parametrize(
    "setting",
    [
        Setting(),
        Setting((FIRST, SECOND), width=8),
        Setting((Pool("sgd", 2, components=1),)),
        Setting((Pool("closed-form", 3, window=2),)),
        Setting((Pool("closed-form", 2, "auto"),), "resnet18", 4, "before", {"final_norm": False}),
    ],
)
def test_facts_give_the_setting_back(setting):
    assert Setting.from_facts(setting.facts()).facts() == setting.facts()


def test_poolings_that_start_apart_have_another_name_than_those_that_did_not():
    two = Setting((Pool("sgd", 3), Pool("sgd", 2)))
    assert two.facts()["starts"] == "apart" and Setting.from_facts(two.facts()) == two
    assert "starts" not in Setting((Pool("sgd", 3), Pool("closed-form", 2))).facts()


def test_choices_that_a_pooling_does_not_use_make_no_difference():
    assert Pool("sgd", 3, 5.0, "l1").facts() == Pool("sgd", 3, 25.0).facts()
    assert Pool("closed-form", 3, 5).facts() == Pool("closed-form", 3, 5.0).facts()
    assert Pool("closed-form", 3, 5).facts() != Pool("closed-form", 3, 6).facts()
    assert Pool("closed-form", 3).alpha == "auto"
    assert "window" not in Pool("closed-form", 3).facts()  # and the names of trainings stay
    without = [Setting((), "resnet18", 64, place) for place in ("before", "shortcut", None)]
    assert len({str(each.facts()) for each in without}) == 1
    with_pool = [Setting((FIRST,), "resnet18", 64, place) for place in ("before", "shortcut")]
    assert with_pool[0].facts() != with_pool[1].facts()


def test_a_pooling_is_asked_only_for_choices_that_make_a_difference():
    assert list_choices("baseline") == ()
    for name in POOLINGS[1:]:
        plain = Pool(name, 1, 25.0, form="mix")
        used = {
            choice
            for choice, value in OTHERS.items()
            if replace(plain, **{choice: value}).facts() != plain.facts()
        }
        assert set(list_choices(name)) == used | {"layers", "beside", "then"}


def test_every_pooling_but_the_baseline_is_a_pool():
    assert [Pool(name, 1).pooling for name in POOLINGS[1:]] == list(POOLINGS[1:])


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"pooling": "sdg"}, r"pooling: got 'sdg', wanted one of closed-form, .*sgd"),
        ({"pooling": "baseline"}, r"pooling: got 'baseline', wanted one of closed-form"),
        ({"layer": 4}, r"layer: got 4, wanted 1, 2 or 3"),
        ({"layer": True}, r"layer: got True, wanted 1, 2 or 3"),
        ({"layer": 2.0}, r"layer: got 2.0, wanted 1, 2 or 3"),
        ({"alpha": True}, r"alpha: got True, wanted a positive number or 'auto'"),
        ({"alpha": 0}, r"alpha: got 0.0, wanted a positive number"),
        ({"alpha": "atuo"}, r"alpha: got 'atuo', wanted a positive number or 'auto'"),
        ({"norm": "l3"}, r"norm: got 'l3', wanted one of"),
        ({"components": 0}, r"components: got 0, wanted 1 or more, a whole number"),
        ({"components": 1.5}, r"components: got 1.5, wanted 1 or more, a whole number"),
        ({"normalize": "no"}, r"normalize: got 'no', wanted true or false"),
        ({"weighting": "equal"}, r"weighting: got 'equal', wanted one of"),
        ({"center": "left"}, r"center: got 'left', wanted one of"),
        ({"sign": "plus"}, r"sign: got 'plus', wanted one of"),
        ({"class_cap": 1}, r"class_cap: got 1, wanted a whole number, 2 or more"),
        ({"window": 0}, r"window: got 0, wanted a whole number, 1 or more"),
    ],
)
def test_a_pool_that_cannot_be_fitted_is_refused(choices, message):
    with pytest.raises(ValueError, match=message):
        Pool(**{"pooling": "closed-form", "layer": 3, **choices})


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"network": "cnm"}, r"network: got 'cnm', wanted one of.*did you mean 'cnn'"),
        ({"placement": "before"}, r"placement: got 'before' for a CNN, wanted none"),
        (
            {"network": "resnet18", "placement": "befor"},
            r"placement: got 'befor', wanted one of both, before, main, shortcut",
        ),
        ({"pools": (FIRST, FIRST)}, r"pools: got the layers \[3, 3\], wanted each at most once"),
        ({"width": 0}, r"width: got 0, wanted a whole number, 1 or more"),
        ({"width": "16"}, r"width: got '16', wanted a whole number, 1 or more"),
        ({"options": {"classes": 10}}, r"cnn: got the option 'classes', wanted none"),
        ({"options": {"final_norn": True}}, r"cnn: got the option 'final_norn'"),
        (
            {
                "network": "resnet18",
                "placement": "shortcut",
                "pools": (Pool("closed-form", 3, components=4),),
            },
            r"components: got 4 for a resnet18 with placement shortcut, wanted 2",
        ),
    ],
)
def test_an_impossible_network_is_refused(choices, message):
    with pytest.raises(ValueError, match=message):
        Setting(**choices)


def test_before_a_block_any_number_of_components_may_come():
    four = Pool("closed-form", 3, components=4)
    assert Setting((four,), "resnet18", 64, "before").pools == (four,)
    assert Setting((four,)).pools == (four,)


def test_a_placement_that_is_left_out_is_the_networks_own():
    pools = (Pool("average", 3),)
    left_out, said = Setting(pools, "resnet18"), Setting(pools, "resnet18", placement="both")
    assert left_out == said and left_out.facts() == said.facts()
    assert Setting(network="resnet18").facts()["placement"] is None
    assert Setting(pools).placement is None
