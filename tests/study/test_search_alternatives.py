"""Searches among settings that no grid has; arms that stand where another search says."""

import pytest

from foveapool.records import ERROR, VALIDATION
from foveapool.study.preflight import make_plan
from foveapool.study.presets import read_preset
from foveapool.study.search import Halving, Search, run_search
from foveapool.study.setting import Pool, Setting
from foveapool.study.study import Arm, Study, make_partial_tables
from foveapool.training.recipe import Recipe

from .small_studies import CPU, NARROW, SOURCE, conduct_study, engine, go_through, tables_of

RECIPE = Recipe("adam", 1e-3, 100)
CNN, RESNET = Setting(width=4), Setting(network="resnet18", width=4)
BLUR = {"pooling": "blur", "layers": [1, 2]}
MIX = {"layer": 3, "form": "mix"}
BLURRED = {**MIX, "beside": [BLUR]}
BEHIND = {"layers": [1, 2, 3], "form": "after-activation"}
LOOSE = {**BEHIND, "alpha": 2, "alpha_unit": "trace", "window": 3}
OWN = {**MIX, "beside": [{"layers": [1, 2], "form": "after-activation"}]}
BESIDE_FITTED = {**MIX, "beside": [{"pooling": "closed-form", "layers": [1, 2], "form": "after"}]}
TWO = {"layer": 3, "alpha": 15, "then": [{"layer": 1, "alpha": 65, "norm": "l1"}]}
ALL = (MIX, BLURRED, BEHIND, LOOSE, OWN, BESIDE_FITTED, TWO)
SHORTCUT = {"layer": 3, "form": "replace", "placement": "shortcut"}


def search_of(*also, **more):
    return Search(**{"layers": (), "parts": 1, "also": also, **more})


def study(*arms, network=CNN, searches=(), **more):
    return Study("s", SOURCE, RECIPE, network, tuple(searches), tuple(arms), **more)


def line(pooling, table, network=CNN):
    return Arm(pooling, table).setting(network)


def found_where(search, best, network=CNN):
    """The selection where one table's setting is better than all others; and what was trained."""
    wanted, asked = line(search.pooling, best, network), []

    def run(name, trainings):
        asked.append(list(trainings))
        where = {"commit": "c", "hardware": "h", "torch": "t"}
        return {t.name: {"error": float(t.setting != wanted), **where} for t in trainings}

    return go_through(run_search(search, network, SOURCE, RECIPE), run), asked


@pytest.mark.parametrize("best", ALL)
def test_a_setting_of_any_form_layers_and_neighbors_can_be_the_best(best):
    found, asked = found_where(search_of(*ALL), best)
    assert found.best == line("closed-form", best)
    assert [each.setting for each in found.candidates] == [line("closed-form", t) for t in ALL]
    assert {each.recipe.epochs for each in asked[0]} == {100}


@pytest.mark.parametrize(("best", "stay"), [(MIX, ()), (BLURRED, (1, 2)), ({"layer": 2}, (1,))])
def test_a_selection_knows_what_stands_beside_the_best_of_grid_and_tables(best, stay):
    # The grid has another neighbor than the tables.
    grid = {"layers": (2,), "alphas": ("auto",), "norms": ("l2",)}
    beside = {"pooling": "max", "layer": 1}
    search = search_of(MIX, BLURRED, beside=(beside,), **grid)
    best = {**best, "beside": [beside]} if best == {"layer": 2} else best
    found, _ = found_where(search, best)
    assert (found.best, found.beside) == (line("closed-form", best), stay)
    assert len(found.candidates) == 3


def test_tables_of_a_residual_network_say_their_placement():
    search = search_of(SHORTCUT, MIX)
    found, _ = found_where(search, SHORTCUT, RESNET)
    assert found.best.placement == "shortcut"
    assert [each.placement for each in search.settings(RESNET)] == ["shortcut", "both"]


def test_all_settings_get_a_short_look_and_the_best_few_a_whole_training():
    search = search_of(MIX, BLURRED, BEHIND, LOOSE, halving=Halving(1, 2, 0.1))
    found, asked = found_where(search, BEHIND)
    assert [(len(own), {t.recipe.epochs for t in own}) for own in asked] == [(4, {10}), (2, {100})]
    # Of those that are as good, the first goes on.
    assert {str(t.setting.facts()) for t in asked[1]} == {
        str(line("closed-form", table).facts()) for table in (BEHIND, MIX)
    }
    assert found.best == line("closed-form", BEHIND)


