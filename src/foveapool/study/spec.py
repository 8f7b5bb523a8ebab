"""Training: all that decides what a training comes to, its name, and the network it trains.

Every network starts from random numbers of the training's seed; layers that two networks share
start from the same ones, so trainings of one seed can be compared in pairs. Whether a training has
been done, and where, is not told here.
"""

from __future__ import annotations

import functools
import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from foveapool.data.images import DataSet, draw_subset, hold_out
from foveapool.data.registry import digest_content, load_data
from foveapool.networks import build_network
from foveapool.networks.sites import AFTER, PoolingChoice, PoolingSite
from foveapool.pooling.baselines import baseline_pooling
from foveapool.pooling.operator import PoolingOperator
from foveapool.runs import digest_facts
from foveapool.study.setting import TRAINED, Pool, Setting
from foveapool.training.loop import TrainResult, train
from foveapool.training.metrics import Progress
from foveapool.training.recipe import Recipe

# The poolings that have a matrix to train, and so a use for the recipe's `pooling_rate`.
TRAINS_MATRIX = (TRAINED, "sgd", "sgd-local")


def trains_matrix(setting: Setting) -> bool:
    """Whether one of its poolings is a matrix that trains."""
    return any(pool.pooling in TRAINS_MATRIX for pool in setting.pools)


@dataclass(frozen=True)
class Source:
    """Where images come from: a name of the registry, its seed and options, and a share of it.

    `content` tells one's own data from others in the same place, see `data.content`.
    """

    name: str
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    share: float | None = None  # of the training images, drawn by the seed
    content: str = ""

    def __post_init__(self) -> None:
        if type(self.seed) is not int or self.seed < 0:
            raise ValueError(f"data seed: got {self.seed!r}, wanted a whole number, 0 or more")
        if self.share is not None and not (type(self.share) is float and 0 < self.share < 1):
            raise ValueError(f"share: got {self.share!r}, wanted one between 0 and 1, such as 0.1")

    def facts(self) -> dict[str, Any]:
        """What JSON can hold."""
        facts = {"name": self.name, "seed": self.seed, "options": dict(self.options)}
        facts |= {} if self.share is None else {"share": self.share}
        return facts | ({"content": self.content} if self.content else {})


@dataclass(frozen=True)
class TrainingSpec:
    """All that decides what a training comes to.

    `part` None trains on all training images and is measured on the test images; a number holds
    out that part of the training images and is measured on it, and never sees a test image.
    A recipe's `pooling_rate` stays only where a matrix trains, so that studies which differ in it
    share their baselines.
    """

    setting: Setting
    source: Source
    recipe: Recipe
    seed: int = 0
    part: int | None = None
    held_out: float = 0.1
    robustness: tuple[str, ...] = ()  # what else is measured, see `robustness.py`

    def __post_init__(self) -> None:
        if not trains_matrix(self.setting):
            object.__setattr__(self, "recipe", replace(self.recipe, pooling_rate=1.0))

    @property
    def fitted_on(self) -> TrainingSpec | None:
        """The training whose network this one's last pooling is fitted on."""
        before = self.setting.fitted_on
        return None if before is None else replace(self, setting=before)

    @functools.cached_property
    def facts(self) -> dict[str, Any]:
        """What decides the result, as JSON can hold it."""
        part = None if self.part is None else {"number": self.part, "size": self.held_out}
        facts = {
            "setting": self.setting.facts(),
            "data": self.source.facts(),
            "recipe": self.recipe.facts(),
            "seed": self.seed,
            "held_out": part,
        }
        # Left out where nothing is asked for, so that the names of such trainings stay.
        return {**facts, "robustness": list(self.robustness)} if self.robustness else facts

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> TrainingSpec:
        """The training that gave these facts."""
        part = facts["held_out"]
        held_out = {} if part is None else {"part": part["number"], "held_out": part["size"]}
        return cls(
            Setting.from_facts(facts["setting"]),
            Source(**facts["data"]),
            Recipe.from_facts(facts["recipe"]),
            facts["seed"],
            robustness=tuple(facts.get("robustness", ())),
            **held_out,
        )

    @functools.cached_property
    def name(self) -> str:
        """A name to read, with a digest of the facts."""
        placement = self.facts["setting"]["placement"]
        words = [self.source.name, self.setting.network, placement]
        for pool in self.setting.pools:
            words += [pool.pooling, pool.layer, pool.form if pool.form != "replace" else None]
            words += [f"a{str(pool.alpha).removesuffix('.0')}", pool.norm] * pool.is_fitted
        words += ["baseline"] if not self.setting.pools else []
        words += [f"part{self.part}"] if self.part is not None else []
        words += [f"seed{self.seed}"]
        text = "-".join(str(word) for word in words if word is not None)
        readable = re.sub(r"[^a-z0-9.]+", "-", text.lower())[-90:].strip("-")
        return f"{readable}-{digest_facts(self.facts)}"


