"""Rows of trials: means, deviations, pairs and what is told beside them."""

import math
import statistics
from dataclasses import replace

import pytest
from scipy import stats

from foveapool.records import COLUMNS, ERROR, LESS, P_VALUE, VALIDATION
from foveapool.statistics import index_by_seed
from foveapool.study.rows import (
    ALPHA,
    DIVERGED,
    SeedTrials,
    label_data,
    make_selection_rows,
    make_trial_rows,
    setting_columns,
)
from foveapool.study.search import Candidate, Selection
from foveapool.study.setting import Pool, Setting

from .small_studies import RECIPE, SOURCE, training

BASE = (32.0, 33.5, 31.25, 34.0)
CLOSED = (30.0, 31.0, 31.5, 29.5)
COSTS = {
    "seconds": 2.0,
    "fit_seconds": 0.5,
    "parameters": 1000,
    "multiply_adds": 5000,
    "loss": 0.25,
}
WHERE = {"hardware": "here", "torch": "2.0", "commit": "abc"}


def trials(errors, *pools, **told):
    """The trials of a setting and their results, a seed for each error."""
    made = [training(*pools, seed=seed) for seed in range(len(errors))]
    results = {
        each.name: {"error": error, "alphas": dict.fromkeys("123", 25.0), **COSTS, **WHERE, **told}
        for each, error in zip(made, errors, strict=True)
    }
    return SeedTrials(made[0].setting, tuple(made)), results


def rows_of(*pairs, **provenance):
    own, results = zip(*pairs, strict=True)
    joined = {name: result for each in results for name, result in each.items()}
    return make_trial_rows("study", own, joined, {"date": "today", **provenance})


def by_metric(rows, pooling):
    return {row.metric: row for row in rows if row.pooling == pooling}


def test_errors_differences_and_their_test_are_those_of_statistics_and_scipy():
    rows = rows_of(trials(BASE), trials(CLOSED, ("closed-form", 3)))
    found = by_metric(rows, "closed-form")
    error, less, p = found[ERROR], found[LESS], found[P_VALUE]
    assert (error.mean, error.n) == (pytest.approx(statistics.mean(CLOSED)), 4)
    assert error.std == pytest.approx(statistics.stdev(CLOSED))
    differences = [mine - its for mine, its in zip(CLOSED, BASE, strict=True)]
    assert (less.mean, less.n) == (pytest.approx(statistics.mean(differences)), 4)
    assert less.std == pytest.approx(statistics.stdev(differences))
    assert p.mean == pytest.approx(stats.ttest_rel(CLOSED, BASE).pvalue)
    assert "paired t-test" in p.metric


def test_pairs_are_seeds_and_not_the_order_of_results():
    own, results = trials(CLOSED, ("closed-form", 3))
    backwards = (own, dict(reversed(results.items())))
    rows = by_metric(rows_of(trials(BASE), backwards), "closed-form")
    assert rows[P_VALUE].mean == pytest.approx(stats.ttest_rel(CLOSED, BASE).pvalue)


def test_costs_stand_beside_each_error():
    rows = by_metric(rows_of(trials(BASE)), "baseline")
    assert {name: row.mean for name, row in rows.items()} == {
        ERROR: statistics.mean(BASE),
        "training loss, last epoch": 0.25,
        "parameters": 1000,
        "multiply-adds an image": 5000,
        "seconds a training": 2.0,
        "seconds to fit": 0.5,
    }


def test_one_seed_has_no_spread_and_nothing_to_compare():
    rows = rows_of(trials(BASE[:1]), trials(CLOSED[:1], ("closed-form", 3)))
    found = by_metric(rows, "closed-form")
    assert math.isnan(found[ERROR].std) and LESS not in found and P_VALUE not in found


def test_differences_without_spread_get_no_p():
    rows = rows_of(trials(BASE), trials([each - 1 for each in BASE], ("closed-form", 3)))
    found = by_metric(rows, "closed-form")
    assert found[LESS].mean == pytest.approx(-1) and P_VALUE not in found


def test_without_a_baseline_nothing_is_compared():
    rows = rows_of(trials(CLOSED, ("closed-form", 3)), trials(BASE, ("sgd", 3)))
    assert not {LESS, P_VALUE} & {row.metric for row in rows}


