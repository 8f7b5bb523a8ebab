"""Which layers a user's words mean: exact names, ends of names and patterns.

Layers that were replaced already are found here too, under the names they went by.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from torch import nn

from foveapool.surgery.geometry import POOLINGS
from foveapool.surgery.standin import StandIn
from foveapool.surgery.visit import near


def matching(model: nn.Module, key: str) -> list[str]:
    """The names of the layers that `key` means; raises if there is none."""
    inside = tuple(name + "." for names in standins(model).values() for name in names)
    layers = [
        name
        for name, module in model.named_modules(remove_duplicate=False)
        # The network itself has no name and no place that something else could take.
        if name and isinstance(module, (nn.Conv2d, *POOLINGS, StandIn))
        if not name.startswith(inside)
    ]
    tests: list[Callable[[str], object]] = [
        lambda name: name == key,
        lambda name: name.endswith("." + key),
        lambda name: _fullmatch(key, name),
    ]
    for test in tests:
        if found := [name for name in layers if test(name)]:
            return found
    if key in dict(model.named_modules()):
        kind = type(model.get_submodule(key)).__name__
        raise ValueError(
            f"layer: got {key!r}, a {kind}, wanted a convolution or a pooling; "
            "downsampling_layers(model, example) lists those that shrink a map"
        )
    raise ValueError(
        f"layer: got {key!r}, which is no convolution's or pooling's name, end of a name or "
        f"pattern; {near(key, layers)}"
    )


def _fullmatch(key: str, name: str) -> bool:
    try:
        return re.fullmatch(key, name) is not None
    except re.error:
        return False


def standins(model: nn.Module) -> dict[StandIn, list[str]]:
    """The stand-ins of a network with all their names."""
    places: dict[StandIn, list[str]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        if isinstance(module, StandIn):
            places.setdefault(module, []).append(name)
    return places
