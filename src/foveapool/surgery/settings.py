"""Checks the settings of `ClosedFormPooling` before any data is read.

Each setting for itself: what depends on the network or the data is noticed where that is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any

from foveapool.pooling.precision import PRECISIONS
from foveapool.pooling.scatter import WEIGHTINGS
from foveapool.pooling.solve import check_choices


def check_settings(settings: Mapping[str, Any]) -> None:
    """Raises a ValueError for the first setting that a fit could not work with."""
    names = ("norm", "centre", "sign", "solver", "alpha_unit")
    choices = {name: settings[name] for name in names}
    check_choices(**choices, alphas=[settings["alpha"]])
    for name, wanted in (("weighting", WEIGHTINGS), ("precision", PRECISIONS)):
        if settings[name] not in wanted:
            raise ValueError(f"{name}: got {settings[name]!r}, wanted one of {wanted}")
    # Any text is true, and so would "no" be.
    if not isinstance(settings["normalise"], bool):
        raise ValueError(f"normalise: got {settings['normalise']!r}, wanted True or False")
    if not _is_whole(settings["seed"]):
        raise ValueError(f"seed: got {settings['seed']!r}, wanted a whole number")
    for name in ("components", "window", "class_cap", "num_classes"):
        if settings[name] is not None and not _is_whole(settings[name]):
            raise ValueError(f"{name}: got {settings[name]!r}, wanted a whole number or None")


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)
