"""Filters, motion, zoom and resizing against scipy, Pillow and the kernels of the authors."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage

from foveapool.robustness.blur import make_defocus_kernel, plan_zoom, zoom_and_clip
from foveapool.robustness.filters import (
    canny,
    correlate,
    equalize,
    fold_index,
    gaussian,
    gaussian_weights,
    magnify,
    measure_distance_to,
    motion_blur,
    motion_weights,
    repeat_pixels,
    shrink_by_boxes,
)
from foveapool.robustness.images import to_levels, to_unit
from foveapool.robustness.weather import draw_fog_maps

from . import corruption_oracles, spatter_oracle
from .authors import scripted
from .perturbation_oracles import pictures

FACTS = json.loads((Path(__file__).parent / "vectors" / "cifar10c.json").read_text("utf-8"))
HELPERS = FACTS["helpers"]
# To the last bit, and made with Python 3.11: its own sum rounds in another way from 3.12 on.
WEIGHTS = json.loads((Path(__file__).parent / "vectors" / "weights.json").read_text("utf-8"))
RANDOM = np.random.default_rng(7)


@pytest.mark.parametrize("border", ["nearest", "reflect", "mirror"])
def test_borders_are_those_of_scipy(border):
    row = RANDOM.random(5)
    kernel = np.zeros(2 * 12 + 1)
    kernel[0] = 1
    wanted = ndimage.correlate1d(row, kernel, mode=border)
    found = row[fold_index(torch.arange(5) - 12, 5, border)]
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("sigma", [0.05, 0.25, 0.4, 1.0, 3.0])
@pytest.mark.parametrize("options", [{}, {"truncate": 3.0, "border": "reflect"}])
def test_gaussian_is_scipys(sigma, options):
    images = RANDOM.random((2, 20, 17, 3))
    modes = {"mode": options.get("border", "nearest"), "truncate": options.get("truncate", 4.0)}
    wanted = ndimage.gaussian_filter(images, (0, sigma, sigma, 0), **modes)
    np.testing.assert_allclose(gaussian(torch.from_numpy(images), sigma, **options), wanted, 1e-14)
    plane = torch.from_numpy(images[..., 0])
    np.testing.assert_allclose(gaussian(plane, sigma, **options), wanted[..., 0], 1e-14)


@pytest.mark.parametrize("sigma", WEIGHTS["gaussian"])
def test_gaussian_weights_are_the_same_on_every_python(sigma):
    assert [each.hex() for each in gaussian_weights(float(sigma))] == WEIGHTS["gaussian"][sigma]


@pytest.mark.parametrize("name", WEIGHTS["motion"])
def test_motion_weights_are_the_same_on_every_python(name):
    found = motion_weights(*map(float, name.split()))
    assert [each.hex() for each in found] == WEIGHTS["motion"][name]


@pytest.mark.parametrize("sigma", [0.4, 0.6, 0.7, 0.8, 1.0, *np.arange(0.3, 0.75, 0.045)])
def test_flat_pictures_keep_the_levels_that_scipy_leaves_them(sigma):
    """The sum of all weights is one or a bit less: that bit decides where levels are cut down."""
    levels = np.tile(np.arange(256, dtype=np.uint8)[:, None, None, None], (1, 9, 9, 3))
    smooth = ndimage.gaussian_filter(levels / 255.0, (0, sigma, sigma, 0), mode="nearest")
    wanted = (smooth.clip(0, 1) * 255).astype(np.uint8)
    found = to_levels(gaussian(to_unit(torch.from_numpy(levels)), sigma))
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("shape", [(3, 3), (1, 5), (7, 3)])
def test_correlate_is_scipys(shape):
    images, kernel = RANDOM.random((2, 20, 17, 3)), RANDOM.random(shape)
    wanted = ndimage.correlate(images, kernel[None, :, :, None], mode="mirror")
    found = correlate(torch.from_numpy(images), torch.from_numpy(kernel))
    np.testing.assert_allclose(found, wanted, 1e-12)


@pytest.mark.parametrize("severity", "12345")
def test_defocus_kernels_are_the_authors(severity):
    parameters = FACTS["corruptions"]["defocus_blur"]["severity"][severity]["parameters"]
    kernel = make_defocus_kernel(*parameters)
    rim = (5 - len(kernel)) // 2
    kernel = np.pad(kernel.numpy(), rim)
    np.testing.assert_allclose(kernel, HELPERS["defocus_kernel_centre5x5"][severity], atol=6e-9)


@pytest.mark.parametrize("name", HELPERS["motion_kernels"])
def test_motion_kernels_are_the_authors(name):
    radius, sigma = (float(part) for part in name.removeprefix("radius").split("_sigma"))
    np.testing.assert_allclose(
        motion_weights(radius, sigma), HELPERS["motion_kernels"][name], atol=6e-9
    )


def test_every_image_moves_along_its_own_angle():
    images, angles = pictures(5), [-180.0, -135.0, -44.5, 0.0, 30.0]
    found = motion_blur(torch.from_numpy(images), 8, 3, torch.tensor(angles))
    each = zip(images, angles, strict=True)
    wanted = [corruption_oracles.moved(image, 8, 3, angle) for image, angle in each]
    np.testing.assert_array_equal(found, np.stack(wanted))
    grey = motion_blur(torch.from_numpy(images[..., 1]), 8, 3, torch.tensor(angles))
    np.testing.assert_array_equal(grey, found[..., 1])


def test_zooms_have_the_authors_sizes():
    # The facts print factors with two digits; those of zoom_blur are numpy's.
    cases = list(zip(np.arange(1, 1.26, 0.01), HELPERS["zoom_geometry"], strict=True))
    cases += [(case["zoom"], case) for case in HELPERS["zoom_geometry_snow"]]
    for factor, case in cases:
        wanted = (case["crop"], case["crop_start"], case["resized"], case["trim_start"])
        assert plan_zoom(32, float(factor)) == wanted


@pytest.mark.parametrize("factor", [1.0, 1.02, 1.11, 1.25, 1.75, 2.25])
def test_clipped_zoom_is_the_authors(factor):
    images = RANDOM.random((2, 32, 32, 3))
    found = zoom_and_clip(torch.from_numpy(images), factor)
    wanted = np.stack([corruption_oracles.zoomed(image, factor) for image in images])
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_clipped_zoom_does_not_shrink():
    with pytest.raises(ValueError, match=r"factor: got 0\.9, wanted 1 or more"):
        zoom_and_clip(torch.zeros(1, 32, 32), 0.9)


@pytest.mark.parametrize("decay", HELPERS["fog_map_numpy_seed0"])
def test_fog_maps_are_the_authors(decay):
    facts = HELPERS["fog_map_numpy_seed0"][decay]
    draws = scripted("fog", np.zeros((1, 32, 32, 3)), {})
    (cloud,) = draw_fog_maps(draws, 1, 32, float(decay))
    np.testing.assert_allclose(cloud[0, :6], facts["row0_first6"], atol=1e-8)
    found = [cloud[16, 16], cloud.mean(), cloud.std(correction=0)]
    np.testing.assert_allclose(
        found, [facts["centre_16_16"], facts["mean"], facts["std"]], atol=1e-8
    )


@pytest.mark.parametrize("side", [28, 32, 64, 224])
def test_boxes_are_pillows(side):
    image = pictures(1, side)[0]
    for cells in (20, 27):
        small = Image.fromarray(image).resize((cells, cells), Image.Resampling.BOX)
        large = small.resize((side, side), Image.Resampling.BOX)
        found = shrink_by_boxes(torch.from_numpy(image)[None], cells, cells)
        np.testing.assert_array_equal(found[0], np.asarray(small))
        np.testing.assert_array_equal(repeat_pixels(found, side, side)[0], np.asarray(large))


def test_shrinking_five_times_keeps_every_fifth_pixel():
    picture = torch.from_numpy(pictures(1, 64)[0])
    assert torch.equal(magnify(picture[:60, :60], 0.2), picture[2:60:5, 2:60:5])


def test_enlarging_draws_straight_lines():
    ramp = torch.arange(0, 100, 10, dtype=torch.uint8)[None, :, None].expand(10, 10, 3)
    found = magnify(ramp, 2.0)[5, :, 0].double()
    assert found.tolist() == np.clip(np.arange(20) * 5 - 2.5, 0, 90).round().tolist()


def drops(count):
    """Layers as spatter has them, and two extremes: nothing, and one spot."""
    noise = ndimage.gaussian_filter(RANDOM.normal(0.65, 0.3, (count, 32, 32)), (0, 1, 1))
    layers = (np.where(noise < 0.69, 0, noise).clip(0, 1) * 255).astype(np.uint8)
    layers[0], layers[1] = 0, 0
    layers[1, 3, 4] = 255
    return layers


def test_edges_and_distances_are_opencvs():
    layers = drops(12)
    edges = canny(torch.from_numpy(layers), 50, 150)
    wanted = np.stack([spatter_oracle.canny(layer) for layer in layers])
    np.testing.assert_array_equal(edges, wanted)
    assert wanted.any((1, 2)).tolist() == [False] + [True] * 11
    found = measure_distance_to(edges, cap=20)
    np.testing.assert_allclose(
        found, np.stack([spatter_oracle.chamfer(each) for each in wanted]), atol=1e-5
    )
    assert (found[0] == 20).all()


def test_equalised_levels_are_opencvs():
    layers = np.concatenate([drops(4), RANDOM.integers(0, 9, (4, 32, 32), dtype=np.uint8)])
    found = equalize(torch.from_numpy(layers))
    wanted = np.stack([spatter_oracle.equalise(layer) for layer in layers])
    np.testing.assert_array_equal(found, wanted)
