"""Poolings side by side: every error is on the line of its pooling, the best line on top."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest

from foveapool.records import ERROR, VALIDATION, Row
from foveapool.report.figures import poolings_figure

from .read_figures import assert_legible, points, texts


def row(pooling, layer, mean, alpha="", **columns):
    usual = {"study": "s", "metric": ERROR, "std": 0.5, "n": 5, "network": "cnn"}
    usual |= {"data": "svhn", "components": "2" if layer else "", "norm": "l2" if alpha else ""}
    usual |= {"pooling": pooling, "layer": layer, "mean": mean, "alpha": alpha, "epochs": "150"}
    return Row(**{**usual, **columns})


BASELINE = row("baseline", "", 40.0)
ROWS = [
    row("max", "1", 43.0, std=2.5),
    row("max", "3", 39.0),
    row("closed-form", "1", 21.25, "auto"),
    row("closed-form", "3", 20.5, "auto", std=0.25),
    row("closed-form", "3", 22.0, "25"),
    row("sgd", "1", 19.75),
    row("sgd", "3", 42.0),
]
LEVEL = "strided convolution"
NAMES = ["P by SGD", "closed form, alpha auto", "closed form, alpha 25", "max"]


def names(axes):
    return [label.get_text() for label in axes.get_yticklabels()]


def drawn(axes):
    """The errors on each line by layer, whatever way a marker is off the middle of its line."""
    found = {}
    for layer, own in points(axes).items():
        for error, place in own if layer != LEVEL else ():
            found.setdefault(names(axes)[round(place)], {}).setdefault(layer, []).append(error)
    return found


def bars(axes):
    """The two ends of each bar, by layer."""
    return {
        each.get_label(): [(x1, x2) for (x1, _), (x2, _) in each.lines[2][0].get_segments()]
        for each in axes.containers
    }


def test_each_pooling_is_a_line_with_its_errors_by_layer_and_the_best_is_on_top():
    (axes,) = poolings_figure([*ROWS, BASELINE]).axes
    assert names(axes) == NAMES
    assert axes.transData.transform((0, 0))[1] > axes.transData.transform((0, 3))[1]
    assert drawn(axes) == {
        "P by SGD": {"layer 1": [19.75], "layer 3": [42.0]},
        "closed form, alpha auto": {"layer 1": [21.25], "layer 3": [20.5]},
        "closed form, alpha 25": {"layer 3": [22.0]},
        "max": {"layer 1": [43.0], "layer 3": [39.0]},
    }
    assert axes.get_xlabel() == ERROR


def test_bars_are_deviations_and_one_seed_has_none():
    rows = [*ROWS, row("blur", "1", 38.0, std=math.nan, n=1)]
    (axes,) = poolings_figure(rows).axes
    shown = {name: set(own) for name, own in bars(axes).items()}
    assert shown["layer 1"] == {(40.5, 45.5), (20.75, 21.75), (19.25, 20.25), (38.0, 38.0)}
    assert {(38.5, 39.5), (20.25, 20.75)} < shown["layer 3"]


def test_the_baseline_is_a_dashed_line_across_and_no_pooling():
    (axes,) = poolings_figure([*ROWS, BASELINE]).axes
    (level,) = [each for each in axes.lines if each.get_label() == LEVEL]
    assert set(level.get_xdata()) == {40.0} and level.is_dashed()
    assert LEVEL in [text.get_text() for text in texts(axes.figure)]
    other = replace(BASELINE, study="t", mean=35.0)
    (axes,) = poolings_figure([*ROWS, BASELINE, other]).axes
    assert [each.get_xdata()[0] for each in axes.lines if each.is_dashed()] == [40.0, 35.0]
    (axes,) = poolings_figure(ROWS).axes
    assert LEVEL not in points(axes)


def test_layers_differ_in_marker_and_color_and_do_not_hide_each_other():
    same = [row("sgd", layer, 20.0) for layer in "123"]
    (axes,) = poolings_figure(same).axes
    lines = [each.lines[0] for each in axes.containers]
    assert len({each.get_marker() for each in lines}) == 3
    assert len({each.get_color() for each in lines}) == 3
    places = [place for own in points(axes).values() for _, place in own]
    assert places == sorted(set(places)) and max(map(abs, places)) < 0.5


def test_norms_and_components_are_told_where_they_differ():
    rows = [row("closed-form", "3", 20.0, "25"), row("closed-form", "3", 21.0, "25", norm="l1")]
    assert names(poolings_figure(rows).axes[0]) == ["closed form, l2", "closed form, l1"]
    rows = [rows[0], replace(rows[0], components="4", mean=19.0)]
    wanted = ["closed form, components 4", "closed form, components 2"]
    assert names(poolings_figure(rows).axes[0]) == wanted


def test_forms_of_one_pooling_are_lines_of_one_panel():
    rows = [row("sgd", "3", 20.0 + i, form=f) for i, f in enumerate(("mix", "after", "replace"))]
    rows.append(row("blur", "3", 25.0, form="after"))
    (axes,) = poolings_figure(rows).axes
    assert names(axes) == ["P by SGD, mix", "P by SGD, after", "P by SGD, replace", "BlurPool"]


def test_networks_and_placements_have_panels_with_their_own_baseline():
    deep = [replace(each, network="resnet18", mean=each.mean / 2) for each in ROWS]
    before, shortcut = (
        [replace(each, placement=where) for each in deep] for where in ("before", "shortcut")
    )
    rows = [*before, *ROWS, BASELINE, *shortcut[:2], replace(BASELINE, network="resnet18", mean=12)]
    figure = poolings_figure(rows)
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["CNN", "ResNet-18, before", "ResNet-18, shortcut"]
    assert [names(axes) for axes in figure.axes] == [NAMES, NAMES, ["max"]]
    levels = [points(axes)[LEVEL][0][0] for axes in figure.axes]
    assert levels == [40.0, 12.0, 12.0]
    assert_legible(figure)


def test_batch_sizes_are_not_mixed():
    rows = [*ROWS, BASELINE, *(replace(each, batch="64") for each in ROWS)]
    figure = poolings_figure(rows)
    assert [axes.get_title() for axes in figure.axes] == ["", "batch 64"]
    assert [LEVEL in points(axes) for axes in figure.axes] == [True, False]


def test_what_two_studies_share_is_drawn_once():
    (axes,) = poolings_figure([*ROWS, *(replace(each, study="t") for each in ROWS)]).axes
    assert sum(len(own) for own in points(axes).values()) == len(ROWS)


def test_rows_without_a_pooling_are_refused():
    with pytest.raises(ValueError, match="got no pooling beside the baseline among 1 of"):
        poolings_figure([BASELINE])
    with pytest.raises(ValueError, match="got none of 'test error %' among 1 such as"):
        poolings_figure([replace(ROWS[0], metric=VALIDATION)])


@pytest.mark.parametrize("layers", ["123", ["1", "2", "3", "3, 1", "3, 2"]])
def test_many_poolings_are_legible_in_a_column(layers):
    kinds = [("closed-form-trained", "auto"), ("closed-form-trained", "25"), ("sgd-local", "")]
    kinds += [(name, "") for name in ("average", "max", "blur", "mixed", "gated", "soft", "lip")]
    rows = [
        row(name, layer, 20.0 + number + place, alpha)
        for number, (name, alpha) in enumerate(kinds)
        for place, layer in enumerate(layers)
    ]
    figure = poolings_figure([*rows, BASELINE])
    assert_legible(figure)
    (axes,) = figure.axes
    boxes = [label.get_window_extent() for label in axes.get_yticklabels()]
    assert all(upper.y0 > lower.y1 for upper, lower in pairwise(boxes))
    assert axes.get_window_extent().width > figure.bbox.width / 3
