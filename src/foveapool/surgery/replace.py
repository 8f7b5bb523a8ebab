"""`replace` puts poolings into a network instead of layers, `restore` brings these back."""

from __future__ import annotations

import copy
import dataclasses
import warnings
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from foveapool.pooling.grid import name_sizes
from foveapool.pooling.mixing import ChannelMixing
from foveapool.surgery.agreement import Agreement, compare_networks
from foveapool.surgery.find import find_pooled_layers, match_layers, match_poolings, unwrap_network
from foveapool.surgery.forward import get_device
from foveapool.surgery.geometry import (
    CONVOLUTIONS,
    Sizes,
    count_channels,
    find_axes,
    find_reference_tensor,
)
from foveapool.surgery.loader import Unpack
from foveapool.surgery.wrapper import (
    ON_RESIZE,
    Mode,
    OnResize,
    PooledLayer,
    Slot,
    check_mode,
    check_pool,
    check_stage,
    choose_mode,
    leave_inference,
    split_mixing,
    warn_of_other_references,
)

RANDOM = "random: it has to learn"


@dataclass(frozen=True)
class Change:
    """One layer that gave way: all names it goes by, itself, and what stands there now.

    Attributes:
        names: The names.
        old: The layer that gave way.
        new: The module that stands there now.
        same_as: The layer whose pooling was copied for this one.
        origin: Where the numbers of a 1x1 convolution come from; a fit and `load` know better than
            the default.
    """

    names: tuple[str, ...]
    old: nn.Module
    new: PooledLayer
    same_as: str | None = None
    origin: str = RANDOM

    def __str__(self) -> str:
        new, notes = self.new, []
        mode, pool = new.role.mode, new.pool
        if new.project is not None or new.mixing is not None:
            notes.append(f" and a 1x1 convolution ({self.origin})")
        if self.same_as is not None:
            notes.append(f", a copy of that in {self.same_as}")
        hooks = len(self.old._forward_hooks) + len(self.old._forward_pre_hooks)
        if hooks and mode != "after":
            notes.append(f"; the old layer's hooks ({hooks}) rest until it is restored")
        line = f"{', '.join(self.names)}: {type(self.old).__name__} -> {mode} "
        return f"{line}{type(pool).__name__}({pool.extra_repr()}){''.join(notes)}"

    @property
    def parameters(self) -> tuple[int, int]:
        """The parameters of the layer that gave way, and of what stands there now."""
        before, after = (_count_numbers(each.parameters()) for each in (self.old, self.new))
        return before, after


@dataclass(frozen=True)
class Replacement:
    """What `replace` changed; `print` shows it.

    Attributes:
        changes: One `Change` for each layer, with its names, the old module and the new one.
        parameters: The parameters of the whole network, before and after.
        agreement: With `check`, how often the network answers as it did before.
        unfollowed: The numbers that are new and train, where no optimizer was given to follow.

    Example:
        >>> from foveapool import LinearPool2d
        >>> model = nn.Sequential(nn.Conv2d(3, 6, 3, 2, 1))
        >>> done = replace(model, {"0": LinearPool2d.average((8, 8), (4, 4), components=2)})
        >>> [change.names for change in done.changes], done.parameters
        ([('0',)], (168, 0))
    """

    changes: tuple[Change, ...]
    parameters: tuple[int, int]
    agreement: Agreement | None = None
    unfollowed: int = 0

    def __str__(self) -> str:
        lines = list(map(str, self.changes))
        if len(lines) > 1:
            growth = [_describe_growth(each.parameters) for each in self.changes]
            lines = [f"{line}; {own}" for line, own in zip(lines, growth, strict=True)]
        lines.append(_describe_growth(self.parameters))
        if self.unfollowed:
            lines.append(
                f"optimizer: none was given, and {self.unfollowed:,} of these are new and want "
                "one: make yours from model.parameters() now, or pass replace(..., optimizer=...)"
            )
        return "\n".join(lines if self.agreement is None else [*lines, str(self.agreement)])


