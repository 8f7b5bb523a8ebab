"""Errors from rows: every row that belongs into a figure is in it, as it was measured."""

import math
from dataclasses import replace

import numpy as np
import pytest

from foveapool.records import ERROR, VALIDATION, Row
from foveapool.report.figures import alpha_figure, images_figure

from .read_figures import assert_legible, points, spreads, texts

ALPHAS = (5.0, 25.0, 65.0, 200.0, 400.0, 1000.0)


def row(layer="3", alpha=25.0, norm="l2", mean=20.0, **columns):
    usual = {"study": "s", "metric": ERROR, "std": 0.5, "n": 5, "network": "cnn"}
    usual |= {"data": "svhn-reduced", "pooling": "closed-form", "epochs": "150"}
    place = {"layer": layer, "alpha": f"{alpha:g}", "norm": norm, "mean": mean}
    return Row(**{**usual, **place, **columns})


def grid(**columns):
    return [
        row(layer, alpha, norm, 20 + int(layer) + i + (norm == "l1") / 2, std=0.1 * (i + 1),
            **columns)
        for layer in "123"
        for norm in ("l1", "l2")
        for i, alpha in enumerate(ALPHAS)
    ]  # fmt: skip


BASELINE = row("", 0, "", 39.0, pooling="baseline")


def test_each_layer_and_norm_is_a_line_with_its_means_and_spreads():
    rows = grid()
    (axes,) = alpha_figure([*rows, BASELINE]).axes
    lines, bars = points(axes), spreads(axes)
    for layer in "123":
        for norm in ("l1", "l2"):
            own = [each for each in rows if (each.layer, each.norm) == (layer, norm)]
            name = f"layer {layer}, {norm}"
            assert lines.pop(name) == [(float(each.alpha), each.mean) for each in own]
            np.testing.assert_allclose(bars[name], [each.std for each in own])
    level = lines.pop("strided convolution")
    assert {y for _, y in level} == {39.0} and not lines


def test_layers_differ_in_marker_and_norms_in_dashes():
    (axes,) = alpha_figure(grid()).axes
    looks = {
        bars.get_label(): (bars.lines[0].get_marker(), bars.lines[0].is_dashed())
        for bars in axes.containers
    }
    assert len({marker for marker, _ in looks.values()}) == 3
    assert all(dashed == name.endswith("l1") for name, (_, dashed) in looks.items())


def test_validation_errors_are_drawn_where_there_are_any():
    rows = [*grid(metric=VALIDATION), *(replace(each, mean=1.0) for each in grid())]
    (axes,) = alpha_figure(rows).axes
    assert axes.get_ylabel() == VALIDATION and (5.0, 1.0) not in points(axes)["layer 1, l2"]
    (axes,) = alpha_figure(rows, ERROR).axes
    assert axes.get_ylabel() == ERROR and (5.0, 1.0) in points(axes)["layer 1, l2"]


def test_settings_that_were_looked_at_briefly_are_hollow():
    first = [row(alpha=alpha, mean=20.0, n=2, metric=VALIDATION) for alpha in ALPHAS]
    final = [row(alpha=alpha, mean=21.0, n=5, metric=VALIDATION) for alpha in ALPHAS[1:3]]
    (axes,) = alpha_figure([*first, *final]).axes
    means = [21.0 if alpha in ALPHAS[1:3] else 20.0 for alpha in ALPHAS]
    assert points(axes)["layer 3, l2"] == list(zip(ALPHAS, means, strict=True))
    hollow = [line for line in axes.lines if line.get_markerfacecolor() == "white"]
    shown = [point for line in hollow for point in zip(*line.get_data(), strict=True)]
    assert sorted(shown) == [(alpha, 20.0) for alpha in ALPHAS if alpha not in ALPHAS[1:3]]


def test_one_legend_names_the_lines_of_all_panels():
    rows = [row("1", alpha, network="cnn") for alpha in ALPHAS]
    rows += [row(layer, alpha, network="resnet18") for layer in "13" for alpha in ALPHAS]
    (legend,) = alpha_figure(rows).legends
    assert [text.get_text() for text in legend.get_texts()] == ["layer 1, l2", "layer 3, l2"]


def test_one_trial_has_no_bar():
    rows = [row(alpha=alpha, std=math.nan, n=1) for alpha in ALPHAS]
    (axes,) = alpha_figure(rows).axes
    assert spreads(axes)["layer 3, l2"] == [0.0] * len(ALPHAS)


def test_placements_have_panels_and_names_of_their_own():
    rows = [*grid(placement="before", network="resnet18")]
    rows += grid(placement="shortcut", network="resnet18")
    figure = alpha_figure(rows)
    assert [axes.get_title() for axes in figure.axes] == ["before", "shortcut"]
    assert all(len(points(axes)) == 6 for axes in figure.axes)
    assert_legible(figure)


def test_a_second_layer_is_drawn_against_its_own_alpha():
    rows = [row("3, 1", 25, "l2, l1", 18.0 + i) for i in range(2)]
    rows = [replace(each, alpha=f"65, {a}") for each, a in zip(rows, (5, 400), strict=True)]
    (axes,) = alpha_figure([*grid(), *rows]).axes
    assert points(axes)["layer 3 at 65, l2 + 1, l1"] == [(5.0, 18.0), (400.0, 19.0)]


