"""Trial: one network of a setting, in memory: built, trained, and fitted on.

Every network starts from random numbers of the trial's seed; layers that two networks share start
from the same ones, so trials of one seed can be compared in pairs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from foveapool.data.batches import plain_batches, resident
from foveapool.data.images import DataSet
from foveapool.networks.build import build
from foveapool.pooling.accumulate import ScatterAccumulator
from foveapool.pooling.moments import ChannelMoments
from foveapool.pooling.operator import PoolingOperator
from foveapool.pooling.rivals import rival
from foveapool.pooling.scatter import Scatter
from foveapool.pooling.solve import solve_pooling
from foveapool.study.setting import TRAINED, Pool, Setting
from foveapool.surgery.capture import inputs_of
from foveapool.training.loop import TrainResult, train
from foveapool.training.parallel import chosen_device
from foveapool.training.progress import Progress
from foveapool.training.recipe import Recipe

# A small network's epoch takes milliseconds on a GPU, its checkpoint some ten times that, and
# that of a ResNet is 90 MB, for each of the trainings at once.
CHECKPOINT_SECONDS = 5.0


@dataclass(frozen=True)
class Trial:
    """A setting with a seed, on data, by a recipe; in a folder it can be interrupted."""

    setting: Setting
    data: DataSet
    recipe: Recipe
    seed: int = 0
    device: str | None = None
    compile: bool = False
    folder: Path | None = None

    def network(self, operators: Mapping[int, PoolingOperator] | None = None) -> Any:
        """The network with the seed's numbers; a closed form needs the operator of its layer."""
        poolings: dict[int, nn.Module] = {}
        for pool in self.setting.pools:
            if pool.is_fitted:
                if operators is None or pool.layer not in operators:
                    raise ValueError(f"operators: got none for layer {pool.layer}, {pool.pooling}")
                poolings[pool.layer] = operators[pool.layer].module(pool.pooling == TRAINED)
            else:
                poolings[pool.layer] = self._rival(pool, poolings)
        return self._built(poolings)

    def _built(self, poolings: Mapping[int, nn.Module]) -> Any:
        setting, images = self.setting, self.data.train
        placement = {} if setting.placement is None else {"placement": setting.placement}
        return build(
            setting.network,
            seed=self.seed,
            classes=len(images.classes),
            width=setting.width,
            in_channels=images.images.shape[1],
            in_shape=tuple(images.images.shape[2:]),
            poolings=poolings,
            **placement,
            **setting.options,
        )

    def _rival(self, pool: Pool, before: Mapping[int, nn.Module]) -> nn.Module:
        site = self._built(before).site(pool.layer, self.setting.placement)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._start_of(pool))
            sizes = (site.channels, site.in_shape, site.out_shape)
            return rival(pool.pooling, *sizes, pool.components)

    def _start_of(self, pool: Pool) -> int:
        """The seed of a pooling that starts at random: the trial's own, or one more for another.

        Two that drew from one seed would start alike, as far as the smaller one goes.
        """
        first = next(each for each in self.setting.pools if not each.is_fitted)
        if pool == first:
            return self.seed
        return random.Random(f"{self.seed} pooling {pool.layer}").getrandbits(63)

    def run(
        self,
        operators: Mapping[int, PoolingOperator] | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> tuple[nn.Module, TrainResult]:
        """The trained network and what it came to."""
        network = self.network(operators)
        result = train(
            network,
            self.data,
            self.recipe,
            self.seed,
            device=self.device,
            folder=self.folder,
            checkpoint_seconds=CHECKPOINT_SECONDS,
            compile=self.compile,
            progress=progress,
        )
        return network, result

    def fit(self, network: Any, pool: Pool | None = None) -> PoolingOperator:
        """The operator of the setting's last pool, fitted on a network trained without it."""
        pool = pool or self.setting.pools[-1]
        site = network.site(pool.layer, self.setting.placement)
        scatter = scatter_at(network, self.data, site.module, self.device, pool=pool)
        return solved(scatter, site.out_shape, pool)


def solved(scatter: Scatter, out_shape: tuple[int, int], pool: Pool) -> PoolingOperator:
    """The operator that a pool's choices give on its scatter."""
    return solve_pooling(
        scatter,
        out_shape,
        alpha=pool.alpha,
        norm=pool.norm,
        components=pool.components,
        centre=pool.centre,
        sign=pool.sign,
        window=pool.window,
    )


def scatter_at(
    network: nn.Module,
    data: DataSet,
    module: str,
    device: str | None = None,
    batch: int = 500,
    pool: Pool | None = None,
) -> Scatter:
    """The scatter of what reaches a module, over the training images as they are.

    Not augmented, in evaluation mode, at most the pool's `class_cap` images a class.
    """
    place = chosen_device(device)
    network.to(place)
    images, _ = resident(data, place)
    choice = pool or Pool("closed-form", 3)

    def through(taker: ChannelMoments | ScatterAccumulator) -> None:
        for inputs, labels in plain_batches(images, batch):
            taker.update(inputs_of(network, inputs, [module])[module], labels)

    classes = len(data.train.classes)
    moments = ChannelMoments(classes, choice.class_cap, dead_channels="ignore")
    through(moments)
    sums = ScatterAccumulator(moments.compute(), choice.weighting, choice.normalise)
    through(sums)
    return sums.compute()
