"""The page: whole in itself, true to what it was given, and not to be broken by what that says."""

import base64
import hashlib
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from foveapool.records import ERROR, LESS, P_VALUE, VALIDATION, Row
from foveapool.report.examples import Examples
from foveapool.report.page import make_page, write_page, write_summaries
from foveapool.report.run_summary import Curve, Family, RunSummary, group_operators

from .pages import Page, operator, unpacked

NASTY = "</script><script>alert(1)</script><img src=x onerror=alert(2)> & \"'"


def row(metric=ERROR, mean=20.0, std=0.5, **more):
    usual = {"n": 5, "network": "cnn", "data": "svhn-reduced", "pooling": "baseline", "epochs": "9"}
    return Row("s", metric, mean, std, **{**usual, **more})


def closed(alpha, mean, metric=ERROR, **more):
    place = {"pooling": "closed-form", "layer": "3", "alpha": f"{alpha:g}", "norm": "l1"}
    return row(metric, mean, **place, **more)


def examples(shape=(8, 10)):
    images = torch.zeros(2, 3, 8, 8, dtype=torch.uint8)
    return Examples(images, torch.ones(2, 1, *shape).half(), ("cat", "dog"), (4,))


def test_nothing_is_loaded_from_anywhere():
    found = Page(make_page([RunSummary("t", families=group_operators(operator()))]))
    links = [v for _, a in found.tags for k, v in a.items() if k in ("src", "href", "action")]
    assert all(link.startswith(("data:", "#")) for link in links), links
    assert "@import" not in found.styles[0] and "url(" not in found.styles[0]
    script = found.scripts[-1]
    assert not re.search(r"fetch\(|XMLHttpRequest|WebSocket|\bimport\b|innerHTML|eval\(", script)


def test_the_policy_lets_in_this_script_and_this_style_only():
    found = Page(make_page([RunSummary("t", families=group_operators(operator()))]))
    (policy,) = [a["content"] for t, a in found.tags if a.get("http-equiv")]
    digests = [
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for text in (found.scripts[-1], found.styles[0])
    ]
    assert f"script-src 'sha256-{digests[0]}'" in policy
    assert f"style-src 'sha256-{digests[1]}'" in policy
    assert policy.startswith("default-src 'none'") and "unsafe" not in policy


def test_what_others_wrote_appears_as_text():
    nasty = replace(examples(), labels=(NASTY, "b"))
    rows = [row(pooling=NASTY, data=NASTY, network=NASTY), row(metric=NASTY)]
    summary = RunSummary(
        NASTY,
        ((NASTY, NASTY),),
        (Family(NASTY, (operator(),), nasty),),
        tuple(rows),
        (closed(5, 30, VALIDATION, placement=NASTY),),
        (Curve(NASTY, (1, 2), (1.0, 2.0), (None, None)),),
        (NASTY,),
    )
    for summaries in ([summary], [summary, summary]):
        found = Page(make_page(summaries))
        assert "img" not in {tag for tag, _ in found.tags}
        assert not any(name.startswith("on") for _, each in found.tags for name in each)
        assert [a.get("type") for t, a in found.tags if t == "script"] == [
            "application/json",
            "module",
        ]
        assert found.text.count(NASTY) >= 5
        (family,) = found.data["summaries"][0]["families"]
        assert family["label"] == NASTY and family["examples"]["labels"][0] == NASTY


def test_the_operators_of_one_family_rise_in_alpha():
    given = [operator(25.0), operator(5.0), operator(5.0, norm="l1"), operator(5.0, seed=1)]
    found = group_operators(given)
    alphas = [[each.settings.alpha for each in family.operators] for family in found]
    assert alphas == [[5.0, 25.0], [5.0], [5.0]]
    assert [family.label.rpartition(", ")[2] for family in found] == ["l2", "l2", "l1"]
    assert found[1].label.startswith("(2), ")
    named = {"layer 3, alpha 5": operator(5.0), "layer 3, alpha 25": operator(25.0)}
    (family,) = group_operators({**named})
    assert family.label.startswith("layer 3, 8\N{MULTIPLICATION SIGN}10")


def test_examples_of_other_maps_are_not_laid_under():
    assert group_operators(operator(), examples())[0].examples is not None
    assert group_operators(operator(), examples((4, 4)))[0].examples is None
    beyond = replace(examples(), channels=(6,))
    assert group_operators(operator(), beyond)[0].examples is None


def test_operators_in_memory_become_a_page(tmp_path):
    out = write_page(
        operator(),
        tmp_path / "new" / "page.html",
        title="Mine",
        facts={"data": "my images", "network": "my network"},
        rows=[row(), closed(5, 15.0)],
        examples=examples(),
    )
    found = Page(out.read_text("utf-8"))
    assert "Mine" in found.words and "my images" in found.words
    (packed,) = found.data["summaries"][0]["families"][0]["operators"]
    rows = unpacked(packed["rows"], np.int8).reshape(2, 20, 80)
    scales = unpacked(packed["scales"], np.float32).reshape(2, 20, 1)
    np.testing.assert_allclose(rows * scales / 127, operator().weight, atol=scales.max() / 250)


