"""Whether a pooling can stand in for a layer, and in which mode: known before anything changes."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from torch import nn

from foveapool.pooling.mixing import ChannelMixing, MixingPool2d
from foveapool.pooling.module import LinearPool2d
from foveapool.surgery.geometry import POOLINGS, Pair, check_subsamples
from foveapool.surgery.standin import Mode, StandIn


def mode_of(name: str, pool: nn.Module, mode: Mode | None) -> Mode:
    """The mode asked for, or the one that the pooling was fitted for, which must not differ."""
    fitted: Mode | None = getattr(pool, "fitted_for", None)
    if mode and fitted and mode != fitted:
        raise ValueError(
            f"mode: got {mode!r} for {name}, wanted {fitted!r}, which its pooling was fitted for; "
            "leave mode out, or fit in the other mode"
        )
    return mode or fitted or ("mix" if isinstance(pool, MixingPool2d) else "replace")


def split_mixing(pool: nn.Module) -> tuple[nn.Module, ChannelMixing | None]:
    """The pooling, and the mixing that was handed over with it, if one was."""
    return (pool.pool, pool.mixing) if isinstance(pool, MixingPool2d) else (pool, None)


def check_can_mix(name: str, layer: nn.Module) -> None:
    """Raises a ValueError unless mode `mix` can do the layer's work."""
    if not isinstance(layer, nn.Conv2d):
        raise ValueError(
            f"{name}: got a {type(layer).__name__} for mode 'mix', wanted an nn.Conv2d: mixing "
            "makes a convolution's channels, and a pooling keeps those it reads; use mode "
            "'replace' or 'after'"
        )


def _check_mixing(name: str, layer: nn.Conv2d, pool: nn.Module, mixing: ChannelMixing) -> None:
    own = (layer.in_channels, layer.out_channels)
    if (mixing.in_channels, mixing.out_channels) != own:
        raise ValueError(
            f"{name}: got a mixing of {mixing.in_channels} to {mixing.out_channels} channels, "
            f"wanted {own[0]} to {own[1]}; was it fitted on another layer?"
        )
    components = getattr(pool, "components", 1)
    if mixing.components != components:
        raise ValueError(
            f"{name}: got a mixing for {mixing.components} components, wanted {components}, as "
            "many as its pooling has"
        )


def check_pool(name: str, layer: nn.Module, pool: nn.Module, mode: Mode) -> None:
    """Raises a ValueError unless `pool` can stand in for `layer`."""
    if isinstance(layer, StandIn):
        raise ValueError(f"{name}: is replaced already; call restore(model) first")
    pool, mixing = split_mixing(pool)
    if mode == "mix":
        check_can_mix(name, layer)
    if mixing is not None:
        if mode != "mix":
            raise ValueError(
                f"{name}: got a MixingPool2d for mode {mode!r}, wanted mode 'mix', or its `pool` "
                "alone"
            )
        assert isinstance(layer, nn.Conv2d)
        _check_mixing(name, layer, pool, mixing)
    if mode == "after" and not isinstance(pool, LinearPool2d):
        raise ValueError(
            f"{name}: got a {type(pool).__name__} for mode 'after', wanted a LinearPool2d"
        )
    if not isinstance(pool, LinearPool2d):
        return
    if pool.components > 1 and (mode == "after" or isinstance(layer, POOLINGS)):
        raise ValueError(
            f"{name}: got a pooling with {pool.components} components, wanted 1: "
            + (
                "in mode 'after' the convolution before it makes the channels"
                if mode == "after"
                else f"a {type(layer).__name__} keeps the number of channels"
            )
        )
    if pool.mean is not None and isinstance(layer, nn.Conv2d):
        wanted = layer.out_channels if mode == "after" else layer.in_channels
        if len(pool.mean) != wanted:
            raise ValueError(
                f"{name}: got a pooling for {len(pool.mean)} channels, wanted {wanted} in mode "
                f"{mode!r}; was it fitted on another layer or in another mode?"
            )


def check_stage(
    model: nn.Module, name: str, layer: nn.Module, pool: Any, in_shape: Pair | None
) -> None:
    """Raises if the layer cannot work at stride 1, tried on maps as near to its own as is known."""
    channels = getattr(layer, "in_channels", 1 if pool.mean is None else len(pool.mean))
    check_subsamples(name, layer, in_shape or pool.in_shape, channels, model)


def warn_of_other_holders(model: nn.Module, layers: Collection[nn.Module]) -> None:
    """Warns of layers that a module keeps in a plain list too, and may call from there."""
    for name, module in model.named_modules():
        for attribute, value in vars(module).items():
            if attribute == "_modules" or not isinstance(value, (list, tuple, Mapping)):
                continue
            if any(each in layers for each in _modules_in(value)):
                warnings.warn(
                    f"{name or 'model'}: got a layer to replace that stands in its "
                    f"`{attribute}`, a {type(value).__name__}, too; called from there it stays the "
                    "old one: make that an nn.ModuleList or nn.ModuleDict",
                    stacklevel=3,
                )


def _modules_in(value: Any, depth: int = 4) -> Iterator[nn.Module]:
    """The modules in containers in containers; not for ever, since one may hold itself."""
    if isinstance(value, nn.Module):
        yield value
    elif isinstance(value, (list, tuple, Mapping)) and depth:
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _modules_in(each, depth - 1)