@pytest.mark.parametrize("arm", ["closed-form", "closed-form-trained", "sgd"])
@pytest.mark.parametrize("best", [MIX, BLURRED, BEHIND, LOOSE, OWN, TWO])
def test_arms_become_what_they_would_be_with_the_best_table_as_their_own(arm, best):
    search = search_of(*ALL)
    like = {"like": "closed-form"} if arm == "sgd" else {}
    selection, _ = found_where(search, best)
    found = Arm(arm, like).setting(CNN, selection)
    unknown = ("alpha", "alpha_unit", "norm", "window") if arm == "sgd" else ()
    own = {name: value for name, value in best.items() if name not in unknown}
    if arm == "sgd" and "then" in own:
        own["then"] = [{"layer": 1}]
    one = study(Arm(arm, like), searches=(search,))
    # Of one name, it is one training, whoever asked for it.
    assert one.training(found, 0).name == one.training(line(arm, own), 0).name


@pytest.mark.parametrize(
    "best",
    [
        SHORTCUT,
        MIX,
        {**MIX, "components": 4},
        {"layers": [2, 3], "form": "after-activation"},
        {**SHORTCUT, "beside": [BLUR]},  # which stands in both paths
    ],
)
def test_a_matrix_learned_by_sgd_has_the_place_in_a_block_that_the_search_found(best):
    selection, _ = found_where(search_of(BEHIND, best), best, RESNET)
    found = Arm("sgd", {"like": "closed-form"}).setting(RESNET, selection)
    assert found.facts() == line("sgd", {"placement": "both", **best}, RESNET).facts()


def test_closed_forms_that_stay_are_fitted_on_the_network_with_the_learned_matrix():
    selection, _ = found_where(search_of(BESIDE_FITTED), BESIDE_FITTED)
    found = Arm("sgd", {"like": "closed-form"}).setting(CNN, selection)
    assert [(p.pooling, p.layer, p.together) for p in found.pools] == [
        ("sgd", 3, False),
        ("closed-form", 1, False),
        ("closed-form", 2, True),
    ]
    assert found.fitted_on.pools == (Pool("sgd", 3, form="mix"),)


def test_a_closed_form_may_stand_where_sgd_was_best():
    search = Search("sgd", (), parts=1, also=(BEHIND, MIX))
    selection, _ = found_where(search, BEHIND)
    found = Arm("closed-form", {"like": "sgd", "alpha": 5}).setting(CNN, selection)
    assert found == line("closed-form", {**BEHIND, "alpha": 5})


def test_an_arm_that_is_like_another_may_have_components_of_its_own():
    selection, _ = found_where(search_of(BLURRED), BLURRED)
    found = Arm("sgd", {"like": "closed-form", "components": 4}).setting(CNN, selection)
    assert found == line("sgd", {**BLURRED, "components": 4})


def test_of_two_searches_an_arm_takes_the_one_that_it_says():
    searches = (Search("sgd", (1,), parts=1), search_of(MIX))
    arms = Arm("sgd"), Arm("sgd", {"like": "closed-form"})
    one = study(*arms, searches=searches)
    assert [one.search_for(arm).pooling for arm in arms] == ["sgd", "closed-form"]


def test_two_arms_that_become_one_setting_are_one_line():
    rest = dict.fromkeys(("seconds", "fit_seconds", "parameters", "multiply_adds"), 1.0)
    rest |= {"loss": 0.1, "alphas": {}, "hardware": "h", "torch": "t", "commit": "c"}

    def run(stage, trainings):
        return {t.name: {"error": float(len(t.setting.pools)), **rest} for t in trainings}

    arms = Arm("sgd", MIX), Arm("sgd", {"like": "closed-form"})
    tables = tables_of(study(*arms, searches=(search_of(MIX, BLURRED),), seeds=1), run)
    assert [row.form for row in tables.rows if row.metric == ERROR] == ["mix"]


