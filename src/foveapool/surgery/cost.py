"""What a fit of a layer will cost, before any data is read: places, memory, time to solve.

Arithmetic from sizes alone, in operations as benchmarks counted them; how fast a machine is comes
into it as one number, so times are right to a factor of two or three.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import torch

from foveapool.pooling.gram import Panels, check_memory
from foveapool.pooling.grid import check_shapes, count_window

# Multiplications and additions in a second, of float32 on one core, and of a GPU solving.
RATES = {"cpu": 5e10, "cuda": 2.5e12}
# From here on a user is told of it, with advice.
MUCH_MEMORY, MUCH_TIME = 2e9, 120.0


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
            memory = 3 * panels.bytes + 8 * outputs * components * seen
            each = seen**3 / 3 + 8.0 * rows * seen**2
        seconds = outputs * each / RATES[torch.device(device).type]
        return cls(places, memory, seconds)

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


def check_cost(
    name: str,
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
    components: int | None,
    window: int | None,
    device: torch.device,
) -> FitCost:
    """What a layer will cost; refuses what cannot be, and warns of what is much.

    components: those asked for; None takes as many as there are.
    """
    in_shape, out_shape = check_shapes(*shapes)
    seen = math.prod(in_shape) if window is None else count_window(in_shape, window)
    if components is not None and components > seen:
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
    cost = FitCost.estimate(in_shape, out_shape, components or 2, window, device)
    if cost.bytes > MUCH_MEMORY or cost.seconds > MUCH_TIME:
        advice = "a smaller window" if window is not None else "window=r"
        warnings.warn(
            f"layer: {name} has {cost.places:,} places; relating them takes about "
            f"{_say_bytes(cost.bytes)}, and solving {_say_seconds(cost.seconds)}. Pass {advice}, "
            "with which each position sees (2r + 1) x (2r + 1) pixels, or fit a layer with "
            "smaller maps",
            stacklevel=6,
        )
    return cost