def _describe_growth(parameters: tuple[int, int]) -> str:
    before, after = parameters
    return f"parameters: {before:,} -> {after:,}"


def replace(
    model: nn.Module,
    pools: Mapping[str, nn.Module],
    *,
    mode: Mode | None = None,
    optimizer: Optimizer | None = None,
    on_resize: OnResize = "error",
    in_shapes: Mapping[str, Sizes | None] | None = None,
    check: Iterable[Any] | None = None,
    unpack: Unpack | None = None,
) -> Replacement:
    """Puts poolings into a network instead of the layers that are named; changes the very network.

    Every layer gets a pooling of its own: the first the very module, others copies of it, which
    train and are saved by themselves. Nothing is changed if anything is wrong.

    Args:
        model: The network.
        pools: The pooling for each key: an exact name, the end of names ("downsample.0") or a
            regular expression for whole names. Layers of stride 1 among those that a key matches
            are passed over if the pooling halves maps.
        mode: "replace", "mix" or "after"; unless given, the one that a pooling was fitted for, or
            else "replace". "mix" puts a 1x1 convolution behind the pooling: that of a
            `MixingPool`, or a random one.
        optimizer: Loses the parameters that leave and gets those that come.
        on_resize: With "interpolate" maps of another size are pooled by an operator carried over
            to it; with "error" they are an error.
        in_shapes: Tells mode `after` the size of a layer's input, where the layer has no stride, or
            pads by it, and the pooling was not fitted there.
        check: A loader, over which the network is compared with what it was: how often the class
            with the highest score is the same. Takes a copy of the network for as long.
        unpack: Turns a batch of `check` into (inputs, labels), as for a fit.

    Returns:
        What was changed; it prints as a line for each layer, and the agreement.

    Raises:
        ValueError: If a key means no layer, a pooling does not fit its layer, or the optimizer does
            not train this network.

    Example:
        >>> from foveapool import LinearPool2d
        >>> model = nn.Sequential(nn.Conv2d(3, 6, 3, 2, 1))
        >>> print(replace(model, {"0": LinearPool2d.average((8, 8), (4, 4), components=2)}))
        0: Conv2d -> replace LinearPool2d((8, 8) -> (4, 4), components=2, trainable=False)
        parameters: 168 -> 0
        >>> model(torch.ones(1, 3, 8, 8)).shape
        torch.Size([1, 6, 4, 4])
    """
    if mode is not None:
        check_mode(mode)
    if on_resize not in ON_RESIZE:
        raise ValueError(f"on_resize: got {on_resize!r}, wanted one of {ON_RESIZE}")
    model = _unwrap_changeable(model)
    get_device(model)
    chosen = match_poolings(model, pools)
    poolings = {layer: pool for layer, (_, pool) in chosen.items()}
    sizes = _match_sizes(model, in_shapes or {}, poolings)
    modes = {layer: choose_mode(names[0], pool, mode) for layer, (names, pool) in chosen.items()}
    for layer, (names, pool) in chosen.items():
        check_pool(names[0], layer, pool, modes[layer])
    warn_of_other_references(model, chosen)
    places = find_pooled_layers(model)
    turn = 1 + max((standin.role.turn for standin in places), default=0)
    before = list(model.parameters())
    if optimizer is not None and optimizer not in _find_optimizers(places):
        new = [p for _, pool in chosen.values() for p in pool.parameters()]
        check_knows(optimizer, [*before, *new])
    twin = None if check is None else copy.deepcopy(model)
    changes = _make_changes(model, chosen, modes, sizes, on_resize, places)
    for change in changes:
        for name in change.names:
            _set_module(model, name, change.new)
    agreement = None
    if twin is not None and check is not None:
        try:
            agreement = compare_networks(twin, model, check, unpack)
        except BaseException:
            for change in changes:
                for name in change.names:
                    _set_module(model, name, change.new.release())
            raise
    slots = () if optimizer is None else _swap_in_optimizer(optimizer, model, before)
    left, came = (
        _list_missing(before, model.parameters()),
        _list_missing(model.parameters(), before),
    )
    trained = [any(p.requires_grad for p in some) for some in (left, came)]
    if optimizer is not None and not slots and all(trained):
        warnings.warn(
            f"optimizer: got a {type(optimizer).__name__} that does not hold the parameters of the "
            "layers that gave way; what trains in their place joined its last group. If another "
            "optimizer holds them, restore and give that one",
            stacklevel=2,
        )
    for change in changes:
        # `restore` is given the network alone, and undoes the last call first.
        role = change.new.role
        role.turn, role.slots = turn, slots
        role.optimizer = None if optimizer is None else weakref.ref(optimizer)
    counts = _count_numbers(before), _count_numbers(model.parameters())
    learning = _count_numbers(p for p in came if p.requires_grad) if optimizer is None else 0
    return Replacement(tuple(changes), counts, agreement, learning)


