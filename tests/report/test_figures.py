"""Figures of an operator: what is drawn is what the operator holds."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import foveapool as fp
from foveapool.report.figures import eigenvalue_figure, operator_figure, spread
from foveapool.report.operator_figures import STIPPLED

from .read_figures import assert_legible, images, texts


def fitted(components=2, in_shape=(8, 10), out_shape=(4, 5), **choices):
    torch.manual_seed(0)
    labels = torch.arange(120) % 4
    maps = torch.randn(120, 6, *in_shape) + torch.randn(4, 6, *in_shape)[labels]
    scatter = fp.compute_scatter(maps, labels)
    return fp.solve_pooling(scatter, out_shape, components=components, **{"alpha": 5.0, **choices})


@pytest.fixture(scope="module")
def operator():
    return fitted()


@pytest.mark.parametrize("positions", [1, 2, 3, (2, 5)])
def test_each_panel_shows_the_weights_of_its_place(operator, positions):
    down, across = (positions, positions) if isinstance(positions, int) else positions
    shown = images(operator_figure(operator, positions))
    assert len(shown) == 2 * down * across
    weight = operator.weight.reshape(2, 4, 5, 8, 10).numpy()
    wanted = [weight[c, m, n] for c in range(2) for m in spread(4, down) for n in spread(5, across)]
    for image, weights in zip(shown, wanted, strict=True):
        np.testing.assert_array_equal(image.get_array(), weights)


def test_all_panels_share_one_scale_around_zero(operator):
    limits = {image.get_clim() for image in images(operator_figure(operator))}
    assert len(limits) == 1
    low, high = limits.pop()
    assert low == -high < 0


def test_red_is_positive_and_blue_negative_and_grey_tells_the_ends_apart(operator):
    colors = images(operator_figure(operator))[0].get_cmap()
    red, blue, white = (np.array(colors(x)[:3]) for x in (1.0, 0.0, 0.5))
    assert red.argmax() == 0 and blue.argmax() == 2 and white.min() > 0.95
    grey = [0.2126, 0.7152, 0.0722]
    assert red @ grey - blue @ grey > 0.1


def test_dots_mark_what_is_negative(operator):
    figure = operator_figure(operator)
    limit = images(figure)[0].get_clim()[1]
    for axes in figure.axes:
        if axes.images:
            weights = np.asarray(axes.images[0].get_array())
            x, y = axes.lines[0].get_data()
            wanted = set(zip(*np.nonzero(weights < -STIPPLED * limit), strict=True))
            assert set(zip(y, x, strict=True)) == wanted


def test_ticks_point_to_the_center_of_the_locality():
    aligned = fitted(center="aligned")
    axes = next(axes for axes in operator_figure(aligned, 1).axes if axes.images)
    # Output place (2, 2) of 4 x 5 over 8 x 10 pixels: rows 4 and 5, columns 4 and 5.
    assert axes.get_xticks().tolist() == [4.5] and axes.get_yticks().tolist() == [4.5]


@pytest.mark.parametrize("components", [1, 3])
def test_any_number_of_components_has_a_block_each(components):
    figure = operator_figure(fitted(components), 2)
    assert len(images(figure)) == 4 * components
    assert f"component {components}" in [text.get_text() for text in texts(figure)]
    assert_legible(figure)


def test_an_operator_of_zeros_is_drawn(operator):
    empty = replace(operator, rows=torch.zeros_like(operator.weight))
    assert all(image.get_clim() == (-1.0, 1.0) for image in images(operator_figure(empty)))


def test_a_layer_in_bfloat16_is_drawn():
    layer = fp.LinearPool2d.average((4, 4), (2, 2)).bfloat16()
    assert operator_figure(layer, 1).axes


def test_three_positions_are_shown_or_all_that_there_are():
    assert len(images(operator_figure(fitted(in_shape=(4, 10), out_shape=(2, 5))))) == 2 * 2 * 3


@pytest.mark.parametrize("positions", [0, 5, (1, 6)])
def test_more_positions_than_places_are_refused(operator, positions):
    with pytest.raises(ValueError, match="positions: got"):
        operator_figure(operator, positions)


def test_maps_that_are_no_pictures_are_refused():
    line = fitted(in_shape=(1, 12), out_shape=(1, 6))
    line = replace(line, in_shape=(12,), out_shape=(6,))
    for draw in (operator_figure, eigenvalue_figure):
        with pytest.raises(ValueError, match="wanted \\(height, width\\)"):
            draw(line)


def test_eigenvalues_and_gaps_lie_over_the_output_map(operator):
    shown = images(eigenvalue_figure(operator))
    for i, image in enumerate(shown):
        values = (operator.eigenvalues, operator.gaps)[i // 2][i % 2]
        np.testing.assert_array_equal(image.get_array(), values.reshape(4, 5))
    assert {image.get_clim() for image in shown[:2]} == {
        (float(operator.eigenvalues.min()), float(operator.eigenvalues.max()))
    }


def test_places_without_any_gap_are_drawn_as_the_smallest_gap(operator):
    none = replace(operator, gaps=torch.zeros_like(operator.gaps))
    texts(eigenvalue_figure(none))
    some = operator.gaps.clone()
    some[0, 0] = 0.0
    image = images(eigenvalue_figure(replace(operator, gaps=some)))[2]
    assert image.norm(0.0) == 0.0


@pytest.mark.parametrize("components", [1, 4])
def test_eigenvalues_of_any_number_of_components_have_room(components):
    figure = eigenvalue_figure(fitted(components))
    assert len(images(figure)) == 2 * components
    assert_legible(figure)


@pytest.mark.parametrize("draw", [operator_figure, eigenvalue_figure])
def test_figures_of_an_operator_are_legible_in_a_column(operator, draw):
    assert_legible(draw(operator))
