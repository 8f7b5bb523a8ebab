"""What a page opens with: the result in words, computed from the rows, honest where it is lost."""

import math
import statistics

import pytest
from scipy import stats

from foveapool.records import ERROR, Row, summarize_values
from foveapool.report.headline import find_headline
from foveapool.report.page import make_page
from foveapool.report.run_summary import RunSummary, group_operators

from .pages import Page, operator

BASE, CLOSED, BLUR = (54.0, 55.0, 53.9), (27.0, 28.2, 26.1), (30.0, 31.0, 32.0)


def row(values, pooling="baseline", **more):
    usual = {
        "network": "cnn",
        "data": "svhn-reduced",
        "epochs": "9",
        "seeds": f"0-{len(values) - 1}",
    }
    return Row("s", ERROR, **summarize_values(values), **{**usual, **more}, pooling=pooling)


def closed(values, **more):
    return row(values, "closed-form", layer="3", alpha="5", norm="l1", **more)


def headline(*rows):
    return find_headline(RunSummary("t", rows=rows))


def test_baseline_and_best_closed_form_with_their_pairs():
    worse = closed((40.0, 41.0, 42.0), components="4")
    found = headline(row(BASE), worse, closed(CLOSED), row(BLUR, "blur", layer="3"))
    assert found.verdict == "54.3 % \N{RIGHTWARDS ARROW} 27.1 % wrong, three seeds"
    said = " ".join(found.told)
    assert "(CNN on reduced SVHN): 54.3 \N{PLUS-MINUS SIGN} 0.6 % for the network as it is" in said
    assert (
        "27.1 \N{PLUS-MINUS SIGN} 1.1 % with closed form, layer 3, alpha 5, l1, the lowest of 2."
        in said
    )
    gains = [a - b for a, b in zip(BASE, CLOSED, strict=True)]
    p = stats.ttest_rel(BASE, CLOSED).pvalue
    size = f"{statistics.mean(gains):.1f} \N{PLUS-MINUS SIGN} {statistics.stdev(gains):.1f}"
    assert f"that is {size} points fewer (paired t-test, p = {p:.2g})." in said
    assert "Of the other poolings, BlurPool, layer 3: 31.0 \N{PLUS-MINUS SIGN} 1.0 %." in said
    assert [each.pooling for each in found.rows] == ["baseline", "closed-form", "blur"]


def test_a_loss_is_told_as_one():
    found = headline(row(BASE), closed((54.2, 55.9, 54.8)))
    assert found.verdict.startswith("54.3 % \N{RIGHTWARDS ARROW} 55.0 % wrong")
    assert "points more (paired t-test, p = " in found.told[1]
    assert found.told[1].endswith("which does not tell them apart.")


def test_a_line_of_few_seeds_is_not_the_best():
    found = headline(row(BASE), closed((1.0,), components="4"), closed(CLOSED))
    assert "27.1 % wrong" in found.verdict


@pytest.mark.parametrize(
    ("rows", "verdict"),
    [
        ([row(BASE), row(BLUR, "blur")], "54.3 % \N{RIGHTWARDS ARROW} 31.0 % wrong, three seeds"),
        ([row(BASE)], "54.3 % wrong, three seeds"),
        ([closed((20.0,))], "20.0 % wrong, one seed"),
        (
            [row((50.0,) * 12), closed((20.0,))],
            "50.0 % \N{RIGHTWARDS ARROW} 20.0 % wrong, 12 and one seed",
        ),
        (
            [row(BASE, data="cifar10"), row(BASE), closed(CLOSED)],
            "54.3 % \N{RIGHTWARDS ARROW} 27.1 % wrong, three seeds",
        ),
        ([row((math.nan,))], None),
    ],
)
def test_what_is_there_is_told(rows, verdict):
    found = headline(*rows)
    assert (found and found.verdict) == verdict
    page = Page(make_page([RunSummary("t", rows=tuple(rows))]))
    assert verdict is None or verdict in page.words


def test_without_errors_the_operators_are_told_of():
    operators = [operator(alpha) for alpha in (1.0, 5.0, 25.0)]
    summary = RunSummary("t", families=group_operators(operators))
    gain = operators[1].gain()[0].mean()
    assert f"Separates the classes {gain:.2g} times as well" in find_headline(summary).verdict
    page = Page(make_page([summary]))
    (series,) = page.data["charts"]["result"]["series"]
    means = [[each.settings.alpha, float(each.gain()[0].mean())] for each in operators]
    assert [point[:2] for point in series["points"]] == [
        [alpha, pytest.approx(mean, abs=1e-4)] for alpha, mean in means
    ]
    assert "Pooling makes a map smaller" in page.words


def test_the_chart_beside_the_words_is_short():
    many = [closed((30.0 + k, 31.0 + k, 33.0), components=str(k)) for k in range(3, 9)]
    page = Page(make_page([RunSummary("t", rows=(row(BASE), *many))]))
    charts = page.data["charts"]
    assert [line["mean"] for line in charts["result"]["lines"]] == pytest.approx(
        [54.3, 33.333], abs=0.01
    )
    assert len(charts["errors"]["lines"]) == 7
    drawn = [a["data-chart"] for _, a in page.tags if "data-chart" in a]
    assert drawn == ["result", "errors"]
    few = Page(make_page([RunSummary("t", rows=(row(BASE), *many[:2]))]))
    assert [a["data-chart"] for _, a in few.tags if "data-chart" in a] == ["errors"]


def test_several_runs_have_a_result_each():
    one, other = (RunSummary(name, rows=(row(BASE), closed(CLOSED))) for name in "ab")
    page = Page(make_page([one, other]))
    assert "A: 54.3 %" in page.words and "B: 54.3 %" in page.words
