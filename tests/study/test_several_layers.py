"""Arms with more than one pooling: `then` says what follows at other layers."""

import pytest

from foveapool.study.presets import read_preset
from foveapool.study.rows import setting_columns
from foveapool.study.search import Search, Selection
from foveapool.study.setting import Pool, Setting
from foveapool.study.study import Arm, Study
from foveapool.training.recipe import Recipe

from .small_studies import SOURCE

RESNET = Setting(network="resnet18", width=4)


def test_what_follows_is_as_at_the_first_layer_where_it_says_nothing_else():
    first = {"layer": 3, "alpha": 15, "weighting": "frequency", "placement": "shortcut"}
    arm = Arm("closed-form", {**first, "then": [{"layer": 1, "alpha": 65, "norm": "l1"}]})
    found = arm.setting(RESNET)
    assert found.placement == "shortcut"
    assert found.pools == (
        Pool("closed-form", 3, 15, "l2", weighting="frequency"),
        Pool("closed-form", 1, 65, "l1", weighting="frequency"),
    )
    # The second is fitted on the network that was trained with the first.
    assert found.fitted_on == Arm("closed-form", first).setting(RESNET)


def test_lists_make_lines_and_what_follows_is_the_same_in_each(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        '[data]\nname = "cifar10"\n[[arm]]\npooling = ["closed-form", "closed-form-trained"]\n'
        "layer = 3\nalpha = [5, 25]\nthen = [{ layer = 2 }, { layer = 1, alpha = 65 }]\n"
    )
    study = read_preset(str(path))
    pools = [arm.setting(study.network).pools for arm in study.arms]
    assert [[(each.layer, each.alpha) for each in line] for line in pools] == 2 * [
        [(3, 5), (2, 5), (1, 65)],
        [(3, 25), (2, 25), (1, 65)],
    ]
    assert study.facts()["arms"][0]["then"] == [{"layer": 2}, {"layer": 1, "alpha": 65}]


def test_the_papers_two_layers_are_a_preset():
    study = read_preset("robustness-resnet18-two")
    first, both = (arm.setting(study.network) for arm in study.arms[1:])
    pools = both.pools
    assert [(p.layer, p.alpha, p.norm) for p in pools] == [(3, 15, "l2"), (1, 65, "l1")]
    # The line of the first layer alone costs nothing: the second is fitted on that network.
    assert both.fitted_on == first


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"layer": 3, "then": {"layer": 1}}, "then: got {'layer': 1}, wanted a list of tables"),
        ({"layer": 3, "then": [1]}, "then: got [1], wanted a list of tables"),
        ({"then": [{"layer": 1}]}, "got then and no layer"),
        ({"layer": 3, "then": [{"layer": 1, "placement": "both"}]}, "then: got placement, wanted"),
        ({"layer": 3, "then": [{"layer": 1, "then": []}]}, "then: got then, wanted"),
        ({"layer": 3, "then": [{"layer": 1, "alfa": 5}]}, "then: got alfa, wanted among layer"),
    ],
)
def test_what_cannot_follow_is_refused(choices, message):
    with pytest.raises(ValueError, match="arm closed-form: ") as caught:
        Arm("closed-form", choices)
    assert message in str(caught.value)


@pytest.mark.parametrize("then", [[{"layer": 3}], [{"alpha": 65}]])
def test_a_layer_has_one_pooling(then):
    arm = Arm("closed-form", {"layer": 3, "alpha": 5, "then": then})
    with pytest.raises(ValueError, match=r"got the layers \[3, 3\], wanted each at most once"):
        Study("s", SOURCE, Recipe("adam", 1e-3, 2), arms=(arm,))


def test_arms_that_differ_in_which_layer_has_a_choice_are_told_apart():
    frequency, balanced = {"weighting": "frequency"}, {"weighting": "balanced"}
    first = {"layer": 3, "alpha": 5}
    arms = (
        Arm("closed-form", {**first, **frequency, "then": [{"layer": 1, **balanced}]}),
        Arm("closed-form", {**first, "then": [{"layer": 1, **frequency}]}),
        Arm("closed-form", {**first, **frequency, "then": [{"layer": 1}]}),
    )
    recipe = Recipe("adam", 1e-3, 2)
    places = [setting_columns(arm.setting(RESNET), recipe) for arm in arms]
    assert [each["pooling"] for each in places] == [
        "closed-form, weighting frequency at layer 3",
        "closed-form, weighting frequency at layer 1",
        "closed-form, weighting frequency",
    ]
    # Only that tells them apart.
    assert len({tuple({**each, "pooling": ""}.items()) for each in places}) == 1


def test_a_searched_arm_may_say_that_nothing_follows():
    search = Search("closed-form", layers=(3,), alphas=(5,), norms=("l2",))
    told, untold = (Arm("closed-form", choices) for choices in ({"then": []}, {}))
    selection = Selection(search.settings(RESNET)[0], ())
    assert told.setting(RESNET, selection) == untold.setting(RESNET, selection)
    Study("s", SOURCE, Recipe("adam", 1e-3, 2), RESNET, (search,), (told,))


def test_a_pooling_that_changes_the_channels_of_a_fitted_one_is_refused():
    first = {"layer": 3, "alpha": 5}
    arm = Arm("closed-form", {**first, "then": [{"layer": 2, "components": 4}]})
    with pytest.raises(ValueError, match=r"components: got 4 at layer 2, wanted 2: layer 3 is fit"):
        Study("s", SOURCE, Recipe("adam", 1e-3, 2), arms=(arm,))
    # In the other order, or with channels as they were, it is no trouble.
    for layer, then in ((2, {"layer": 3}), (3, {"layer": 2, "components": 2})):
        arm = Arm("closed-form", {"layer": layer, "components": 4, "then": [then]})
        Study("s", SOURCE, Recipe("adam", 1e-3, 2), arms=(arm,))
