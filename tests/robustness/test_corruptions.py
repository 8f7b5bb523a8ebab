"""The table of corruptions, and what `corrupt` promises of all of them."""

import json
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from foveapool.robustness import names
from foveapool.robustness.corruptions import CORRUPTIONS, block_length, corrupt

from .perturbation_oracles import pictures

FACTS = json.loads((Path(__file__).parent / "vectors" / "cifar10c.json").read_text("utf-8"))
IMAGES = torch.from_numpy(pictures(4))
NAMES = list(CORRUPTIONS)
RANDOM = [name for name in NAMES if CORRUPTIONS[name].random]
FIXED = [name for name in NAMES if not CORRUPTIONS[name].random]

pytestmark = pytest.mark.filterwarnings("ignore:frost. no pictures of ice")


def change(images, name, severity, **options):
    corrupted = corrupt(images, name, severity, **options)
    return float((corrupted.double() - images).abs().mean())


@pytest.mark.parametrize("name", NAMES)
def test_the_table_has_the_authors_parameters(name):
    corruption, facts = CORRUPTIONS[name], FACTS["corruptions"][name]
    assert corruption.random == facts["random"]
    for severity, row in enumerate(corruption.severities, start=1):
        parameters = facts["severity"][str(severity)]["parameters"]
        wanted = parameters if isinstance(parameters, list) else [parameters]
        if name == "zoom_blur":
            wanted = [wanted[0]["count"]]
        if name == "pixelate":
            row = [int(32 * row[0])]
        if name == "spatter":
            wanted = [*wanted[:5], ("water", "mud")[wanted[5]]]
        assert list(row) == list(wanted)


def test_the_groups_are_those_of_the_metrics():
    assert tuple(NAMES) == names.ALL_CORRUPTIONS
    standard = [name for name in NAMES if CORRUPTIONS[name].standard]
    assert tuple(standard) == names.STANDARD_CORRUPTIONS
    geometric = {name for name in standard if CORRUPTIONS[name].group == "geometric"}
    assert geometric == set(names.GEOMETRIC_CORRUPTIONS)
    kinds = {"noise", "geometric", "weather", "digital"}
    assert {corruption.group for corruption in CORRUPTIONS.values()} == kinds


@pytest.mark.parametrize("name", NAMES)
def test_bytes_come_back_and_the_images_stay(name):
    before = IMAGES.clone()
    found = corrupt(IMAGES, name, 3)
    assert found.dtype == torch.uint8
    assert found.shape == IMAGES.shape
    assert found.is_contiguous()
    assert torch.equal(IMAGES, before)
    assert not torch.equal(found, before)


@pytest.mark.parametrize("name", NAMES)
def test_the_order_of_axes_in_memory_does_not_matter(name):
    turned = IMAGES.permute(0, 3, 1, 2).contiguous().permute(0, 2, 3, 1)
    assert torch.equal(corrupt(turned, name, 2), corrupt(IMAGES, name, 2))


@pytest.mark.parametrize("name", RANDOM)
def test_the_same_seed_gives_the_same_bytes(name):
    state = torch.get_rng_state()
    first = corrupt(IMAGES, name, 5, seed=1)
    torch.manual_seed(0)
    assert torch.equal(corrupt(IMAGES, name, 5, seed=1), first)
    assert not torch.equal(corrupt(IMAGES, name, 5, seed=2), first)
    torch.set_rng_state(state)


@pytest.mark.parametrize("name", RANDOM)
def test_every_image_has_chances_of_its_own(name):
    twice = IMAGES[:1].expand(2, -1, -1, -1)
    first, second = corrupt(twice, name, 5)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("name", FIXED)
def test_no_seed_changes_what_is_not_random(name):
    assert torch.equal(corrupt(IMAGES, name, 4, seed=1), corrupt(IMAGES, name, 4, seed=2))
    one_by_one = torch.cat([corrupt(image[None], name, 4) for image in IMAGES])
    assert torch.equal(one_by_one, corrupt(IMAGES, name, 4))


