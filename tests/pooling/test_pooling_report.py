"""The report on alpha: its figures, and what mathematics says of how they may change."""

from __future__ import annotations

import itertools
import re
from functools import cache

import numpy as np
import pytest
import torch
from torch.nn import functional

from foveapool.pooling import grid
from foveapool.pooling.accumulate import compute_scatter
from foveapool.pooling.scatter import Scatter
from foveapool.pooling.solve import ALPHAS, pooling_report, solve_pooling, sweep_pooling

SHAPE, OUT_SHAPE = (12, 14), (6, 7)


@cache
def smooth_scatter(seed: int = 0) -> Scatter:
    """Blurred noise around a mean for each class."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(160) % 8
    maps = torch.randn(168, 8, *SHAPE, generator=generator, dtype=torch.float64)
    for _ in range(2):
        maps = functional.avg_pool2d(maps, 3, stride=1, padding=1)
    maps = maps / maps.std()
    return compute_scatter(maps[8:] + 0.5 * maps[:8][labels], labels)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("center", grid.CENTERS)
def test_the_first_components_separability_never_grows_with_alpha(seed, center):
    # Among the rows with p^T A p = 1 the first minimizes p^T B p + alpha p^T C p. Written down for
    # two alphas, each with the other's minimizer on the larger side, the two inequalities give:
    # with alpha p^T C p falls, hence p^T B p grows, hence S_b / S_w = 1 / p^T B p falls. That holds
    # at every place. It says nothing about further components.
    scatter, alphas = smooth_scatter(seed), [0.1, 1.0, 5.0, 25.0, 100.0, 1600.0, 1e5]
    penalty = grid.penalty(SHAPE, OUT_SHAPE, center)
    reached, spread = [], []
    for operator in sweep_pooling(scatter, OUT_SHAPE, alphas, components=1, center=center):
        rows = operator.weight[0]
        signal = (rows @ scatter.between * rows).sum(1)
        reached.append(operator.separability[0])
        spread.append((rows.square() * penalty).sum(1) / signal)
    for series in (reached, spread):
        for before, after in itertools.pairwise(series):
            assert (after <= before * (1 + 1e-9)).all()
        assert (series[-1] < series[0]).all()


def test_a_further_component_may_gain_by_alpha():
    # Independent pixels: components are single pixels in the order of A_ii / (B_ii + alpha C_ii).
    # Without a penalty the far pixel (3) comes before a second far one (2); with it the center
    # (1.9) comes first and the far pixel second, so that the second component rises from 2 to 3.
    signal = torch.full((144,), 0.01, dtype=torch.float64)
    center, good, fair = 5 * 12 + 5, 5 * 12 + 7, 0
    signal[center], signal[good], signal[fair] = 1.9, 3.0, 2.0
    blank = torch.zeros(4, dtype=torch.float64)
    scatter = Scatter(
        signal.diag(), torch.eye(144).double(), blank, blank + 1, torch.tensor([9, 9]), (12, 12)
    )
    place = 2 * 6 + 2
    low, high = sweep_pooling(scatter, (6, 6), [1e-6, 0.2])
    assert low.separability[:, place].tolist() == [pytest.approx(3), pytest.approx(2)]
    assert high.separability[:, place].tolist() == [pytest.approx(1.9), pytest.approx(3)]


def test_there_is_a_row_for_each_alpha_with_the_operators_means():
    scatter, alphas = smooth_scatter(), [400.0, 1.0, 25.0]
    report = pooling_report(scatter, OUT_SHAPE, alphas, solver="dense")
    assert [row.alpha for row in report.rows] == alphas
    assert (report.in_shape, report.out_shape) == (SHAPE, OUT_SHAPE)
    for row in report.rows:
        operator = solve_pooling(scatter, OUT_SHAPE, alpha=row.alpha, solver="dense")
        gain = operator.separability.mean(1) / operator.average_separability.mean()
        for found, expected in (
            (row.separability, operator.separability.mean(1)),
            (row.gain, gain),
            (row.radius, operator.radius().mean(1)),
            (row.smallest_gap, operator.gaps.min(1).values),
        ):
            assert found == pytest.approx(expected.tolist(), rel=1e-9)
        assert row.largest_residual == pytest.approx(float(operator.residuals.max()))
        average = float(operator.average_separability.mean())
        assert report.average_separability == pytest.approx(average, rel=1e-12)


def test_the_reports_first_component_falls_and_narrows_with_alpha():
    rows = pooling_report(smooth_scatter(), OUT_SHAPE).rows
    assert tuple(row.alpha for row in rows) == ALPHAS == tuple(sorted(ALPHAS))
    for before, after in itertools.pairwise(rows):
        assert after.separability[0] <= before.separability[0]
        assert after.gain[0] <= before.gain[0]
    assert rows[-1].radius[0] < rows[0].radius[0]


@pytest.mark.parametrize("components", [1, 3])
def test_settings_of_a_report_are_handed_on_to_the_solver(components):
    report = pooling_report(
        smooth_scatter(),
        OUT_SHAPE,
        [0.5, 2.0],
        components=components,
        alpha_unit="trace",
        window=2,
        solver="dense",
    )
    for row in report.rows:
        operator = solve_pooling(
            smooth_scatter(),
            OUT_SHAPE,
            alpha=row.alpha,
            components=components,
            alpha_unit="trace",
            window=2,
        )
        assert row.separability == pytest.approx(operator.separability.mean(1).tolist())
        assert len(row.gain) == len(row.radius) == len(row.smallest_gap) == components


def test_printed_it_has_a_line_for_each_alpha():
    report = pooling_report(smooth_scatter(), OUT_SHAPE, [1.0, 25.0, 1600.0])
    first, heads, *lines = str(report).splitlines()
    assert "(12, 14) -> (6, 7)" in first
    assert f"{report.average_separability:.4g}" in first
    assert re.findall(r"\S+", heads)[:2] == ["alpha", "S_b/S_w"]
    assert [float(line.split()[0]) for line in lines] == [1.0, 25.0, 1600.0]
    for row, line in zip(report.rows, lines, strict=True):
        for value in row.separability:
            assert f"{value:.4f}" in line
        for value in row.gain:
            assert f"{value:.2f}" in line
        for value in row.radius:
            assert f"{value:.1f}" in line


def test_no_alpha_at_all_is_refused():
    with pytest.raises(ValueError, match=r"^alphas: got none"):
        pooling_report(smooth_scatter(), OUT_SHAPE, [])


def test_a_wrong_alpha_is_named():
    with pytest.raises(ValueError, match=r"^alpha: got -1"):
        pooling_report(smooth_scatter(), OUT_SHAPE, [1.0, -1.0])


def test_a_single_alpha_is_answered_with_the_name_of_the_argument():
    with pytest.raises(ValueError, match=r"^alpha: got \(5,\), wanted alphas="):
        pooling_report(smooth_scatter(), OUT_SHAPE, alpha=(5,))


@pytest.mark.parametrize("alpha", [5, 5.0, np.float32(5), np.int64(5)], ids=lambda a: str(type(a)))
def test_a_single_number_is_one_alpha(alpha):
    single, listed = (pooling_report(smooth_scatter(), OUT_SHAPE, a) for a in (alpha, [alpha]))
    assert single == listed and [row.alpha for row in single.rows] == [5.0]


def test_auto_is_one_alpha_too():
    single, listed = (pooling_report(smooth_scatter(), OUT_SHAPE, a) for a in ("auto", ["auto"]))
    assert single == listed and len(single.rows) == 1
