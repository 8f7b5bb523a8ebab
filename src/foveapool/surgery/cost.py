"""What a fit of a layer will cost, before any data is read: places, memory, time to solve.

Arithmetic from sizes alone, in operations as benchmarks counted them; how fast a machine is comes
into it as one number, so times are right to a factor of two or three.
"""

from __future__ import annotations

import math
import warnings
from bisect import bisect_left
from dataclasses import dataclass

import torch

from foveapool.pooling.gram import Panels, check_memory
from foveapool.pooling.grid import check_shapes, count_window, get_largest_step

# Multiplications and additions in a second, of float32 on one core, and of a GPU solving.
RATES = {"cpu": 5e10, "cuda": 2.5e12}
# From here on a user is told of it, with advice, and an automatic window is not the whole map; it
# is no wider than gives a float32 operator of that size.
MUCH_MEMORY, MUCH_TIME, MUCH_WEIGHT = 2e9, 120.0, 1e8


@dataclass(frozen=True)
class FitCost:
    """What a fit of a layer takes beside reading the data.

    Attributes:
        places: The places of the map.
        bytes: The memory for the sums over pairs of places, and for solving.
        seconds: How long solving takes, on one core or a GPU, about.
    """

    places: int
    bytes: int
    seconds: float

    @classmethod
    def estimate(
        cls,
        in_shape: tuple[int, ...],
        out_shape: tuple[int, ...],
        components: int,
        window: int | None = None,
        device: torch.device | str = "cpu",
    ) -> FitCost:
        """Estimates it from sizes."""
        panels = Panels.for_grid(in_shape, window)
        places, outputs = math.prod(in_shape), math.prod(out_shape)
        rows = 12 + 10 * components
        if window is None:
            # A and B, in units of their own, in float32, and between blocks of pixels.
            memory = 7 * panels.bytes
            each = 4.0 * rows * places**2
        else:
            seen = count_window(in_shape, window)
            # 16 places at once have A and B of their own, which takes longer than their products,
            # and the last term is the small eigenproblem in the space of all directions.
            memory = 3 * panels.bytes + 8 * outputs * components * seen + 16 * 44 * seen**2
            each = (1100.0 + 24 * rows) * seen**2 + 30 * min(seen, 16 * components) ** 3
        seconds = outputs * each / RATES[torch.device(device).type]
        return cls(places, memory, seconds)

    @property
    def is_much(self) -> bool:
        """Whether a user is to be told before it is spent."""
        return self.bytes > MUCH_MEMORY or self.seconds > MUCH_TIME

    def __str__(self) -> str:
        return f"{_say_bytes(self.bytes)}, {_say_seconds(self.seconds)}"


def _say_bytes(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{max(1, count / 1e6):.0f} MB"


def _say_seconds(seconds: float) -> str:
    if seconds < 1:
        return "under 1 s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.0f} h"


def choose_window(
    in_shape: tuple[int, ...], out_shape: tuple[int, ...], components: int
) -> int | None:
    """How far a position may look at a cost that nobody has to be told of; None is the whole map.

    Of windows the widest, since each place that is left out costs separability (docs/scaling.md has
    how much), but never less than the stride. From sizes alone, as on one core of a CPU: a fit
    finds the same on every machine.
    """
    if not FitCost.estimate(in_shape, out_shape, components).is_much:
        return None

    def is_too_wide(window: int) -> bool:
        weights = components * math.prod(out_shape) * count_window(in_shape, window)
        cost = FitCost.estimate(in_shape, out_shape, components, window)
        return cost.is_much or 4 * weights > MUCH_WEIGHT

    least = get_largest_step(in_shape, out_shape)
    wider = range(least + 1, max(in_shape))
    return least + bisect_left(wider, True, key=is_too_wide)


def tell_of_window(
    name: str, shapes: tuple[tuple[int, ...], tuple[int, ...]], components: int, window: int
) -> None:
    """Says that `choose_window` chose it, and what the whole map would cost."""
    whole, cost = (FitCost.estimate(*shapes, components, each) for each in (None, window))
    warnings.warn(
        f"layer: {name} has {whole.places:,} places, and the whole map would take about "
        f"{_say_bytes(whole.bytes)}, and {_say_seconds(whole.seconds)} of a core to solve; so "
        f"each position sees {2 * window + 1} places along each axis (window={window}: {cost}). "
        "Pass window=None for the whole map, or another window=r",
        stacklevel=6,
    )


def check_cost(
    name: str,
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
    components: int,
    window: int | None,
    device: torch.device,
    *,
    asked: bool = True,
) -> FitCost:
    """What a layer will cost; refuses what cannot be, and warns of what is much.

    asked: whether a user said how many components; otherwise fewer will do.
    """
    in_shape, out_shape = check_shapes(*shapes)
    seen = math.prod(in_shape) if window is None else count_window(in_shape, window)
    if asked and components > seen:
        there = "on the map" if window is None else f"in a window of {window}"
        wider = "" if window is None else ", or a wider window"
        raise ValueError(
            f"components: got {components} for {name}, wanted {seen} or fewer, since each position "
            f"has so many weights {there}{wider}"
        )
    try:
        check_memory(Panels.for_grid(in_shape, window), device)
    except ValueError as error:
        raise ValueError(f"layer: {name}: {error}") from error
    cost = FitCost.estimate(in_shape, out_shape, components, window, device)
    if cost.is_much:
        advice = "window='auto' or window=r" if window is None else "a smaller window"
        warnings.warn(
            f"layer: {name} has {cost.places:,} places; relating them takes about "
            f"{_say_bytes(cost.bytes)}, and solving {_say_seconds(cost.seconds)}. Pass {advice}, "
            "with which each position sees (2r + 1) x (2r + 1) pixels, or fit a layer with "
            "smaller maps",
            stacklevel=5,
        )
    return cost
