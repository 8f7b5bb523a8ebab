"""Radius and separability against alpha: lines and bands are those of the operators."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import foveapool as fp
from foveapool.pooling.solve import pooling_report, sweep_pooling
from foveapool.report.figures import radius_figure, separability_figure

from .read_figures import assert_legible, points, texts

ALPHAS = (1.0, 5.0, 25.0, 100.0, 400.0, 1600.0)


@pytest.fixture(scope="module")
def scatters():
    torch.manual_seed(0)
    labels = torch.arange(90) % 3
    found = {}
    for name, size in (("layer 2", 8), ("layer 3", 4)):
        maps = torch.randn(90, 5, size, size) + torch.randn(3, 5, size, size)[labels]
        found[name] = fp.compute_scatter(maps, labels)
    return found


@pytest.fixture(scope="module")
def sweeps(scatters):
    return {
        name: list(sweep_pooling(each, [size // 2 for size in each.in_shape], ALPHAS[::-1]))
        for name, each in scatters.items()
    }


@pytest.mark.parametrize(
    ("draw", "key"), [(radius_figure, "radius"), (separability_figure, "gain")]
)
def test_lines_are_the_means_that_the_report_gives(scatters, sweeps, draw, key):
    figure = draw(sweeps)
    for component, axes in enumerate(figure.axes):
        lines = points(axes)
        for name, scatter in scatters.items():
            rows = pooling_report(scatter, sweeps[name][0].out_shape, ALPHAS).rows
            wanted = [(row.alpha, getattr(row, key)[component]) for row in rows]
            np.testing.assert_allclose(lines[name], wanted, rtol=1e-5)
    assert_legible(figure)


def test_bands_reach_from_the_narrowest_row_to_the_widest(sweeps):
    axes = radius_figure(sweeps).axes[1]
    band = axes.collections[0].get_paths()[0].vertices
    for operator in sweeps["layer 2"]:
        heights = band[band[:, 0] == operator.settings.alpha, 1]
        radius = operator.radius()[1]
        assert heights.min() == pytest.approx(float(radius.min()))
        assert heights.max() == pytest.approx(float(radius.max()))


def test_average_pooling_is_a_level(sweeps):
    for axes in separability_figure(sweeps).axes:
        assert [1.0, 1.0] in [list(line.get_ydata()) for line in axes.lines]


def test_one_component_is_one_panel_with_every_alpha_numbered(scatters):
    sweep = list(sweep_pooling(scatters["layer 3"], (2, 2), ALPHAS, components=1))
    figure = radius_figure({"layer 3": sweep})
    assert len(figure.axes) == 1
    written = [text.get_text() for text in texts(figure)]
    assert {f"{alpha:g}" for alpha in ALPHAS} <= set(written)


def test_what_is_no_sweep_is_refused(sweeps):
    with pytest.raises(ValueError, match="got none"):
        radius_figure({})
    with pytest.raises(ValueError, match="got none"):
        radius_figure({"layer 2": []})
    first, second = sweeps["layer 2"][:2]
    fewer = replace(second, rows=second.weight[:1])
    with pytest.raises(ValueError, match="several numbers of components"):
        radius_figure({"layer 2": [first, fewer]})
    other = replace(second, settings=replace(second.settings, alpha_unit="trace"))
    with pytest.raises(ValueError, match="wanted one unit"):
        separability_figure({"layer 2": [first, other]})
