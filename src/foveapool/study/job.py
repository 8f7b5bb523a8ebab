"""Trial: one network of a setting, in memory: built, trained, and fitted on.

Every network starts from random numbers of the trial's seed; layers that two networks share start
from the same ones, so trials of one seed can be compared in pairs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from foveapool.data.images import DataSet
from foveapool.networks.build import build_network
from foveapool.networks.sites import AFTER, PoolingChoice, PoolingSite
from foveapool.pooling.baselines import baseline_pooling
from foveapool.pooling.operator import PoolingOperator
from foveapool.study.setting import TRAINED, Pool, Setting
from foveapool.training.loop import TrainResult, train
from foveapool.training.metrics import Progress
from foveapool.training.recipe import Recipe

# A small network's epoch takes milliseconds on a GPU, its checkpoint some ten times that, and
# that of a ResNet is 90 MB, for each of the trainings at once.
CHECKPOINT_SECONDS = 5.0


@dataclass(frozen=True)
class TrainingJob:
    """A setting with a seed, on data, by a recipe; in a folder it can be interrupted."""

    setting: Setting
    data: DataSet
    recipe: Recipe
    seed: int = 0
    device: str | None = None
    compile: bool = False
    folder: Path | None = None

    def network(self, operators: Mapping[str, PoolingOperator] | None = None) -> Any:
        """The network with the seed's numbers; a closed form needs its operators, by name."""
        return self._built(self._choices(operators or {}))

    def network_to_read(
        self, pool: Pool, path: str, operators: Mapping[str, PoolingOperator] | None = None
    ) -> tuple[Any, PoolingSite]:
        """The network with a module that reads what a further pooling is fitted on, and its site.

        The forms that keep the convolution read it at stride 1. There the network subsamples as
        its strided convolution does, so that it is the same function of the same weights.
        """
        setting, choices = self.setting, self._choices(operators or {})
        placement = setting.placement_of(pool)
        if pool.form in AFTER:
            every_other = nn.MaxPool2d(1, stride=2)
            names = setting.operator_names(pool)
            shortcut = nn.MaxPool2d(1, stride=2) if len(names) > 1 else None
            choices.append(PoolingChoice(pool.layer, every_other, pool.form, placement, shortcut))
        network = self._built(choices)
        return network, _get_site(network, placement, pool, path)

    def _choices(self, operators: Mapping[str, PoolingOperator]) -> list[PoolingChoice]:
        """What stands at the network's layers, in the order in which it was put in."""
        setting = self.setting
        choices: list[PoolingChoice] = []
        for pool in setting.pools:
            names = setting.operator_names(pool)
            modules: list[nn.Module] = []
            for path, name in names.items():
                if not pool.is_fitted:
                    modules.append(self._rival(pool, path, choices, modules))
                elif name in operators:
                    modules.append(operators[name].module(pool.pooling == TRAINED))
                else:
                    raise ValueError(f"operators: got none of name {name!r} for {pool.pooling}")
            first, *others = modules
            placement = setting.placement_of(pool)
            shortcut = others[0] if others else None
            choices.append(PoolingChoice(pool.layer, first, pool.form, placement, shortcut))
        return choices

    def _built(self, choices: Sequence[PoolingChoice]) -> Any:
        setting, images = self.setting, self.data.train
        placement = {} if setting.placement is None else {"placement": setting.placement}
        return build_network(
            setting.network,
            seed=self.seed,
            classes=len(images.classes),
            width=setting.width,
            in_channels=images.images.shape[1],
            in_shape=tuple(images.images.shape[2:]),
            poolings=choices,
            **placement,
            **setting.options,
        )

    def _rival(
        self, pool: Pool, path: str, before: Sequence[PoolingChoice], main: Sequence[nn.Module]
    ) -> nn.Module:
        setting = self.setting
        site = _get_site(self._built(before), setting.placement_of(pool), pool, path)
        if main and hasattr(main[0], "follower"):
            # The shortcut keeps what the main path chooses, and has nothing to learn.
            follower: nn.Module = main[0].follower(site.channels)  # type: ignore[operator]
            return follower
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._start_of(pool, path))
            sizes = (site.channels, site.in_shape, site.out_shape)
            return baseline_pooling(pool.pooling, *sizes, setting.components_in(pool, path))

    def _start_of(self, pool: Pool, path: str) -> int:
        """The seed of a pooling that starts at random: the trial's own, or one more for another.

        Two that drew from one seed would start alike, as far as the smaller one goes.
        """
        first = next(each for each in self.setting.pools if not each.is_fitted)
        name = self.setting.operator_names(pool)[path]
        if pool == first and name == str(pool.layer):
            return self.seed
        return random.Random(f"{self.seed} pooling {name}").getrandbits(63)

    def run(
        self,
        operators: Mapping[str, PoolingOperator] | None = None,
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


def _get_site(network: Any, placement: str | None, pool: Pool, path: str) -> PoolingSite:
    """What a pooling meets in a path of its layer; a CNN has one path, and does not ask for it."""
    paths = {} if placement is None else {"path": path}
    site: PoolingSite = network.site(pool.layer, placement, pool.form, **paths)
    return site