def test_a_search_that_asks_for_nothing_new_is_the_study_that_it_was():
    old = ("pooling", "layers", "placements", "forms", "alphas", "alpha_unit", "norms")
    old += ("components", "windows", "beside", "parts", "held_out", "halving", "second_layer")
    assert tuple(Search().facts()) == old
    assert Search(halving=Halving(1, 2)).facts()["halving"] == {
        "parts": 1,
        "keep": 2,
        "epochs": 1.0,
    }
    different = [Search(), Search(also=(MIX,)), Search(also=(BLURRED,)), Search(epochs=0.5)]
    facts = [str(study(searches=(each,)).facts()) for each in different]
    assert len(set(facts)) == len(facts)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"also": ()}, r"search: layers: got \(\), wanted a list of one or more"),
        ({"also": MIX}, r"search: also: got \{.*wanted a list of tables such as \[\{ layer = 3"),
        ({"also": (3,)}, r"search: also: got \(3,\), wanted a list of tables"),
        ({"also": ({"form": "mix"},)}, r"also: got \{'form': 'mix'\}, wanted a layer, or layers"),
        ({"also": ({"layer": 3, "layers": [1]},)}, r"also: got layer and layers, wanted one"),
        ({"also": ({"layers": []},)}, r"also: got layers \[\], wanted a list such as \[1, 2\]"),
        ({"also": ({"pooling": "sgd", "layer": 3},)}, r"also: got pooling, wanted among layer, al"),
        (
            {"pooling": "sgd", "also": ({"layer": 3, "alpha": 5},)},
            r"also: got alpha, wanted among layer, components, form",
        ),
        ({"also": ({"layer": 3, "beside": [{}]},)}, r"also: beside: got \{\}, wanted a layer"),
        ({"also": ({"layer": 3, "then": 1},)}, r"also: then: got 1, wanted a list of tables"),
        ({"also": (MIX,), "second_layer": True}, r"got second_layer and also, wanted one of them"),
    ],
)
def test_alternatives_that_cannot_be_are_refused(choices, message):
    with pytest.raises(ValueError, match=message):
        Search(**{"layers": (), **choices})


@pytest.mark.parametrize(
    ("search", "message"),
    [
        (search_of(MIX, BLURRED, {**MIX, "alpha": "auto"}), r"also: got .*'alpha': 'auto'.*once"),
        (
            search_of({"layer": 3, "alpha": 25.0}, layers=(3,)),
            r"also: got .* a setting of the grid",
        ),
        (search_of({"layer": 3, "form": "mxi"}), r"form: got 'mxi', wanted one of replace, mix"),
        (
            search_of({**MIX, "beside": [{"pooling": "blur", "layer": 3}]}),
            r"got the layers \[3, 3\]",
        ),
    ],
)
def test_a_study_with_a_setting_twice_or_an_impossible_one_is_refused(search, message):
    with pytest.raises(ValueError, match=message):
        study(searches=(search,))


@pytest.mark.parametrize(
    ("pooling", "choices", "searches", "message"),
    [
        (
            "sgd",
            {"like": "closed-form"},
            [Search("sgd")],
            r"arm sgd: got like 'closed-form', and no search of that pooling; add a \[\[search\]\]",
        ),
        ("sgd", {"like": "blur"}, [], r"arm sgd: like: got the pooling 'blur', wanted one of clos"),
        ("blur", {"like": "sgd"}, [], r"arm blur: got like, wanted among layer, components"),
        ("sgd", {"like": "closed-form", "layer": 3}, [], r"arm sgd: got like and a layer, wanted"),
        ("sgd", {"like": "closed-form", "form": "mix"}, [], r"got a form and no layer"),
        ("sgd", {"like": "closed-form", "alpha": 3}, [], r"arm sgd: got alpha, wanted among"),
    ],
)
def test_an_arm_that_cannot_be_like_another_is_refused(pooling, choices, searches, message):
    with pytest.raises(ValueError, match=message):
        study(Arm(pooling, choices), searches=searches)


SMALL = (
    NARROW
    + """epochs = 2
batch_size = 32
[trials]
seeds = 1
[[search]]
pooling = "closed-form"
layers = []
parts = 1
held_out = 0.2
epochs = 0.5
also = [
    { layer = 3, form = "mix", components = [1, 2] },
    { layer = 3, form = "after", window = "whole", beside = [{ pooling = "blur", layer = 2 }] },
]
[[arm]]
pooling = "baseline"
[[arm]]
pooling = ["closed-form", "closed-form-trained"]
[[arm]]
pooling = "sgd"
like = "closed-form"
"""
)


def test_a_study_of_alternatives_runs_from_its_file_and_is_not_done_twice(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(SMALL)
    one = read_preset(str(path))
    first, second, third = one.searches[0].settings(one.network)
    assert [s.pools[-1].components for s in (first, second)] == [1, 2]
    assert third.pools[-1].window is None and third.pools[0].pooling == "blur"
    work = engine(tmp_path / "runs")
    tables = conduct_study(one, work)
    chosen = [row for row in tables.selection if row.metric == VALIDATION]
    assert [(row.form, row.epochs) for row in chosen] == [("mix", "1")] * 2 + [("after", "1")]
    lines = [row for row in tables.rows if row.metric == ERROR]
    assert [row.epochs for row in lines] == ["2"] * 4
    # All stand as the best did.
    best = min(chosen, key=lambda row: row.mean)
    assert {(row.layer, row.form, row.components) for row in lines[1:]} == {
        (best.layer, best.form, best.components)
    }
    assert make_plan(one, work.runs, CPU).left == 0
    assert make_partial_tables(one, work.runs).rows == conduct_study(one, work).rows
