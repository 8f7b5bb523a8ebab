"""The paper's two networks, with a pooling of any make as a constructor argument."""

from __future__ import annotations

import inspect
import random
from collections.abc import Iterable
from typing import Any, TypeVar

import torch
from torch import nn

from foveapool._suggest import did_you_mean
from foveapool.networks.cnn import CNN
from foveapool.networks.resnet import PreActResNet18

NETWORKS: dict[str, type[CNN] | type[PreActResNet18]] = {"cnn": CNN, "resnet18": PreActResNet18}

_Network = TypeVar("_Network", bound=nn.Module)


def build_network(name: str, *, seed: int, **options: Any) -> CNN | PreActResNet18:
    """The network of that name with the numbers that `seed` gives it.

    `options` are the arguments of its class: `classes`, `width`, `poolings` and so on.

    >>> build_network("resnet18", seed=0, width=4, placement="before").site(1).channels
    4
    """
    check_network_options(name, options)
    with torch.random.fork_rng(devices=[]):
        return initialize_weights(NETWORKS[name](**options), seed)


def check_network_options(name: str, options: Iterable[str]) -> None:
    """Refuses a network that is not there, and names of arguments that it does not have."""
    if name not in NETWORKS:
        hint = did_you_mean(name, NETWORKS)
        raise ValueError(f"network: got {name!r}, wanted one of {', '.join(NETWORKS)}{hint}")
    known = list(inspect.signature(NETWORKS[name]).parameters)
    for option in options:
        if option not in known:
            hint = did_you_mean(option, known)
            raise ValueError(f"{name}: got the option {option!r}, wanted among {known}{hint}")


def initialize_weights(network: _Network, seed: int) -> _Network:
    """Draws a network's numbers anew from `seed`, in place; its poolings stay as they are.

    Each layer draws from a stream of its own, called after its name: networks that differ in one
    layer start from the same numbers in all others, so that their trials can be paired. The
    numbers are those that torch gives such layers by default.
    """
    poolings = getattr(network, "pooling_modules", ())
    with torch.random.fork_rng(devices=[]):
        for name, module in network.named_modules():
            inside = any(name == pool or name.startswith(f"{pool}.") for pool in poolings)
            reset = getattr(module, "reset_parameters", None)
            if reset is not None and not inside:
                torch.default_generator.manual_seed(
                    random.Random(f"{seed} initialise {name}").getrandbits(63)
                )
                reset()
    return network
