"""Who wins: the order of the means, and differences in pairs as scipy has them."""

import math
from dataclasses import replace
from statistics import mean, stdev

import pytest
from scipy import stats

from foveapool.records import ERROR, VALIDATION, Row, summarize_values
from foveapool.report.tables import ranking_table

BEST, NEXT, LAST = (18.0, 19.5, 18.5), (18.5, 19.25, 19.5), (40.0, 41.0, 39.5)


def row(pooling, *values, metric=ERROR, **columns):
    usual = {"study": "s", "network": "cnn", "data": "svhn", "seeds": "0-2", "batch": "128"}
    return Row(metric=metric, pooling=pooling, **{**usual, **summarize_values(values), **columns})


def ranked(*rows):
    table = ranking_table(rows)
    return [dict(zip(table.header, line, strict=True)) for line in table.lines]


def poolings(lines):
    return [line["pooling"] for line in lines]


def test_the_best_stands_first_and_the_others_are_compared_with_it_in_pairs():
    found = ranked(row("baseline", *LAST), row("blur", *NEXT), row("sgd", *BEST))
    assert poolings(found) == ["P by SGD", "BlurPool", "strided convolution"]
    assert found[0]["behind the best"] == found[0]["p"] == "-"
    for line, values in zip(found[1:], (NEXT, LAST), strict=True):
        gaps = [a - b for a, b in zip(values, BEST, strict=True)]
        assert line["behind the best"] == f"{mean(gaps):.2f} +- {stdev(gaps):.2f}"
        assert line["p"] == f"{stats.ttest_rel(values, BEST).pvalue:.2g}"


def test_a_line_says_where_the_pooling_is_what_it_costs_and_who_measured_it():
    place = {"layer": "2", "placement": "before", "alpha": "25", "norm": "l1", "components": "2"}
    own = row("closed-form", *BEST, **place)
    size = row("closed-form", *3 * [123456], metric="parameters", **place)
    other = replace(size, study="t", mean=9.0)
    first, second = ranked(own, size, other, row("sgd", *NEXT))
    assert first == {
        "network": "CNN",
        "data": "SVHN",
        "pooling": "closed form",
        **place,
        "form": "-",
        "error %": "18.67 +- 0.76",
        "behind the best": "-",
        "p": "-",
        "n": "3",
        "10^6 parameters": "0.123",
        "study": "s",
    }
    assert second["layer"] == second["alpha"] == second["10^6 parameters"] == "-"


@pytest.mark.parametrize(
    "other",
    [
        row("sgd", *NEXT, values=""),
        row("sgd", *NEXT, seeds="3-5"),
        row("sgd", *NEXT, seeds="2-4"),
    ],
)
def test_what_cannot_be_paired_with_the_best_is_ranked_without_a_difference(other):
    first, second = ranked(other, row("blur", *BEST))
    assert poolings([first, second]) == ["BlurPool", "P by SGD"]
    assert second["behind the best"] == second["p"] == "-" and second["error %"][:2] == "19"


def test_of_other_seeds_those_in_common_are_compared():
    _, second = ranked(row("sgd", *NEXT, 99.0, seeds="0-3"), row("blur", *BEST))
    assert second["p"] == f"{stats.ttest_rel(NEXT, BEST).pvalue:.2g}"


def test_one_seed_is_ranked_without_a_difference():
    found = ranked(row("sgd", 2.0, seeds="0-0"), row("blur", 1.0, seeds="0-0"))
    assert [line["error %"] for line in found] == ["1.00", "2.00"]
    assert found[1]["p"] == "-"


def test_each_network_data_set_length_and_batch_size_has_its_own_best():
    rows = []
    for column in ({}, {"network": "resnet18"}, {"data": "cifar10"}, {"batch": "64"}):
        rows += [row("baseline", *LAST, **column), row("sgd", *NEXT, **column)]
    rows += [row("baseline", *LAST, epochs="15"), row("sgd", *NEXT, epochs="15")]
    found = ranked(*rows)
    assert poolings(found) == 5 * ["P by SGD", "strided convolution"]
    assert [line["p"] == "-" for line in found] == 5 * [True, False]
    assert [line["network"] for line in found] == [*2 * ["CNN"], *2 * ["ResNet-18"], *6 * ["CNN"]]


def test_a_baseline_of_several_studies_stands_once_and_is_paired_with_the_best():
    shared = row("baseline", *LAST)
    fewer = row("baseline", *LAST[:2], study="few", seeds="0-1")
    found = ranked(fewer, shared, replace(shared, study="t"), row("sgd", *BEST, study="t"))
    assert poolings(found) == ["P by SGD", "strided convolution"]
    assert (found[1]["n"], found[1]["study"]) == ("3", "s") and found[1]["p"] != "-"


def test_one_setting_that_two_studies_measured_differently_stands_twice():
    found = ranked(row("sgd", *BEST), row("sgd", *NEXT, study="slower"))
    assert [line["study"] for line in found] == ["s", "slower"]


def test_rows_without_a_test_error_are_refused():
    with pytest.raises(ValueError, match="rows: got none of 'test error %' among 1, wanted some"):
        ranking_table([row("sgd", *BEST, metric=VALIDATION)])


def test_what_is_no_number_is_not_the_best():
    found = ranked(row("max", math.nan, seeds="0"), row("baseline", *LAST), row("sgd", *BEST))
    assert poolings(found) == ["P by SGD", "strided convolution", "max"]
