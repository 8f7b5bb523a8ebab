"""Studies: what their arms become, and that an impossible one is known at once."""

from dataclasses import replace

import pytest

from foveapool.study.search import Search, Selection
from foveapool.study.setting import Pool, Setting
from foveapool.study.study import Arm, Study
from foveapool.training.recipe import Recipe

from .small_studies import SOURCE, tables_of

RECIPE = Recipe("adam", 1e-3, 2)
CNN, RESNET = Setting(width=4), Setting(network="resnet18", width=4)


def study(*arms, network=CNN, searches=(), **more):
    return Study("s", SOURCE, RECIPE, network, tuple(searches), tuple(arms), **more)


def rehearsed(study, errors):
    """What a study asks for in each stage, where a training errs as `errors(training)` says."""
    asked = {"search": [], "trials": []}
    rest = dict.fromkeys(("seconds", "fit_seconds", "parameters", "multiply_adds"), 1.0)
    rest |= {"loss": 0.1, "alphas": {}, "hardware": "h", "torch": "t", "commit": "c"}

    def run(stage, trainings):
        asked[stage] += trainings
        return {each.name: {"error": errors(each), **rest} for each in trainings}

    return tables_of(study, run), asked


def test_an_arm_is_the_network_with_its_pooling():
    assert Arm("baseline").setting(CNN) == CNN
    placed = Arm("closed-form", {"layer": 2, "alpha": 5, "placement": "before"}).setting(RESNET)
    assert placed.pools == (Pool("closed-form", 2, 5),) and placed.placement == "before"


def test_an_arm_without_a_layer_takes_the_place_that_the_search_found():
    pools = (Pool("closed-form", 3, 5), Pool("closed-form", 1, 65, "l1"))
    best = Setting(pools, "resnet18", 4, "shortcut")
    arm = Arm("closed-form-trained", {"weighting": "frequency"})
    found = arm.setting(RESNET, Selection(best, ()))
    assert found.placement == "shortcut"
    assert [(p.pooling, p.layer, p.alpha, p.norm, p.weighting) for p in found.pools] == [
        ("closed-form-trained", 3, 5, "l2", "frequency"),
        ("closed-form-trained", 1, 65, "l1", "frequency"),
    ]


def test_a_study_searches_then_tries_every_arm_with_every_seed():
    searches = (
        Search(alphas=(5, 25), norms=("l2",), parts=2),
        Search("sgd", parts=2),
    )
    arms = [Arm(name) for name in ("baseline", "closed-form", "closed-form-trained", "sgd")]

    def errors(training):
        pools = training.setting.pools
        return abs(pools[0].layer - 2) + (pools[0].alpha == 25) if pools else 5.0

    tables, asked = rehearsed(study(*arms, searches=searches, seeds=3), errors)
    assert len(asked["search"]) == 3 * 2 * 2 + 3 * 2
    assert all(each.part is not None for each in asked["search"])
    assert all(each.part is None for each in asked["trials"])
    found = [(each.setting.pooling, each.seed, each.setting.pools) for each in asked["trials"]]
    assert [each[:2] for each in found] == [(arm.pooling, s) for arm in arms for s in range(3)]
    assert found[3][2] == (Pool("closed-form", 2, 5),)
    assert found[6][2] == (Pool("closed-form-trained", 2, 5),)
    assert found[9][2] == (Pool("sgd", 2),)
    assert len(tables.selection) == 6 + 3
    assert {row.study for row in tables.rows} == {"s"}


def test_a_closed_form_that_is_trained_on_uses_the_search_of_the_closed_form_and_others_do_not():
    searches = (Search(), Search("sgd"))
    both = study(Arm("closed-form-trained"), Arm("sgd"), searches=searches)
    assert [both.search_for(arm).pooling for arm in both.arms] == ["closed-form", "sgd"]


def test_an_arm_with_a_search_of_its_own_takes_its_own():
    searches = (
        Search(layers=(1,), alphas=(5,), norms=("l1",), parts=1),
        Search("closed-form-trained", layers=(3,), alphas=(65,), norms=("l2",), parts=1),
    )
    arms = [Arm("closed-form-trained"), Arm("closed-form")]
    _, asked = rehearsed(study(*arms, searches=searches, seeds=1), lambda training: 1.0)
    assert [each.setting.pools for each in asked["trials"]] == [
        (Pool("closed-form-trained", 3, 65),),
        (Pool("closed-form", 1, 5, "l1"),),
    ]


def test_a_closed_form_without_a_search_of_its_own_takes_that_of_the_trained_one():
    one = study(Arm("closed-form"), searches=[Search("sgd"), Search("closed-form-trained")])
    assert one.search_for(one.arms[0]).pooling == "closed-form-trained"


@pytest.mark.parametrize(
    ("choices", "others"),
    [
        ({"layer": 3, "alpha": 25}, {"layer": 3, "alpha": 25.0}),
        ({"layer": 3}, {"layer": 3, "norm": "l2"}),
        ({"sign": "sum"}, {"sign": "sum"}),
    ],
)
def test_the_same_line_twice_is_refused(choices, others):
    arms = Arm("closed-form", choices), Arm("sgd", {"layer": 3}), Arm("closed-form", others)
    with pytest.raises(ValueError, match=r"arm closed-form: got the same line twice \(.*each once"):
        study(*arms, searches=[Search()])
    study(arms[0], Arm("closed-form-trained", others), searches=[Search()])


