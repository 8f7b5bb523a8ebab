"""Our frames of real images against what the authors' code made of them.

Needs CIFAR-10: the environment variable FOVEAPOOL_DATA names the folder that holds its batches.
`vectors/cifar10p.json` has hashes and statistics of the first 100 test images.
"""

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from foveapool.data.registry import load_data
from foveapool.robustness.perturbations import PERTURBATIONS, perturb

FACTS = json.loads((Path(__file__).parent / "vectors" / "cifar10p.json").read_text("utf-8"))
FACTS = FACTS["perturbations"]
FIXED = [name for name, each in PERTURBATIONS.items() if not each.random]
RANDOM = [name for name, each in PERTURBATIONS.items() if each.random]
# How much two seeds differ, relative; one pair of seeds may differ less by chance.
SPREAD = {"gaussian": 0.001, "speckle": 0.001, "shot": 0.001, "snow": 0.02, "spatter": 0.025}
STATISTICS = ("consecutive_mae", "vs_first_mae", "mean", "std")

pytestmark = pytest.mark.skipif(
    "FOVEAPOOL_DATA" not in os.environ, reason="FOVEAPOOL_DATA names no folder with CIFAR-10"
)


@pytest.fixture(scope="module")
def images():
    data = load_data("cifar10", Path(os.environ["FOVEAPOOL_DATA"]))
    return data.test.images[:100].permute(0, 2, 3, 1).contiguous()


def statistics(frames):
    values = frames.double()
    return {
        "consecutive_mae": float(values.diff(dim=1).abs().mean()),
        "vs_first_mae": float((values[:, 1:] - values[:, :1]).abs().mean()),
        "mean": float(values.mean()),
        "std": float(values.std(correction=0)),
    }


def test_the_facts_are_of_our_table():
    assert set(FACTS) == set(PERTURBATIONS)
    for name, facts in FACTS.items():
        assert facts["frames"] == PERTURBATIONS[name].frames
        assert facts["random"] == PERTURBATIONS[name].random


@pytest.mark.parametrize("name", FIXED)
def test_sequences_without_chance_are_the_authors(name, images):
    frames, facts = perturb(images, name), FACTS[name]
    found = statistics(frames)
    for statistic in STATISTICS:
        assert found[statistic] == pytest.approx(facts[statistic], abs=2e-4)
    sums = frames[0].flatten(1).sum(1).tolist()
    assert sums == pytest.approx(facts["image0_frame_sums_seed0"], abs=3)
    # A last bit of the Gaussian's weights cuts some 0.003 % of its values to the next level.
    if name != "gaussian_blur":
        digest = hashlib.sha256(frames.numpy().tobytes()).hexdigest()
        assert digest == facts["sha256_seed0"]


@pytest.mark.parametrize("name", RANDOM)
def test_random_sequences_have_the_statistics_of_the_authors(name, images):
    frames, facts = perturb(images, name, reproduce=True), FACTS[name]
    seeds = facts, facts["seed1"]
    if name == "spatter":
        # How many sequences turn black is chance, and says more than the rest together.
        black = (frames == 0).flatten(2).all(2)
        counts = [each["black_frames"] for each in seeds]
        assert abs(int(black.sum()) - counts[0]) <= 3 * abs(counts[1] - counts[0])
        frames = frames[~black.any(1)]
        seeds = tuple(each["without_videos_that_have_a_black_frame"] for each in seeds)
    found, spread = statistics(frames), SPREAD[name.split("_")[0]]
    for statistic in STATISTICS:
        first, second = (each[statistic] for each in seeds)
        allowed = 3 * max(abs(first - second), spread * first)
        assert found[statistic] == pytest.approx(first, abs=allowed)


class Numpy:
    """In the place of `Draws`: the numbers that the authors' script drew."""

    def __init__(self, state):
        self.state = state

    def normal(self, *shape):
        return torch.from_numpy(self.state.normal(size=shape))

    def poisson(self, rate):
        return torch.from_numpy(self.state.poisson(rate.numpy()).astype(np.float64))


@pytest.mark.parametrize("name", ["shot_noise", "shot_noise_3", "snow", "spatter"])
def test_the_authors_random_numbers_give_their_frames(name, images):
    perturbation, facts = PERTURBATIONS[name], FACTS[name]
    # One stream through all images, as the script draws.
    draws = [Numpy(np.random.RandomState(0))] * len(images)
    options = {"reproduce": True} if name == "spatter" else {}
    frames = perturbation.make(images, draws=draws, **perturbation.parameters, **options)
    frames = torch.stack(list(frames), 1)
    sums = frames[0].flatten(1).sum(1).tolist()
    assert sums == pytest.approx(facts["image0_frame_sums_seed0"], abs=3)
    assert int((frames == 0).flatten(2).all(2).sum()) == facts["black_frames"]
    found = statistics(frames)
    for statistic in STATISTICS:
        assert found[statistic] == pytest.approx(facts[statistic], abs=2e-4)
