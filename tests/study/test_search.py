"""Choosing by cross-validation: what is looked at, what goes on, what is kept."""

import math
import statistics
from dataclasses import replace

import pytest

from foveapool.study.search import Candidate, Halving, Search, run_search
from foveapool.study.setting import Pool, Setting
from foveapool.training.recipe import Recipe

from .small_studies import SOURCE, go_through, training

RECIPE = Recipe("sgd", 0.1, 150, milestones=(50, 100))
MACHINE = {"commit": "c0ffee", "hardware": "a machine", "torch": "2.13.0"}


def searched(search, error, start=Setting()):  # noqa: B008
    """The selection where a training errs as `error(training)` says, and what was trained."""
    asked = []

    def run(name, trainings):
        asked.append(list(trainings))
        return {each.name: {"error": error(each), **MACHINE} for each in trainings}

    found = go_through(run_search(search, start, SOURCE, RECIPE), run)
    return found, asked


def alpha_of(training):
    return training.setting.pools[-1].alpha


def layers_of(setting):
    return [pool.layer for pool in setting.pools]


def test_the_setting_with_the_lowest_mean_over_all_parts_is_chosen():
    errors = {5: (1, 9, 9), 25: (4, 4, 4), 45: (3, 3, 7)}

    def error(training):
        return errors[alpha_of(training)][training.part]

    search = Search(layers=(3,), alphas=(5, 25, 45), norms=("l2",), parts=3)
    found, asked = searched(search, error)
    assert found.best.pools == (Pool("closed-form", 3, 25),)
    assert [each.errors for each in found.candidates] == list(errors.values())
    assert found.candidates[0].origin == MACHINE
    assert found.candidates[2].mean == pytest.approx(statistics.mean(errors[45]))
    assert found.candidates[2].deviation == pytest.approx(statistics.stdev(errors[45]))
    assert [(each.part, each.seed) for each in asked[0][:3]] == [(0, 0), (1, 1), (2, 2)]


def test_every_training_of_a_search_has_a_held_out_part_of_the_right_size():
    search = Search(parts=2, held_out=0.05, halving=Halving(1, 2, 0.1), second_layer=True)
    _, asked = searched(search, lambda training: alpha_of(training))
    trainings = [each for own in asked for each in own]
    assert {each.part for each in trainings} == {0, 1}
    assert {each.held_out for each in trainings} == {0.05}


def test_the_grid_is_layers_placements_alphas_and_norms():
    search = Search(placements=("before", "shortcut"), alphas=(5, 25), norms=("l1", "l2"))
    settings = search.settings(Setting(network="resnet18"))
    found = {(s.placement, *layers_of(s), s.pools[0].alpha, s.pools[0].norm) for s in settings}
    assert len(settings) == len(found) == 2 * 3 * 2 * 2


def test_what_is_learned_by_sgd_has_a_layer_to_choose_and_no_alpha():
    search = Search("sgd", alphas=(5, 25))
    assert [layers_of(each) for each in search.settings(Setting())] == [[1], [2], [3]]
    found, _ = searched(search, lambda training: abs(layers_of(training.setting)[0] - 2))
    assert found.best.pools == (Pool("sgd", 2),)


def test_halving_on_parts_judges_the_best_of_few_parts_on_all():
    # The first part alone would choose 5, all parts 25; 45 is best but falls at the first look.
    errors = {5: (1, 9, 9), 25: (2, 2, 2), 45: (3, 0, 0), 65: (4, 4, 4)}

    def error(training):
        return errors[alpha_of(training)][training.part]

    halving = Halving(parts=1, keep=2)
    search = Search(layers=(3,), alphas=tuple(errors), norms=("l2",), parts=3, halving=halving)
    found, asked = searched(search, error)
    assert found.best.pools[0].alpha == 25
    assert [len(own) for own in asked] == [4, 2 * 3]
    assert {alpha_of(each) for each in asked[1]} == {5, 25}
    # What the first look trained is the same training later on.
    assert {each.name for each in asked[0]} & {each.name for each in asked[1]}
    assert [len(each.errors) for each in found.candidates] == [1, 1, 1, 1, 3, 3]


