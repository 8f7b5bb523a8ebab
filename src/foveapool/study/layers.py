"""Poolings at several layers of one network, from the tables that a study's file has of them.

Those that are not fitted come first, so that closed forms are fitted on a network that was trained
with them; closed forms are fitted together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from foveapool._stored_names import explain_renamed
from foveapool._suggest import did_you_mean
from foveapool.pooling.baselines import published_form
from foveapool.study.setting import (
    BESIDE,
    FITTED,
    LAYERS,
    POOLINGS,
    THEN,
    Pool,
    Setting,
    list_choices,
)


def check_pooling(where: str, pooling: Any, known: Sequence[str] = POOLINGS[1:]) -> None:
    """Raises a ValueError unless there is a pooling of that name."""
    if pooling not in known:
        hint = did_you_mean(str(pooling), known, most=3)
        raise ValueError(
            f"{where}: got the pooling {pooling!r}, wanted one of {', '.join(known)}{hint}"
        )


def check_line(where: str, pooling: str, choices: Mapping[str, Any], advice: str = "") -> None:
    """Raises a ValueError unless a line of a study may say this of its pooling.

    Args:
        where: What the message begins with.
        pooling: The line's own.
        choices: What it says: those of `Pool`, `layers`, `beside` and `then`.
        advice: What else to do about a choice that the pooling does not use.
    """
    _check_names(where, choices, list_choices(pooling), advice)
    if "layer" in choices and LAYERS in choices:
        raise ValueError(f"{where}: got layer and layers, wanted one of them")
    _check_layers(where, choices)
    check_beside(where, choices.get(BESIDE, ()), pooling)
    following = choices.get(THEN, ())
    _check_tables(f"{where}: {THEN}", following, "{ layer = 1 }")
    not_there = ("placement", LAYERS, BESIDE, THEN)
    own = [name for name in list_choices(pooling) if name not in not_there]
    for each in following:
        _check_names(f"{where}: {THEN}", each, own)


def check_beside(where: str, tables: Any, own: str) -> None:
    """Raises a ValueError unless these are tables of poolings beside one that is called `own`."""
    where = f"{where}: {BESIDE}"
    _check_tables(where, tables, '{ pooling = "blur", layers = [1, 2] }')
    for table in tables:
        pooling = table.get("pooling", own)
        check_pooling(where, pooling)
        known = ["pooling", *(name for name in list_choices(pooling) if name not in (BESIDE, THEN))]
        _check_names(where, table, known)
        if ("layer" in table) == (LAYERS in table):
            raise ValueError(f"{where}: got {dict(table)}, wanted a layer, or layers, in it")
        _check_layers(where, table)


def _check_layers(where: str, table: Mapping[str, Any]) -> None:
    layers = table.get(LAYERS, (1,))
    if not isinstance(layers, (list, tuple)) or not layers:
        raise ValueError(f"{where}: got layers {layers!r}, wanted a list such as [1, 2]")


def _check_tables(where: str, tables: Any, example: str) -> None:
    if not isinstance(tables, (list, tuple)) or not all(isinstance(t, Mapping) for t in tables):
        raise ValueError(f"{where}: got {tables!r}, wanted a list of tables such as [{example}]")


def _check_names(where: str, given: Iterable[str], known: Sequence[str], advice: str = "") -> None:
    unused = [name for name in given if name not in known]
    if unused:
        wanted = f"among {', '.join(known)}" if known else "none, since it has nothing to choose"
        raise ValueError(
            f"{where}: got {', '.join(unused)}, wanted {wanted}{advice}{explain_renamed(unused)}"
        )


def split_by_layer(tables: Sequence[Mapping[str, Any]], own: str) -> list[dict[str, Any]]:
    """A table for each layer that tables name under `layer` or `layers`.

    A table that names no pooling has the one that is called `own`.
    """
    found = []
    for table in tables:
        rest = {key: value for key, value in table.items() if key not in ("layer", LAYERS)}
        layers = table.get(LAYERS) or [table["layer"]]
        found += [{"pooling": own, **rest, "layer": layer} for layer in layers]
    return found


def list_named_layers(beside: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
    """The layers of those tables of `beside` that name a pooling: the others are the line's own."""
    named = [table for table in beside if "pooling" in table]
    return tuple(table["layer"] for table in split_by_layer(named, ""))


def add_line(start: Setting, pooling: str, choices: Mapping[str, Any]) -> Setting:
    """A network with the pooling of a line of a study, and with what that has beside and after it.

    Args:
        start: The network.
        pooling: The line's own.
        choices: As in `check_line`, with a layer or layers among them.

    Returns:
        The setting to train.
    """
    rest = {name: value for name, value in choices.items() if name not in (BESIDE, THEN)}
    first = split_by_layer([rest], pooling)
    found = add_poolings(start, [*split_by_layer(choices.get(BESIDE, ()), pooling), *first])
    for each in choices.get(THEN, ()):
        found = add_poolings(found, [{**first[0], **each}])
    return found


def add_poolings(start: Setting, tables: Sequence[Mapping[str, Any]]) -> Setting:
    """A network with the poolings of these tables, one a layer, on top of those it has.

    A rival that does not say its placement has the one it was published in. The last table is what
    the network is called after.
    """
    pools = [_make_pool(start, table) for table in tables]
    placements = {pool.placement or start.placement for pool in pools}
    # Where all agree, it is the setting's: one setting has one name.
    agreed = placements.pop() if len(placements) == 1 and not start.pools else start.placement
    return replace(start, placement=agreed, pools=(*start.pools, *_put_fitted_last(pools)))


def exchange_pooling(
    best: Setting, beside: Collection[int], pooling: str, choices: Mapping[str, Any]
) -> Setting:
    """A setting with another pooling in the same places, forms and components.

    Args:
        best: The setting with the pooling that is to go.
        beside: The layers of poolings that stay.
        pooling: What comes instead. Where both are fitted, it is fitted in the same way, and on
            the same networks; otherwise what only closed forms have is as usual.
        choices: Of `Pool`, over those of the pooling that goes.

    Returns:
        The other setting.
    """
    gone = [pool for pool in best.pools if pool.layer not in beside]
    is_fitted = pooling in FITTED
    if all(pool.is_fitted == is_fitted for pool in gone):
        found = [
            replace(pool, pooling=pooling, **choices) if pool in gone else pool
            for pool in best.pools
        ]
        return replace(best, pools=tuple(found))
    kept = ("components", "form", "placement")
    made = [
        Pool(pooling, pool.layer, **{**{name: getattr(pool, name) for name in kept}, **choices})
        if pool in gone
        else pool
        for pool in best.pools
    ]
    return replace(best, pools=_put_fitted_last(made))


def _put_fitted_last(pools: Sequence[Pool]) -> tuple[Pool, ...]:
    """Those that are not fitted first; the others are fitted together."""
    unfitted = [pool for pool in pools if not pool.is_fitted]
    fitted = [pool for pool in pools if pool.is_fitted]
    joined = [replace(pool, together=number > 0) for number, pool in enumerate(fitted)]
    return (*unfitted, *joined)


def _make_pool(start: Setting, table: Mapping[str, Any]) -> Pool:
    # Of all choices only a window may be none on purpose: the whole map.
    choices = {key: value for key, value in table.items() if key == "window" or value is not None}
    pooling = choices.pop("pooling")
    if start.network != "cnn" and "placement" not in choices and pooling not in FITTED:
        known = published_form(pooling)
        # Another form than the published one is ours, and stands where ours do.
        if choices.get("form", known.form) == known.form:
            choices["placement"] = known.placement
    return Pool(pooling, **choices)
