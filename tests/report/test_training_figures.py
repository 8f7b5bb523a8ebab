"""Training curves: the drawn loss and error are those of the metrics."""

import json
import warnings

import pytest

from foveapool.report.describe import read_curve
from foveapool.report.figures import curves_figure
from foveapool.report.run_summary import Curve

from .read_figures import assert_legible, points


def curve(label, losses, errors=None):
    epochs = tuple(range(1, len(losses) + 1))
    return Curve(label, epochs, tuple(losses), tuple(errors or [None] * len(losses)))


def test_a_training_is_drawn_epoch_by_epoch():
    loss, error = curves_figure([curve("a", [2.0, 1.0, 0.5], [None, 40.0, 30.0])]).axes
    assert points(loss)["a"] == [(1, 2.0), (2, 1.0), (3, 0.5)]
    assert points(error)["a"] == [(2, 40.0), (3, 30.0)]


def test_seeds_of_one_setting_are_one_line_in_a_band():
    seeds = [curve("a", [3.0, 1.0], [50.0, 40.0]), curve("a", [1.0, 0.5], [30.0, 20.0])]
    loss, error = curves_figure([*seeds, curve("b", [1.0, 0.9])]).axes
    assert points(loss) == {"a": [(1, 2.0), (2, 0.75)], "b": [(1, 1.0), (2, 0.9)]}
    assert points(error)["a"] == [(1, 40.0), (2, 30.0)]
    (band,) = error.collections
    heights = band.get_paths()[0].vertices[:, 1]
    assert heights.min() == 20.0 and heights.max() == 50.0


def test_only_epochs_that_all_seeds_have_reached_are_averaged():
    seeds = [curve("a", [3.0, 1.0, 0.8]), curve("a", [1.0, 0.5])]
    loss, _ = curves_figure(seeds).axes
    assert points(loss)["a"] == [(1, 2.0), (2, 0.75)]


def test_a_training_without_an_epoch_is_refused():
    with pytest.raises(ValueError, match="b: got no finished epoch"):
        curves_figure([curve("a", [1.0]), curve("b", [])])
    with pytest.raises(ValueError, match="curves: got none"):
        curves_figure([])


@pytest.mark.parametrize("epochs", [1, 2, 350])
def test_curves_are_legible_in_a_column(epochs):
    losses = [2.3 / (1 + 0.1 * i) for i in range(epochs)]
    errors = [None] * (epochs - 1) + [11.5]
    names = ("baseline", "closed-form, layer 3, alpha 1000, l2", "sgd, layer 3")
    assert_legible(curves_figure([curve(name, losses, errors) for name in names]))


@pytest.mark.parametrize(
    "name", ["closed-form-trained, layer 2, alpha 1000, l2, 4 components", "runs/" + 90 * "a"]
)
def test_long_names_are_not_cut_off(name):
    figure = curves_figure([curve(f"{name} {i}", [2.0, 1.0]) for i in range(3)])
    assert_legible(figure)
    (legend,) = figure.legends
    written = [text.get_text().replace("\n", "") for text in legend.get_texts()]
    assert [text.replace(" ", "") for text in written] == [
        f"{name}{i}".replace(" ", "") for i in range(3)
    ]


def test_many_names_of_two_layers_leave_the_curves_their_room():
    first = "closed-form, layer 3, alpha 15, l1, components 4, window 2"
    names = [f"{first}; layer 2, alpha {alpha}, l2, window 2" for alpha in range(14)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib's, where there is no room
        figure = curves_figure([curve(name, [2.0, 1.0], [None, 40.0]) for name in names])
        assert_legible(figure)
    (legend,) = figure.legends
    top = legend.get_window_extent().y1
    assert all(axes.get_tightbbox().y0 > top for axes in figure.axes)
    assert all(axes.get_window_extent().height > 0.8 * figure.dpi for axes in figure.axes)


def test_a_line_that_is_being_written_does_not_hide_those_before(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"epoch": 1, "loss": 2.0}\n{"epoch": 2, "loss": 1.0}\n{"epoch": 3, "lo')
    curve = read_curve(path, "a")
    assert curve is not None and (curve.epochs, curve.losses) == ((1, 2), (2.0, 1.0))


def test_seeds_that_have_come_to_different_epochs_still_make_a_line(tmp_path):
    curves = []
    for epochs in (350, 301):
        path = tmp_path / f"{epochs}.jsonl"
        lines = [{"epoch": e, "loss": 1 / e} for e in range(1, epochs + 1)]
        path.write_text("".join(f"{json.dumps(each)}\n" for each in lines))
        curves.append(read_curve(path, "a"))
    assert [curve.epochs[-1] for curve in curves] == [350, 301]
    (line,) = curves_figure(curves).axes[0].lines
    assert len(line.get_xdata()) == 150
