"""The look of figures, and their files."""

import sys
from itertools import pairwise
from pathlib import Path

import matplotlib
import pytest
from matplotlib.colors import to_rgb

from foveapool.report import style
from foveapool.report.style import (
    FORMATS,
    legend_below,
    line_style,
    log_axis,
    new_figure,
    save_figure,
    tidy_axes,
    with_style,
)

STARTS = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}


def lightness(color):
    """L* of CIELAB, 0 for black to 100 for white."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(color)]
    y = sum(share * c for share, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
    return 116 * y ** (1 / 3) - 16 if y > 0.008856 else 903.3 * y


@with_style
def drawn():
    figure = new_figure(3.3, 2)
    axes = tidy_axes(figure.subplots())
    axes.plot([1, 2, 3], [1, 4, 2], label="<one> & two", **line_style(1))
    axes.set_xlabel("a < b")
    return figure


def test_no_two_lines_look_the_same():
    looks = [tuple(map(str, line_style(i).values())) for i in range(56)]
    assert len(set(looks)) == 56


def test_the_first_three_lines_differ_without_colors():
    greys = sorted(lightness(line_style(i)["color"]) for i in range(3))
    assert greys[1] - greys[0] > 20 and greys[2] - greys[1] > 20
    assert len({line_style(i)["marker"] for i in range(3)}) == 3
    assert len({str(line_style(i)["linestyle"]) for i in range(3)}) == 3


def test_a_figure_is_written_as_its_ending_says(tmp_path):
    for form in FORMATS:
        (path,) = save_figure(drawn(), tmp_path / f"figure.{form}")
        assert path.read_bytes().startswith(STARTS[form])
    assert len(list(tmp_path.iterdir())) == 3


def test_all_formats_are_written_beside_each_other(tmp_path):
    paths = save_figure(drawn(), tmp_path / "new" / "figure.png", ("svg", "pdf"))
    assert [path.name for path in paths] == ["figure.svg", "figure.pdf"]
    assert all(path.is_file() for path in paths) and len(list((tmp_path / "new").iterdir())) == 2


def test_a_number_in_a_name_is_no_ending(tmp_path):
    names = [save_figure(drawn(), tmp_path / f"alpha-{a}", ["png"])[0].name for a in (0.1, 0.5)]
    assert names == ["alpha-0.1.png", "alpha-0.5.png"]


@pytest.mark.parametrize("form", FORMATS)
def test_the_same_figure_gives_the_same_bytes(tmp_path, form):
    first, second = (save_figure(drawn(), tmp_path / f"{i}.{form}")[0] for i in range(2))
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize("name", ["figure.jpg", "figure"])
def test_another_ending_is_refused_and_nothing_is_written(tmp_path, name):
    with pytest.raises(ValueError, match="wanted one of png, pdf, svg"):
        save_figure(drawn(), tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_the_callers_own_settings_change_nothing(tmp_path):
    usual = save_figure(drawn(), tmp_path / "usual.png")[0].read_bytes()
    with matplotlib.rc_context({"font.size": 20, "axes.labelsize": 20, "lines.linewidth": 9}):
        other = save_figure(drawn(), tmp_path / "other.png")[0].read_bytes()
    assert other == usual


def test_an_axis_of_many_alphas_numbers_those_that_have_room():
    axes = new_figure(3.3, 2).subplots()
    log_axis(axes, [1, 1.1, 10, 100, 1000], "alpha")
    labels = [text.get_text() for text in axes.get_xticklabels()]
    assert axes.get_xticks().tolist() == [1, 1.1, 10, 100, 1000]
    assert labels == ["1", "", "10", "100", "1000"]


def test_a_wider_axis_has_room_for_more_numbers():
    alphas = [1, 5, 25, 65, 200, 400, 1000, 2000]
    for width, unnumbered in ((6.6, 0), (3.3, 1), (1.8, 3)):
        figure = new_figure(width, 2)
        axes = tidy_axes(figure.subplots())
        axes.plot(alphas, alphas)
        axes.set_ylabel("test error %")
        log_axis(axes, alphas, "alpha")
        assert [text.get_text() for text in axes.get_xticklabels()].count("") == unnumbered
        figure.draw_without_rendering()
        labels = [text for text in axes.get_xticklabels() if text.get_text()]
        boxes = [text.get_window_extent() for text in labels]
        assert all(left.x1 < right.x0 for left, right in pairwise(boxes))


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install .*\[plot\]'"):
        drawn()


def test_figures_are_drawn_without_pyplot():
    folder = Path(style.__file__).parent
    assert [path for path in folder.glob("*.py") if "pyplot" in path.read_text("utf-8")] == []


@with_style
def test_a_long_legend_takes_nothing_from_the_panels():
    heights = []
    for count in (2, 12):
        figure = new_figure(3.3, 2)
        axes = tidy_axes(figure.subplots())
        for number in range(count):
            axes.plot([1, 2], label=f"a name that has a line of its own in a column {number}")
        legend_below(figure, [axes])
        figure.draw_without_rendering()
        (legend,) = figure.legends
        assert legend.get_window_extent().y1 < axes.get_tightbbox().y0
        heights.append(axes.get_window_extent().height)
    assert heights[1] == pytest.approx(heights[0], rel=0.05)


@with_style
def test_a_figure_too_narrow_for_its_legend_keeps_it():
    figure = new_figure(0.3, 2)
    axes = figure.subplots()
    axes.plot([1, 2], label="a name that has no room")
    legend_below(figure, [axes])
    (legend,) = figure.legends
    assert " ".join(legend.get_texts()[0].get_text().split()) == "a name that has no room"