def test_a_row_says_where_it_comes_from():
    other = trials(CLOSED, ("closed-form", 3))
    next(iter(other[1].values()))["hardware"] = "there"
    rows = by_metric(rows_of(trials(BASE), other, hardware="table's"), "closed-form")
    row, own = rows[ERROR], training().setting
    assert (row.study, row.network, row.data) == (
        "study",
        f"cnn, width {own.width}",
        "street-digits",
    )
    assert (row.seeds, row.epochs, row.batch, row.date) == ("0-3", "2", "32", "today")
    # The machines that trained, not the one that makes the table.
    assert (row.hardware, row.torch, row.commit) == ("here / there", "2.0", "abc")


def test_the_alphas_that_auto_took_have_a_line():
    pools = Pool("closed-form", 3, 25.0), Pool("sgd", 2), Pool("closed-form", 1, "auto")
    own, results = trials(CLOSED, *pools, alphas={"3": 25.0, "1": 50.0})
    next(iter(results.values()))["alphas"] = {"3": 25.0, "1": 90.0}
    rows = rows_of((own, results))
    (row,) = [row for row in rows if row.metric.startswith(ALPHA)]
    assert (row.metric, row.mean, row.n) == (f"{ALPHA} at layer 1", 60.0, 4)
    assert {row.alpha for row in rows} == {"25, auto"}


@pytest.mark.parametrize(
    ("pools", "wanted"),
    [
        ((), "baseline"),
        ((Pool("closed-form", 3, 65.0, "l1", 1),), "closed-form"),
        ((Pool("sgd", 3, sign="sum"),), "sgd"),
        (
            (Pool("closed-form", 3, normalize=False, class_cap=30),),
            "closed-form, normalize False, class_cap 30",
        ),
        (
            (Pool("closed-form", 3, sign="sum"), Pool("closed-form-trained", 1, sign="sum")),
            "closed-form-trained, sign sum, beside closed-form, sign sum, at 3",
        ),
        (
            (Pool("closed-form", 3, sign="sum", class_cap=30), Pool("closed-form", 1, sign="sum")),
            "closed-form, sign sum, class_cap 30 at layer 3",
        ),
        (
            (Pool("closed-form", 3, class_cap=30), Pool("closed-form", 1, class_cap=40)),
            "closed-form, class_cap 30 at layer 3, class_cap 40 at layer 1",
        ),
        (
            (Pool("closed-form", 3, sign="sum"), Pool("sgd", 1)),
            "sgd, beside closed-form, sign sum, at 3",
        ),
    ],
)
def test_a_label_names_the_pooling_and_what_is_unusual_about_it(pools, wanted):
    assert setting_columns(Setting(pools), RECIPE)["pooling"] == wanted


def test_a_place_names_layers_in_the_order_they_were_put_in():
    pools = (Pool("closed-form", 3, 15.0, "l2"), Pool("closed-form", 1, 65.0, "l1", 2))
    found = setting_columns(Setting(pools, "resnet18", 64, "before"), RECIPE)
    assert found == {
        "network": "resnet18",
        "pooling": "closed-form",
        "layer": "3, 1",
        "placement": "before",
        "form": "replace",
        "alpha": "15, 65",
        "norm": "l2, l1",
        "components": "2, 2",
        "trainable": "False",
    }
    assert set(found) < set(COLUMNS)
    plain = setting_columns(Setting((), "resnet18", 64, "before"), RECIPE)
    assert (plain["placement"], plain["layer"], plain["alpha"]) == ("", "", "")
    sgd = setting_columns(Setting((Pool("sgd", 2),)), RECIPE)
    assert (sgd["alpha"], sgd["norm"], sgd["trainable"]) == ("", "", "True")


def test_settings_that_differ_in_a_late_digit_are_told_apart():
    alphas = {
        setting_columns(Setting((Pool("closed-form", 2, alpha),)), RECIPE)["alpha"]
        for alpha in (1e6, 1e6 + 1, 0.1 + 1e-9, 0.1)
    }
    assert alphas == {"1000000", "1000001", "0.100000001", "0.1"}