def test_severities_do_not_share_their_chances():
    noise = [corrupt(IMAGES, "gaussian_noise", s).double() - IMAGES for s in (3, 4)]
    assert abs(np.corrcoef(*(each.flatten() for each in noise))[0, 1]) < 0.05


@pytest.mark.parametrize("name", ["impulse_noise", "fog"])
def test_a_set_in_parts_gets_the_bytes_of_the_whole(name):
    large = torch.from_numpy(pictures(1, side=448)).repeat(7, 1, 1, 1)
    assert block_length(large) == 5
    whole = corrupt(large, name, 3, seed=4)
    parts = [corrupt(large[:5], name, 3, seed=4), corrupt(large[5:], name, 3, seed=4, start=5)]
    assert torch.equal(torch.cat(parts), whole)


def test_blocks_shrink_with_larger_images():
    sides = (28, 32, 64, 224, 2000)
    lengths = [block_length(torch.empty(0, side, side, 3)) for side in sides]
    assert lengths == [1306, 1000, 250, 20, 1]


def test_no_images_give_no_images():
    assert corrupt(IMAGES[:0], "fog", 1).shape == (0, 32, 32, 3)


def test_elastic_transform_and_saturate_do_not_grow_with_severity():
    images = torch.from_numpy(pictures(40))
    changes = {
        name: [change(images, name, severity) for severity in range(1, 6)]
        for name in ("elastic_transform", "saturate", "gaussian_noise", "contrast", "motion_blur")
    }
    assert changes["elastic_transform"] == sorted(changes["elastic_transform"], reverse=True)
    assert min(changes["saturate"]) == changes["saturate"][2]
    assert changes["gaussian_noise"] == sorted(changes["gaussian_noise"])
    assert changes["contrast"] == sorted(changes["contrast"])
    assert changes["motion_blur"][3] == pytest.approx(changes["motion_blur"][2], rel=0.1)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (IMAGES.numpy(), r"images: got ndarray, wanted a torch tensor; torch\.from_numpy"),
        (IMAGES / 255, r"images: got torch\.float32, wanted uint8 levels from 0 to 255"),
        (IMAGES.long(), r"images: got torch\.int64, wanted uint8"),
        (IMAGES[0], r"images: got shape \(32, 32, 3\), wanted \(N, H, W, 3\)"),
        (IMAGES.permute(0, 3, 1, 2), r"got shape \(4, 3, 32, 32\).*permute\(0, 2, 3, 1\)"),
        (IMAGES[..., :1], r"got gray ones, \(4, 32, 32, 1\), .*needs color images"),
        (IMAGES[:, :12], r"images: got 12 x 32 pixels, wanted 16 or more a side"),
    ],
)
def test_images_that_are_none_are_refused(images, message):
    with pytest.raises(ValueError, match=message):
        corrupt(images, "fog", 1)


@pytest.mark.parametrize("severity", [0, 6, -1, 2.5, 3.0, True, "3", None])
def test_severities_beyond_five_are_refused(severity):
    with pytest.raises(ValueError, match=r"severity: got .*, wanted a whole number from 1 to 5"):
        corrupt(IMAGES, "fog", severity)


def test_a_slip_in_the_name_is_mended():
    with pytest.raises(ValueError, match=r"'gausian_noise'.*gaussian_noise"):
        corrupt(IMAGES, "gausian_noise", 1)


@pytest.mark.parametrize("start", [1, 999, -1000])
def test_parts_that_cut_a_block_are_refused(start):
    with pytest.raises(ValueError, match=rf"start: got {start}, wanted a multiple of 1000"):
        corrupt(IMAGES, "fog", 1, start=start)


def test_no_other_library_is_loaded():
    program = (
        "import sys, torch\n"
        "from foveapool.robustness.corruptions import corrupt\n"
        "corrupt(torch.zeros(1, 32, 32, 3, dtype=torch.uint8), 'spatter', 1)\n"
        "print({'scipy', 'skimage', 'cv2', 'PIL', 'wand'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"


def test_warnings_are_only_about_ice():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in NAMES:
            if name != "frost":
                corrupt(IMAGES, name, 1)
