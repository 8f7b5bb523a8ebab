"""One trial of the paper's procedure: train a network, fit a pooling on it, train again with it.

Every network starts from random numbers of the trial's seed; layers that two networks share start
from the same ones, so trials of one seed can be compared in pairs. What a folder holds already is
never done again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from foveapool.data.batches import plain_batches, resident
from foveapool.data.images import DataSet
from foveapool.networks.build import build
from foveapool.networks.sites import PoolingSite
from foveapool.pooling.accumulate import ScatterAccumulator
from foveapool.pooling.moments import ChannelMoments
from foveapool.pooling.operator import PoolingOperator
from foveapool.pooling.rivals import RIVALS, rival
from foveapool.pooling.scatter import Scatter
from foveapool.pooling.solve import Norm, solve_pooling
from foveapool.surgery.capture import inputs_of
from foveapool.training.loop import TrainResult, train
from foveapool.training.parallel import chosen_device
from foveapool.training.progress import Progress
from foveapool.training.recipe import Recipe

CLOSED_FORM, TRAINED = "closed-form", "closed-form-trained"
BASELINE = "baseline"
POOLINGS = (BASELINE, CLOSED_FORM, TRAINED, *RIVALS)


@dataclass(frozen=True)
class Setting:
    """What is trained: a network, and the pooling at one of its layers."""

    pooling: str = BASELINE
    layer: int = 3
    alpha: float = 25.0
    norm: Norm = "l2"
    network: str = "cnn"
    width: int = 64
    placement: str | None = None
    options: dict[str, Any] = field(default_factory=dict)  # more arguments of the network's class

    def __post_init__(self) -> None:
        if self.pooling not in POOLINGS:
            raise ValueError(f"pooling: got {self.pooling!r}, wanted one of {', '.join(POOLINGS)}")

    @property
    def is_fitted(self) -> bool:
        """Whether it needs an operator from a trained baseline."""
        return self.pooling in (CLOSED_FORM, TRAINED)


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

    def network(self, poolings: dict[int, nn.Module] | None = None) -> Any:
        """The network with the seed's numbers."""
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

    def site(self) -> PoolingSite:
        """Where the setting's pooling goes."""
        return self.network().site(self.setting.layer, self.setting.placement)

    def run(
        self,
        operator: PoolingOperator | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> tuple[nn.Module, TrainResult]:
        """The trained network and what it came to; a closed form needs its `operator`."""
        network = self.network(self._poolings(operator))
        result = train(
            network,
            self.data,
            self.recipe,
            self.seed,
            device=self.device,
            folder=self.folder,
            compile=self.compile,
            progress=progress,
        )
        return network, result

    def _poolings(self, operator: PoolingOperator | None) -> dict[int, nn.Module]:
        setting = self.setting
        if setting.pooling == BASELINE:
            return {}
        if setting.is_fitted:
            if operator is None:
                raise ValueError(f"operator: got none, wanted one for {setting.pooling}")
            return {setting.layer: operator.module(trainable=setting.pooling == TRAINED)}
        site = self.site()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            pool = rival(
                setting.pooling, site.channels, site.in_shape, site.out_shape, site.components
            )
        return {setting.layer: pool}

    def fit(self, network: nn.Module, path: Path | None = None) -> PoolingOperator:
        """The operator of the setting, fitted on a trained network; read from `path` if there."""
        if path is not None and path.is_file():
            return PoolingOperator.load(path)
        site, setting = self.site(), self.setting
        operator = solve_pooling(
            scatter_at(network, self.data, site.module, self.device),
            site.out_shape,
            alpha=setting.alpha,
            norm=setting.norm,
            components=site.components,
        )
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            operator.save(path)
        return operator


def scatter_at(
    network: nn.Module, data: DataSet, module: str, device: str | None = None, batch: int = 500
) -> Scatter:
    """The scatter of what reaches a module, over the training images as they are.

    Not augmented, in evaluation mode, at most 10,000 images a class.
    """
    place = chosen_device(device)
    network.to(place)
    images, _ = resident(data, place)

    def through(taker: ChannelMoments | ScatterAccumulator) -> None:
        for inputs, labels in plain_batches(images, batch):
            taker.update(inputs_of(network, inputs, [module])[module], labels)

    moments = ChannelMoments(len(data.train.classes), dead_channels="ignore")
    through(moments)
    sums = ScatterAccumulator(moments.compute())
    through(sums)
    return sums.compute()