def test_errors_stand_beside_the_papers():
    rows = [row(mean=40.27), closed(5, 21.98), closed(5, -18.3, LESS), closed(5, 2e-4, P_VALUE)]
    found = Page(make_page([RunSummary("t", rows=tuple(rows))]))
    assert "closed form 3 5 l1 21.98 ± 0.50 21.56 ± 0.53" in found.words
    assert "\N{MINUS SIGN}18.30 ± 0.50" in found.words and "0.0002" in found.words
    assert "of CNN on reduced SVHN" in found.words
    chart = found.data["charts"]["errors"]
    assert chart["lines"][0]["paper"]["mean"] == 32.53
    assert [line["mean"] for line in chart["lines"]] == [40.27, 21.98]


def test_one_trial_has_no_spread():
    found = Page(make_page([RunSummary("t", rows=(row(std=float("nan"), n=1),))]))
    assert "20.00" in found.words and "nan" not in found.words
    assert found.data["charts"]["errors"]["lines"][0]["deviation"] is None


def test_means_that_are_no_numbers_are_told_and_not_drawn():
    nan = float("nan")
    looks = [closed(a, mean, VALIDATION) for a, mean in ((5, nan), (25, 3.0), (100, 4.0))]
    rows = (row(mean=nan), row(mean=2.0, pooling="sgd"))
    found = Page(make_page([RunSummary("t", rows=rows, selection=tuple(looks))]))
    assert "strided convolution nan" in found.words
    assert [line["mean"] for line in found.data["charts"]["errors"]["lines"]] == [2.0]
    (series,) = found.data["charts"]["alpha"]["series"]
    assert [point[:2] for point in series["points"]] == [[25.0, 3.0], [100.0, 4.0]]


def test_other_figures_are_told_too():
    found = Page(make_page([RunSummary("t", rows=(row(), row("CE %, fog", 91.0)))]))
    assert "More figures: 1" in found.words and "CE %, fog 5 91.00" in found.words


def test_the_search_is_drawn_over_alpha_by_layer_and_norm():
    looks = [closed(a, 30 - a / 10, VALIDATION) for a in (25, 5)]
    brief = closed(5, 99.0, VALIDATION, n=2)
    late = [replace(closed(5, 24.0, VALIDATION), norm="l2")]
    found = Page(
        make_page([RunSummary("t", selection=(replace(brief, epochs="3"), *looks, *late))])
    )
    (series,) = found.data["charts"]["alpha"]["series"]  # one alpha is not a line
    assert series["name"] == "closed form, layer 3, l1"
    assert series["points"] == [[5.0, 29.5, 0.5], [25.0, 27.5, 0.5]]
    assert "Settings of the search: 4" in found.words


def test_settings_that_differ_in_components_have_a_line_each():
    rows = [closed(a, 30 - a, components=k) for k in ("2", "4") for a in (5, 25)]
    found = Page(make_page([RunSummary("t", rows=tuple(rows))])).data["charts"]
    names = ["closed form, layer 3, l1", "closed form, layer 3, l1, components 4"]
    assert [each["name"] for each in found["alpha"]["series"]] == names
    assert len({line["name"] for line in found["errors"]["lines"]}) == 4


def test_second_layers_have_lines_that_say_what_came_before():
    rows = [
        replace(closed(alpha, 30 - alpha), layer="3, 2", alpha=f"15, {alpha}", norm=f"{first}, l2")
        for first in ("l1", "l2")
        for alpha in (5, 25)
    ]
    found = Page(make_page([RunSummary("t", rows=tuple(rows))])).data["charts"]
    names = [f"closed form, layer 3 at 15, {first} + 2, l2" for first in ("l1", "l2")]
    assert [each["name"] for each in found["alpha"]["series"]] == names


def test_operators_that_see_less_are_a_family_of_their_own():
    whole = operator(5.0)
    near = replace(operator(25.0), settings=replace(whole.settings, alpha=25.0, window=1))
    assert [each.label.endswith(", window 1") for each in group_operators([whole, near])] == [
        False,
        True,
    ]


def test_curves_show_what_was_taken():
    curves = (Curve("a", (1, 2, 3), (2.0, float("nan"), 1.0), (None, None, 30.0)),)
    drawn = Page(make_page([RunSummary("t", curves=curves)])).data["charts"]
    assert drawn["loss"]["series"] == [{"name": "a", "points": [[1, 2.0], [3, 1.0]]}]
    assert "test" not in drawn
    taken = replace(curves[0], errors=(50.0, None, 30.0))
    drawn = Page(make_page([RunSummary("t", curves=(taken,))])).data["charts"]
    assert drawn["test"]["series"][0]["points"] == [[1, 50.0], [3, 30.0]]


def test_runs_stand_side_by_side():
    first = RunSummary(
        "first", (("alpha", "5"), ("seed", "0")), group_operators(operator()), (row(),)
    )
    second = RunSummary(
        "second", (("alpha", "25"), ("seed", "0")), (), (row(mean=30.0),), missing=("x",)
    )
    found = Page(make_page([first, second]))
    assert "2 runs side by side" in found.words
    assert "A strided" in found.words and "B strided" in found.words
    assert "B: x" in found.words
    assert [a["data-explorer"] for _, a in found.tags if "data-explorer" in a] == ["0"]
    differing = [a for t, a in found.tags if t == "tr" and a.get("class") == "differs"]
    assert len(differing) == 1
    names = [line["name"] for line in found.data["charts"]["errors"]["lines"]]
    assert names == ["A: strided convolution", "B: strided convolution"]


def test_a_page_about_nothing_is_refused(tmp_path):
    with pytest.raises(ValueError, match="wanted at least one run"):
        write_summaries([], tmp_path / "page.html")
    assert not list(tmp_path.iterdir())
