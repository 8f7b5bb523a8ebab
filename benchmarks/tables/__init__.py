"""The tables of README and docs by name, each made from results/*.csv: one question a file."""

from __future__ import annotations

from collections.abc import Callable

from tables import (
    alpha,
    choices,
    corruptions,
    forms,
    poolings,
    procedure,
    robustness,
    solar,
    speed,
    swap,
)

TABLES: dict[str, Callable[[], str]] = {
    **speed.TABLES,
    **choices.TABLES,
    **robustness.TABLES,
    **forms.TABLES,
    **poolings.TABLES,
    **procedure.TABLES,
    **corruptions.TABLES,
    **alpha.TABLES,
    **swap.TABLES,
    **solar.TABLES,
}
