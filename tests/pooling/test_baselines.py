"""What all rivals have in common: sizes, channels, gradients, copies, short floats, refusals.

The formula of each is in test_baseline_formulas.py, of those that work on frequencies in
test_baseline_spectral.py, of those that keep a phase in test_baseline_polyphase.py, of those that
convolve in test_baseline_convolutions.py.
"""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from foveapool.pooling.baselines import LocalSgdPool, baseline_pooling

from .trained_baselines import (
    CONVOLVING,
    KEEPING,
    LINEAR,
    NAMES,
    RANDOM,
    SIZES,
    Shape,
    random_maps,
    trained,
)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("name", NAMES)
def test_channels_and_places_are_as_many_as_of_a_learned_pooling(name: str) -> None:
    # That values are right for one and for two components is asked of each by its formula.
    for in_shape, out_shape in SIZES:
        pooled = baseline_pooling(name, 3, in_shape, out_shape, 3)(torch.randn(2, 3, *in_shape))
        assert pooled.shape == (2, 9, *out_shape)
        assert pooled.isfinite().all(), (in_shape, out_shape)


@pytest.mark.parametrize("name", KEEPING)
def test_all_channels_are_given_once_and_then_all_again(name: str) -> None:
    maps = random_maps((7, 6))
    once, twice = trained(name, (7, 6), (4, 3)), trained(name, (7, 6), (4, 3), components=2)
    twice.load_state_dict(once.state_dict())
    wanted = once.eval()(maps)
    torch.testing.assert_close(twice.eval()(maps)[:, :3], wanted)
    torch.testing.assert_close(twice(maps)[:, 3:], wanted)


@pytest.mark.parametrize("name", KEEPING)
def test_constant_map_keeps_its_value_up_to_the_cut_edge(name: str) -> None:
    # Zeros that count anywhere would pull the last row and column towards 0: upwards and down.
    levels = torch.tensor([-3.0, 2.0], dtype=torch.float64)[:, None, None, None]
    pooled = trained(name, (7, 8), (4, 3))(levels.repeat(1, 3, 7, 8))
    torch.testing.assert_close(pooled, levels.expand_as(pooled))


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    module = trained(name, (5, 4), (3, 2), components=2)
    maps = random_maps((5, 4)).requires_grad_()

    def pooled(maps: Tensor, *_: Tensor) -> Tensor:
        torch.manual_seed(1)  # the same draw each time, where one is made
        return module(maps)

    assert torch.autograd.gradcheck(pooled, (maps, *module.parameters()))


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_batch_is_pooled_to_one(name: str) -> None:
    maps = random_maps((7, 6))[:0]
    pooled = trained(name, (7, 6), (4, 3), components=2)(maps)
    assert pooled.shape == (0, 6, 4, 3) and pooled.dtype == maps.dtype


@pytest.mark.parametrize("name", KEEPING)
def test_maps_of_one_pixel_are_what_they_were(name: str) -> None:
    module, maps = trained(name, (1, 1), (1, 1)), random_maps((1, 1))
    for mode in (module.train(), module.eval()):
        torch.testing.assert_close(mode(maps), maps)


@pytest.mark.parametrize("name", NAMES)
def test_training_and_evaluation_pool_alike_and_copies_are_independent(name: str) -> None:
    module, maps = trained(name, (7, 6), (4, 3), components=2), random_maps((7, 6))
    pooled = module.eval()(maps)
    torch.testing.assert_close(module.train(name not in RANDOM)(maps), pooled)
    clone, loaded = copy.deepcopy(module), trained(name, (7, 6), (4, 3), components=2)
    loaded.load_state_dict(module.state_dict())
    for parameter in module.parameters():
        nn.init.zeros_(parameter)
    torch.testing.assert_close(clone.eval()(maps), pooled)
    torch.testing.assert_close(loaded.eval()(maps), pooled)


@pytest.mark.parametrize("name", NAMES)
def test_maps_in_half_precision_are_pooled_under_autocast(name: str) -> None:
    module = trained(name, (7, 6), (4, 3), components=2).float().eval()
    for layout in (torch.contiguous_format, torch.channels_last):
        maps = random_maps((7, 6)).bfloat16().to(memory_format=layout)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            pooled = module(maps)
        assert pooled.dtype == torch.bfloat16, layout
        torch.testing.assert_close(pooled.float(), module(maps.float()), atol=0.1, rtol=0.05)


