"""Street digits: repeatable, like photographs, and to be learnt from shapes, not from pixels."""

import subprocess
import sys

import pytest
import torch
from torch.nn import functional

from foveapool.data.street_digits import ATLAS, load_atlas, make_street_digits, measure_row_depths


@pytest.fixture(scope="module")
def train():
    return make_street_digits(2000, seed=0)


@pytest.fixture(scope="module")
def unseen():
    return make_street_digits(1000, seed=1)


def grey(digits):
    """Brightness (n, H, W), each image with mean 0 and deviation 1."""
    maps = digits.images.float().mean(1)
    maps = maps - maps.mean((1, 2), keepdim=True)
    return maps / maps.std((1, 2), keepdim=True).clamp_min(1)


def edges(digits):
    """How steep half-size images are along and across: the same for light and for dark digits."""
    maps = functional.avg_pool2d(grey(digits), 2)
    across, along = maps[:, 1:, 1:] - maps[:, 1:, :-1], maps[:, 1:, 1:] - maps[:, :-1, 1:]
    return torch.cat((across.abs(), along.abs()), 1)


def nearest_mean_accuracy(features, train, unseen):
    known, asked = features(train).flatten(1), features(unseen).flatten(1)
    means = torch.stack([known[train.labels == label].mean(0) for label in range(10)])
    found = torch.cdist(asked, means).argmin(1)
    return (found == unseen.labels).float().mean().item()


def test_images_are_bytes_with_labels_of_ten_classes(unseen):
    assert unseen.images.shape == (1000, 3, 32, 32)
    assert unseen.images.dtype == torch.uint8
    assert unseen.labels.dtype == torch.int64
    assert unseen.classes == tuple("0123456789")


def test_the_same_seed_gives_the_same_images(unseen):
    again = make_street_digits(1000, seed=1)
    assert torch.equal(again.images, unseen.images)
    assert torch.equal(again.labels, unseen.labels)


def test_another_seed_gives_other_images(train, unseen):
    difference = train.images[:1000].float() - unseen.images.float()
    assert (difference.abs().mean((1, 2, 3)) > 1).all()
    assert not torch.equal(train.labels[:1000], unseen.labels)


def test_no_block_repeats_another(train):
    assert len(train.images.flatten(1).unique(dim=0)) == len(train)


@pytest.mark.parametrize("count", [0, 1, 199, 200, 201, 457])
def test_a_smaller_count_gives_the_first_images(unseen, count):
    fewer = make_street_digits(count, seed=1)
    assert torch.equal(fewer.images, unseen.images[:count])
    assert torch.equal(fewer.labels, unseen.labels[:count])


def test_the_random_state_of_others_is_neither_used_nor_changed(unseen):
    torch.manual_seed(3)
    before = torch.get_rng_state()
    assert torch.equal(make_street_digits(10, seed=1).images, unseen.images[:10])
    assert torch.equal(torch.get_rng_state(), before)


