"""A data set to cut into shards, the two passes over them, and the answer of a single pass."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from functools import cache

import torch
from torch import Tensor

from foveapool.pooling.accumulate import ScatterAccumulator
from foveapool.pooling.moments import ChannelMoments, Moments
from foveapool.pooling.scatter import Scatter

from .oracles import class_maps, distance

Shard = tuple[Tensor, Tensor, Tensor]

CAP, SEED = 50, 3


@cache
def three_classes() -> Shard:
    """Maps, labels and ids of three unequal classes, two of them larger than the cap."""
    maps, labels = class_maps((120, 80, 15), (6, 5))
    return maps, labels, torch.arange(len(maps)) * 7 + 1


@cache
def in_a_single_pass() -> Scatter:
    """A and B of them all."""
    data = three_classes()
    return second_pass([data], first_pass([data]).compute()).compute()


def first_pass(shards: Iterable[Shard], **settings: object) -> ChannelMoments:
    moments = ChannelMoments(3, **{"class_cap": CAP, "seed": SEED, **settings})
    for maps, labels, ids in shards:
        moments.update(maps, labels, ids)
    return moments


def second_pass(shards: Iterable[Shard], moments: Moments, **settings: object):
    accumulator = ScatterAccumulator(moments, **settings)
    for maps, labels, ids in shards:
        accumulator.update(maps, labels, ids)
    return accumulator


def cut(data: Shard, *edges: int) -> list[Shard]:
    ends = [0, *edges, len(data[0])]
    return [tuple(part[a:b] for part in data) for a, b in itertools.pairwise(ends)]


def assert_same(got: Scatter, wanted: Scatter, tolerance: float = 1e-12) -> None:
    for name in ("between", "within", "mean", "std"):
        assert distance(getattr(got, name), getattr(wanted, name)) < tolerance, name
    assert got.counts.equal(wanted.counts)
    assert got.in_shape == wanted.in_shape
