"""Each sequence against a second way to make it: other libraries, or loops."""

import numpy as np
import pytest
import torch

from foveapool.robustness import perturbations
from foveapool.robustness.images import Draws
from foveapool.robustness.perturbations import PERTURBATIONS, perturb
from foveapool.robustness.weather import find_wet_pixels, lay_water

from . import perturbation_oracles as oracles

# The ends, the middle and some between; a loop a pixel takes its time.
CHOSEN = {"tilt": (0, 15, 24), "motion_blur": (0, 5, 10, 14, 20), "translate": (0, 7, 8, 15)}


def compare(ours, theirs, share=0.99):
    """At least that share equal, the rest one level off."""
    difference = np.abs(ours.numpy().astype(int) - theirs)
    assert (difference == 0).mean() >= share
    assert difference.max() <= 1


@pytest.mark.parametrize("name", oracles.FRAME_BY_FRAME)
def test_frames_are_those_of_the_libraries(name):
    images = oracles.pictures(3)
    frames = perturb(torch.from_numpy(images), name)
    for i in CHOSEN.get(name, (0, 1, 13, 15, 16, 30)):
        theirs = np.stack([oracles.FRAME_BY_FRAME[name](image, i) for image in images])
        # Between shifts, values of HSV are whole levels, and colorsys rounds another last bit.
        compare(frames[:, i], theirs, share=0.95 if (name, i) == ("brightness", 15) else 0.99)


def test_the_table_has_an_oracle_for_every_sequence_without_chance():
    without_chance = {name for name, each in PERTURBATIONS.items() if not each.random}
    assert without_chance == set(oracles.FRAME_BY_FRAME)


@pytest.mark.parametrize(
    ("name", "frame"), [("translate", 7), ("rotate", 15), ("scale", 15), ("shear", 15)]
)
def test_the_frame_without_a_move_is_the_image(name, frame):
    images = torch.from_numpy(oracles.pictures(2))
    frames = perturb(images, name)
    same = (frames == images[:, None]).flatten(2).all(2)
    assert same.sum(1).tolist() == [1, 1]
    assert same[:, frame].all()


@pytest.mark.parametrize("level", [1, 2, 3])
def test_noise_is_the_formula_on_the_numbers_drawn(level):
    images = oracles.pictures(2)
    values = np.float32(images / 255)
    for kind in ("gaussian_noise", "speckle_noise"):
        name = kind if level == 1 else f"{kind}_{level}"
        frames = perturb(torch.from_numpy(images), name, seed=3)
        assert torch.equal(frames[:, 0], torch.from_numpy(images))
        for n, image in enumerate(values):
            generator = Draws("cpu", "perturbation", name, 3, n).generator
            numbers = torch.randn(30, 32, 32, 3, generator=generator).numpy()
            noise = PERTURBATIONS[name].parameters["deviation"] * numbers
            noisy = image + (noise if kind == "gaussian_noise" else noise * image)
            compare(frames[n, 1:], np.uint8(np.clip(noisy, 0, 1) * 255), share=0.9999)


@pytest.mark.parametrize(("name", "photons"), [("shot_noise", 700), ("shot_noise_3", 200)])
def test_shot_noise_counts_photons(name, photons):
    images = torch.full((4, 32, 32, 3), 102, dtype=torch.uint8)
    noisy = perturb(images, name)[:, 1:].double() / 255
    # 0.4 of the photons of white on average, as many in the variance; levels are cut, not rounded.
    assert noisy.mean() == pytest.approx(0.4 - 0.5 / 255, abs=2e-4)
    assert noisy.var() == pytest.approx(0.4 / photons + (1 / 255) ** 2 / 12, rel=0.02)


def test_every_frame_of_a_noise_is_drawn_anew():
    images = torch.full((2, 32, 32, 3), 128, dtype=torch.uint8)
    for name in ("gaussian_noise", "shot_noise", "speckle_noise"):
        frames = perturb(images, name)[:, 1:].double().transpose(0, 1).flatten(1)
        correlation = torch.corrcoef(frames.T.reshape(-1, 30).T)
        assert (correlation - torch.eye(30)).abs().max() < 0.08
        images_apart = torch.corrcoef(perturb(images, name)[:, 1:].double().flatten(1))
        assert images_apart[0, 1].abs() < 0.02


class Given:
    """In the place of `Draws`: numbers that the test knows."""

    def __init__(self, numbers):
        self.numbers = numbers

    def normal(self, *shape):
        assert self.numbers.shape == shape
        return torch.from_numpy(self.numbers)


def test_snow_is_one_layer_blown_from_ever_other_sides():
    images = oracles.pictures(3)
    normals = np.random.default_rng(0).standard_normal((3, 32, 32))
    given = [Given(each) for each in normals]
    frames = list(
        perturbations.snow(torch.from_numpy(images), given, **PERTURBATIONS["snow"].parameters)
    )
    assert len(frames) == 31
    for i in (0, 7, 15, 30):
        theirs = [oracles.snow(*each) for each in zip(images, [i] * 3, normals, strict=True)]
        compare(frames[i], np.stack(theirs))


def test_drops_slide_down_as_a_column_is_convolved():
    images = torch.from_numpy(oracles.pictures(3))
    normals = np.random.default_rng(1).standard_normal((3, 32, 32))
    parameters = PERTURBATIONS["spatter"].parameters
    frames = perturbations.spatter(
        images, [Given(n) for n in normals], **parameters, reproduce=True
    )
    numbers = torch.from_numpy(parameters["mean"] + parameters["deviation"] * normals)
    layer = find_wet_pixels(numbers, parameters["sigma"], parameters["threshold"]).numpy()
    for frame in frames:
        theirs = lay_water(images, torch.from_numpy(layer), parameters["strength"], True)
        compare(frame, theirs.numpy(), share=0.999)
        layer = np.apply_along_axis(
            lambda column: np.convolve(column, [0.2, 0.8], "same"), 1, layer
        )


def test_frames_without_a_drop_are_black_only_where_that_is_reproduced():
    images = torch.from_numpy(oracles.pictures(40))
    guarded, reproduced = (perturb(images, "spatter", reproduce=r) for r in (False, True))
    black = (reproduced == 0).flatten(2).all(2)
    assert 0 < black.sum() < 0.3 * black.numel()
    clean = images[:, None].expand_as(guarded)
    assert torch.equal(guarded[black], clean[black])
    assert torch.equal(guarded[~black], reproduced[~black])
    assert not (guarded == clean).flatten(2).all(2)[~black].any()
