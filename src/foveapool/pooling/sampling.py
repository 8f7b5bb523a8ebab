"""At most so many samples of each class, drawn by seed, the same in every pass over the data.

A sample's fate depends on the seed and its id alone, never on what came before it: shards may be
read in any order, on any number of processes. Ids fall into bins at random; the first pass counts
the bins of each class, and a class keeps as many whole bins as fit under the cap. So a class above
the cap keeps up to a bin less than the cap, and no sum ever has to be taken back.

A bin takes one id in 32. The first of these is halved again and again, since of a huge class it
may be too large by itself: a class keeps about half of the cap or more, whatever its size.
"""

from __future__ import annotations

import torch
from torch import Tensor

EQUAL, HALVINGS = 32, 10
BINS = EQUAL + HALVINGS


def random_bins(ids: Tensor, seed: int) -> Tensor:
    """The bin of each id, int64 in [0, BINS): splitmix64, whose top bits are as good as random.

    >>> random_bins(torch.arange(4), seed=0).tolist() == random_bins(torch.arange(4), 0).tolist()
    True
    """

    def shifted(value: Tensor, bits: int) -> Tensor:
        # torch has no unsigned shift: clear the sign's copies.
        return (value >> bits) & ((1 << (64 - bits)) - 1)

    state = (ids.long() + 1) * _signed(0x9E3779B97F4A7C15) + _signed(seed * 0xD1342543DE82EF95)
    state = (state ^ shifted(state, 30)) * _signed(0xBF58476D1CE4E5B9)
    state = (state ^ shifted(state, 27)) * _signed(0x94D049BB133111EB)
    state = state ^ shifted(state, 31)
    bins = shifted(state, 59)
    # Of the first, where the next bits begin: half of the ids in the last, a quarter before it.
    halved = torch.frexp(shifted(state, 59 - HALVINGS).double()).exponent.long()
    return torch.where(bins > 0, bins + HALVINGS, halved)


def _signed(value: int) -> int:
    """The 64-bit pattern of `value` as torch's int64 holds it."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def kept_bins(counts: Tensor, class_cap: int | None) -> Tensor:
    """How many bins each class keeps, int64 (Q,), from its samples a bin, (Q, bins).

    >>> kept_bins(torch.tensor([[4, 4, 4], [1, 0, 1]]), class_cap=9).tolist()
    [2, 3]
    """
    if class_cap is None:
        return torch.full_like(counts[:, 0], counts.shape[1])
    return (counts.cumsum(1) <= class_cap).sum(1)
