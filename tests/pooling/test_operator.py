"""PoolingOperator: its figures, and the layer that it becomes.

Its file is tested in test_operator_file.py.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from foveapool.pooling import grid
from foveapool.pooling.accumulate import compute_scatter
from foveapool.pooling.module import LinearPool1d, LinearPool2d
from foveapool.pooling.solve import solve_pooling

from .solved_operator import smooth_maps, smooth_scatter, solved, windows

# Its figures.


@pytest.mark.parametrize("center", grid.CENTERS)
def test_the_radius_of_an_indicator_is_its_distance_from_the_center(center):
    operator = solved()
    settings = replace(operator.settings, center=center)
    rows = torch.eye(160, dtype=torch.float64)
    shown = torch.stack([rows[place].expand(32, -1) for place in (0, 37, 159)])
    indicators = replace(operator, rows=-3 * shown, settings=settings)
    pixels = np.array([[y, x] for y in range(1, 17) for x in range(1, 11)])[[0, 37, 159]]
    outputs = np.array([[y, x] for y in range(1, 9) for x in range(1, 5)])
    scale, at = np.array([2.0, 2.5]), grid.CENTERS.index(center) / 2
    middles = scale * (outputs - at) + at
    expected = np.linalg.norm(pixels[:, None] - middles, axis=-1)
    assert indicators.radius().numpy() == pytest.approx(expected)


def test_the_radius_of_equal_weights_is_the_root_of_the_mean_squared_distance():
    operator = solved()
    weight = torch.zeros(1, 32, 16, 10, dtype=torch.float64)
    weight[:, :, 3, 2], weight[:, :, 3, 6] = 1.0, -1.0
    # The first output place has its center at row 2, column 2.5; pixels are at row 4.
    expected = np.sqrt((2**2 + 0.5**2 + 2**2 + 4.5**2) / 2)
    assert replace(operator, rows=weight.flatten(2)).radius()[0, 0] == pytest.approx(expected)


def test_the_radius_shrinks_to_nothing_as_alpha_grows():
    # At a whole stride the paper's center is a pixel.
    near, far = (
        solve_pooling(smooth_scatter(), (8, 5), alpha=alpha, solver="dense").radius()[0]
        for alpha in (1e7, 1.0)
    )
    assert (near < 1e-3).all() and (far > 0.5).all()


@windows
def test_the_summary_holds_the_key_figures(window):
    operator = solved(window)
    text = operator.summary()
    figures = [
        "(16, 10) -> (8, 4)",
        "2 components",
        "alpha 25 (absolute)",
        "l2",
        "32 places",
        f"average pooling {operator.average_separability.mean():.4g}",
        f"largest residual {operator.residuals.max():.1e}",
        operator.settings.solver,
        "ridge 0.0e+00",
    ]
    assert (f"l2, window {window}\n" in text) == (window is not None)
    for i in range(2):
        gain = operator.separability[i].mean() / operator.average_separability.mean()
        figures += [
            f"component {i + 1}: {operator.separability[i].mean():.4g} ({gain:.2f} times)",
            f"radius {operator.radius()[i].mean():.1f} pixels",
            f"smallest gap {operator.gaps[i].min():.2g}",
        ]
    for figure in figures:
        assert figure in text
    assert len(text.splitlines()) == 5


def test_a_place_where_averages_tell_nothing_does_not_blow_the_gain_up():
    operator = solved()
    average = operator.average_separability.clone()
    average[0] = 1e-9
    found = replace(operator, average_separability=average)
    printed = re.search(
        r"average pooling (\S+)\n  component 1: (\S+) \((\S+) times", found.summary()
    )
    of_average, of_first, times = map(float, printed.groups())
    assert times == pytest.approx(of_first / of_average, abs=0.01)


def test_its_repr_is_one_short_line():
    shown = "PoolingOperator((16, 10) -> (8, 4), components=2, alpha=25, l2)"
    assert repr(solved()) == shown


def test_shapes_are_those_that_the_class_promises():
    operator = solved()
    assert operator.components == 2
    assert operator.weight.shape == (2, 32, 160)
    for name in ("eigenvalues", "residuals", "gaps", "separability"):
        assert getattr(operator, name).shape == (2, 32)
    assert operator.average_separability.shape == (32,)
    assert torch.equal(operator.mean, smooth_scatter().mean)


def test_settings_say_how_it_was_solved():
    operator = solve_pooling(
        smooth_scatter(),
        (8, 4),
        alpha=2,
        alpha_unit="trace",
        norm="l1",
        center="aligned",
        sign="sum",
        solver="dense",
        window=3,
        tolerance=1e-6,
    )
    settings = operator.settings
    assert (settings.alpha, settings.alpha_unit, settings.norm) == (2.0, "trace", "l1")
    assert (settings.center, settings.sign, settings.solver) == ("aligned", "sum", "dense")
    assert (settings.window, settings.tolerance) == (3, 1e-6)
    assert settings.weighting == "balanced"


# The layer.


@windows
@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_the_layer_normalizes_pools_and_scales_back(window, norm):
    operator, scatter = solved(window, norm), smooth_scatter()
    maps = smooth_maps()[0][:7]
    mean, std = (tensor.numpy()[:, None] for tensor in (scatter.mean, scatter.std))
    x = (maps.flatten(2).numpy() - mean) / std
    pooled = [x @ operator.weight[i].numpy().T * std + mean for i in range(2)]
    expected = np.concatenate(pooled, axis=1).reshape(7, 8, 8, 4)
    found = operator.module()(maps.float()).numpy()
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()


def test_a_map_at_the_mean_stays_at_the_mean():
    operator = solved()
    level = operator.mean.float()
    pooled = operator.module()(level[None, :, None, None].expand(1, 4, 16, 10))
    expected = level.repeat(2)[None, :, None, None].expand(1, 8, 8, 4)
    assert (pooled - expected).abs().max() <= 1e-4


@pytest.mark.parametrize("trainable", [False, True])
def test_the_layer_is_trained_only_if_asked(trainable):
    layer = solved().module(trainable=trainable)
    assert layer.trainable is trainable
    assert len(list(layer.parameters())) == trainable
    assert (layer.in_shape, layer.out_shape, layer.components) == ((16, 10), (8, 4), 2)


def test_the_layer_shares_no_memory_with_the_operator():
    operator = solved()
    before = operator.weight.clone()
    layer = operator.module(trainable=True)
    with torch.no_grad():
        layer.weight.zero_()
    assert torch.equal(operator.weight, before)


def test_an_operator_on_a_line_is_a_layer_for_lines_and_none_for_images():
    maps = torch.randn(40, 3, 30, generator=torch.Generator().manual_seed(1))
    operator = solve_pooling(compute_scatter(maps, torch.arange(40) % 2), (15,))
    pool = operator.module()
    assert isinstance(pool, LinearPool1d) and pool(maps).shape == (40, 3 * len(operator.rows), 15)
    with pytest.raises(ValueError, match=r"^LinearPool1d: got a map of shape \(1, 3, 5, 6\), want"):
        pool(torch.zeros(1, 3, 5, 6))
    with pytest.raises(ValueError, match=r"^in_shape: got \(30,\), wanted \(H, W\)"):
        LinearPool2d(operator.rows, in_shape=(30,), out_shape=(15,))
