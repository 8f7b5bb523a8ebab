"""Each corruption against a second implementation, for the same random numbers."""

import inspect

import numpy as np
import pytest
import torch

from foveapool.robustness.corruptions import CORRUPTIONS
from foveapool.robustness.weather import draw_frost

from . import corruption_oracles as oracles
from .authors import scripted
from .perturbation_oracles import pictures

IMAGES = pictures(3, seed=5)


def answers_of(name, parameters):
    """Random numbers in the authors' order, for our function and, image by image, the oracle."""
    corruption = CORRUPTIONS[name]
    if not corruption.random:
        return None, [[] for _ in IMAGES]
    row = dict(zip(corruption.columns.split(), parameters, strict=True))
    sizes = [tuple(picture.shape[:2]) for picture in draw_frost(1.0)]
    draws = scripted(name, IMAGES, row, seed=3, ice_sizes=sizes)
    numbers = [answer.numpy() for answer in draws.answers]
    return draws, [[number[i] for number in numbers] for i in range(len(IMAGES))]


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_pixels_are_those_of_the_recipe(name):
    corruption, oracle, options, pictures = CORRUPTIONS[name], getattr(oracles, name), {}, {}
    if name == "frost":
        options = {"pictures": draw_frost(1.0)}
        pictures = {"pictures": [picture.numpy() for picture in draw_frost(1.0)]}
    for severity, parameters in enumerate(corruption.severities, 1):
        draws, numbers = answers_of(name, parameters)
        found = corruption.function(torch.from_numpy(IMAGES), draws, *parameters, **options)
        wanted = np.stack(
            [oracle(*each, **pictures) for each in zip_parameters(IMAGES, parameters, numbers)]
        )
        difference = np.abs(found.numpy().astype(int) - wanted)
        # Where a value is a whole level the last bit decides between it and the one below.
        assert difference.max() <= 1, severity
        assert (difference == 0).mean() > 0.98, severity
        assert (found.numpy() != IMAGES).any(), severity
    assert severity == 5


def zip_parameters(images, parameters, numbers):
    return [(image, *parameters, *each) for image, each in zip(images, numbers, strict=True)]


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_parameters_of_the_table_are_those_of_the_function(name):
    corruption = CORRUPTIONS[name]
    names = list(inspect.signature(corruption.function).parameters)[2:]
    assert names[: len(corruption.columns.split())] == corruption.columns.split()
