"""`replace` puts poolings into the place of a network's layers, `restore` brings these back."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from foveapool.pooling.module import LinearPool2d
from foveapool.surgery.geometry import POOLINGS, Pair
from foveapool.surgery.names import matching, standins
from foveapool.surgery.optimiser import Slot, check_knows, swap_back, swap_parameters
from foveapool.surgery.standin import MODES, ON_RESIZE, Mode, OnResize, StandIn
from foveapool.surgery.visit import device_of, unwrapped


@dataclass(frozen=True)
class Change:
    """One layer that gave way: all names it goes by, itself, and what stands in its place."""

    names: tuple[str, ...]
    old: nn.Module
    new: StandIn


@dataclass(frozen=True)
class Replacement:
    """What `replace` changed."""

    changes: tuple[Change, ...]
    parameters: tuple[int, int]  # of the whole network, before and after

    def __str__(self) -> str:
        lines = [
            f"{', '.join(change.names)}: {type(change.old).__name__} -> {change.new.mode} "
            f"{type(change.new.pool).__name__}({change.new.pool.extra_repr()})"
            + (" and a 1x1 convolution" if change.new.project is not None else "")
            for change in self.changes
        ]
        return "\n".join([*lines, f"parameters: {self.parameters[0]:,} -> {self.parameters[1]:,}"])


def replace(
    model: nn.Module,
    pools: Mapping[str, nn.Module],
    *,
    mode: Mode | None = None,
    optimizer: Optimizer | None = None,
    on_resize: OnResize = "error",
    in_shapes: Mapping[str, Pair | None] | None = None,
) -> Replacement:
    """Puts each pooling of `pools` into the place of the layers that its key names, in place.

    A key is an exact name, the end of names ("downsample.0") or a regular expression for whole
    names; one that matches several layers gives them one shared pooling. `mode`, unless given, is
    the one that a pooling was fitted for, or else `replace`. `optimizer` loses the parameters that
    left and gets those that came. With `on_resize="interpolate"` maps of another size are pooled
    by an operator carried over to it; otherwise they are an error. `in_shapes` tells mode `after`
    the size of a layer's input, where the layer has no stride and the pooling was not fitted
    there. Nothing is changed if anything is wrong.
    """
    if mode is not None and mode not in MODES:
        raise ValueError(f"mode: got {mode!r}, wanted one of {MODES}")
    if on_resize not in ON_RESIZE:
        raise ValueError(f"on_resize: got {on_resize!r}, wanted one of {ON_RESIZE}")
    for name, shape in (in_shapes or {}).items():
        if shape is not None and len(shape) != 2:
            raise ValueError(f"in_shapes: got {shape} for {name}, wanted (height, width)")
    model = _inside(model)
    device_of(model)
    chosen = _chosen(model, pools)
    modes = {layer: _mode_of(names[0], pool, mode) for layer, (names, pool) in chosen.items()}
    for layer, (names, pool) in chosen.items():
        check_pool(names[0], layer, pool, modes[layer])
    places = standins(model)
    turn = 1 + max((standin.turn for standin in places), default=0)
    before = list(model.parameters())
    if optimizer is not None and optimizer not in _followers(places):
        new = [p for _, pool in chosen.values() for p in pool.parameters()]
        check_knows(optimizer, [*before, *new])
    changes: list[Change] = []
    try:
        for layer, (names, pool) in chosen.items():
            shape = (in_shapes or {}).get(names[0], getattr(pool, "read_shape", None))
            standin = _standin(model, layer, pool, modes[layer], on_resize, shape)
            changes.append(Change(names, layer, standin))
    except BaseException:
        for change in changes:
            change.new.release()
        raise
    for change in changes:
        for name in change.names:
            _put(model, name, change.new)
    after = list(model.parameters())
    slots: tuple[Slot, ...] = ()
    if optimizer is not None:
        added = {id(p) for p in _without(after, before) if p.requires_grad}
        coming = {name: p for name, p in model.named_parameters() if id(p) in added}
        slots = swap_parameters(optimizer, _without(before, after), coming)
    for change in changes:
        # `restore` is given the network alone, and undoes the last call first.
        change.new.turn, change.new.slots = turn, slots
        change.new.optimizer = None if optimizer is None else weakref.ref(optimizer)
    return Replacement(tuple(changes), (_count(before), _count(after)))


def restore(model: nn.Module, *, optimizer: Optimizer | None = None) -> list[str]:
    """Brings every replaced layer back, the very modules; returns their names.

    `optimizer`, if it was given to `replace`, gets its old groups and their memory back; it has to
    be given then. Nothing is changed if it is missing or another network's.
    """
    model = _inside(model)
    places = standins(model)
    followers = _followers(places)
    if optimizer is None and followers:
        raise ValueError(
            "optimizer: got none, wanted the one that replace was given, which holds the poolings' "
            "parameters; call restore(model, optimizer=...)"
        )
    if places and optimizer is not None and optimizer not in followers:
        check_knows(optimizer, model.parameters())
    for turn in sorted({standin.turn for standin in places}, reverse=True):
        before = list(model.parameters())
        slots: tuple[Slot, ...] = ()
        for standin, names in places.items():
            if standin.turn == turn:
                slots = standin.slots
                for name in names:
                    _put(model, name, standin.release().to(_first_number(standin, model)))
        if optimizer is not None:
            swap_back(optimizer, _without(before, list(model.parameters())), slots)
    return [name for names in places.values() for name in names]


def _inside(model: nn.Module) -> nn.Module:
    """The network inside of `torch.compile`, which follows changes; other wrappers do not."""
    wrapper = getattr(model, "_orig_mod", model)
    if isinstance(wrapper, (nn.parallel.DistributedDataParallel, nn.DataParallel)):
        raise ValueError(
            "model: got one that is wrapped for several processes, wanted the network inside; "
            "change it first, wrap it afterwards, so that the wrapper knows the new parameters"
        )
    return unwrapped(model)


def _mode_of(name: str, pool: nn.Module, mode: Mode | None) -> Mode:
    """The mode asked for, or the one that the pooling was fitted for, which must not differ."""
    fitted: Mode | None = getattr(pool, "fitted_for", None)
    if mode and fitted and mode != fitted:
        raise ValueError(
            f"mode: got {mode!r} for {name}, wanted {fitted!r}, which its pooling was fitted for; "
            "leave mode out, or fit in the other mode"
        )
    return mode or fitted or "replace"


def check_pool(name: str, layer: nn.Module, pool: nn.Module, mode: Mode) -> None:
    """Raises a ValueError unless `pool` can stand in for `layer`."""
    if isinstance(layer, StandIn):
        raise ValueError(f"{name}: is replaced already; call restore(model) first")
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
        wanted = layer.in_channels if mode == "replace" else layer.out_channels
        if len(pool.mean) != wanted:
            raise ValueError(
                f"{name}: got a pooling for {len(pool.mean)} channels, wanted {wanted} in mode "
                f"{mode!r}; was it fitted on another layer or in another mode?"
            )


def _chosen(
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
        for name in matching(model, key):
            layer = model.get_submodule(name)
            if layer in chosen and chosen[layer][1] is not pool:
                raise ValueError(
                    f"{name}: got two poolings, {chosen[layer][0]} is the same layer; wanted one"
                )
            chosen[layer] = (tuple(every[layer]), pool)
    return chosen


def _standin(
    model: nn.Module,
    layer: nn.Module,
    pool: nn.Module,
    mode: Mode,
    on_resize: OnResize,
    in_shape: Pair | None,
) -> StandIn:
    like = _first_number(layer, model)
    project = None
    if mode == "replace" and isinstance(layer, nn.Conv2d):
        given = getattr(pool, "components", 1) * layer.in_channels
        if given != layer.out_channels:
            project = nn.Conv2d(given, layer.out_channels, 1, bias=layer.bias is not None)
            project.to(like)
    pool.to(like)
    return StandIn(layer, pool, mode, project, in_shape, on_resize)


def _first_number(*modules: nn.Module) -> Tensor:
    """A tensor of the type and on the device of the modules, of the first that has any."""
    own = (t for module in modules for t in (*module.parameters(), *module.buffers()))
    return next((t for t in own if t.is_floating_point()), torch.empty(0))


def _put(model: nn.Module, name: str, module: nn.Module) -> None:
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, module)


def _followers(places: Iterable[StandIn]) -> list[Optimizer]:
    """The optimisers that followed the replacements and are still in use."""
    known = (standin.optimizer() for standin in places if standin.optimizer is not None)
    return [optimizer for optimizer in known if optimizer is not None]


def _without(some: list[nn.Parameter], others: list[nn.Parameter]) -> list[nn.Parameter]:
    known = {id(p) for p in others}
    return [p for p in some if id(p) not in known]


def _count(parameters: list[nn.Parameter]) -> int:
    return sum(p.numel() for p in parameters)