def test_the_number_of_threads_does_not_matter(unseen):
    threads = torch.get_num_threads()
    try:
        for other in (1, 3):
            torch.set_num_threads(other)
            assert torch.equal(make_street_digits(200, seed=1).images, unseen.images[:200])
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("size", [16, 64])
def test_another_size_shows_the_same_scenes(unseen, size):
    other = make_street_digits(50, seed=1, size=size)
    assert other.images.shape == (50, 3, size, size)
    assert torch.equal(other.labels, unseen.labels[:50])
    maps = [
        functional.adaptive_avg_pool2d(images.float(), 8)
        for images in (other.images, unseen.images[:50])
    ]
    difference = (maps[0] - maps[1]).abs().mean((1, 2, 3))
    assert (difference < 5).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"count": -1}, "count: got -1, wanted 0 or more"),
        ({"count": 1, "seed": -5}, "seed: got -5, wanted 0 or more"),
        ({"count": 1, "size": 4}, "size: got 4, wanted 8 or more"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        make_street_digits(**arguments)


def test_classes_are_about_equally_frequent(train):
    counts = train.labels.bincount(minlength=10)
    assert counts.min() > 150
    assert counts.max() < 250


def test_brightness_and_contrast_vary_as_in_photographs(train):
    brightness = train.images.float().mean((1, 2, 3)) / 255
    contrast = train.images.float().mean(1).std((1, 2)) / 255
    # Where SVHN has its middle half: 0.33 to 0.58, and 0.09 to 0.15.
    low, middle, high = brightness.quantile(torch.tensor([0.05, 0.5, 0.95])).tolist()
    assert low < 0.25 and 0.4 < middle < 0.5 and high > 0.7
    low, middle, high = contrast.quantile(torch.tensor([0.05, 0.5, 0.95])).tolist()
    assert low > 0.03 and 0.09 < middle < 0.15 and high > 0.18


def test_the_middle_holds_most_structure_and_the_sides_some(train):
    steep = edges(train).unflatten(1, (2, 15)).mean((0, 1))
    middle, sides = steep[4:11, 4:11].mean(), steep[4:11, [0, 1, 13, 14]].mean()
    corners = steep[[0, 1, 13, 14]][:, [0, 1, 13, 14]].mean()
    assert middle > 1.5 * sides
    assert sides > 1.2 * corners


def test_digits_are_lighter_or_darker_than_their_ground(train):
    maps = grey(train)
    lighter = (maps[:, 8:24, 13:19].mean((1, 2)) > maps[:, [0, 1, 30, 31]].mean((1, 2))).float()
    assert 0.35 < lighter.mean() < 0.65


def test_shapes_tell_the_digits_but_pixels_do_not(train, unseen):
    assert nearest_mean_accuracy(edges, train, unseen) > 0.45
    assert nearest_mean_accuracy(grey, train, unseen) < 0.2


def test_the_atlas_is_small_and_whole():
    assert ATLAS.stat().st_size < 500_000
    assert (ATLAS.parent / "FONTS.txt").is_file()
    shapes = load_atlas()
    fonts = len(shapes.widths)
    assert shapes.depths.shape[:2] == shapes.widths.shape == (fonts, 10)
    assert fonts >= 20
    assert shapes.widths.min() > 0.05 and shapes.widths.max() < 1
    ink = (shapes.depths > 0).float().mean((2, 3))
    assert ink.min() > 0.03 and ink.max() < 0.6
    # Room around each digit, so that its edge cell can stand for all that lies outside.
    rim = torch.cat(
        (shapes.depths[:, :, [0, -1]].flatten(2), shapes.depths[..., [0, -1]].flatten(2)), 2
    )
    assert rim.max() < 0


def test_the_list_of_fonts_names_a_licence_for_each():
    lines = (ATLAS.parent / "FONTS.txt").read_text("utf-8").splitlines()
    table = lines[lines.index(next(line for line in lines if line.startswith("font "))) + 1 :]
    assert len(table) == len(load_atlas().widths)
    known = ("SIL Open Font License", "Apache License", "GUST Font License", "Bitstream Vera")
    assert all(any(name in line for name in known) and " fonts-" in line for line in table)


def test_a_digit_that_is_not_shown_leaves_nothing():
    u = torch.linspace(-1, 1, 9).expand(1, 9, 9)
    row = torch.zeros(1, dtype=torch.int64), torch.zeros(1, 1, dtype=torch.int64), torch.zeros(1, 1)
    hidden = measure_row_depths(*row, torch.tensor([[False]]), u, u.mT)
    assert torch.equal(hidden, torch.full_like(u, -load_atlas().reach))
    assert measure_row_depths(*row, torch.tensor([[True]]), u, u.mT).max() > 0


def test_drawing_loads_neither_matplotlib_nor_pillow():
    program = (
        "from foveapool.data.street_digits import make_street_digits; make_street_digits(1)\n"
        "import sys; print(*sys.modules)"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert not {"PIL", "matplotlib", "scipy", "torchvision"} & set(done.stdout.split())