def test_halving_on_epochs_looks_at_short_trainings_first():
    search = Search(
        layers=(3,), alphas=(5, 25, 45), norms=("l2",), parts=2, halving=Halving(2, 1, 0.1)
    )
    found, asked = searched(search, lambda training: alpha_of(training))
    assert {each.recipe.epochs for each in asked[0]} == {15}
    assert {each.recipe.milestones for each in asked[0]} == {(5, 10)}
    assert {(alpha_of(each), each.recipe) for each in asked[1]} == {(5, RECIPE)}
    assert [each.training.recipe.epochs for each in found.candidates] == [15, 15, 15, 150]
    assert not {each.name for each in asked[0]} & {each.name for each in asked[1]}


def test_a_search_may_be_a_short_look_and_nothing_else():
    search = Search(layers=(3,), alphas=(5, 25), norms=("l2",), parts=2, epochs=0.1)
    found, asked = searched(search, lambda training: -alpha_of(training))
    assert [len(own) for own in asked] == [2 * 2]
    assert {(each.recipe.epochs, each.recipe.milestones) for each in asked[0]} == {(15, (5, 10))}
    assert found.best.pools[0].alpha == 25


def test_a_first_look_is_a_share_of_what_the_search_trains_for():
    halving = Halving(1, 1, 0.2)
    search = Search(layers=(3,), alphas=(5, 25), parts=1, epochs=0.5, halving=halving)
    _, asked = searched(search, lambda training: alpha_of(training))
    assert [{each.recipe.epochs for each in own} for own in asked] == [{15}, {75}]


def test_nothing_is_halved_where_all_would_go_on():
    search = Search(layers=(3,), alphas=(5, 25), norms=("l2",), parts=3, halving=Halving(1, 2))
    found, asked = searched(search, lambda training: alpha_of(training))
    assert [len(own) for own in asked] == [2 * 3] and len(found.candidates) == 2


@pytest.mark.parametrize(("second", "kept"), [(9.0, True), (10.0, False), (11.0, False)])
def test_a_second_layer_is_kept_only_if_cross_validation_improves(second, kept):
    def error(training):
        layers = layers_of(training.setting)
        if len(layers) == 2:
            return second if layers[1] == 1 else 50.0
        return 10.0 if layers == [3] else 20.0

    search = Search(alphas=(25,), norms=("l2",), parts=2, second_layer=True)
    found, asked = searched(search, error)
    assert layers_of(found.best) == ([3, 1] if kept else [3])
    assert [layers_of(each.setting) for each in asked[1][::2]] == [[3, 1], [3, 2]]
    assert len(found.candidates) == 3 + 2
    # It is fitted on the network that was trained with the first.
    first = next(each for each in asked[0] if layers_of(each.setting) == [3])
    assert asked[1][0].fitted_on.name == first.name


def test_a_second_layer_has_the_placement_of_the_first():
    def error(training):
        return {"before": 1.0, "shortcut": 0.0}[training.setting.placement]

    places = ("before", "shortcut")
    search = Search(placements=places, alphas=(5,), norms=("l1",), parts=1, second_layer=True)
    _, asked = searched(search, error, Setting(network="resnet18"))
    assert {each.setting.placement for each in asked[1]} == {"shortcut"}


def test_where_one_layer_is_searched_there_is_no_second():
    search = Search(layers=(3,), alphas=(5,), norms=("l1",), parts=1, second_layer=True)
    assert len(searched(search, lambda training: 1.0)[1]) == 1


# As many of 27 answers are wrong in both, and the two means differ in their last digit.
ONE_WAY, OTHER_WAY = (100 * 4 / 27, 100 * 21 / 27), (100 * 5 / 27, 100 * 20 / 27)


