"""Recipes: how a network is trained, as data. The paper's own are here by name.

Nothing is trained here; `state.py` and `loop.py` do what a recipe says.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from foveapool._io import read_toml
from foveapool._stored_names import RENAMED, from_stored, to_stored
from foveapool._suggest import did_you_mean

OPTIMIZERS = ("adam", "sgd")


@dataclass(frozen=True)
class Recipe:
    """Optimizer, learning rate and length of a training.

    The rate is multiplied by `gamma` at each of the `milestones`, counted in epochs. `momentum` is
    that of SGD, and the first beta of Adam. Linear poolings that train have `pooling_rate` times
    the rate of all else.
    """

    optimizer: str
    lr: float
    epochs: int
    momentum: float = 0.9
    weight_decay: float = 0.0
    milestones: tuple[int, ...] = ()
    gamma: float = 0.1
    batch_size: int = 128
    pooling_rate: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.milestones, (list, tuple)):
            raise ValueError(
                f"milestones: got {self.milestones!r}, wanted a list of epochs such as [150, 250]"
            )
        object.__setattr__(self, "milestones", tuple(self.milestones))
        if self.optimizer not in OPTIMIZERS:
            raise ValueError(f"optimizer: got {self.optimizer!r}, wanted adam or sgd")
        for name in ("lr", "weight_decay", "gamma", "pooling_rate"):
            value = getattr(self, name)
            if not (_is_number(value) and 0 <= value < math.inf):
                raise ValueError(f"{name}: got {value!r}, wanted a finite number of 0 or more")
        # 2 and 2.0 are one rate, and give a training one name.
        object.__setattr__(self, "pooling_rate", float(self.pooling_rate))
        if not (_is_number(self.momentum) and 0 <= self.momentum < 1):
            raise ValueError(f"momentum: got {self.momentum!r}, wanted 0 or more, below 1")
        for name in ("epochs", "batch_size"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ValueError(f"{name}: got {value!r}, wanted a whole number of 1 or more")
        steps = self.milestones
        if any(type(m) is not int or m < 1 for m in steps) or sorted(set(steps)) != list(steps):
            raise ValueError(f"milestones: got {steps}, wanted epochs from 1 on, rising")

    def rate(self, epoch: int) -> float:
        """The learning rate of an epoch, the first being 0."""
        return self.lr * self.gamma ** sum(epoch >= milestone for milestone in self.milestones)

    def over(self, epochs: int) -> Recipe:
        """The same course in another number of epochs: its milestones move in proportion.

        >>> Recipe("sgd", 0.1, 150, milestones=(50, 100)).over(30).milestones
        (10, 20)
        """
        other = replace(self, epochs=epochs)
        moved = {max(1, round(each * epochs / self.epochs)) for each in self.milestones}
        return replace(other, milestones=tuple(sorted(moved)))

    def facts(self) -> dict[str, Any]:
        """What decides how a training goes, under the names that files have for it."""
        return to_stored(self.as_dict())

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Recipe:
        """The recipe that gave these facts."""
        return cls.from_dict(from_stored(facts))

    def as_dict(self) -> dict[str, Any]:
        """What `from_dict` takes, and JSON can hold."""
        values = {**asdict(self), "milestones": list(self.milestones)}
        if self.pooling_rate == 1:
            # Left out, so that trainings that never asked for it keep their names.
            del values["pooling_rate"]
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Recipe:
        """A recipe from a file's values; refuses a key that it does not know."""
        known = [field.name for field in fields(cls)]
        for key in values:
            if key not in known:
                if RENAMED.get(key) in known:
                    raise ValueError(
                        f"recipe: got the key {key!r}, which is called {RENAMED[key]!r} now"
                    )
                hint = did_you_mean(key, known)
                raise ValueError(f"recipe: got the key {key!r}, wanted among {known}{hint}")
        missing = [name for name in ("optimizer", "lr", "epochs") if name not in values]
        if missing:
            raise ValueError(f"recipe: got no {' and no '.join(missing)}, which have no default")
        return cls(**values)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _make_resnet_recipe(epochs: int, *milestones: int) -> Recipe:
    return Recipe("sgd", 0.1, epochs, weight_decay=5e-4, milestones=milestones)


# The paper's supplement. It gives neither the CNN's batch size nor its weight decay.
RECIPES = {
    "cnn-cifar": Recipe("adam", 1e-3, 350),
    "cnn-svhn": Recipe("adam", 1e-3, 150),
    "resnet18-cifar": _make_resnet_recipe(350, 150, 250),
    "resnet18-svhn": _make_resnet_recipe(150, 50, 100),
}


def get_recipe(name: str) -> Recipe:
    """One of the paper's recipes.

    >>> get_recipe("resnet18-svhn").rate(50)
    0.010000000000000002
    """
    if name not in RECIPES:
        hint = did_you_mean(name, RECIPES)
        raise ValueError(f"recipe: got {name!r}, wanted one of {', '.join(RECIPES)}{hint}")
    return RECIPES[name]


def get_paper_recipe(network: str, data: str) -> Recipe:
    """The paper's recipe for a network on a data set; street digits are trained as SVHN's are."""
    families = {"cifar": "cifar", "svhn": "svhn", "street-digits": "svhn"}
    for start, family in families.items():
        if data.startswith(start):
            return get_recipe(f"{network}-{family}")
    raise ValueError(
        f"recipe: got none, and the paper has none for {data}; wanted one of {', '.join(RECIPES)}, "
        "or a file"
    )


def get_default_recipe(network: str) -> Recipe:
    """What a network is trained by on data of one's own: the shorter of the paper's recipes."""
    return get_recipe(f"{network}-svhn")


def read_recipe(path: str | os.PathLike[str]) -> Recipe:
    """A recipe from a TOML file: `optimizer`, `lr` and `epochs`, and what else is to differ."""
    if not os.path.isfile(path):
        raise FileNotFoundError(
            f"{path}: no such file, wanted a recipe in TOML, or one of {', '.join(RECIPES)}"
        )
    values = read_toml(Path(path), "a recipe")
    try:
        return Recipe.from_dict(values)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