def test_another_network_has_another_name():
    other = Setting((), "resnet18", 16, options={"final_norm": False})
    assert setting_columns(other, RECIPE)["network"] == "resnet18, width 16, final_norm False"


def test_the_data_are_called_with_the_share_that_is_used():
    assert label_data(training()) == "street-digits"
    tenth = replace(training(), source=replace(SOURCE, share=0.1))
    assert label_data(tenth) == "street-digits, 10 %"


def test_every_candidate_is_a_row_of_the_selection():
    short = [training(pool, part=0, epochs=1) for pool in (("closed-form", 3), ("closed-form", 2))]
    one = training(("closed-form", 3), part=0)
    first = Candidate(short[0], (50.0,), {"hardware": "that one"}), Candidate(short[1], (60.0,))
    selection = Selection(one.setting, (*first, Candidate(one, (40.0, 42.0))))
    here = {"torch": "2", "hardware": "this one"}
    rows = make_selection_rows("study", selection, here)
    assert [row.hardware for row in rows] == ["that one", "this one", "this one"]
    assert [(row.layer, row.mean, row.n, row.epochs) for row in rows] == [
        ("3", 50.0, 1, "1"),
        ("2", 60.0, 1, "1"),
        ("3", 41.0, 2, "2"),
    ]
    assert {row.metric for row in rows} == {VALIDATION} and rows[2].std == math.sqrt(2)


def test_another_rate_for_poolings_is_told_where_one_trains():
    def of(pooling):
        pool = Setting((Pool(pooling, 3),))
        made = replace(training(), setting=pool, recipe=replace(RECIPE, pooling_rate=0.1))
        results = {made.name: {"error": 9.0, "alphas": {"3": 25.0}, **COSTS, **WHERE}}
        return make_trial_rows("s", [SeedTrials(pool, (made,))], results, {})[0].pooling

    assert of("closed-form-trained") == "closed-form-trained, pooling rate 0.1"
    assert of("closed-form") == "closed-form"
    slow = replace(training(("sgd", 2)), recipe=replace(RECIPE, pooling_rate=0.1))
    tried = Selection(Setting(), (Candidate(slow, (50.0,)),))
    assert make_selection_rows("s", tried, {})[0].pooling == "sgd, pooling rate 0.1"


def test_trainings_that_diverged_are_counted_beside_the_error():
    calm, results = trials((30.0, 31.0))
    wild, more = trials((100.0, 100.0), ("closed-form", 3), diverged="loss: got nan")
    rows = make_trial_rows("s", [calm, wild], results | more, {})
    counted = [row for row in rows if row.metric == DIVERGED]
    assert [(row.pooling, row.mean, row.n) for row in counted] == [("closed-form", 2, 2)]


def test_costs_are_those_of_trainings_that_ended_and_nothing_is_compared_with_the_others():
    calm = trials(BASE)
    wild, results = trials((30.0, 100.0, 31.0, 100.0), ("closed-form", 3))
    for name in [each.name for each in wild.trainings][1::2]:
        results[name] |= {"diverged": "loss: got nan", **dict.fromkeys(COSTS, 0), "loss": None}
    found = by_metric(rows_of(calm, (wild, results)), "closed-form")
    assert found[ERROR].mean == 65.25 and found[ERROR].seeds == "0-3" and found[DIVERGED].mean == 2
    parameters = found["parameters"]
    assert (parameters.mean, parameters.n, parameters.seeds) == (1000, 2, "0, 2")
    assert index_by_seed(parameters) == {0: 1000.0, 2: 1000.0} and parameters.seconds == "2.00"
    assert LESS not in found and P_VALUE not in found


def test_where_the_baseline_diverged_nothing_is_compared_with_it():
    wild = trials((100.0, 30.0), diverged="loss: got nan")
    found = by_metric(rows_of(wild, trials((20.0, 21.0), ("closed-form", 3))), "closed-form")
    assert LESS not in found and found["parameters"].n == 2
    all_lost = by_metric(rows_of(wild), "baseline")
    assert set(all_lost) == {ERROR, DIVERGED} and all_lost[ERROR].seconds == ""
