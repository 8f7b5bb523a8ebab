"""Our corruptions of real images against what the authors' code made of them.

Needs CIFAR-10: the environment variable FOVEAPOOL_DATA names the folder that holds its batches.
`vectors/cifar10c.json` has sums and statistics of the first 500 test images.
"""

import hashlib
import json
import os
from pathlib import Path

import pytest
import torch

from foveapool.data.registry import load_data
from foveapool.robustness.corruptions import CORRUPTIONS, corrupt

from .authors import scripted

FACTS = json.loads((Path(__file__).parent / "vectors" / "cifar10c.json").read_text("utf-8"))
SEVERITIES = range(1, 6)
FIXED = [
    (name, severity)
    for name, corruption in CORRUPTIONS.items()
    for severity in SEVERITIES
    if not corruption.random and name != "jpeg_compression"
]
RANDOM = [name for name, corruption in CORRUPTIONS.items() if corruption.random]
# Frost needs the authors' pictures; the many draws of glass_blur take long to write down.
SCRIPTED = [
    (name, severity)
    for name in RANDOM
    for severity in (SEVERITIES if name != "glass_blur" else (2, 5))
    if name != "frost"
]

pytestmark = [
    pytest.mark.skipif(
        "FOVEAPOOL_DATA" not in os.environ, reason="FOVEAPOOL_DATA names no folder with CIFAR-10"
    ),
    pytest.mark.filterwarnings("ignore:frost. no pictures of ice"),
]


@pytest.fixture(scope="module")
def images():
    data = load_data("cifar10", Path(os.environ["FOVEAPOOL_DATA"]))
    images = data.test.images[:500].permute(0, 2, 3, 1).contiguous()
    digest = hashlib.sha256(images.numpy().tobytes()).hexdigest()
    assert digest == FACTS["clean_check"]["sha256"]
    return images


def roughness(images):
    values = images.double()
    middle = values[:, 1:-1, 1:-1]
    around = values[:, :-2, 1:-1] + values[:, 2:, 1:-1]
    around += values[:, 1:-1, :-2] + values[:, 1:-1, 2:]
    return float(((around - 4 * middle) ** 2).sum())


def statistics(corrupted, images):
    change = corrupted.double() - images
    return {
        "mae": float(change.abs().mean()),
        "psnr_db": float(10 * torch.log10(255**2 / (change**2).mean())),
        "mean": float(corrupted.double().mean()),
        "std": float(corrupted.double().std(correction=0)),
        "hf_ratio": roughness(corrupted) / roughness(images),
    }


def assert_the_authors_pixels(corrupted, images, facts):
    """All of them, or all but so few that sums over 1.5 million values hardly show it."""
    if hashlib.sha256(corrupted.numpy().tobytes()).hexdigest() == facts["sha256_seed0"]:
        return
    for name, value in statistics(corrupted, images).items():
        assert value == pytest.approx(facts[name], abs=1e-4), name
    sums = corrupted[:5].long().sum((1, 2, 3)).tolist()
    assert sums == pytest.approx(facts["image_sums_seed0_first5"], abs=3)


@pytest.mark.parametrize(("name", "severity"), FIXED)
def test_what_is_not_random_has_the_authors_pixels(name, severity, images):
    facts = FACTS["corruptions"][name]["severity"][str(severity)]
    assert_the_authors_pixels(corrupt(images, name, severity), images, facts)


@pytest.mark.parametrize(("name", "severity"), SCRIPTED)
def test_the_authors_random_numbers_give_the_authors_pixels(name, severity, images):
    corruption = CORRUPTIONS[name]
    parameters = corruption.severities[severity - 1]
    row = dict(zip(corruption.columns.split(), parameters, strict=True))
    found = corruption.function(images, scripted(name, images.numpy(), row), *parameters)
    facts = FACTS["corruptions"][name]["severity"][str(severity)]
    assert_the_authors_pixels(found, images, facts)


@pytest.mark.parametrize("name", RANDOM)
def test_our_random_numbers_give_the_authors_statistics(name, images):
    facts = FACTS["corruptions"][name]
    seeds = [statistics(corrupt(images, name, 5, seed=seed), images) for seed in range(3)]
    for statistic in seeds[0]:
        mean = sum(each[statistic] for each in seeds) / len(seeds)
        allowed = 3 * facts["seed_spread_percent"] / 100
        assert mean == pytest.approx(facts["severity"]["5"][statistic], rel=allowed), statistic


@pytest.mark.parametrize("severity", SEVERITIES)
def test_jpeg_differs_by_no_more_than_two_decoders_do(severity, images):
    facts = FACTS["corruptions"]["jpeg_compression"]["severity"][str(severity)]
    found = statistics(corrupt(images, "jpeg_compression", severity), images)
    allowed = {"mae": 0.15, "psnr_db": 0.15, "mean": 0.05, "std": 0.2, "hf_ratio": 0.02}
    for statistic, value in found.items():
        assert value == pytest.approx(facts[statistic], abs=allowed[statistic]), statistic