def test_a_line_that_only_may_become_another_one_is_its_own():
    searches = [Search(layers=(3,), alphas=(5, 25), norms=("l2",))]
    study(Arm("closed-form"), Arm("closed-form", {"alpha": 5}), searches=searches)


def test_rows_of_the_search_and_of_the_trials_call_the_data_alike():
    half = Study(
        "s",
        replace(SOURCE, share=0.5),
        RECIPE,
        CNN,
        (Search("sgd", layers=(3,), parts=1),),
        (Arm("sgd"),),
    )
    tables, _ = rehearsed(half, lambda training: 1.0)
    assert {row.data for row in (*tables.selection, *tables.rows)} == {"street-digits, 50 %"}


def test_facts_are_all_that_decides_the_tables():
    one = study(Arm("baseline"), Arm("sgd", {"layer": 3}))
    assert one.facts() == study(Arm("baseline"), Arm("sgd", {"layer": 3})).facts()
    assert one.facts() != study(Arm("baseline"), Arm("sgd", {"layer": 2})).facts()
    assert one.facts() != study(*one.arms, seeds=4).facts()


@pytest.mark.parametrize(
    ("arms", "more", "message"),
    [
        ([Arm("closed-form")], {}, r"arm closed-form: got no layer, and no search for it"),
        ([Arm("sgd")], {"searches": [Search()]}, r"arm sgd: got no layer, and no search for it"),
        ([Arm("baseline")], {"seeds": 0}, r"seeds: got 0, wanted a whole number, 1 or more"),
        ([Arm("baseline")], {"seeds": 2.5}, r"seeds: got 2.5, wanted a whole number, 1 or more"),
        ([Arm("baseline")], {"searches": [Search(), Search()]}, r"wanted each pooling once"),
        ([Arm("sgd", {"layer": 7})], {}, r"layer: got 7, wanted 1, 2 or 3"),
        ([Arm("sgd", {"layer": 1, "placement": "before"})], {}, r"placement: got .* for a CNN"),
        (
            [Arm("closed-form", {"layer": 1, "components": 4, "placement": "shortcut"})],
            {"network": RESNET},
            r"components: got 4 for a resnet18 with placement shortcut, wanted 2",
        ),
        (
            [Arm("baseline")],
            {"searches": [Search(placements=("before",))]},
            r"placement: got 'before' for a CNN, wanted none",
        ),
        (
            [Arm("baseline")],
            {"network": RESNET, "searches": [Search(placements=("befor",))]},
            r"placement: got 'befor', wanted one of",
        ),
        # Known now, not after the search that would find their place.
        (
            [Arm("closed-form", {"sign": "plus"})],
            {"searches": [Search()]},
            r"sign: got 'plus', wanted one of",
        ),
        (
            [Arm("closed-form", {"components": 4})],
            {"network": RESNET, "searches": [Search(placements=("before", "shortcut"))]},
            r"components: got 4 for a resnet18 with placement shortcut",
        ),
    ],
)
def test_an_impossible_study_is_refused(arms, more, message):
    with pytest.raises(ValueError, match=message):
        study(*arms, **more)


def test_an_arm_cannot_say_its_placement_and_leave_its_layer_to_the_search():
    with pytest.raises(ValueError, match=r"arm closed-form: got a placement and no layer"):
        Arm("closed-form", {"placement": "before"})


@pytest.mark.parametrize(
    ("pooling", "choices", "message"),
    [
        ("baseline", {"alpha": 1}, r"arm baseline: got alpha, wanted none, since it has nothing"),
        ("baseline", {"layer": 3}, r"arm baseline: got layer, wanted none"),
        (
            "max",
            {"layer": 3, "alpha": 5, "norm": "l1"},
            r"arm max: got alpha, norm, wanted among layer, components, "
            r"form, placement, layers, beside, then; give",
        ),
    ],
)
def test_an_arm_cannot_say_what_its_pooling_does_not_use(pooling, choices, message):
    with pytest.raises(ValueError, match=message):
        Arm(pooling, choices)


@pytest.mark.parametrize("name", [".", "..", ""])
def test_a_name_that_would_be_another_folder_is_refused(name):
    with pytest.raises(ValueError, match=r"name: got '\.*', wanted one with a letter or a digit"):
        Study(name, SOURCE, RECIPE)


def test_the_settings_are_those_of_the_searches_and_of_the_arms():
    search = Search(layers=(2, 3), alphas=(5,), norms=("l2",))
    arms = (
        Arm("baseline"),
        Arm("closed-form-trained", {"components": 4}),
        Arm("max", {"layer": 1}),
    )
    found = [each.pools for each in study(*arms, searches=(search,)).settings()]
    assert found == [
        (Pool("closed-form", 2, 5),),
        (Pool("closed-form", 3, 5),),
        (),
        (Pool("closed-form-trained", 2, 5, components=4),),
        (Pool("closed-form-trained", 3, 5, components=4),),
        (Pool("max", 1),),
    ]
