"""Presets: studies as TOML files, read strictly. The paper's own are in the folder beside.

[data]      name, seed, share, options
[network]   name, width, and any other argument of its class
[recipe]    what differs from the paper's recipe for this network and data
[[search]]  the grid of one pooling and how it is judged, see `Search`; the tables of `also`
            are as an [[arm]] is
[trials]    seeds, and `robustness` to measure too: corruptions, perturbations
[[arm]]     a line of the table: pooling, its choices; a list makes a line for each value, but
            `layers` are those of one line, `beside` is a list of poolings at other layers, and
            `then` one of what follows at other layers, fitted later
base        another preset, that this one is laid over: its searches and arms come first, and these
            are added; of all else what this one says counts
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Any

from foveapool._io import read_toml
from foveapool._stored_names import RENAMED
from foveapool._suggest import did_you_mean
from foveapool.data.registry import check_data_name, digest_content
from foveapool.study.search import Halving, Search
from foveapool.study.setting import BESIDE, FITTED, LAYERS, THEN, Pool, Setting
from foveapool.study.spec import Source
from foveapool.study.study import LIKE, Arm, Study
from foveapool.training.recipe import Recipe, get_paper_recipe

WHOLE = "whole"  # a window that is none: TOML has no word for nothing
BASE = "base"
BARE_WORD = re.compile(r"[^\W\d][\w.:/~+-]*")
_OPTIONS = ("jobs", "partial")  # of the command: a study is the same whoever runs it
_LISTED = ("search", "arm")  # those that may be there several times
_TABLES = (BASE, "title", "data", "network", "recipe", "search", "trials", "arm")
_POOL = tuple(each.name for each in dataclasses.fields(Pool) if each.name != "together")
_LINE = (*_POOL, LAYERS, BESIDE, THEN, LIKE)


def preset_names() -> list[str]:
    """The studies that come with the package."""
    # What only others are laid over is no study by itself.
    return [name for name in _list_file_names() if not name.startswith("_")]


def _list_file_names() -> list[str]:
    folder = resources.files("foveapool.study") / "presets"
    return sorted(file.name.removesuffix(".toml") for file in folder.iterdir())


def preset_titles() -> dict[str, str]:
    """What each of these studies is about, by its name: to choose one."""
    return {
        name: tomllib.loads(_read_preset_text(name)).get("title", "") for name in preset_names()
    }


def _read_preset_text(name: str) -> str:
    return (resources.files("foveapool.study") / "presets" / f"{name}.toml").read_text("utf-8")


def read_preset(which: str, changes: Mapping[str, Any] | None = None) -> Study:
    """The study of a preset's name or of a TOML file; `changes` are laid over it.

    `changes` has the file's own form, such as {"data": {"name": "svhn"}, "trials": {"seeds": 3}}.
    """
    if which.endswith(".toml"):
        path, name = Path(which), Path(which).stem
        if not path.is_file():
            raise FileNotFoundError(f"{path}: no such file, wanted a study in TOML")
        tables = read_toml(path, "a study")
    else:
        names = preset_names()
        if which not in names:
            hint = did_you_mean(which, names, most=3)
            raise ValueError(
                f"preset: got {which!r}, wanted a TOML file or one of {', '.join(names)}{hint}"
            )
        name, tables = which, tomllib.loads(_read_preset_text(which))
    try:
        return _make_study(name, _merge_changes(_merge_with_base(tables), changes or {}))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{which}: {error}") from error


def _merge_with_base(tables: dict[str, Any]) -> dict[str, Any]:
    """The tables over those of the preset that they name as their base, if they name one."""
    if BASE not in tables:
        return tables
    base = tables[BASE]
    if base not in _list_file_names():
        hint = did_you_mean(str(base), preset_names(), most=3)
        raise ValueError(
            f"{BASE}: got {base!r}, wanted the name of a preset, as `foveapool study` lists "
            f"them{hint}"
        )
    below = _merge_with_base(tomllib.loads(_read_preset_text(base)))
    lists = {name: [*below.get(name, []), *_tables(tables, name)] for name in _LISTED}
    rest = {key: value for key, value in tables.items() if key not in (BASE, *_LISTED)}
    return {**_merge_changes(below, rest), **{name: each for name, each in lists.items() if each}}


def _merge_changes(tables: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The tables with other values, where `changes` has some."""
    found = dict(tables)
    for key, value in changes.items():
        known = tables.get(key, {})
        if not isinstance(value, Mapping):
            found[key] = value
        elif isinstance(known, Mapping):
            found[key] = _merge_changes(known, value)
        elif key == "search" and isinstance(known, list) and len(known) == 1:
            # Where there is one only, it is clear which.
            found[key] = [_merge_changes(known[0], value)]
        else:
            raise ValueError(f"{key}: got {dict(value)} for what is no table; change the file")
    return found


