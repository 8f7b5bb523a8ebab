"""A and B kept as a band: the blocks of the whole, on grids of one to three axes, in less room."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from foveapool.pooling.accumulate import ScatterAccumulator, compute_scatter
from foveapool.pooling.grid import CENTERS, windows
from foveapool.pooling.moments import ChannelMoments
from foveapool.pooling.scatter import Scatter
from foveapool.pooling.storage import load_tensors, save_tensors

from .oracles import algorithm_1, class_maps
from .scatters import assert_equal

UNBALANCED = (25, 4, 11)
BANDS = [
    ((24, 8), (12, 4), 1),
    ((24, 8), (8, 8), 2),
    ((9, 23), (4, 11), 1),
    ((20, 20), (10, 10), 0),
    ((20, 20), (10, 10), 3),
    ((300,), (150,), 3),
    ((301,), (43,), 40),
    ((14, 5, 6), (7, 2, 3), 1),
    ((40, 2, 3), (20, 2, 3), 2),
    ((4, 4), (2, 2), 1),
    ((6, 90), (3, 45), 0),
]


@pytest.mark.parametrize(("in_shape", "out_shape", "window"), BANDS)
@pytest.mark.parametrize("weighting", ["balanced", "frequency"])
def test_a_band_holds_the_blocks_of_the_whole(in_shape, out_shape, window, weighting):
    maps, labels = class_maps((9, 6), in_shape, channels=2)
    whole, band = (
        compute_scatter(maps, labels, weighting=weighting, window=width) for width in (None, window)
    )
    scale = float(whole.within.diagonal().max())
    torch.testing.assert_close(
        band.within_diagonal(), whole.within_diagonal(), rtol=1e-12, atol=1e-13 * scale
    )
    assert whole.within_diagonal().equal(whole.within.diag())
    for center in CENTERS:
        for radius in {window, window // 2, 0}:
            index = windows(in_shape, out_shape, radius, center)
            rows, columns = index[:, :, None], index[:, None, :]
            for got, wanted, matrix in zip(
                band.blocks(index), whole.blocks(index), (whole.between, whole.within), strict=True
            ):
                assert wanted.equal(matrix[rows, columns])
                torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-13 * scale)


def test_blocks_take_places_in_any_order():
    maps, labels = class_maps((9, 6), (24, 8), channels=2)
    whole, band = (compute_scatter(maps, labels, window=width) for width in (None, 2))
    index = windows((24, 8), (12, 4), 2)
    index = index[:, torch.randperm(index.shape[1], generator=torch.Generator().manual_seed(0))]
    for got, wanted in zip(band.blocks(index), whole.blocks(index), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("in_shape", "window"), [((24, 8), 1), ((9, 23), 1), ((300,), 3), ((14, 5, 6), 1)]
)
def test_a_band_is_smaller_than_the_whole(in_shape, window):
    maps, labels = class_maps((2, 2), in_shape)
    scatter = compute_scatter(maps, labels, window=window)
    assert not scatter.panels.whole
    assert scatter.within.numel() < math.prod(in_shape) ** 2


@pytest.mark.parametrize(
    ("in_shape", "out_shape", "window"),
    [
        ((24, 8), (12, 4), 1),
        ((20, 20), (10, 10), 0),
        ((300,), (150,), 3),
        ((14, 5, 6), (7, 2, 3), 1),
    ],
)
def test_a_window_wider_than_accumulated_is_refused(in_shape, out_shape, window):
    maps, labels = class_maps((2, 2), in_shape)
    scatter = compute_scatter(maps, labels, window=window)
    scatter.blocks(windows(in_shape, out_shape, window))
    for wider in range(window + 1, window + 4):
        with pytest.raises(ValueError, match="window: got a neighborhood wider than"):
            scatter.blocks(windows(in_shape, out_shape, wider))


def test_a_window_as_wide_as_the_map_holds_everything():
    maps, labels = class_maps(UNBALANCED, (12, 11))
    band = compute_scatter(maps, labels, window=12)
    every = torch.arange(132)[None]
    A, B = band.blocks(every)
    assert_equal(replace(band, between=A[0], within=B[0]), algorithm_1(maps, labels))


def test_a_band_of_a_large_map_holds_pairs_of_one_window_alone():
    scatter = compute_scatter(torch.randn(4, 1, 40, 40), torch.arange(4) % 2, window=1)
    # Pairs two lines further down at most, five columns wide, without those before the place.
    assert scatter.panels.extent == scatter.within.shape[1] == 2 * 5 + 2 + 1


def in_lines(whole, shape, window):
    """A matrix as files held its band once: panels of 64 places, each from its first column on."""
    line, size = math.prod(shape[1:]), math.prod(shape)
    height = min(size, line * math.ceil(64 / line))
    extent = min(size, height + 2 * window * line)
    found = whole.new_zeros(size, extent)
    for place in range(size):
        first = 0 if extent == size else place // height * height
        part = whole[place, first : first + extent]
        found[place, : len(part)] = part
    return found.triu() if extent == size else found


@pytest.mark.parametrize(("in_shape", "out_shape", "window"), BANDS)
def test_files_of_bands_that_run_over_lines_are_still_read(in_shape, out_shape, window, tmp_path):
    maps, labels = class_maps((9, 6), in_shape, channels=2)
    whole, band = (compute_scatter(maps, labels, window=width) for width in (None, window))
    path = tmp_path / "scatter.safetensors"
    band.save(path)
    assert Scatter.load(path).within.equal(band.within)
    tensors, facts = load_tensors(path, "scatter")
    assert facts.pop("layout")
    for name in ("between", "within"):
        tensors[name] = in_lines(getattr(whole, name), in_shape, window)
    facts = {key: facts[key] for key in ("in_shape", "weighting", "window")}
    save_tensors(path, "scatter", tensors, facts)
    index = windows(in_shape, out_shape, window)
    for got, wanted in zip(Scatter.load(path).blocks(index), whole.blocks(index), strict=True):
        assert got.equal(wanted)


def test_sums_of_bands_that_run_over_lines_go_on(tmp_path):
    shape, window, path = (24, 8), 1, tmp_path / "sums.safetensors"
    maps, labels = class_maps((9, 6), shape, channels=2)
    moments = ChannelMoments(2)
    moments.update(maps, labels)
    sums = {width: ScatterAccumulator(moments.compute(), window=width) for width in (None, window)}
    for each in sums.values():
        each.update(maps[:7], labels[:7])
    sums[window].save(path)
    tensors, facts = load_tensors(path, "scatter-sums")
    for key in ("layout", "kind", "format_version"):
        del facts[key]
    tensors["gram"] = in_lines(sums[None].state_dict()["tensors"]["gram"], shape, window)
    save_tensors(path, "scatter-sums", tensors, facts)
    again = ScatterAccumulator.load(path)
    again.update(maps[7:], labels[7:])
    wanted = compute_scatter(maps, labels, window=window)
    torch.testing.assert_close(again.compute().within, wanted.within, rtol=1e-10, atol=1e-12)


def test_a_file_of_another_layout_is_refused(tmp_path):
    path = tmp_path / "scatter.safetensors"
    compute_scatter(torch.randn(4, 1, 9, 9), torch.arange(4) % 2, window=1).save(path)
    tensors, facts = load_tensors(path, "scatter")
    facts = {key: facts[key] for key in ("in_shape", "weighting", "window")}
    save_tensors(path, "scatter", tensors, facts)
    with pytest.raises(ValueError, match="got sums of 13 pairs a place, wanted"):
        Scatter.load(path)
    save_tensors(path, "scatter", tensors, facts | {"layout": "spiral"})
    with pytest.raises(ValueError, match="a fact layout"):
        Scatter.load(path)
