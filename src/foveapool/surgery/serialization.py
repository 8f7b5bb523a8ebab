"""A finished fit as a folder: settings and layers as JSON, what was found as safetensors.

What several layers share is one file, and one object again when it is read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from foveapool._io import make_folder, write_text
from foveapool._stored_names import from_stored, to_stored
from foveapool.pooling.least_squares import Mixing
from foveapool.pooling.operator import PoolingOperator
from foveapool.pooling.scatter import Scatter
from foveapool.pooling.storage import FIT_NOTE
from foveapool.surgery.find import Downsampling
from foveapool.surgery.settings import MixingStart
from foveapool.surgery.wrapper import Mode

FORMAT_VERSION = 1


@dataclass(frozen=True)
class FitState:
    """What there is to keep of a fit; what was found, by the layers' names."""

    settings: dict[str, Any]
    mode: Mode
    seconds: dict[str, float]
    layers: dict[str, Downsampling]
    scatters: dict[str, Scatter]
    operators: dict[str, PoolingOperator]
    mixing: MixingStart = "least-squares"
    mixings: dict[str, Mixing] = field(default_factory=dict)


def write_fit(folder: Path, kept: FitState) -> None:
    """Puts a fit into a folder, in the place of one that may be there."""
    scatters, operators = (
        _name_files("scatter", kept.scatters),
        _name_files("operator", kept.operators),
    )
    mixings = _name_files("mixing", kept.mixings)
    facts: dict[str, Any] = {
        "kind": "foveapool estimator",
        "format_version": FORMAT_VERSION,
        "settings": to_stored(kept.settings),
        "mode": kept.mode,
        "seconds": kept.seconds,
        "layers": [asdict(found) for found in kept.layers.values()],
        "scatters": scatters,
        "operators": operators,
    }
    if kept.mode == "mix":
        facts |= {"mixing": kept.mixing, "mixings": mixings}
    text = json.dumps(facts, indent=1)  # before anything of an older fit goes
    make_folder(folder, "a fit")
    older = _list_noted_files(folder / FIT_NOTE)
    # Gone first, written last and in one move: a folder with this file is complete.
    (folder / FIT_NOTE).unlink(missing_ok=True)
    written: list[tuple[dict[str, str], Mapping[str, Any]]] = [
        (scatters, kept.scatters),
        (operators, kept.operators),
        (mixings, kept.mixings),
    ]
    for files, values in written:
        for file, value in {files[name]: value for name, value in values.items()}.items():
            value.save(folder / file)
    write_text(folder / FIT_NOTE, text)
    # An older fit of more layers would be taken for a part of this one.
    for name in older - {name for files, _ in written for name in files.values()}:
        (folder / name).unlink(missing_ok=True)


def _list_noted_files(note: Path) -> set[str]:
    """The files that a fit in this folder has by its own note; none where it cannot be read."""
    try:
        facts = _read_note(note)
        names = [*facts["scatters"].values(), *facts["operators"].values()]
        names += facts.get("mixings", {}).values()
        own = (name for name in names if Path(name).name == name)
        return {name for name in own if name.endswith(".safetensors")}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return set()


def read_fit(folder: Path) -> FitState:
    """What `write_folder` put there."""
    facts = _read_note(folder / FIT_NOTE)
    try:
        layers: list[dict[str, Any]] = [
            {key: tuple(value) if isinstance(value, list) else value for key, value in each.items()}
            for each in facts["layers"]
        ]
        return FitState(
            from_stored(facts["settings"]),
            facts["mode"],
            facts["seconds"],
            {each["name"]: Downsampling(**each) for each in layers},
            _load_each(folder, facts["scatters"], Scatter.load),
            _load_each(folder, facts["operators"], PoolingOperator.load),
            facts.get("mixing", "least-squares"),
            _load_each(folder, facts.get("mixings", {}), Mixing.load),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{folder / FIT_NOTE}: not what ClosedFormPooling.save of this version writes "
            f"({type(error).__name__}: {error}); read it with the one that wrote it, or fit again"
        ) from error


def _name_files(kind: str, values: Mapping[str, Any]) -> dict[str, str]:
    """The file's name for each layer; an object has one, however many layers have it."""
    files: dict[int, str] = {}
    for value in values.values():
        files.setdefault(id(value), f"{kind}-{len(files)}.safetensors")
    return {name: files[id(value)] for name, value in values.items()}


def _load_each(
    folder: Path, files: Mapping[str, str], load: Callable[[Path], Any]
) -> dict[str, Any]:
    values = {file: load(folder / file) for file in set(files.values())}
    return {name: values[file] for name, file in files.items()}


def _read_note(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file, wanted what ClosedFormPooling.save wrote")
    try:
        facts = json.loads(path.read_text("utf-8"))
        version = facts.get("format_version")
    except (ValueError, AttributeError) as error:
        raise ValueError(f"{path}: not what ClosedFormPooling.save wrote ({error})") from error
    if version != FORMAT_VERSION:
        raise ValueError(
            f"{path}: got format version {version}, wanted {FORMAT_VERSION}; read it with the "
            "version of foveapool that wrote it"
        )
    return facts
