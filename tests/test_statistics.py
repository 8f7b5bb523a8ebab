"""Comparisons in pairs: Student's test, from what two rows hold."""

import builtins
from dataclasses import replace
from itertools import combinations
from math import isnan

import pytest
from scipy import stats

from foveapool.records import Row, append_rows, read_rows, summarize_values
from foveapool.statistics import adjust_by_holm, compare_pairs, paired_p_value


def row(pooling, *values, seeds="0-2"):
    return Row("s", "test error %", pooling=pooling, seeds=seeds, **summarize_values(values))


def test_two_rows_are_compared_seed_by_seed_after_a_way_through_a_file(tmp_path):
    one, other = (20.123456789, 21.5, 19.25), (22.0, 21.75, 23.5)
    append_rows(tmp_path / "rows.csv", [row("blur", *one), row("max", *other)])
    found = compare_pairs(*read_rows(tmp_path / "rows.csv"))
    wanted = stats.ttest_rel(one, other)
    assert found.p == pytest.approx(wanted.pvalue, rel=1e-7)
    differences = [a - b for a, b in zip(one, other, strict=True)]
    assert found.mean == pytest.approx(sum(differences) / 3)
    assert found.std == pytest.approx(stats.tstd(differences))


def test_pairs_are_the_seeds_that_both_have():
    found = compare_pairs(
        row("blur", 1.0, 2.0, 4.0), row("max", 9.0, 1.0, 1.0, 5.0, seeds="5, 1-3")
    )
    assert (found.mean, found.n) == (pytest.approx(2.0), 2)  # 2 - 1 and 4 - 1
    assert compare_pairs(row("blur", 1.0, 2.0, 4.0), row("max", 0.0, 0.0, seeds="0-1")).mean == 1.5


@pytest.mark.parametrize(
    "other",
    [
        row("max", 1.0, 2.0, 3.0, seeds="2-4"),
        row("max", 1.0, 2.0, 3.0, seeds=""),
        replace(row("max", 1.0, 2.0, 3.0), values=""),
        replace(row("max", 1.0, 2.0, 3.0), metric="validation error %"),
    ],
)
def test_rows_that_have_no_pairs_are_refused(other):
    with pytest.raises(ValueError, match=r"rows: got 'test error %' of blur with .*in common"):
        compare_pairs(row("blur", 1.0, 2.0, 3.0), other)


def test_a_row_that_was_changed_by_hand_is_refused():
    with pytest.raises(ValueError, match=r"row of s: got 2 measurements for the seeds 0-2"):
        compare_pairs(row("blur", 1.0, 2.0), row("max", 1.0, 2.0, 3.0))


@pytest.mark.parametrize("differences", [(1.0, 2.0, 3.0), (-1.0, 1.5, 0.25, 0.5), (1e-9, 2e-9)])
def test_the_p_value_is_students(differences):
    wanted = stats.ttest_rel(differences, [0.0] * len(differences)).pvalue
    assert paired_p_value(differences) == pytest.approx(wanted)


def test_equal_measurements_do_not_differ():
    assert paired_p_value([0.0, 0.0, 0.0]) == 1.0


@pytest.mark.parametrize("differences", [(), (0.5,), (0.0,), (-2.0, -2.0, -2.0), (0.3 - 0.1, 0.2)])
def test_one_pair_or_no_spread_says_nothing_of_chance(differences):
    assert isnan(paired_p_value(differences))


@pytest.mark.parametrize("p_values", [(0.3,), (0.01, 0.02, 0.03, 0.04), (0.5, 0.001, 0.2, 0.001)])
def test_holm_is_bonferroni_over_every_set_of_comparisons(p_values):
    sets = [s for n in range(1, 5) for s in combinations(range(len(p_values)), n)]
    wanted = [
        max(min(1.0, len(s) * min(p_values[j] for j in s)) for s in sets if i in s)
        for i in range(len(p_values))
    ]
    assert adjust_by_holm(p_values) == pytest.approx(wanted)


def test_a_comparison_that_could_not_be_made_is_not_counted():
    first, missing, second = adjust_by_holm([0.02, float("nan"), 0.03])
    assert (first, second) == (0.04, 0.04) and isnan(missing)


def test_without_scipy_the_extra_is_named(monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name.startswith("scipy"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"scipy: not installed; pip install .*\[study\]'"):
        paired_p_value([1.0, 2.0])
