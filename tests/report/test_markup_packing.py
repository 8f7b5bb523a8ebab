"""Packing: what the page gets is what the operator holds, to 8 bits a row, and is short."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import foveapool as fp
from foveapool.pooling.grid import penalty
from foveapool.report.examples import Examples
from foveapool.report.markup import pack_examples, pack_operator, quantize_to_bytes

from .pages import operator, unpacked

MOST_BYTES = 600_000


def test_a_weight_loses_at_most_half_a_step_of_its_row():
    found = operator()
    packed = pack_operator(found)
    rows = unpacked(packed["rows"], np.int8).reshape(2, 20, 80).astype(float)
    scales = unpacked(packed["scales"], np.float32).reshape(2, 20, 1)
    largest = found.weight.abs().amax(-1, keepdim=True).numpy()
    np.testing.assert_allclose(scales, largest, rtol=1e-6)
    lost = np.abs(rows * scales / 127 - found.weight.numpy())
    assert (lost <= largest / 254 * (1 + 1e-4)).all()
    assert lost.max() > 0  # it is a packing that loses something, not a copy


def test_all_other_numbers_are_the_operators():
    found = operator(norm="l1")
    packed = pack_operator(found)
    assert (packed["alpha"], packed["norm"], packed["components"]) == (5.0, "l1", 2)
    assert [packed[key] for key in ("height", "width", "outHeight", "outWidth")] == [8, 10, 4, 5]
    for key, values in (
        ("separability", found.separability),
        ("average", found.average_separability),
        ("gaps", found.gaps),
        ("radius", found.radius()),
        ("mean", found.mean),
    ):
        np.testing.assert_allclose(
            unpacked(packed[key], np.float32), values.flatten().numpy(), rtol=1e-6
        )
    json.dumps(packed, allow_nan=False)


def test_a_row_of_zeros_stays_zero():
    rows, scales = quantize_to_bytes(torch.zeros(1, 2, 3))
    assert not rows.any() and not scales.any()


def test_half_precision_is_as_good_as_single():
    found = operator()
    half = pack_operator(replace(found, rows=found.weight.half()))
    whole = pack_operator(found)
    np.testing.assert_allclose(
        unpacked(half["radius"], np.float32), unpacked(whole["radius"], np.float32), rtol=1e-2
    )


def test_a_map_on_a_line_is_one_row_high():
    labels = torch.arange(60) % 3
    maps = (
        torch.randn(60, 2, 12, generator=torch.Generator().manual_seed(0)) + labels[:, None, None]
    )
    packed = pack_operator(fp.solve_pooling(fp.compute_scatter(maps, labels), (4,)))
    assert [packed[key] for key in ("height", "width", "outHeight", "outWidth")] == [1, 12, 1, 4]


def test_a_large_operator_stays_below_the_limit():
    # Noise within the radius that small alphas reach at this size: harder to compress than any fit.
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(2, 256, 1024, generator=generator, dtype=torch.float64)
    near = torch.exp(-penalty((32, 32), (16, 16)) / (2 * 10**2))
    small = operator()
    places = {
        name: torch.ones(2, 256) for name in ("eigenvalues", "residuals", "gaps", "separability")
    }
    large = replace(
        small,
        rows=noise * near,
        average_separability=torch.ones(256),
        in_shape=(32, 32),
        out_shape=(16, 16),
        **places,
    )
    assert 8 < large.radius().mean() < 12
    assert len(json.dumps(pack_operator(large))) <= MOST_BYTES


def test_example_maps_come_back_to_a_255th_of_their_range():
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (3, 3, 6, 6), generator=generator, dtype=torch.uint8)
    maps = torch.randn(3, 2, 4, 5, generator=generator).half()
    maps[0, 0] = 1.5
    packed = pack_examples(Examples(images, maps, ("a", "b", "c"), (7, 1)))
    assert (unpacked(packed["images"], np.uint8) == images.flatten().numpy()).all()
    levels = unpacked(packed["maps"], np.uint8).reshape(3, 2, 20)
    least, step = (unpacked(packed[key], np.float32).reshape(3, 2, 1) for key in ("least", "step"))
    lost = np.abs(least + step * levels - maps.flatten(2).float().numpy())
    assert (lost <= step * 0.51 + 1e-6).all()
    assert packed["channels"] == [7, 1]


@pytest.mark.parametrize("shape", [(2, 3, 4)])
def test_a_volume_is_refused(shape):
    found = replace(operator(), in_shape=shape)
    with pytest.raises(ValueError, match="wanted one or two axes"):
        pack_operator(found)