def _make_study(name: str, tables: dict[str, Any]) -> Study:
    _check_keys("the file", tables, _TABLES)
    data = _read_table(tables, "data", ("name", "seed", "share", "options"))
    if "name" not in data:
        raise ValueError("[data]: got no name, wanted the name of a data set")
    check_data_name(data["name"], "[data]")
    _check_options(data.get("options", {}))
    network = dict(_read_table(tables, "network"))
    if not isinstance(network.get("name", ""), str):
        raise ValueError(f"[network]: name: got {network['name']!r}, wanted the name of a network")
    setting = Setting(
        network=network.pop("name", "cnn"), width=network.pop("width", 64), options=network
    )
    if "placement" in network:
        raise ValueError("[network]: got placement; give it to a [[search]] or an [[arm]]")
    searches = tuple(_make_search(each) for each in _tables(tables, "search"))
    arms = tuple(arm for each in _tables(tables, "arm") for arm in _make_arms(each))
    if not arms:
        raise ValueError("[[arm]]: got none, wanted at least one pooling to try")
    return Study(
        name=name,
        title=str(tables.get("title", "")),
        source=Source(**data, content=digest_content(data["name"])),
        recipe=_make_recipe(setting.network, data["name"], _read_table(tables, "recipe")),
        network=setting,
        searches=searches,
        arms=arms,
        **_read_trials(_read_table(tables, "trials", ("seeds", "robustness"))),
    )


def _check_options(options: Any) -> None:
    """Refuses a size that is none; which of them the data set has, it says itself."""
    if not isinstance(options, Mapping):
        raise ValueError(
            f"[data]: options: got {options!r}, wanted a table such as {{ train_size = 3000 }}"
        )
    for key, value in options.items():
        # Images may be resized to height and width.
        is_pair = key == "size" and isinstance(value, list) and len(value) == 2
        if not all(type(each) is int and each > 0 for each in (value if is_pair else [value])):
            raise ValueError(
                f"[data]: options: {key}: got {value!r}, wanted a whole number, 1 or more"
            )


def _make_recipe(network: str, data: str, changes: Mapping[str, Any]) -> Recipe:
    """The paper's recipe with changes, or for other data one that stands on its own.

    Its milestones go with the epochs, unless the changes have their own.
    """
    _check_keys("[recipe]", changes, [field.name for field in dataclasses.fields(Recipe)])
    try:
        paper = get_paper_recipe(network, data)
    except ValueError as error:
        missing = [name for name in ("optimizer", "lr", "epochs") if name not in changes]
        if missing:
            raise ValueError(
                f"[recipe]: got no {', no '.join(missing)}, and the paper has no recipe for a "
                f"{network} on {data}; wanted them"
            ) from error
        return Recipe.from_dict(changes)
    if "epochs" in changes and "milestones" not in changes:
        paper = paper.over(changes["epochs"])
    return Recipe.from_dict({**paper.as_dict(), **changes})


def _make_search(table: Any) -> Search:
    known = [field.name for field in dataclasses.fields(Search)]
    _check_keys("[[search]]", table, known)
    values: dict[str, Any] = {key: _freeze(value) for key, value in table.items()}
    if isinstance(values.get("windows"), tuple):
        values["windows"] = tuple(None if w == WHOLE else w for w in values["windows"])
    if isinstance(values.get("components"), int):
        values["components"] = (values["components"],)
    if isinstance(table.get("also"), list):
        lines = [_expand_lines("[[search]]: also", each) for each in table["also"]]
        values["also"] = tuple(line for own in lines for line in own)
    if "halving" in values:
        _check_keys("halving", values["halving"], ("parts", "keep", "epochs"))
        if "keep" not in values["halving"]:
            raise ValueError(
                "halving: got no keep, wanted how many settings go on, as in { keep = 4 }"
            )
        values["halving"] = Halving(**{"parts": values.get("parts", 5), **values["halving"]})
    search = Search(**values)
    if search.pooling not in FITTED and (
        unused := sorted({"alphas", "alpha_unit", "norms", "windows"} & set(table))
    ):
        raise ValueError(
            f"[[search]] of {search.pooling}: got {' and '.join(unused)}, wanted none: only a "
            f"closed form is fitted ({', '.join(FITTED)})"
        )
    return search