def _make_changes(
    model: nn.Module,
    chosen: Mapping[nn.Module, tuple[tuple[str, ...], nn.Module]],
    modes: Mapping[nn.Module, Mode],
    sizes: Mapping[nn.Module, Sizes | None],
    on_resize: OnResize,
    places: Mapping[PooledLayer, list[str]],
) -> list[Change]:
    """The stand-ins, of which the network knows nothing yet; where one fails, no layer is changed.

    `places` are those it has already: a pooling that works there is copied.
    """
    changes: list[Change] = []
    holders: dict[nn.Module | None, str] = {}
    for standin, holding in places.items():
        holders |= dict.fromkeys((standin.pool, standin.mixing), holding[0])
    holders.pop(None, None)
    try:
        for layer, (names, pool) in chosen.items():
            shape = sizes.get(layer) or getattr(pool, "read_shape", None)
            offset: Sizes = ()
            if modes[layer] == "after":
                offset = check_stage(model, names[0], layer, pool, shape)
            # What is made in inference mode could never be trained.
            parts = [part for part in split_mixing(pool) if part is not None]
            holder = next((holders[part] for part in parts if part in holders), None)
            with torch.inference_mode(False):
                own = pool if holder is None else copy.deepcopy(pool)
                standin = _make_pooled_layer(
                    model, layer, own, modes[layer], on_resize, shape, offset
                )
            change = Change(names, layer, standin, holder)
            if len(parts) > 1:
                origin = getattr(pool, "origin", None) or "as it was given"
                change = dataclasses.replace(change, origin=origin)
            changes.append(change)
            for part in parts:
                holders.setdefault(part, names[0])
    except BaseException:
        for change in changes:
            change.new.release()
        raise
    return changes


def restore(model: nn.Module, *, optimizer: Optimizer | None = None) -> list[str]:
    """Brings every replaced layer back, the very modules.

    Nothing is changed if an optimizer is missing or another network's.

    Args:
        model: The network.
        optimizer: The one that `replace` was given; it gets its old groups and their memory back,
            and has to be given then. Of two that followed in two calls, either will do. Another one
            that trains the network gets the layers' parameters instead of the poolings'.

    Returns:
        The names of the layers that are back.

    Raises:
        ValueError: If an optimizer is missing, or another network's.

    Example:
        >>> from foveapool import LinearPool2d
        >>> model = nn.Sequential(nn.Conv2d(3, 6, 3, 2, 1))
        >>> layer = model[0]
        >>> done = replace(model, {"0": LinearPool2d.average((8, 8), (4, 4), components=2)})
        >>> restore(model), model[0] is layer
        (['0'], True)
    """
    model = _unwrap_changeable(model)
    places = find_pooled_layers(model)
    followers = _find_optimizers(places)
    if optimizer is None and followers:
        raise ValueError(
            "optimizer: got none, wanted the one that replace was given, which holds the poolings' "
            "parameters; call restore(model, optimizer=...)"
        )
    if places and optimizer is not None and optimizer not in followers:
        check_knows(optimizer, model.parameters())
    for turn in sorted({standin.role.turn for standin in places}, reverse=True):
        before = list(model.parameters())
        own = {standin: names for standin, names in places.items() if standin.role.turn == turn}
        for standin, names in own.items():
            for name in names:
                _set_module(
                    model, name, standin.release().to(find_reference_tensor(standin, model))
                )
        leaving = _list_missing(before, model.parameters())
        follower = next(iter(_find_optimizers(own)), None)
        # Where two train a part each, both are in use, and neither knows of the other's part.
        apart = optimizer in followers and not holds_any(optimizer, leaving)
        if follower is not None and (follower is optimizer or apart):
            swap_back(follower, leaving, next(iter(own)).role.slots)
        elif optimizer is not None:
            # What another one remembered of these parameters is nothing to this one.
            _swap_in_optimizer(optimizer, model, before)
    return [name for names in places.values() for name in names]