def test_of_settings_with_as_many_wrong_answers_the_first_is_chosen():
    assert statistics.mean(ONE_WAY) != statistics.mean(OTHER_WAY)
    for errors in ((ONE_WAY, OTHER_WAY), (OTHER_WAY, ONE_WAY)):
        by_alpha = dict(zip((5, 25), errors, strict=True))

        def error(training, by_alpha=by_alpha):
            return by_alpha[alpha_of(training)][training.part]

        for halving in (None, Halving(2, 1)):
            search = Search("closed-form", (3,), alphas=(5, 25), norms=("l2",), parts=2)
            found, _ = searched(replace(search, halving=halving), error)
            assert found.best.pools[0].alpha == 5


def test_a_second_layer_with_as_many_wrong_answers_does_not_stay():
    for first, second in ((ONE_WAY, OTHER_WAY), (OTHER_WAY, ONE_WAY)):

        def error(training, first=first, second=second):
            return (first, second)[len(training.setting.pools) - 1][training.part]

        search = Search(layers=(2, 3), alphas=(5,), norms=("l2",), parts=2, second_layer=True)
        assert len(searched(search, error)[0].best.pools) == 1


def test_one_part_has_no_deviation():
    assert math.isnan(Candidate(training(part=0), (3.0,)).deviation)


def test_a_first_look_keeps_the_proportions_of_the_recipe():
    def looked(share):
        return Search().training(training().setting, SOURCE, RECIPE, 0, share).recipe

    assert looked(0.5) == replace(RECIPE, epochs=75, milestones=(25, 50))
    assert looked(0.001) == replace(RECIPE, epochs=1, milestones=(1,))
    assert looked(1.0) == RECIPE


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"pooling": "baseline"}, r"search: got the baseline, which has nothing to choose"),
        (
            {"pooling": "closedform"},
            r"search: got the pooling 'closedform', wanted one of closed-.*mean 'closed-form'",
        ),
        ({"layers": ()}, r"search: layers: got \(\), wanted a list of one or more"),
        ({"layers": 3}, r"search: layers: got 3, wanted a list of one or more"),
        ({"norms": "l1"}, r"search: norms: got 'l1', wanted a list of one or more"),
        ({"parts": 0}, r"search: parts: got 0, wanted a whole number, 1 or more"),
        ({"parts": 2.5}, r"search: parts: got 2.5, wanted a whole number"),
        ({"parts": "2"}, r"search: parts: got '2', wanted a whole number"),
        ({"held_out": 1}, r"search: held_out: got 1, wanted a share between 0 and 1"),
        ({"held_out": "a"}, r"search: held_out: got 'a', wanted a share between 0 and 1"),
        ({"epochs": 0}, r"search: epochs: got 0, wanted a share above 0 and at most 1"),
        ({"epochs": 15}, r"search: epochs: got 15, wanted a share above 0 and at most 1"),
        ({"second_layer": "no"}, r"search: second_layer: got 'no', wanted true or false"),
        ({"second_layer": 1}, r"search: second_layer: got 1, wanted true or false"),
        ({"layers": (3, 3)}, r"search: layers: got 3 twice, wanted each value once"),
        ({"alphas": (25, "auto", 25.0, 5)}, r"search: alphas: got 25.0 twice, wanted each value"),
        ({"alphas": ("auto", "auto")}, r"search: alphas: got 'auto' twice"),
        ({"norms": ("l1", "l2", "l1")}, r"search: norms: got 'l1' twice"),
        ({"placements": ("before", "before")}, r"search: placements: got 'before' twice"),
        ({"halving": Halving(6, 2)}, r"halving looks at 6 parts, wanted at most the 5 there are"),
    ],
)
def test_a_search_that_cannot_be_made_is_refused(choices, message):
    with pytest.raises(ValueError, match=message):
        Search(**choices)


@pytest.mark.parametrize(
    "wrong", [(0, 1), (1, 0), (1, 1, 0.0), (1, 1, 1.5), (1, 1, "a"), (1.5, 1), (1, 2.0)]
)
def test_halving_into_nothing_is_refused(wrong):
    with pytest.raises(ValueError, match="halving: got parts"):
        Halving(*wrong)
