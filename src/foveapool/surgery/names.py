"""Which network and which of its layers a user's words mean: names, ends of names, patterns.

Layers that were replaced already are found here too, under the names they went by.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import torch
from torch import nn

from foveapool.surgery.geometry import POOLINGS, halves, leaves_places_out
from foveapool.surgery.standin import StandIn
from foveapool.surgery.visit import near, unwrapped


def network_in(model: nn.Module) -> nn.Module:
    """The network inside of `torch.compile`, of parallel and of averaging wrappers."""
    model = unwrapped(model)
    if isinstance(model, torch.jit.ScriptModule):
        raise ValueError(
            "model: got a scripted or traced network, whose layers can be neither watched nor "
            "changed, wanted the nn.Module it was made from; script it again afterwards"
        )
    return model


def matching(model: nn.Module, key: str) -> list[str]:
    """The names of the layers that `key` means; raises if there is none."""
    if not isinstance(key, str) or not key:
        hint = f"; write {str(key)!r}" if isinstance(key, int) else ""
        raise ValueError(f"layer: got {key!r}, wanted the name of a layer of the model{hint}")
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
        kind = type(model.get_submodule(key))
        if "quantized" in kind.__module__:
            raise ValueError(
                f"layer: got {key!r}, a quantised {kind.__name__}, wanted one that works on "
                "floating-point maps; give the network as it was before, and quantise it afterwards"
            )
        raise ValueError(
            f"layer: got {key!r}, a {kind.__name__}, wanted a convolution or a pooling; "
            "downsampling_layers(model, example) lists those that shrink a map"
        )
    raise ValueError(
        f"layer: got {key!r}, which is no convolution's or pooling's name, end of a name or "
        f"pattern; {near(key, layers)}; a pooling written as a function, such as F.avg_pool2d, "
        "has no name: make it a module"
    )


def given_way(
    model: nn.Module, pools: Mapping[str, nn.Module]
) -> dict[nn.Module, tuple[tuple[str, ...], nn.Module]]:
    """The layers to replace, each once, with all their names and the pooling for them."""
    if not pools:
        raise ValueError("pools: got none, wanted {name of a layer: pooling}")
    every: dict[nn.Module, list[str]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        every.setdefault(module, []).append(name)
    chosen: dict[nn.Module, tuple[tuple[str, ...], nn.Module]] = {}
    for key, pool in pools.items():
        if not isinstance(pool, nn.Module):
            raise ValueError(f"{key}: got a {type(pool).__name__}, wanted a pooling module")
        for name in _shrinking(model, key, pool):
            layer = model.get_submodule(name)
            _check_is_asked_for(model, name)
            if layer in chosen and chosen[layer][1] is not pool:
                raise ValueError(
                    f"{name}: got two poolings, {chosen[layer][0]} is the same layer; wanted one"
                )
            chosen[layer] = (tuple(every[layer]), pool)
    return chosen


def _check_is_asked_for(model: nn.Module, name: str) -> None:
    """Raises for a layer that is called without a look at its place."""
    holder = model.get_submodule(name.rpartition(".")[0])
    if isinstance(holder, torch._dynamo.eval_frame.OptimizedModule):
        raise ValueError(
            f"{name}: got a layer in a torch.compile of its own, which would go on calling it, "
            "wanted one that can be exchanged; compile it by layer.compile(), or the network"
        )


def _shrinking(model: nn.Module, key: str, pool: nn.Module) -> list[str]:
    """Of the layers that `key` means those which shrink by steps, as a fit takes them."""
    names = matching(model, key)
    # Who names a layer exactly means it.
    if names == [key] or not halves(pool):
        return names
    layers = ((name, model.get_submodule(name)) for name in names)
    found = [name for name, m in layers if isinstance(m, StandIn) or leaves_places_out(m)]
    if not found:
        raise ValueError(
            f"{key}: got a pooling that shrinks maps for {', '.join(names)}, of stride 1, wanted "
            "a layer that shrinks them; downsampling_layers(model, example) lists these"
        )
    return found


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
