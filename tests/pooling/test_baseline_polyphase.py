"""The rivals that keep a phase: what they choose, what a shift changes, what a shortcut follows."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from foveapool.pooling.baselines.polyphase import (
    AdaptivePolyphasePool,
    LearnedPolyphasePool,
    PolyphasePool,
)

from .trained_baselines import Shape, random_maps, sizes, trained


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def phases_by_loops(maps: Tensor, in_shape: Shape, out_shape: Shape) -> Tensor:
    """All phases (n, B, C, H', W') of maps that go on from their start where a block is cut."""
    height, width = (math.ceil(i / o) for i, o in zip(in_shape, out_shape, strict=True))
    found = torch.zeros(height * width, *maps.shape[:2], *out_shape, dtype=maps.dtype)
    for n in range(height * width):
        for row in range(out_shape[0]):
            for column in range(out_shape[1]):
                y = (row * height + n // width) % in_shape[0]
                x = (column * width + n % width) % in_shape[1]
                found[n, ..., row, column] = maps[..., y, x]
    return found


def scores_by_loops(module: LearnedPolyphasePool, phases: Tensor) -> Tensor:
    """The scores (B, n) of phases (n, B, C, H', W'): circular convolutions written out."""
    state = module.state_dict()

    def convolve(maps: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        made = torch.zeros(len(maps), len(weight), *maps.shape[2:], dtype=maps.dtype)
        for dy in range(3):
            for dx in range(3):
                # Circular: the neighbor of the last pixel is the first one.
                moved = maps.roll((1 - dy, 1 - dx), (2, 3))
                made += torch.einsum("oc,bchw->bohw", weight[:, :, dy, dx], moved)
        return made + bias[:, None, None]

    scores = []
    for phase in phases:
        hidden = convolve(phase, state["scorer.0.weight"], state["scorer.0.bias"]).clamp(min=0)
        made = convolve(hidden, state["scorer.2.weight"], state["scorer.2.bias"])
        scores.append(made.mean((1, 2, 3)))
    return torch.stack(scores, dim=1)


@sizes
def test_aps_keeps_the_phase_with_the_largest_norm(in_shape: Shape, out_shape: Shape) -> None:
    maps = random_maps(in_shape)
    pooled = trained("aps", in_shape, out_shape)(maps)
    phases = phases_by_loops(maps, in_shape, out_shape)
    for b in range(2):
        norms = [math.sqrt(sum(float(v) ** 2 for v in phase[b].flatten())) for phase in phases]
        torch.testing.assert_close(pooled[b], phases[norms.index(max(norms)), b])


def test_aps_chooses_for_each_sample_by_itself() -> None:
    maps = torch.ones(4, 3, 8, 6, dtype=torch.float64)
    for b in range(4):
        maps[b, 1, b // 2 :: 2, b % 2 :: 2] = -5
    module = AdaptivePolyphasePool(3, (8, 6), (4, 3))
    torch.testing.assert_close(module.choose(maps), torch.eye(4, dtype=torch.float64))
    assert (module(maps)[:, 1] == -5).all() and (module(maps)[:, ::2] == 1).all()


@pytest.mark.parametrize("name", ["aps", "lps"])
@pytest.mark.parametrize("shift", [(0, 1), (1, 0), (1, 1), (3, 2)])
def test_a_circular_shift_moves_the_pooled_map_and_changes_no_value(
    name: str, shift: Shape
) -> None:
    module, maps = trained(name, (8, 6), (4, 3)).eval(), random_maps((8, 6))
    pooled, moved = module(maps), module(maps.roll(shift, (2, 3)))
    # Which multiple of the stride remains hangs on the phase that was chosen.
    for b in range(2):
        candidates = [
            pooled[b].roll((down, right), (1, 2)) for down in range(4) for right in range(3)
        ]
        assert any(torch.allclose(moved[b], each) for each in candidates)


def test_average_pooling_would_not_pass_the_test_of_shifts() -> None:
    maps = random_maps((8, 6))
    pooled = trained("average", (8, 6), (4, 3))(maps)
    moved = trained("average", (8, 6), (4, 3))(maps.roll((0, 1), (2, 3)))
    assert not torch.allclose(pooled.flatten(1).sort().values, moved.flatten(1).sort().values)


@sizes
def test_lps_in_evaluation_keeps_the_phase_with_the_largest_score(
    in_shape: Shape, out_shape: Shape
) -> None:
    module, maps = trained("lps", in_shape, out_shape).eval(), random_maps(in_shape)
    phases = phases_by_loops(maps, in_shape, out_shape)
    best = scores_by_loops(module, phases).argmax(1)
    wanted = torch.stack([phases[best[b], b] for b in range(2)])
    torch.testing.assert_close(module(maps), wanted)


@sizes
def test_lps_in_training_mixes_by_a_gumbel_softmax_of_the_scores(
    in_shape: Shape, out_shape: Shape
) -> None:
    module, maps = trained("lps", in_shape, out_shape), random_maps(in_shape)
    module.temperature.fill_(0.7)
    torch.manual_seed(5)
    pooled = module(maps)
    phases = phases_by_loops(maps, in_shape, out_shape)
    torch.manual_seed(5)
    scores = scores_by_loops(module, phases)
    weights = torch.nn.functional.gumbel_softmax(scores, tau=0.7)
    torch.testing.assert_close(pooled, torch.einsum("bn,nbchw->bchw", weights, phases))


def test_the_scorer_learns_in_training() -> None:
    module = LearnedPolyphasePool(16, (8, 6), (4, 3)).double()
    module(random_maps((8, 6), channels=16)).square().sum().backward()
    # Two hidden channels for sixteen; the last bias moves all scores alike and changes nothing.
    assert module.scorer[0].weight.shape[0] == 2
    for parameter in (module.scorer[0].weight, module.scorer[0].bias, module.scorer[2].weight):
        assert parameter.grad is not None and parameter.grad.abs().max() > 0


def test_cold_training_is_evaluation_with_noise() -> None:
    module, maps = trained("lps", (8, 6), (4, 3)), random_maps((8, 6))
    module.anneal(0.0)
    assert module.temperature == 1
    warm = module.choose(maps)
    module.anneal(0.4)
    torch.testing.assert_close(module.temperature, torch.tensor(0.85**10, dtype=torch.float64))
    module.anneal(1.0)
    torch.testing.assert_close(module.temperature, torch.tensor(0.025, dtype=torch.float64))
    cold = module.choose(maps)
    assert cold.amax(1).min() > 0.99 > warm.amax(1).min()
    for progress in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match=r"progress: got .*, wanted .* from 0 to 1"):
            module.anneal(progress)


# A shortcut follows the main path


@pytest.mark.parametrize("name", ["aps", "lps"])
@pytest.mark.parametrize("training", [True, False])
def test_the_shortcut_follows_the_choice_of_the_main_path(name: str, training: bool) -> None:
    main, maps = trained(name, (7, 6), (4, 3)).train(training), random_maps((7, 6))
    choice = main.choose(maps)
    assert choice.shape == (2, 4)
    torch.testing.assert_close(choice.sum(1), torch.ones(2, dtype=torch.float64))
    other = random_maps((7, 6), channels=5)
    phases = phases_by_loops(other, (7, 6), (4, 3))
    wanted = torch.einsum("bn,nbchw->bchw", choice, phases)
    follower = main.follower(5)
    torch.testing.assert_close(follower(other, choice), wanted)
    torch.testing.assert_close(trained(name, (7, 6), (4, 3))(other[:, :3], choice), wanted[:, :3])
    assert not list(follower.parameters())


def test_the_scorer_learns_from_the_shortcut_too() -> None:
    main, maps = trained("lps", (8, 6), (4, 3)), random_maps((8, 6))
    main.follower(3)(random_maps((8, 6)), main.choose(maps)).square().sum().backward()
    assert main.scorer[0].weight.grad.abs().max() > 0


def test_a_follower_that_is_told_nothing_subsamples() -> None:
    maps = random_maps((7, 6))
    assert torch.equal(PolyphasePool(3, (7, 6), (4, 3))(maps), maps[..., ::2, ::2])


def test_a_choice_of_another_size_is_refused() -> None:
    follower = PolyphasePool(3, (8, 6), (4, 3))
    with pytest.raises(ValueError, match=r"choice: got shape \(1, 4\), wanted \(2, 4\)"):
        follower(torch.zeros(2, 3, 8, 6), torch.ones(1, 4))
