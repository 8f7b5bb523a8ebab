"""Bars of CE and flip rates: as long as the ratios are far from the baseline's 100."""

from dataclasses import replace

import pytest

from foveapool.records import Row
from foveapool.report.figures import ratio_figure, read_ratios

from .read_figures import assert_legible

GROUPS = {"geometric": ["zoom_blur", "glass_blur"], "non-geometric": ["fog", "snow", "frost"]}
OURS = {"zoom_blur": 93.0, "glass_blur": 105.0, "fog": 91.0, "snow": 100.5, "frost": 96.0}


def bars(axes):
    """Where the bars of each network end, from top to bottom."""
    return {
        each.get_label(): [bar.get_x() + bar.get_width() for bar in each]
        for each in axes.containers
    }


def test_bars_reach_from_the_baseline_to_the_ratio():
    figure = ratio_figure({"closed form": OURS}, GROUPS)
    for axes, names in zip(figure.axes, GROUPS.values(), strict=True):
        assert bars(axes)["closed form"] == pytest.approx([OURS[name] for name in names])
        starts = {bar.get_x() for bar in axes.containers[0]}
        assert starts == {100.0}
        labels = [text.get_text() for text in axes.get_yticklabels()]
        assert labels == [name.replace("_", " ") for name in names]
    assert figure.axes[0].get_title() == "geometric: 1 of 2 below 100"
    assert figure.axes[1].get_title() == "non-geometric: 2 of 3 below 100"


def test_networks_stand_side_by_side_and_differ_without_colors():
    other = {name: value + 3 for name, value in OURS.items() if name != "frost"}
    figure = ratio_figure({"closed-form": OURS, "sgd": other}, GROUPS)
    axes = figure.axes[1]
    assert bars(axes)["sgd"] == pytest.approx([94.0, 103.5])
    assert len({bar.get_hatch() for each in axes.containers for bar in each}) == 2
    assert_legible(figure)


def test_the_papers_ratios_are_diamonds():
    figure = ratio_figure({"closed-form": OURS}, GROUPS, printed={"zoom_blur": 93.5, "fog": 90.0})
    first, second = (axes.collections[0].get_offsets().tolist() for axes in figure.axes)
    assert first == [[93.5, 0.0]] and second == [[90.0, 0.0]]
    assert_legible(figure)


def test_a_group_without_any_ratio_is_left_out():
    figure = ratio_figure({"closed form": {"fog": 91.0}}, GROUPS)
    assert [axes.get_title() for axes in figure.axes] == ["non-geometric: 1 of 1 below 100"]
    with pytest.raises(ValueError, match="wanted some of the groups: zoom_blur, glass_blur, fog"):
        ratio_figure({"closed form": {"rain": 91.0}}, GROUPS)


def test_ratios_are_read_from_rows_by_network():
    usual = Row("robustness", "CE %, fog", 91.0, 0.0, 5, "cnn", "cifar10", "closed-form", "3")
    rows = [
        replace(usual, metric="CE %, fog", mean=99.0),
        replace(usual, metric="CE %, fog", mean=91.0),
        replace(usual, metric="flip rate %, fog", mean=70.0),
        replace(usual, metric="error %, fog, severity 1", mean=12.0),
        replace(usual, metric="CE %, fog", mean=95.0, layer="2"),
    ]
    assert read_ratios(rows) == {"closed form, layer 3": {"fog": 91.0}} | {
        "closed form, layer 2": {"fog": 95.0}
    }
    assert read_ratios(rows, "flip rate %") == {"closed form": {"fog": 70.0}}


def test_networks_that_differ_in_components_alone_are_two():
    usual = Row("robustness", "CE %, fog", 91.0, 0.0, 5, "cnn", "cifar10", "closed-form", "3")
    rows = [replace(usual, components="2"), replace(usual, components="4", mean=95.0)]
    assert read_ratios(rows) == {
        "closed form, components 2": {"fog": 91.0},
        "closed form, components 4": {"fog": 95.0},
    }
    # As many at every layer is nothing to tell.
    rows[1] = replace(rows[1], layer="3, 2", components="2, 2")
    assert list(read_ratios(rows)) == ["closed form, layer 3", "closed form, layer 3, 2"]


def test_a_network_of_two_studies_is_told_with_its_study_unless_it_is_the_same():
    row = Row("one", "CE %, fog", 91.0, 0.0, 5, "cnn", "cifar10", "closed-form", "3")
    assert list(read_ratios([row, replace(row, study="two")])) == ["closed form"]
    assert read_ratios([row, replace(row, study="two", mean=95.0)]) == {
        "closed form, one": {"fog": 91.0},
        "closed form, two": {"fog": 95.0},
    }


def test_more_networks_than_can_be_told_apart_are_refused():
    with pytest.raises(ValueError, match="got 5 networks, wanted at most 4"):
        ratio_figure({str(i): OURS for i in range(5)}, GROUPS)
