"""Forms in studies: what files say of them, what searches find, how lines are told apart."""

import pytest

from foveapool.networks.sites import FORMS
from foveapool.report.describe import describe_training
from foveapool.study.presets import preset_names, read_preset
from foveapool.study.rows import setting_columns
from foveapool.study.search import Search, run_search
from foveapool.study.setting import Pool, Setting
from foveapool.study.study import Arm, Study
from foveapool.training.recipe import Recipe

from .small_studies import RECIPE, SOURCE, go_through, training

CNN, RESNET = Setting(width=4), Setting(network="resnet18", width=4)
BLUR = Pool("blur", 1)


def settings_of(folder, arms, network="cnn"):
    path = folder / "mine.toml"
    path.write_text(f'[data]\nname = "cifar10"\n[network]\nname = "{network}"\n{arms}')
    study = read_preset(str(path))
    return [arm.setting(study.network) for arm in study.arms]


def test_a_rival_stands_as_published_and_a_closed_form_as_the_paper_has_it(tmp_path):
    arms = '[[arm]]\npooling = ["blur", "diffstride", "sgd", "closed-form"]\nlayer = 3\n'
    for network, placement in (("cnn", None), ("resnet18", "both")):
        found = settings_of(tmp_path, arms, network)
        told = [(each.pools[0].form, each.pools[0].components) for each in found]
        assert told == [("after-activation", 1), ("after", 1), ("replace", 2), ("replace", 2)]
        assert {each.placement for each in found} == {placement}
    (found,) = settings_of(tmp_path, '[[arm]]\npooling = "resnet-d"\nlayer = 2\n', "resnet18")
    assert (found.placement, found.pools[0].form) == ("shortcut", "after")


def test_a_form_that_is_asked_for_brings_its_own_components_window_and_center(tmp_path):
    arms = f'[[arm]]\npooling = "closed-form"\nlayer = 3\nform = {list(FORMS)}\n'
    found = [each.pools[0] for each in settings_of(tmp_path, arms)]
    assert [(p.form, p.components, p.window, p.center) for p in found] == [
        ("replace", 2, None, "paper"),
        ("mix", 9, None, "paper"),
        ("after", 1, 2, "first"),
        ("after-activation", 1, 2, "first"),
    ]
    more = '[[arm]]\npooling = "closed-form"\nlayer = 3\nform = "after"\nwindow = ["whole", 1]\n'
    assert [each.pools[0].window for each in settings_of(tmp_path, more)] == [None, 1]


def test_layers_have_the_pooling_at_once_and_closed_forms_are_fitted_together(tmp_path):
    arms = '[[arm]]\npooling = ["closed-form", "blur"]\nform = "after"\nlayers = [1, 2, 3]\n'
    closed, blur = settings_of(tmp_path, arms)
    assert [pool.layer for pool in closed.pools] == [pool.layer for pool in blur.pools] == [1, 2, 3]
    assert [pool.together for pool in closed.pools] == [False, True, True]
    assert closed.fitted_on.pools == () and blur.fitted_on is None


def test_a_closed_form_is_fitted_on_the_network_with_what_stands_beside_it(tmp_path):
    arms = (
        '[[arm]]\npooling = "closed-form"\nform = "mix"\nlayer = 3\n'
        'beside = [{ pooling = "blur", layers = [1, 2] }]\n'
    )
    (found,) = settings_of(tmp_path, arms)
    blurred = settings_of(tmp_path, '[[arm]]\npooling = "blur"\nlayers = [1, 2]\n')[0]
    assert found.fitted_on == blurred
    assert found.pools == (*blurred.pools, Pool("closed-form", 3, form="mix"))
    # Two closed forms, one beside the other, are fitted on one network.
    (both,) = settings_of(tmp_path, arms.replace("blur", "closed-form"))
    assert both.fitted_on.pools == () and [p.form for p in both.pools] == ["replace"] * 2 + ["mix"]


