"""Figures: what is drawn is what the operator holds."""

import numpy as np
import pytest
import torch

import foveapool as fp
from foveapool.report.figures import operator_figure, spread


@pytest.fixture(scope="module")
def operator():
    torch.manual_seed(0)
    labels = torch.arange(120) % 4
    maps = torch.randn(120, 6, 8, 10) + torch.randn(4, 6, 8, 10)[labels]
    return fp.solve_pooling(fp.compute_scatter(maps, labels), (4, 5), alpha=5.0)


def heat_maps(figure):
    return [axis.images[0] for axis in figure.axes if axis.images]


@pytest.mark.parametrize("positions", [1, 2, 3])
def test_each_panel_shows_the_weights_of_its_place(operator, positions):
    figure = operator_figure(operator, positions)
    images = heat_maps(figure)
    assert len(images) == 2 * positions**2
    weight = operator.weight.reshape(2, 4, 5, 8, 10).numpy()
    rows, columns = spread(4, positions), spread(5, positions)
    wanted = [weight[c, m, n] for c in range(2) for m in rows for n in columns]
    for image, weights in zip(images, wanted, strict=True):
        np.testing.assert_array_equal(image.get_array(), weights)


def test_all_panels_share_one_scale_around_zero(operator):
    limits = {image.get_clim() for image in heat_maps(operator_figure(operator))}
    assert len(limits) == 1
    low, high = limits.pop()
    assert low == -high < 0


def test_the_figure_can_be_written(operator, tmp_path):
    path = tmp_path / "operator.png"
    operator_figure(operator).savefig(path)
    assert path.read_bytes().startswith(b"\x89PNG")
