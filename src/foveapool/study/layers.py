"""Poolings at several layers of one network, from the tables that a study's file has of them.

Those that are not fitted come first, so that closed forms are fitted on a network that was trained
with them; closed forms are fitted together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from foveapool.near import did_you_mean
from foveapool.pooling.published import published_form
from foveapool.study.setting import (
    BESIDE,
    FITTED,
    LAYERS,
    POOLINGS,
    THEN,
    Pool,
    Setting,
    choices_of,
)


def check_pooling(where: str, pooling: Any, known: Sequence[str] = POOLINGS[1:]) -> None:
    """Raises a ValueError unless there is a pooling of that name."""
    if pooling not in known:
        hint = did_you_mean(str(pooling), known, most=3)
        raise ValueError(
            f"{where}: got the pooling {pooling!r}, wanted one of {', '.join(known)}{hint}"
        )


def check_tables(where: str, tables: Any, key: str) -> None:
    """Raises a ValueError unless these are tables of poolings, as `beside` and `then` have them."""
    example = '{ pooling = "blur", layers = [1, 2] }' if key == BESIDE else "{ layer = 1 }"
    if not isinstance(tables, (list, tuple)) or not all(isinstance(t, Mapping) for t in tables):
        raise ValueError(f"{where}: got {tables!r}, wanted a list of tables such as [{example}]")
    if key != BESIDE:
        return
    for table in tables:
        check_pooling(where, table.get("pooling", ""))
        own = [name for name in choices_of(table["pooling"]) if name not in (BESIDE, THEN)]
        known = ["pooling", *own]
        if unused := [name for name in table if name not in known]:
            raise ValueError(f"{where}: got {', '.join(unused)}, wanted among {', '.join(known)}")
        if ("layer" in table) == (LAYERS in table):
            raise ValueError(f"{where}: got {dict(table)}, wanted a layer, or layers, in it")


def spread(tables: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A table for each layer that tables name under `layer` or `layers`."""
    found = []
    for table in tables:
        rest = {key: value for key, value in table.items() if key not in ("layer", LAYERS)}
        layers = table.get(LAYERS) or [table["layer"]]
        found += [{**rest, "layer": layer} for layer in layers]
    return found


def pooled(start: Setting, tables: Sequence[Mapping[str, Any]]) -> Setting:
    """A network with the poolings of these tables, one a layer, on top of those it has.

    A rival that does not say its placement has the one it was published in. The last table is what
    the network is called after.
    """
    pools = [_pool(start, table) for table in tables]
    unfitted = [pool for pool in pools if not pool.is_fitted]
    fitted = [pool for pool in pools if pool.is_fitted]
    fitted[1:] = [replace(pool, together=True) for pool in fitted[1:]]
    placements = {pool.placement or start.placement for pool in pools}
    # Where all agree, it is the setting's: one setting has one name.
    agreed = placements.pop() if len(placements) == 1 and not start.pools else start.placement
    return replace(start, placement=agreed, pools=(*start.pools, *unfitted, *fitted))


def _pool(start: Setting, table: Mapping[str, Any]) -> Pool:
    # Of all choices only a window may be none on purpose: the whole map.
    choices = {key: value for key, value in table.items() if key == "window" or value is not None}
    pooling = choices.pop("pooling")
    if start.network != "cnn" and "placement" not in choices and pooling not in FITTED:
        known = published_form(pooling)
        # Another form than the published one is ours, and stands where ours do.
        if choices.get("form", known.form) == known.form:
            choices["placement"] = known.placement
    return Pool(pooling, **choices)