@pytest.mark.parametrize("name", NAMES)
def test_rivals_compile_without_a_graph_break(name: str) -> None:
    module, maps = trained(name, (7, 6), (4, 3), components=2), random_maps((7, 6))
    torch.compiler.reset()  # the rivals share one forward, and more than eight are too many for it
    compiled = torch.compile(module, backend="eager", fullgraph=True)
    torch.manual_seed(1)
    pooled = compiled(maps)
    torch.manual_seed(1)
    torch.testing.assert_close(pooled, module(maps))


# What they refuse


def test_unknown_name_offers_near_ones() -> None:
    with pytest.raises(ValueError, match=r"'averge'.*did you mean 'average'"):
        baseline_pooling("averge", 3, (8, 8), (4, 4))
    with pytest.raises(ValueError, match="wanted one of average, max, blur"):
        baseline_pooling("stochastic", 3, (8, 8), (4, 4))


@pytest.mark.parametrize("name", KEEPING + CONVOLVING)
def test_wrong_maps_are_named_with_both_shapes(name: str) -> None:
    module = baseline_pooling(name, 3, (8, 8), (4, 4))
    for shape in ((2, 3, 8, 7), (2, 4, 8, 8), (3, 8, 8)):
        with pytest.raises(ValueError) as error:
            module(torch.zeros(shape))
        assert str(shape) in str(error.value)
        assert "(batch, 3, 8, 8)" in str(error.value)


@pytest.mark.parametrize("name", LINEAR)
def test_wrong_map_size_and_channels_of_sgd(name: str) -> None:
    module = baseline_pooling(name, 3, (8, 8), (4, 4))
    with pytest.raises(ValueError, match="8, 7"):
        module(torch.zeros(2, 3, 8, 7))
    for channels in (1, 4):
        with pytest.raises(ValueError, match=f"got {channels} channels, wanted 3, .* made for"):
            module(torch.zeros(2, channels, 8, 8))
        with pytest.raises(ValueError, match=f"got {channels} channels, wanted 3"):
            copy.deepcopy(module)(torch.zeros(2, channels, 8, 8))


def test_a_resized_sgd_pooling_still_knows_its_channels() -> None:
    resized = baseline_pooling("sgd", 3, (8, 8), (4, 4)).resized((6, 6))
    assert resized(torch.zeros(2, 3, 6, 6)).shape == (2, 3, 3, 3)
    with pytest.raises(ValueError, match="got 4 channels, wanted 3"):
        resized(torch.zeros(2, 4, 6, 6))


@pytest.mark.parametrize("name", KEEPING + CONVOLVING)
def test_blocks_without_a_pixel_are_refused(name: str) -> None:
    sizes: list[tuple[Shape, Shape, Shape]] = [
        ((9, 8), (4, 4), (3, 4)),
        ((8, 5), (4, 4), (4, 3)),
        ((4, 4), (5, 4), (4, 4)),
    ]
    for in_shape, out_shape, possible in sizes:
        with pytest.raises(ValueError) as error:
            baseline_pooling(name, 3, in_shape, out_shape)
        assert all(str(part) in str(error.value) for part in (in_shape, out_shape, possible))


@pytest.mark.parametrize("in_shape", [(8,), (2, 8, 8), (0, 8)])
def test_shapes_are_two_positive_sizes(in_shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="wanted two positive sizes"):
        baseline_pooling("average", 3, in_shape, (4, 4))


@pytest.mark.parametrize("name", NAMES)
def test_no_channels_and_no_components_are_refused(name: str) -> None:
    for count in (0, -1):
        with pytest.raises(ValueError, match=f"channels: got {count}, wanted 1 or more"):
            baseline_pooling(name, count, (8, 8), (4, 4))
        with pytest.raises(ValueError, match=f"components: got {count}, wanted 1 or more"):
            baseline_pooling(name, 3, (8, 8), (4, 4), components=count)


def test_a_negative_alpha_is_refused() -> None:
    with pytest.raises(ValueError, match="alpha: got -1"):
        LocalSgdPool(3, (8, 8), (4, 4), alpha=-1.0)
