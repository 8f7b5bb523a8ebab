"""The two rivals that keep one phase of the map: every s-th pixel, from the start they choose.

A map of blocks of n pixels has n phases. A choice is a weight for each phase of each sample,
(B, n), the same for all channels; in a residual block the shortcut follows the main path's choice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from foveapool.pooling.baselines.blocks import Baseline, split_blocks


class PolyphasePool(Baseline):
    """Keeps the phase that it is told, else the first; what rivals of this kind have in common.

    Blocks that the lower or right edge cuts short go on with the first rows and columns, as the
    authors of APS have it: to a phase a map is periodic.
    """

    @property
    def phases(self) -> int:
        """How many phases there are to choose from, 4 where both axes are halved."""
        return math.prod(self.strides)

    def choose(self, maps: Tensor) -> Tensor:
        """The weight of each phase for each sample, (B, n), not negative and with sum 1.

        A pooling of no kind of its own takes the first phase, as a strided layer does.
        """
        return _mark_largest(maps.new_zeros(len(maps), self.phases), maps.dtype)

    def follower(self, channels: int) -> PolyphasePool:
        """A pooling for the shortcut, to be called with the choice of this one.

        Args:
            channels: The channels of the shortcut's maps.

        Returns:
            A pooling of the same phases, without parameters.
        """
        return PolyphasePool(channels, self.in_shape, self.out_shape, self.components)

    def split_phases(self, maps: Tensor) -> Tensor:
        """The phases of the maps, (B, C, H', W', n)."""
        for axis, stride, size in zip((-2, -1), self.strides, self.out_shape, strict=True):
            missing = stride * size - maps.shape[axis]
            if missing:
                maps = torch.cat([maps, maps.narrow(axis, 0, missing)], dim=axis)
        return split_blocks(maps, self.strides)

    def forward(self, maps: Tensor, choice: Tensor | None = None) -> Tensor:
        self.check_maps(maps)
        if choice is None:
            choice = self.choose(maps)
        elif choice.shape != (len(maps), self.phases):
            raise ValueError(
                f"choice: got shape {tuple(choice.shape)}, wanted {(len(maps), self.phases)}, one "
                "weight for each sample and phase; pass `main.choose(maps)` of the same block"
            )
        # A sum over all phases, not an index: its shapes are the same whatever is chosen.
        kept = (self.split_phases(maps) * choice[:, None, None, None]).sum(-1)
        return self.repeat_channels(kept.to(maps.dtype))


def _mark_largest(scores: Tensor, dtype: torch.dtype) -> Tensor:
    """1 at each row's largest score, at the first of equal ones, and 0 elsewhere."""
    places = torch.arange(scores.shape[1], device=scores.device)
    return (scores.argmax(1, keepdim=True) == places).to(dtype)


class AdaptivePolyphasePool(PolyphasePool):
    """The phase with the largest l2 norm over all channels and pixels.

    Chaman and Dokmanic 2021, "Truly Shift-Invariant Convolutional Neural Networks" (APS).
    """

    def choose(self, maps: Tensor) -> Tensor:
        """The phase with the largest norm, as (B, n) with one 1 in each row."""
        phases = self.split_phases(maps.detach())
        # bfloat16 has 8 bits: sums of squares need the wider type.
        wide = torch.promote_types(maps.dtype, torch.float32)
        return _mark_largest(phases.to(wide).square().sum((1, 2, 3)), maps.dtype)


class LearnedPolyphasePool(PolyphasePool):
    """The phase to which a small network, the same for all phases, gives the largest score.

    Rojas-Gomez, Lim, Schwing, Do and Yeh 2022, "Learnable Polyphase Sampling for Shift Invariant
    and Equivariant Convolutional Networks" (LPS). The score is the mean of a 3 x 3 convolution,
    ReLU and another 3 x 3 convolution, both with circular borders. In training the phases are
    mixed by a Gumbel-softmax of their scores, in evaluation the largest score takes all. The
    hidden channels are an eighth of the map's, as in the authors' ResNet-18 for ImageNet.

    The softer the mix, the less training knows of what evaluation does. `temperature` starts at 1;
    the authors lower it while they train, and `anneal` does the same for a training of any length.
    """

    temperature: Tensor

    def __init__(
        self, channels: int, in_shape: Sequence[int], out_shape: Sequence[int], components: int = 1
    ) -> None:
        super().__init__(channels, in_shape, out_shape, components)
        hidden = max(1, channels // 8)
        self.scorer = nn.Sequential(
            nn.Conv2d(channels, hidden, 3, padding=1, padding_mode="circular"),
            nn.ReLU(),
            nn.Conv2d(hidden, hidden, 3, padding=1, padding_mode="circular"),
        )
        self.register_buffer("temperature", torch.ones(()))

    def anneal(self, progress: float) -> None:
        """Lowers the temperature as the authors do, from 1 at the start to 0.025 near the end.

        Args:
            progress: The part of the training that is done, from 0 to 1.

        Raises:
            ValueError: If the progress is not between 0 and 1.
        """
        if not 0 <= progress <= 1:
            raise ValueError(
                f"progress: got {progress}, wanted the part that is done, from 0 to 1; "
                "pass epoch / epochs"
            )
        # Their step decay, 0.85 every 10 epochs but no lower than 0.025, as over 250 epochs.
        self.temperature.fill_(max(0.025, 0.85 ** (25 * progress)))

    def score(self, maps: Tensor) -> Tensor:
        """The score of each phase, (B, n)."""
        phases = self.split_phases(maps).movedim(-1, 1)
        wide = torch.promote_types(maps.dtype, torch.float32)
        scores = self.scorer(phases.flatten(0, 1)).mean((1, 2, 3), dtype=wide)
        return scores.reshape(len(maps), self.phases)

    def choose(self, maps: Tensor) -> Tensor:
        """In training a random mix of the phases, in evaluation one 1 in each row, (B, n)."""
        scores = self.score(maps)
        if not self.training:
            return _mark_largest(scores, maps.dtype)
        noise = -torch.empty_like(scores).exponential_().log()
        return ((scores + noise) / self.temperature).softmax(-1)