def test_second_layers_after_different_norms_do_not_hide_each_other():
    rows = [
        row("3, 2", norm=f"{first}, l2", alpha=alpha, mean=mean + alpha, components="2, 2")
        for first, mean in (("l1", 20.0), ("l2", 30.0))
        for alpha in (5.0, 25.0)
    ]
    rows = [replace(each, alpha=f"15, {each.alpha}") for each in rows]
    auto = replace(rows[0], alpha="15, auto", mean=17.0)
    (axes,) = alpha_figure([*rows, auto]).axes
    lines = points(axes)
    assert lines["layer 3 at 15, l1 + 2, l2"] == [(5.0, 25.0), (25.0, 45.0)]
    assert lines["layer 3 at 15, l2 + 2, l2"] == [(5.0, 35.0), (25.0, 55.0)]
    assert {y for _, y in lines["layer 3 at 15, l1 + 2, l2, auto"]} == {17.0}


def test_components_are_a_panel_that_says_what_its_numbers_are():
    rows = [row(alpha=a, components=c) for c in ("2", "4", "4, 2") for a in ALPHAS]
    rows += [row("3, 2", a, "l1, l2", components="2, 2") for a in ALPHAS]
    figure = alpha_figure(rows)
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["components 2", "components 4", "components 4, 2"]


def test_a_setting_of_two_studies_is_two_lines_unless_it_is_the_same():
    rows = [row(alpha=alpha, study="one") for alpha in ALPHAS]
    same = [replace(each, study="two") for each in rows]
    (axes,) = alpha_figure([*rows, *same]).axes
    assert list(points(axes)) == ["layer 3, l2"]
    (axes,) = alpha_figure([*rows, *(replace(each, mean=9.0) for each in same)]).axes
    assert list(points(axes)) == ["layer 3, one, l2", "layer 3, two, l2"]
    assert {y for _, y in points(axes)["layer 3, one, l2"]} == {20.0}
    assert len({bars.lines[0].get_marker() for bars in axes.containers}) == 2


def test_an_alpha_chosen_by_the_fit_is_a_level():
    auto = row(alpha=0, mean=17.0)
    (axes,) = alpha_figure([*grid(), replace(auto, alpha="auto")]).axes
    assert {y for _, y in points(axes)["layer 3, l2, auto"]} == {17.0}


def test_a_pooling_with_one_alpha_gets_no_panel():
    rows = [*grid(), row(pooling="closed-form, sign sum"), row(pooling="closed-form-trained")]
    assert len(alpha_figure(rows).axes) == 1
    with pytest.raises(ValueError, match="no setting with two alphas or more that are numbers"):
        alpha_figure(rows[-2:])
    with pytest.raises(ValueError, match="got none of 'validation error %'"):
        alpha_figure(rows, VALIDATION)


def shares(pooling, *means, **columns):
    names = ("svhn, 5 %", "svhn, 20 %", "svhn")
    return [
        row("3", 25, "l2", mean, data=name, pooling=pooling, **columns)
        for name, mean in zip(names, means, strict=True)
    ]


def test_each_pooling_is_a_line_over_the_share_of_images():
    rows = [*shares("baseline", 39.0, 20.0, 10.0), *shares("closed-form", 21.0, 15.0, 9.5)]
    (axes,) = images_figure(rows).axes
    assert points(axes)["strided convolution"] == [(5.0, 39.0), (20.0, 20.0), (100.0, 10.0)]
    assert points(axes)["closed form"] == [(5.0, 21.0), (20.0, 15.0), (100.0, 9.5)]
    assert "%" in axes.get_xlabel() and axes.get_yscale() == "log"
    (near,) = images_figure(shares("baseline", 12.0, 11.0, 10.0)).axes
    assert near.get_yscale() == "linear"


def test_with_their_number_known_images_are_counted():
    figure = images_figure(shares("baseline", 39.0, 20.0, 10.0), {"svhn": 73257})
    assert [x for x, _ in points(figure.axes[0])["strided convolution"]] == [3663, 14651, 73257]
    assert figure.axes[0].get_xlabel() == "training images"
    assert_legible(figure)


def test_a_pooling_in_two_places_at_once_is_two_lines():
    rows = shares("closed-form", 21.0, 15.0, 9.5)
    rows += [replace(each, layer="2", mean=each.mean + 1) for each in rows]
    (axes,) = images_figure(rows).axes
    assert list(points(axes)) == [
        "closed form, layer 3, alpha 25, l2",
        "closed form, layer 2, alpha 25, l2",
    ]


def test_a_pooling_with_two_numbers_of_components_or_placements_is_two_lines():
    rows = shares("closed-form", 21.0, 15.0, 9.5, components="2", placement="both")
    more = [replace(each, components="4", mean=each.mean + 1) for each in rows]
    (axes,) = images_figure([*rows, *more]).axes
    lines = points(axes)
    usual = "closed form, layer 3, alpha 25, l2"
    assert list(lines) == [f"{usual}, components 2", f"{usual}, components 4"]
    assert [y for _, y in lines[f"{usual}, components 4"]] == [22.0, 16.0, 10.5]
    more = [replace(each, placement="before") for each in rows]
    (axes,) = images_figure([*rows, *(replace(each, mean=each.mean + 1) for each in more)]).axes
    assert list(points(axes)) == [f"{usual}, both", f"{usual}, before"]


def test_where_each_share_chose_its_own_place_a_pooling_is_one_line():
    rows = shares("closed-form", 21.0, 15.0, 9.5)
    rows[1] = replace(rows[1], layer="2", alpha="400")
    (axes,) = images_figure(rows).axes
    assert len(points(axes)["closed form"]) == 3


def test_data_of_one_size_only_is_refused():
    with pytest.raises(ValueError, match="two shares or more"):
        images_figure(grid())
    with pytest.raises(ValueError, match="got none of 'test error %' among 0; wanted some"):
        images_figure([])


def test_a_grid_of_errors_is_legible_in_a_column():
    figure = alpha_figure([*grid(), BASELINE])
    assert_legible(figure)
    assert "layer 2, l1" in [text.get_text() for text in texts(figure)]
