"""What a network costs, against sums made by hand."""

import pytest

from foveapool.networks import build_network
from foveapool.pooling.baselines import baseline_pooling
from foveapool.study.worker import count_multiply_adds, count_parameters

W = 4


def cnn(**poolings):
    return build_network(
        "cnn", seed=0, width=W, poolings={int(k[1:]): v for k, v in poolings.items()}
    )


def convolutions(layers=(1, 2, 3)):
    """Weights of the strided convolutions: w -> 2w, 2w -> 4w, 4w -> 8w, of 3 x 3."""
    return {layer: 9 * (W * 2 ** (layer - 1)) * (W * 2**layer) for layer in layers}


STEM, HEAD = 9 * 3 * W, 8 * W * 10
NORMS = 2 * (2 * W + 4 * W + 8 * W)


def test_the_numbers_of_a_cnn():
    assert count_parameters(cnn()) == STEM + W + sum(convolutions().values()) + NORMS + HEAD + 10


def test_the_multiply_adds_of_a_cnn():
    places = {1: 16 * 16, 2: 8 * 8, 3: 4 * 4}
    wanted = STEM * 32 * 32 + HEAD
    wanted += sum(weights * places[layer] for layer, weights in convolutions().items())
    assert count_multiply_adds(cnn(), (3, 32, 32)) == wanted


@pytest.mark.parametrize(("name", "numbers"), [("average", 0), ("sgd", 2 * 16 * 64), ("mixed", 1)])
def test_a_pooling_saves_the_convolution_and_adds_its_own_numbers(name, numbers):
    pooled = cnn(l3=baseline_pooling(name, 4 * W, (8, 8), (4, 4), 2))
    assert count_parameters(cnn()) - count_parameters(pooled) == convolutions()[3] - numbers


def test_a_linear_pooling_multiplies_every_place_with_every_other():
    pooled = cnn(l3=baseline_pooling("sgd", 4 * W, (8, 8), (4, 4), 2))
    saved = convolutions()[3] * 4 * 4
    assert count_multiply_adds(cnn(), (3, 32, 32)) - count_multiply_adds(pooled, (3, 32, 32)) == (
        saved - 4 * W * 2 * 16 * 64
    )


def test_numbers_that_are_not_trained_are_not_counted():
    network = cnn()
    network.stem.weight.requires_grad_(False)
    assert count_parameters(cnn()) - count_parameters(network) == STEM


def test_looking_at_a_network_leaves_it_as_it_was():
    network = cnn().train()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    count_multiply_adds(network, (3, 32, 32))
    assert network.training and network.norm1.training
    assert all(tensor.equal(before[name]) for name, tensor in network.state_dict().items())