def _freeze(value: Any) -> Any:
    """Lists as tuples, also those in lists."""
    return tuple(map(_freeze, value)) if isinstance(value, list) else value


def _read_trials(table: dict[str, Any]) -> dict[str, Any]:
    asked = table.get("robustness", [])
    if not isinstance(asked, list):
        raise ValueError(f"[trials]: robustness: got {asked!r}, wanted a list")
    return {**table, "robustness": tuple(asked)}


def _make_arms(table: Any) -> list[Arm]:
    """An arm for each combination of the values that lists give."""
    _check_keys("[[arm]]", table, _LINE)
    if "pooling" not in table:
        raise ValueError("[[arm]]: got no pooling, wanted its name")
    return [Arm(line.pop("pooling"), line) for line in _expand_lines("[[arm]]", table)]


def _expand_lines(where: str, table: Any) -> list[dict[str, Any]]:
    """A line for each combination of the values that lists give."""
    _check_keys(where, table, _LINE)
    for key, value in table.items():
        if value == []:
            raise ValueError(f"{where}: {key}: got [], wanted a value or a list of one or more")
    lists = [
        value if isinstance(value, list) and key not in (LAYERS, BESIDE, THEN) else [value]
        for key, value in table.items()
    ]
    return [_read_whole(dict(zip(table, values, strict=True))) for values in product(*lists)]


def _read_whole(line: dict[str, Any]) -> dict[str, Any]:
    """The line with the word for a window that is none read as such, also in its tables."""
    found = dict(line)
    if found.get("window") == WHOLE:
        found["window"] = None
    for key in (BESIDE, THEN):
        if isinstance(found.get(key), list):
            found[key] = [_read_whole(t) if isinstance(t, dict) else t for t in found[key]]
    return found


def _read_table(
    tables: Mapping[str, Any], name: str, known: Collection[str] = ()
) -> dict[str, Any]:
    table = tables.get(name, {})
    if not isinstance(table, dict):
        raise ValueError(f"[{name}]: got {table!r}, wanted a table")
    if known:
        _check_keys(f"[{name}]", table, known)
    return table


def _tables(tables: Mapping[str, Any], name: str) -> list[Any]:
    """Those that may be there several times."""
    found = tables.get(name, [])
    if not isinstance(found, list):
        raise ValueError(
            f"[{name}]: got {found!r}, wanted tables in double brackets, [[{name}]], one or more"
        )
    return found


def _check_keys(where: str, table: Any, known: Collection[str]) -> None:
    if not isinstance(table, Mapping):
        raise ValueError(f"{where}: got {table!r}, wanted a table")
    for key in table:
        if key not in known:
            new = RENAMED.get(key)
            if new in known:
                raise ValueError(f"{where}: got the key {key!r}, which is called {new!r} now")
            if new in _OPTIONS:
                raise ValueError(
                    f"{where}: got the key {key!r}, which no study has; it is the option --{new} "
                    "of `foveapool study`"
                )
            hint = did_you_mean(key, known)
            raise ValueError(f"{where}: got the key {key!r}, wanted among {', '.join(known)}{hint}")


def parse_changes(given: Iterable[str]) -> dict[str, Any]:
    """TABLE.KEY=VALUE for each, as the tables of a TOML file."""
    changes: dict[str, Any] = {}
    for each in given:
        try:
            found = _parse_change(each)
        except tomllib.TOMLDecodeError as error:
            raise ValueError(
                f"--set: got {each!r}, wanted TABLE.KEY=VALUE as in TOML, such as "
                f"trials.seeds=3 or data.name=svhn ({error})"
            ) from error
        for table, values in found.items():
            if not isinstance(values, dict):
                raise ValueError(f"--set: got {each!r}, wanted TABLE.KEY=VALUE")
            changes[table] = _merge_tables(changes.get(table, {}), values)
    return changes


def _parse_change(given: str) -> dict[str, Any]:
    """One of them; a word without quotes is text too, since a shell takes quotes away."""
    key, _, value = given.partition("=")
    try:
        return tomllib.loads(given)
    except tomllib.TOMLDecodeError:
        if not BARE_WORD.fullmatch(value.strip()):
            raise
        return tomllib.loads(f"{key}='{value.strip()}'")


def _merge_tables(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Both, the new values over the old ones, tables within tables alike."""
    deeper = [key for key in new if isinstance(new[key], dict) and isinstance(old.get(key), dict)]
    return {**old, **new, **{key: _merge_tables(old[key], new[key]) for key in deeper}}
