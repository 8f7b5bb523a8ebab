"""Keeps an optimizer in step with a network whose layers come and go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.optim import Optimizer


@dataclass(frozen=True)
class Slot:
    """Where a parameter stood in an optimizer, and what the optimizer remembered of it."""

    group: int
    index: int
    parameter: nn.Parameter
    state: dict[str, Any] | None
    name: str | None  # for optimizers that were given named parameters


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
