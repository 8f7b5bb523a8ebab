"""Solving for the layers of a fit, and what that will cost before any data is read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from foveapool.pooling.grid import Center, windows
from foveapool.pooling.module import default_center
from foveapool.pooling.operator import PoolingOperator
from foveapool.pooling.scatter import Scatter
from foveapool.pooling.solve import solve_pooling
from foveapool.surgery.find import Downsampling
from foveapool.surgery.progress import Clock, Report
from foveapool.surgery.settings import resolve_alpha, resolve_each, resolve_window
from foveapool.surgery.wrapper import Mode


def solve_layers(
    settings: Mapping[str, Any],
    layers: Mapping[str, Downsampling],
    scatters: Mapping[str, Scatter],
    mode: Mode,
    report: Report,
    passes: int = 2,
) -> dict[str, PoolingOperator]:
    """The operator of each layer that the settings of a fit give on its scatter."""
    names = ("norm", "sign", "solver", "alpha_unit")
    chosen: dict[str, Any] = {name: settings[name] for name in names}
    center: Center = settings["center"] or default_center(mode)
    operators: dict[str, PoolingOperator] = {}
    solved: dict[Any, PoolingOperator] = {}
    for name, wanted in resolve_each(settings["components"], layers, mode).items():
        scatter, found = scatters[name], layers[name]
        window = resolve_window(settings["window"], mode, found.in_shape, found.out_shape)
        _check_window(name, scatter, window)
        if settings["components"] is None:
            seen = count_weights(scatter, found.out_shape, window, center)
            wanted = min(wanted, scatter.rank_bound, seen)
        # Branches that read one tensor and shrink it alike have one answer.
        key = (id(scatter), found.out_shape, wanted)
        if key not in solved:
            alpha = resolve_alpha(settings["alpha"], settings["alpha_unit"], mode, scatter)
            chosen |= {"alpha": alpha, "components": wanted, "window": window, "center": center}
            clock = Clock(2, math.prod(found.out_shape), passes=passes, layer=name)

            def tell(done: int, _: int, clock: Clock = clock) -> None:
                report(clock.after(done))

            solved[key] = solve_pooling(scatter, found.out_shape, **chosen, progress=tell)
        operators[name] = solved[key]
    return operators


def _check_window(name: str, scatter: Scatter, window: int | None) -> None:
    """Raises a ValueError unless the scatter has all pairs that solving looks at."""
    if scatter.window is None or (window is not None and window <= scatter.window):
        return
    raise ValueError(
        f"window: got {window} for {name}, whose scatter was summed up for {scatter.window}, "
        f"wanted {scatter.window} or less; a wider one takes the passes again: call fit with "
        f"window={window}"
    )


def count_weights(
    scatter: Scatter, out_shape: tuple[int, ...], window: int | None, center: Center
) -> int:
    """How many weights a row of the operator has."""
    if window is None:
        return scatter.panels.size
    return windows(scatter.in_shape, out_shape, window, center).shape[1]