def _unwrap_changeable(model: nn.Module) -> nn.Module:
    """The network inside of its wrappers, all of which follow changes but one."""
    wrapper = getattr(model, "_orig_mod", model)
    if isinstance(wrapper, nn.parallel.DistributedDataParallel):
        raise ValueError(
            "model: got a DistributedDataParallel, which knows only the parameters it was made "
            "with, wanted the network inside: change model.module, then wrap it anew"
        )
    return unwrap_network(model)


def _match_sizes(
    model: nn.Module,
    in_shapes: Mapping[str, Sizes | None],
    pools: Mapping[nn.Module, nn.Module],
) -> dict[nn.Module, Sizes | None]:
    """The sizes that were told, by layer; their keys mean layers as those of the poolings do."""
    found: dict[nn.Module, Sizes | None] = {}
    for key, shape in in_shapes.items():
        layers = [model.get_submodule(name) for name in match_layers(model, key)]
        own = next((layer for layer in layers if layer in pools), None)
        if own is None:
            raise ValueError(f"in_shapes: got {key!r}, wanted a layer that gets a pooling")
        axes = find_axes(own, pools[own])
        if shape is not None and len(shape) != axes:
            raise ValueError(f"in_shapes: got {shape} for {key}, wanted {name_sizes(axes)}")
        found |= dict.fromkeys(layers, shape)
    return found


def _make_pooled_layer(
    model: nn.Module,
    layer: nn.Module,
    pool: nn.Module,
    mode: Mode,
    on_resize: OnResize,
    in_shape: Sizes | None,
    offset: Sizes,
) -> PooledLayer:
    like = find_reference_tensor(layer, model)
    leave_inference(pool)
    pool.to(like)
    pool, mixing = split_mixing(pool)
    project, components = None, getattr(pool, "components", 1)
    if sizes := count_channels(layer):
        biased = getattr(layer, "bias", None) is not None
        if mode == "mix" and mixing is None:
            groups = getattr(layer, "groups", 1)
            mixing = ChannelMixing(*sizes, components, groups, biased).to(like)
        elif mode == "replace" and components * sizes[0] != sizes[1]:
            convolution: Any = CONVOLUTIONS[find_axes(layer, pool) - 1]
            project = convolution(components * sizes[0], sizes[1], 1, bias=biased).to(like)
    return PooledLayer(layer, pool, mode, project, in_shape, on_resize, mixing, offset)


def _set_module(model: nn.Module, name: str, module: nn.Module) -> None:
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, module)


def _find_optimizers(places: Iterable[PooledLayer]) -> list[Optimizer]:
    """The optimizers that followed the replacements and are still in use."""
    roles = (standin.role for standin in places)
    known = (role.optimizer() for role in roles if role.optimizer is not None)
    return [optimizer for optimizer in known if optimizer is not None]