def test_what_stands_beside_and_names_no_pooling_has_that_of_its_line(tmp_path):
    arms = (
        '[[arm]]\npooling = ["closed-form", "closed-form-trained", "sgd"]\n'
        'form = "mix"\nlayer = 3\n'
        'beside = [{ form = "after", layers = [1, 2] }]\n'
    )
    closed, trained, learned = settings_of(tmp_path, arms)
    for found, name in ((closed, "closed-form"), (trained, "closed-form-trained")):
        assert {(p.pooling, p.layer, p.form) for p in found.pools} == {
            (name, 1, "after"),
            (name, 2, "after"),
            (name, 3, "mix"),
        }
        assert found.fitted_on.pools == ()
    assert [(p.pooling, p.form) for p in learned.pools] == [("sgd", "after")] * 2 + [("sgd", "mix")]


def test_a_window_may_be_the_whole_map_in_every_table(tmp_path):
    arms = """[[arm]]
pooling = "closed-form"
form = "after"
window = "whole"
layer = 3
beside = [{ form = "after", layer = 2, window = "whole" }]
then = [{ layer = 1, window = "whole" }]
"""
    (found,) = settings_of(tmp_path, arms)
    assert {pool.layer: pool.window for pool in found.pools} == {1: None, 2: None, 3: None}


def test_a_shortcut_has_one_component_of_its_own_beside_nine_in_the_main_path():
    arm = Arm("closed-form", {"layer": 3, "form": "mix"})
    setting = arm.setting(RESNET)
    (pool,) = setting.pools
    assert setting.operator_names(pool) == {"main": "3", "shortcut": "3-shortcut"}
    assert [setting.components_in(pool, path) for path in ("main", "shortcut")] == [9, 1]


def test_what_follows_has_the_arms_pooling_and_what_its_own_form_wants():
    # A closed form beside a rival is put in after it, but is not what follows.
    beside = [{"pooling": "closed-form", "layer": 1}]
    arm = Arm("sgd", {"layer": 3, "beside": beside, "then": [{"layer": 2}]})
    assert [p.pooling for p in arm.setting(CNN).pools] == ["sgd", "closed-form", "sgd"]
    arm = Arm("closed-form", {"layer": 3, "alpha": 5, "then": [{"layer": 2, "form": "after"}]})
    first, then = arm.setting(CNN).pools
    assert (then.alpha, then.components, then.window) == (5, 1, 2)
    assert (first.components, first.window, then.together) == (2, None, False)
    assert arm.setting(CNN).fitted_on.pools == (first,)


SEARCH = """
[[search]]
pooling = "closed-form"
forms = ["mix", "after"]
layers = [3, [1, 2, 3]]
alphas = [0.5, "auto"]
alpha_unit = "trace"
windows = ["whole", 2]
norms = ["l2"]
parts = 1
[[arm]]
pooling = "closed-form"
"""


