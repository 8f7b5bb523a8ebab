"""Which of a file's rows a reader takes: not those that outlived what they are of, none twice."""

from dataclasses import replace

import pytest

from foveapool.records import CE, ERROR, LESS, P_VALUE, VALIDATION, Row, summarize_values
from foveapool.report.tables import distinct_rows, error_table, latest_rows


def lines(table):
    return [dict(zip(table.header, line, strict=True)) for line in table.lines]


def measured(study, *values, **columns):
    place = {"network": "cnn", "data": "svhn", "pooling": "baseline"}
    return Row(study=study, metric=ERROR, **{**place, **summarize_values(values), **columns})


BASE = measured("s", 20.0, 22.0)
OWN = measured("s", 18.0, 21.0, pooling="closed-form", layer="2", placement="main", alpha="5")
LESS_OF_OWN = replace(OWN, metric=LESS, **summarize_values((-2.0, -1.0)))
P_OF_OWN = replace(OWN, metric=P_VALUE, mean=0.205, std=0.0, values="")
TABLE = [BASE, OWN, LESS_OF_OWN, P_OF_OWN]


@pytest.mark.parametrize(
    "again",
    [
        [replace(OWN, **summarize_values((100.0, 21.0)))],  # one diverged
        [replace(OWN, **summarize_values((18.0,)))],  # a single seed has no pairs
        [replace(OWN, **summarize_values((18.0, 21.0, 19.0)))],  # the baseline's third is to come
        [replace(BASE, **summarize_values((20.0, 100.0)))],
        [replace(BASE, **summarize_values((20.0,)))],
    ],
)
def test_a_difference_counts_no_longer_than_the_errors_that_it_is_of(again):
    line = lines(error_table([*TABLE, *again]))[1]
    assert (line["less baseline"], line["p"]) == ("-", "-")


def test_a_p_counts_no_longer_than_its_difference():
    # All differences are the same: nothing is there to test.
    equal = [
        replace(OWN, **summarize_values((19.0, 21.0))),
        replace(OWN, metric=LESS, **summarize_values((-1, -1))),
    ]
    line = lines(error_table([*TABLE, *equal]))[1]
    assert (line["less baseline"], line["p"]) == ("-1.00 +- 0.00", "-")


@pytest.mark.parametrize(
    "rows",
    [
        TABLE,
        [*TABLE[1:], BASE],  # a study may have its baseline anywhere
        [*TABLE, *TABLE],
        [
            *TABLE,
            replace(BASE, **summarize_values((20.0, 22.0, 24.0))),
        ],  # the pairs are as they were
        [*TABLE, replace(BASE, study="t", **summarize_values((30.0, 32.0)))],
        [replace(OWN, **summarize_values((100.0, 21.0))), *TABLE],
        TABLE[1:],
    ],
)
def test_a_difference_that_is_of_the_last_errors_counts(rows):
    found = [line for line in lines(error_table(rows)) if line["pooling"] == "closed form"]
    assert [(line["less baseline"], line["p"]) for line in found] == [("-1.50 +- 0.71", "0.2")]


def test_what_was_counted_beside_an_older_error_is_gone_but_not_its_search():
    looked = replace(OWN, metric=VALIDATION)
    rows = [looked, OWN, replace(OWN, metric="trainings that diverged", values=""), OWN]
    assert latest_rows(rows) == [looked, OWN]


def test_a_ratio_to_a_baseline_goes_with_the_difference_from_it():
    ratio = replace(OWN, metric=f"{CE}, fog", mean=97.0, values="")
    assert ratio in latest_rows([*TABLE, ratio])
    assert ratio not in latest_rows(
        [*TABLE, ratio, replace(BASE, **summarize_values((40.0, 44.0)))]
    )
    assert ratio not in latest_rows([*TABLE, ratio, OWN])


def test_rows_that_stand_before_the_only_error_count():
    """As in a file that someone has sorted."""
    rows = sorted(TABLE, key=lambda row: row.metric)
    assert rows[0].metric == LESS and latest_rows(rows) == rows


def test_trainings_that_studies_share_count_once_with_the_study_that_has_most():
    rows = [measured("few", 2.0, 3.0), measured("more", 2.0, 3.0, 7.0), measured("also", 2.0, 3.0)]
    assert [each.study for each in distinct_rows(rows)] == ["more"]


def test_rows_of_one_setting_stay_apart_where_something_else_was_measured():
    rows = [measured("a", 2.0, 3.0), measured("b", 2.5, 3.0), measured("a", 2.0, 3.0, batch="64")]
    rows += [measured("a", 2.0, 3.0, components="4"), measured("a", 2.0, 3.0, epochs="15")]
    assert distinct_rows(rows) == rows
    bare = [replace(each, values="") for each in rows[:2]]
    assert distinct_rows(bare) == bare
    assert distinct_rows([bare[0], replace(bare[0], study="c")]) == bare[:1]
