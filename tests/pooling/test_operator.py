"""PoolingOperator: its file, its figures, and the layer that it becomes."""

from __future__ import annotations

import json
import re
from dataclasses import fields, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional

from foveapool.pooling import grid
from foveapool.pooling.accumulate import compute_scatter
from foveapool.pooling.operator import PoolingOperator
from foveapool.pooling.scatter import Scatter
from foveapool.pooling.solve import solve_pooling

WINDOWS = [None, 2]
windows = pytest.mark.parametrize("window", WINDOWS)


@cache
def smooth_maps() -> tuple[Tensor, Tensor]:
    """Blurred noise around a mean for each class; channels of unequal mean and scale."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(120) % 6
    maps = torch.randn(126, 4, 16, 10, generator=generator, dtype=torch.float64)
    for _ in range(2):
        maps = functional.avg_pool2d(maps, 3, stride=1, padding=1)
    maps = maps / maps.std()
    scale = torch.tensor([0.5, 1.0, 4.0, 9.0])[:, None, None]
    return (maps[6:] + 0.5 * maps[:6][labels]) * scale - 3 * scale, labels


@cache
def smooth_scatter() -> Scatter:
    return compute_scatter(*smooth_maps())


@cache
def solved(window: int | None = None, norm: str = "l2") -> PoolingOperator:
    choices = {"alpha": 25.0, "components": 2, "norm": norm, "window": window}
    return solve_pooling(smooth_scatter(), (8, 4), **choices)


def same(one: PoolingOperator, other: PoolingOperator) -> bool:
    """Whether all fields are equal, and of equal types."""
    for field in fields(PoolingOperator):
        mine, theirs = getattr(one, field.name), getattr(other, field.name)
        if type(mine) is not type(theirs):
            return False
        if isinstance(mine, Tensor):
            if mine.dtype != theirs.dtype or not torch.equal(mine, theirs):
                return False
        elif mine != theirs:
            return False
    return True


# The file.


@windows
def test_what_is_saved_is_what_is_loaded(tmp_path, window):
    operator = solved(window)
    for path in (tmp_path / "operator.safetensors", str(tmp_path / "other.safetensors")):
        operator.save(path)
        assert same(PoolingOperator.load(path), operator)


@pytest.mark.parametrize("shape", [(30,), (5, 6, 4)])
def test_operators_on_lines_and_volumes_are_saved_too(tmp_path, shape):
    maps = torch.randn(40, 3, *shape, generator=torch.Generator().manual_seed(1))
    scatter = compute_scatter(maps, torch.arange(40) % 2)
    operator = solve_pooling(scatter, [size // 2 for size in shape], window=1)
    operator.save(tmp_path / "operator")
    assert same(PoolingOperator.load(tmp_path / "operator"), operator)


def test_a_window_makes_the_file_smaller(tmp_path):
    solved(None).save(tmp_path / "whole")
    solved(2).save(tmp_path / "window")
    whole, window = (load_file(tmp_path / name)["weight"] for name in ("whole", "window"))
    assert (whole.shape, window.shape) == ((2, 32, 160), (2, 32, 25))
    assert (tmp_path / "window").stat().st_size < (tmp_path / "whole").stat().st_size / 4


def test_the_file_is_safetensors_with_the_settings_as_json(tmp_path):
    solved().save(tmp_path / "operator")
    with safe_open(tmp_path / "operator", framework="np") as file:
        header = json.loads(file.metadata()["foveapool"])
    assert header["kind"] == "operator" and header["format_version"] == 1
    assert header["in_shape"] == [16, 10] and header["out_shape"] == [8, 4]
    assert header["settings"]["alpha"] == 25.0 and header["settings"]["window"] is None


def test_saving_leaves_nothing_else_behind_and_replaces_what_was_there(tmp_path):
    path = tmp_path / "operator"
    solved(2).save(path)
    solved(None).save(path)
    assert [file.name for file in tmp_path.iterdir()] == ["operator"]
    assert same(PoolingOperator.load(path), solved(None))


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_a_truncated_file_is_refused_by_name(tmp_path, share):
    path = tmp_path / "half.safetensors"
    solved().save(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(ValueError, match=r"half\.safetensors: not a whole safetensors file"):
        PoolingOperator.load(path)


def foreign(path: Path, kind: str) -> None:
    if kind == "scatter":
        smooth_scatter().save(path)
    elif kind == "text":
        path.write_text("alpha = 25\n" * 100)
    elif kind == "no header":
        save_file({"weight": torch.zeros(2, 4, 16)}, path)
    else:
        metadata = {"foveapool": json.dumps({"kind": "operator", "format_version": 999})}
        save_file({"weight": torch.zeros(2, 4, 16)}, path, metadata=metadata)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("scatter", "got scatter, wanted a foveapool operator file"),
        ("text", "not a whole safetensors file"),
        ("no header", "got no foveapool header, wanted a foveapool operator file"),
        ("later version", "got format version 999, wanted 1"),
    ],
)
def test_a_foreign_file_is_refused_by_name(tmp_path, kind, message):
    path = tmp_path / "foreign.safetensors"
    foreign(path, kind)
    with pytest.raises(ValueError, match=rf"foreign\.safetensors: {message}"):
        PoolingOperator.load(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere: no such file"):
        PoolingOperator.load(tmp_path / "nowhere")


# Its figures.


@pytest.mark.parametrize("centre", grid.CENTRES)
def test_the_radius_of_an_indicator_is_its_distance_from_the_centre(centre):
    operator = solved()
    settings = replace(operator.settings, centre=centre)
    rows = torch.eye(160, dtype=torch.float64)
    shown = torch.stack([rows[place].expand(32, -1) for place in (0, 37, 159)])
    indicators = replace(operator, weight=-3 * shown, settings=settings)
    pixels = np.array([[y, x] for y in range(1, 17) for x in range(1, 11)])[[0, 37, 159]]
    outputs = np.array([[y, x] for y in range(1, 9) for x in range(1, 5)])
    scale, at = np.array([2.0, 2.5]), grid.CENTRES.index(centre) / 2
    middles = scale * (outputs - at) + at
    expected = np.linalg.norm(pixels[:, None] - middles, axis=-1)
    assert indicators.radius().numpy() == pytest.approx(expected)


def test_the_radius_of_equal_weights_is_the_root_of_the_mean_squared_distance():
    operator = solved()
    weight = torch.zeros(1, 32, 16, 10, dtype=torch.float64)
    weight[:, :, 3, 2], weight[:, :, 3, 6] = 1.0, -1.0
    # The first output place has its centre at row 2, column 2.5; pixels are at row 4.
    expected = np.sqrt((2**2 + 0.5**2 + 2**2 + 4.5**2) / 2)
    assert replace(operator, weight=weight.flatten(2)).radius()[0, 0] == pytest.approx(expected)


def test_the_radius_shrinks_to_nothing_as_alpha_grows():
    # At a whole stride the paper's centre is a pixel.
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
        centre="aligned",
        sign="sum",
        solver="dense",
        window=3,
        tolerance=1e-6,
    )
    settings = operator.settings
    assert (settings.alpha, settings.alpha_unit, settings.norm) == (2.0, "trace", "l1")
    assert (settings.centre, settings.sign, settings.solver) == ("aligned", "sum", "dense")
    assert (settings.window, settings.tolerance) == (3, 1e-6)
    assert settings.weighting == "balanced"


# The layer.


@windows
@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_the_layer_normalises_pools_and_scales_back(window, norm):
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


def test_an_operator_on_a_line_is_no_layer_for_images():
    maps = torch.randn(40, 3, 30, generator=torch.Generator().manual_seed(1))
    operator = solve_pooling(compute_scatter(maps, torch.arange(40) % 2), (15,))
    with pytest.raises(ValueError, match=r"^in_shape: got \(30,\), wanted \(H, W\)"):
        operator.module()