def _swap_in_optimizer(
    optimizer: Optimizer, model: nn.Module, before: list[nn.Parameter]
) -> tuple[Slot, ...]:
    """Has the optimizer follow a network that had the parameters `before`; gives what left it."""
    added = {id(p) for p in _list_missing(model.parameters(), before) if p.requires_grad}
    coming = {name: p for name, p in model.named_parameters() if id(p) in added}
    return swap_parameters(optimizer, _list_missing(before, model.parameters()), coming)


def _list_missing(
    some: Iterable[nn.Parameter], others: Iterable[nn.Parameter]
) -> list[nn.Parameter]:
    known = {id(p) for p in others}
    return [p for p in some if id(p) not in known]


def _count_numbers(parameters: Iterable[nn.Parameter]) -> int:
    return sum(p.numel() for p in parameters)


def holds_any(optimizer: Optimizer, parameters: Iterable[nn.Parameter]) -> bool:
    """Whether some of these are in its groups."""
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    return any(id(p) in held for p in parameters)


def check_knows(optimizer: Optimizer, parameters: Iterable[nn.Parameter]) -> None:
    """Raises unless the optimizer holds some of these: one that holds none is another network's."""
    if not hasattr(optimizer, "param_groups"):
        raise ValueError(
            f"optimizer: got {optimizer!r}, wanted the torch.optim.Optimizer that trains the model"
        )
    if not holds_any(optimizer, parameters):
        raise ValueError(
            f"optimizer: got a {type(optimizer).__name__} that holds no parameter of the model, "
            "wanted the one that trains it"
        )


def swap_parameters(
    optimizer: Optimizer, leaving: Iterable[nn.Parameter], coming: Mapping[str, nn.Parameter]
) -> tuple[Slot, ...]:
    """Takes `leaving` out and puts `coming` where the first of their kind stood; returns the slots.

    Weights go where weights were and biases where biases were, which often decay apart. With none
    leaving, the new ones join the last group.
    """
    slots = _take_out(optimizer, leaving)
    groups = optimizer.param_groups
    known = {id(p) for g in groups for p in g["params"]}
    new = {name: p for name, p in coming.items() if id(p) not in known}
    added = [0] * len(groups)
    for name, parameter in new.items():
        kin = [slot for slot in slots if _is_matrix(slot.parameter) == _is_matrix(parameter)]
        slot = next(iter(kin or slots), None)
        if slot is None:
            number, index = len(groups) - 1, len(groups[-1]["params"])
        else:
            number = slot.group
            gone = sum(other.group == number and other.index < slot.index for other in slots)
            index = slot.index - gone + added[number]
        _put_in(groups[number], index, parameter, name)
        added[number] += 1
    return slots


def _is_matrix(parameter: nn.Parameter) -> bool:
    return parameter.dim() > 1


def swap_back(optimizer: Optimizer, leaving: Iterable[nn.Parameter], slots: Iterable[Slot]) -> None:
    """Takes `leaving` out and puts back, with its memory, what stood in `slots`."""
    _take_out(optimizer, leaving)
    for slot in slots:
        _put_in(optimizer.param_groups[slot.group], slot.index, slot.parameter, slot.name)
        if slot.state is not None:
            optimizer.state[slot.parameter] = slot.state


def _put_in(group: dict[str, Any], index: int, parameter: nn.Parameter, name: str | None) -> None:
    group["params"].insert(index, parameter)
    if "param_names" in group:
        group["param_names"].insert(index, name)


def _take_out(optimizer: Optimizer, parameters: Iterable[nn.Parameter]) -> tuple[Slot, ...]:
    leaving = {id(p): p for p in parameters}
    slots: list[Slot] = []
    for number, group in enumerate(optimizer.param_groups):
        # From the end, so that each index is the one it had before anything left.
        for index in reversed(range(len(group["params"]))):
            parameter = group["params"][index]
            if id(parameter) in leaving:
                del group["params"][index]
                name = group["param_names"].pop(index) if "param_names" in group else None
                state = optimizer.state.pop(parameter, None)
                slots.append(Slot(number, index, parameter, state, name))
    return tuple(sorted(slots, key=lambda slot: (slot.group, slot.index)))
