"""Keeps an optimiser in step with a network whose layers come and go."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.optim import Optimizer


@dataclass(frozen=True)
class Slot:
    """Where a parameter stood in an optimiser, and what the optimiser remembered of it."""

    group: int
    index: int
    parameter: nn.Parameter
    state: dict[str, Any] | None


def swap_parameters(
    optimizer: Optimizer, leaving: Iterable[nn.Parameter], coming: Iterable[nn.Parameter]
) -> tuple[Slot, ...]:
    """Takes `leaving` out and puts `coming` where the first of them stood; returns the slots.

    With none leaving, the new ones join the last group.
    """
    slots = _taken_out(optimizer, leaving)
    groups = optimizer.param_groups
    group = slots[0].group if slots else len(groups) - 1
    index = slots[0].index if slots else len(groups[group]["params"])
    known = {id(p) for g in groups for p in g["params"]}
    new = [p for p in coming if id(p) not in known]
    groups[group]["params"][index:index] = new
    return slots


def swap_back(optimizer: Optimizer, leaving: Iterable[nn.Parameter], slots: Iterable[Slot]) -> None:
    """Takes `leaving` out and puts back, with its memory, what stood in `slots`."""
    _taken_out(optimizer, leaving)
    for slot in slots:
        optimizer.param_groups[slot.group]["params"].insert(slot.index, slot.parameter)
        if slot.state is not None:
            optimizer.state[slot.parameter] = slot.state


def _taken_out(optimizer: Optimizer, parameters: Iterable[nn.Parameter]) -> tuple[Slot, ...]:
    leaving = {id(p): p for p in parameters}
    slots: list[Slot] = []
    for number, group in enumerate(optimizer.param_groups):
        # From the end, so that each index is the one it had before anything left.
        for index in reversed(range(len(group["params"]))):
            parameter = group["params"][index]
            if id(parameter) in leaving:
                del group["params"][index]
                state = optimizer.state.pop(parameter, None)
                slots.append(Slot(number, index, parameter, state))
    return tuple(sorted(slots, key=lambda slot: (slot.group, slot.index)))