@dataclass
class Stage:
    """Trainings that a study has to know the results of before it can go on.

    Whoever goes through the stages of a study fills in `results`, by the names of the trainings,
    before the next stage is asked for.
    """

    name: str  # "search" or "trials"
    trainings: Sequence[TrainingSpec]
    results: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class ExecutionOptions:
    """How a training is done: nothing here changes what it comes to, but for rounding.

    Nor does the number of threads; but rounding grows in training, as on a GPU from run to run.
    """

    device: str | None = None
    compile: bool = False
    data_root: Path | None = None
    keep: bool = False  # the weights of every network, not only of those without poolings


@functools.lru_cache(maxsize=2)
def _load_source(name: str, root: Path | None, seed: int, options: str, content: str) -> DataSet:
    if content and digest_content(name) != content:
        raise ValueError(
            f"{name}: not what the training was asked for; wanted the images that were there when "
            "its study began: put them back, or start the study again"
        )
    return load_data(name, root, seed, **json.loads(options))


def load_training_data(training: TrainingSpec, means: ExecutionOptions) -> DataSet:
    """The images that the training learns from, as `train`, and is measured on, as `test`."""
    source = training.source
    options = json.dumps(dict(source.options))
    data = _load_source(source.name, means.data_root, source.seed, options, source.content)
    return _draw_parts(data, source.seed, source.share, training.part, training.held_out)


# A training asks for its images several times, and drawing them copies all of them.
@functools.lru_cache(maxsize=1)
def _draw_parts(
    data: DataSet, seed: int, share: float | None, part: int | None, size: float
) -> DataSet:
    if share is not None:
        data = replace(data, train=draw_subset(data.train, share, seed))
    if part is None:
        return data
    rest, measured = hold_out(data.train, size, seed, part)
    return replace(data, train=rest, test=measured)


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
        return self._build_network(self._list_choices(operators or {}))

    def network_to_read(
        self, pool: Pool, path: str, operators: Mapping[str, PoolingOperator] | None = None
    ) -> tuple[Any, PoolingSite]:
        """The network with a module that reads what a further pooling is fitted on, and its site.

        The forms that keep the convolution read it at stride 1. There the network subsamples as
        its strided convolution does, so that it is the same function of the same weights.
        """
        setting, choices = self.setting, self._list_choices(operators or {})
        placement = setting.placement_of(pool)
        if pool.form in AFTER:
            every_other = nn.MaxPool2d(1, stride=2)
            names = setting.operator_names(pool)
            shortcut = nn.MaxPool2d(1, stride=2) if len(names) > 1 else None
            choices.append(PoolingChoice(pool.layer, every_other, pool.form, placement, shortcut))
        network = self._build_network(choices)
        return network, _get_site(network, placement, pool, path)

    def _list_choices(self, operators: Mapping[str, PoolingOperator]) -> list[PoolingChoice]:
        """What stands at the network's layers, in the order in which it was put in."""
        setting = self.setting
        choices: list[PoolingChoice] = []
        for pool in setting.pools:
            names = setting.operator_names(pool)
            modules: list[nn.Module] = []
            for path, name in names.items():
                if not pool.is_fitted:
                    modules.append(self._build_rival(pool, path, choices, modules))
                elif name in operators:
                    modules.append(operators[name].module(pool.pooling == TRAINED))
                else:
                    raise ValueError(f"operators: got none of name {name!r} for {pool.pooling}")
            first, *others = modules
            placement = setting.placement_of(pool)
            shortcut = others[0] if others else None
            choices.append(PoolingChoice(pool.layer, first, pool.form, placement, shortcut))
        return choices

    def _build_network(self, choices: Sequence[PoolingChoice]) -> Any:
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

    def _build_rival(
        self, pool: Pool, path: str, before: Sequence[PoolingChoice], main: Sequence[nn.Module]
    ) -> nn.Module:
        setting = self.setting
        site = _get_site(self._build_network(before), setting.placement_of(pool), pool, path)
        if main and hasattr(main[0], "follower"):
            # The shortcut keeps what the main path chooses, and has nothing to learn.
            follower: nn.Module = main[0].follower(site.channels)  # type: ignore[operator]
            return follower
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._get_start_seed(pool, path))
            sizes = (site.channels, site.in_shape, site.out_shape)
            return baseline_pooling(pool.pooling, *sizes, setting.components_in(pool, path))

    def _get_start_seed(self, pool: Pool, path: str) -> int:
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


def build_job(
    training: TrainingSpec, means: ExecutionOptions, folder: Path | None = None
) -> TrainingJob:
    """The training's network, images and recipe, ready to run."""
    return TrainingJob(
        training.setting,
        load_training_data(training, means),
        training.recipe,
        training.seed,
        means.device,
        means.compile,
        folder,
    )