def test_a_search_goes_over_forms_windows_and_several_layers_at_once(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('[data]\nname = "cifar10"\n' + SEARCH)
    study = read_preset(str(path))
    found = study.searches[0].settings(study.network)
    assert len(found) == len({str(each.facts()) for each in found}) == 2 * 2 * 2 * 2
    told = {
        (tuple(pool.layer for pool in each.pools), pool.form, pool.window, pool.alpha)
        for each in found
        for pool in each.pools
    }
    layers, forms = ((3,), (1, 2, 3)), ("mix", "after")
    assert told == {
        (own, form, window, alpha)
        for own in layers
        for form in forms
        for window in (None, 2)
        for alpha in (0.5, "auto")
    }
    # "auto" is the same in either unit, and one training.
    units = {(pool.alpha, pool.alpha_unit) for each in found for pool in each.pools}
    assert units == {(0.5, "trace"), ("auto", "absolute")}


@pytest.mark.parametrize("arm", ["closed-form", "closed-form-trained", "sgd"])
def test_what_stands_beside_a_searched_pooling_stays_as_it_is(arm):
    beside = ({"pooling": "closed-form", "form": "after", "layers": [1, 2]},)
    pooling = "sgd" if arm == "sgd" else "closed-form"
    search = Search(pooling, (3,), alphas=(5,), norms=("l2",), parts=1, beside=beside)
    study = Study("s", SOURCE, Recipe("adam", 1e-3, 2), CNN, (search,), (Arm(arm),))

    def run(name, trainings):
        where = {"commit": "c", "hardware": "h", "torch": "t"}
        return {each.name: {"error": 1.0, **where} for each in trainings}

    found = go_through(run_search(search, CNN, SOURCE, study.recipe), run)
    for setting, components in (
        (Arm(arm, {"components": 4}).setting(CNN, found), 4),
        (study.settings()[-1], 2),  # what the arm may become, known before the search
    ):
        assert {pool.layer: (pool.pooling, pool.components) for pool in setting.pools} == {
            1: ("closed-form", 1),
            2: ("closed-form", 1),
            3: (arm, components),
        }


@pytest.mark.parametrize(
    ("pooling", "choices", "message"),
    [
        ("closed-form", {"form": "mix"}, r"got a form and no layer; the search finds both"),
        ("blur", {"layer": 3, "layers": [1]}, r"arm blur: got layer and layers, wanted one"),
        ("blur", {"beside": [{"pooling": "max", "layer": 1}]}, r"got beside and no layer"),
        ("blur", {"layers": []}, r"arm blur: got layers \[\], wanted a list such as \[1, 2\]"),
        ("blur", {"layers": 3}, r"arm blur: got layers 3, wanted a list"),
        (
            "blur",
            {"layer": 3, "beside": [{"layers": []}]},
            r"beside: got layers \[\], wanted a list",
        ),
        ("blur", {"layer": 3, "beside": [{"form": "after"}]}, r"wanted a layer, or layers, in it"),
        (
            "blur",
            {"layer": 3, "beside": [{"pooling": "baseline", "layer": 1}]},
            r"beside: got the pooling 'baseline', wanted one of closed-form",
        ),
        ("blur", {"layer": 3, "beside": [{"pooling": "max"}]}, r"wanted a layer, or layers, in it"),
        (
            "blur",
            {"layer": 3, "beside": [{"pooling": "max", "layer": 1, "alpha": 5}]},
            r"beside: got alpha, wanted among pooling, layer",
        ),
        ("blur", {"layer": 3, "beside": {"pooling": "max"}}, r"wanted a list of tables such as"),
    ],
)
def test_an_arm_that_makes_no_sense_is_refused(pooling, choices, message):
    with pytest.raises(ValueError, match=message):
        Arm(pooling, choices)


@pytest.mark.parametrize(
    ("network", "choices", "message"),
    [
        (CNN, {"layer": 3, "form": "befor"}, r"form: got 'befor', wanted one of replace, mix"),
        (CNN, {"layer": 3, "form": "after", "components": 2}, r"got 2 in form 'after', wanted 1"),
        (RESNET, {"layer": 3, "form": "mix", "placement": "before"}, r"got 'before' in form 'mix'"),
        (CNN, {"layers": [3, 3]}, r"got the layers \[3, 3\], wanted each at most once"),
        (
            CNN,
            {"layer": 3, "beside": [{"pooling": "blur", "layer": 3}]},
            r"got the layers \[3, 3\], wanted each at most once",
        ),
    ],
)
def test_a_setting_that_cannot_be_is_refused(network, choices, message):
    with pytest.raises(ValueError, match=message):
        Arm("closed-form", choices).setting(network)


@pytest.mark.parametrize(
    "name", [each for each in preset_names() if each.startswith(("forms", "loc", "row"))]
)
def test_all_lines_of_the_studies_of_forms_have_columns_and_names_of_their_own(name):
    study = read_preset(name)
    settings = study.settings()
    different = len({str(each.facts()) for each in settings})
    assert len({str(setting_columns(each, study.recipe)) for each in settings}) == different
    names = {study.training(each, 0).name for each in settings}
    assert len(names) == different > 3


MIX, BEHIND = Pool("closed-form", 3, form="mix"), Pool("closed-form", 3, form="after")
FIRST, SECOND = Pool("closed-form", 1, form="after"), Pool("closed-form", 2, form="after")
TOGETHER = Pool("closed-form", 2, form="after", together=True)
LAST = Pool("closed-form", 3, form="after", together=True)
APART = [
    training(*pools)
    for pools in (
        (Pool("closed-form", 3),),
        (MIX,),
        (BEHIND,),
        (Pool("closed-form", 3, form="after", window=None),),
        (Pool("closed-form", 3, form="after", window=3),),
        (Pool("closed-form", 3, form="after", center="paper"),),
        (Pool("closed-form", 3, form="after-activation"),),
        (Pool("closed-form", 3, 0.5, form="mix"),),
        (Pool("closed-form", 3, 0.5, form="mix", alpha_unit="trace"),),
        (Pool("closed-form", 3, form="mix", components=4),),
        (BLUR, MIX),
        (BLUR, BEHIND),
        (Pool("blur", 1, form="after"), MIX),
        (Pool("blur", 2), MIX),
        (BLUR, Pool("blur", 2), MIX),
        (Pool("max", 1), MIX),
        (Pool("sgd", 1), MIX),
        (Pool("sgd", 1, components=3), MIX),
        (FIRST, Pool("closed-form-trained", 3, form="mix")),
        (Pool("closed-form", 1, 5.0, form="after"), Pool("closed-form-trained", 3, form="mix")),
        (FIRST, Pool("closed-form-trained", 3, form="mix", together=True)),
        (FIRST, SECOND, BEHIND),
        (FIRST, TOGETHER, BEHIND),
        (FIRST, SECOND, LAST),
        (FIRST, TOGETHER, LAST),
        (Pool("sgd", 3, form="after"), Pool("sgd", 1)),
        (Pool("sgd", 3), Pool("sgd", 1, form="after")),
    )
]
APART += [
    training(*pools, network="resnet18", placement=placement)
    for placement in ("both", "shortcut")
    for pools in (
        (MIX,),
        (BLUR, MIX),
        (Pool("blur", 1, placement="main"), MIX),
        (BLUR, Pool("closed-form", 3, form="mix", placement="main")),
        (Pool("blur", 1), Pool("blur", 2, placement="main")),
        (Pool("blur", 1, placement="main"), Pool("blur", 2)),
    )
]


def test_trainings_that_differ_in_form_neighbors_or_layers_are_told_apart():
    assert len({each.name for each in APART}) == len(APART)
    columns = [str(setting_columns(each.setting, RECIPE)) for each in APART]
    words = [each.setting.network + describe_training(each.facts) for each in APART]
    for told in (columns, words):
        assert sorted(told) == sorted(set(told))


@pytest.mark.parametrize(
    ("pools", "label"),
    [
        ((MIX,), "closed-form"),
        ((BLUR, Pool("blur", 2), MIX), "closed-form, beside blur, after-activation, at 1, 2"),
        ((Pool("blur", 1, form="replace"), MIX), "closed-form, beside blur at 1"),
        ((FIRST, TOGETHER, LAST), "closed-form, window 2, fitted together"),
        (
            (FIRST, TOGETHER, BEHIND),
            "closed-form, window 2, layers 1, 2 fitted together",
        ),
        (
            (Pool("closed-form", 1, 5.0, "l1"), Pool("closed-form-trained", 3)),
            "closed-form-trained, beside closed-form, alpha 5, l1, at 1",
        ),
    ],
)
def test_a_label_says_what_stands_beside(pools, label):
    assert setting_columns(Setting(pools), RECIPE)["pooling"] == label


def test_columns_are_of_the_pooling_that_the_line_is_called_after():
    found = setting_columns(
        Setting((BLUR, Pool("closed-form", 3, 0.5, form="mix", alpha_unit="trace"))), RECIPE
    )
    assert {key: found[key] for key in ("layer", "form", "alpha", "components")} == {
        "layer": "3",
        "form": "mix",
        "alpha": "0.5 trace(B)/N",
        "components": "9",
    }
