"""Operators from files, alone or in folders of fits, trainings and adapters."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from foveapool._io import read_sealed_json
from foveapool._stored_names import from_stored
from foveapool.labels import list_unusual
from foveapool.pooling.grid import Center
from foveapool.pooling.module import LinearPool, default_center
from foveapool.pooling.operator import PoolingOperator
from foveapool.pooling.storage import ADAPTER_CONFIG, ADAPTER_WEIGHTS, FIT_NOTE, load_tensors
from foveapool.report.describe import TrainingFolder, describe_poolings
from foveapool.report.examples import Examples, choose_examples, digest_means, get_examples_path
from foveapool.report.run_summary import (
    NO_OPERATOR,
    Family,
    RunSummary,
    family_key,
    fits_operator,
    make_family,
)
from foveapool.runs import TRAINING

# Of all operators of a summary, a byte each before they are packed: what a page can carry.
MOST_WEIGHTS = 20_000_000

TRAIN_NOTE = "run.json"  # what `foveapool train` leaves in its folder
Found = TypeVar("Found", bound=Hashable)
Maps = tuple[Tensor, Tensor, Tensor, Sequence[str]]  # what `choose_examples` is given


def add_examples(summary: RunSummary, maps_before: Callable[[Path], Maps]) -> RunSummary:
    """The summary with example maps for its operators, kept beside them for the next time.

    `maps_before` gives some images, their maps before the pooling of an operator's file, labels
    and class names; where it raises OSError, ValueError or, for want of an extra, ImportError, the
    summary says why there are none.
    """
    found: list[Family] = []
    missing = list(summary.missing)
    for each in summary.families:
        if each.examples is None and each.path is not None:
            try:
                examples = choose_examples(*maps_before(each.path))
                if not fits_operator(examples, each.operators[0]):
                    raise ValueError(
                        f"the network's maps are {tuple(examples.maps.shape[2:])}, the operator's "
                        f"{each.operators[0].in_shape}"
                    )
                examples = replace(examples, means=digest_means(each.operators[0].mean))
                examples.save(get_examples_path(each.path))
                each = replace(each, examples=examples)
            except (OSError, ValueError, ImportError) as error:
                missing.append(f"{each.label}: no example maps: {error}")
        found.append(each)
    return replace(summary, families=tuple(found), missing=tuple(missing))


def read_families(files: Iterable[Path], missing: list[str]) -> tuple[Family, ...]:
    """Operators from files; operator-3-alpha5 and operator-3-alpha25 are of one family."""
    loader = _Loader(missing)
    found: dict[tuple[object, ...], dict[Path, PoolingOperator]] = {}
    for path in files:
        operator = loader.load(path)
        if operator is not None:
            name = re.sub(r"-alpha[^-]*$", "", path.stem)
            name = re.sub(r"^operator-(?=\d+$)", "layer ", name)
            found.setdefault((name, *family_key(operator)), {})[path] = operator
    loader.say_what_was_left_out()
    return tuple(_family(str(key[0]), own, missing) for key, own in found.items())


def read_training_families(
    trainings: Iterable[TrainingFolder], missing: list[str]
) -> tuple[Family, ...]:
    """The operators of trainings; those that differ in alpha alone are of one family."""
    loader = _Loader(missing)
    found: list[Family] = []
    for (name, _), paths in _named(trainings, missing).items():
        own: dict[float, tuple[Path, PoolingOperator]] = {}
        for path in paths:
            operator = loader.load(path)
            if operator is not None:
                # The same operator serves a training that keeps it and one that trains it on.
                own.setdefault(operator.settings.alpha, (path, operator))
        if own:
            found.append(_family(name, dict(own.values()), missing))
    if not found and not loader.left_out:
        missing.append(f"{NO_OPERATOR}: no pooling of this run was fitted in closed form so far.")
    loader.say_what_was_left_out()
    return tuple(found)


class _Loader:
    """Loads operators until they are more than a page can carry, and counts the rest."""

    def __init__(self, missing: list[str]) -> None:
        self.missing = missing
        self.weights = self.left_out = 0

    def load(self, path: Path) -> PoolingOperator | None:
        """The operator, if it can be read, drawn and carried."""
        try:
            operator = PoolingOperator.load(path)
        except (ValueError, OSError, KeyError, TypeError) as error:
            # What is wrong with a file as such begins with its path already.
            said = str(error)
            self.missing.append(said if said.startswith(str(path)) else f"{path.name}: {said}")
            return None
        if len(operator.in_shape) > 2:
            axes = len(operator.in_shape)
            self.missing.append(f"{path.name}: maps of {axes} axes cannot be drawn.")
            return None
        # The page shows whole rows, also of windows.
        places = math.prod(operator.in_shape) * math.prod(operator.out_shape)
        if self.weights + operator.components * places > MOST_WEIGHTS:
            self.left_out += 1
            return None
        self.weights += operator.components * places
        return operator

    def say_what_was_left_out(self) -> None:
        """Once all were asked for."""
        if self.left_out:
            self.missing.append(
                f"{self.left_out} operators are not on this page, which would become too large; "
                "name a training's folder, or a file, to see its own."
            )


def _named(
    trainings: Iterable[TrainingFolder], missing: list[str]
) -> dict[tuple[str, str], list[Path]]:
    """The files of operators that differ in alpha alone, by a name; the trials before a search."""
    found: dict[tuple[str, str], list[Path]] = {}
    ordered = sorted(trainings, key=lambda each: each.held_out is not None)
    most = max((each.epochs for each in ordered), default=0)
    for each in ordered:
        try:
            named = list(_name_operators(each, most))
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            missing.append(f"{each.path.name}: {TRAINING}: {error!r}; its operators are left out")
            continue
        for name, path in named:
            found.setdefault(name, []).append(path)
    return found


def _name_operators(each: TrainingFolder, most: int) -> Iterator[tuple[tuple[str, str], Path]]:
    """The operators of a training by a name; `most` are the epochs of the longest training.

    The name has what the operators themselves do not tell, see `make_family`.
    """
    for count, pool in enumerate(each.pools):
        name = f"operator-{pool['layer']}"
        paths = [each.path / f"{name}{path}.safetensors" for path in ("", "-shortcut")]
        if "alpha" not in pool:
            continue
        placement = pool.get("placement") or each.facts["setting"]["placement"]
        before = [dict(earlier) for earlier in each.pools[:count]]
        words = [f"layer {pool['layer']}"]
        words += [pool["form"]] if "form" in pool else []
        words += [placement] if placement else []
        told = {"normalize", "class_cap"} & list_unusual(pool).keys()
        words += [
            f"{choice.replace('_', ' ')} {from_stored(pool)[choice]}" for choice in sorted(told)
        ]
        words += [f"after {describe_poolings(before)}"] if before else []
        part = each.held_out
        words.append(f"seed {each.seed}" if part is None else f"held-out part {part}")
        # A search may begin with brief trainings, whose networks are others.
        words += [f"{each.epochs} epochs"] if each.epochs != most else []
        choices = {key: v for key, v in pool.items() if key not in ("alpha", "pooling")}
        alike: list[Any] = [before, choices, placement, each.epochs]
        for path in paths:
            if path.is_file():
                own = [*words, "shortcut's own"] if path != paths[0] else words
                yield (", ".join(own), str(alike)), path


def _family(name: str, operators: dict[Path, PoolingOperator], missing: list[str]) -> Family:
    """A family from files, with the examples that lie beside one of them."""
    examples: Examples | None = None
    for path, operator in operators.items():
        beside = get_examples_path(path)
        if examples is None and beside.is_file():
            try:
                read = Examples.load(beside)
                examples = read if fits_operator(read, operator) else None
            except ValueError as error:
                missing.append(str(error))
    return make_family(name, list(operators.values()), examples, next(iter(operators)))


@dataclass(frozen=True)
class SavedFit:
    """The files of a fit by layer, and its settings in words.

    Layers that read one tensor and shrink it alike share a file.
    """

    operators: dict[str, Path]
    scatters: dict[str, Path]
    settings: tuple[tuple[str, str], ...]
    center: Center

    def layers(self, path: Path) -> list[str]:
        """The names of the layers whose operator or scatter is in a file."""
        kinds = (self.operators, self.scatters)
        return [name for files in kinds for name, file in files.items() if file == path]


def read_saved_fit(folder: Path) -> SavedFit | None:
    """What `ClosedFormPooling.save` noted in a folder; None where it did not save there."""
    path = folder / FIT_NOTE
    if not path.is_file():
        return None
    try:
        note = read_sealed_json(path)
        told = {"mode": note["mode"], **from_stored(note["settings"])}
        return SavedFit(
            {name: folder / file for name, file in note["operators"].items()},
            {name: folder / file for name, file in note["scatters"].items()},
            tuple((k.replace("_", " "), str(v)) for k, v in told.items() if v is not None),
            told["center"] or default_center(note["mode"]),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(
            f"{path}: {error!r}; wanted what ClosedFormPooling.save wrote: save the fit again"
        ) from error


def find_adapter_folder(path: Path) -> Path | None:
    """The folder of the adapter that `path` is, as a folder or one of its files, if it is one."""
    if path.is_file() and path.name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS):
        return path.parent
    return path if (path / ADAPTER_CONFIG).is_file() else None


def read_adapter_pools(folder: Path) -> dict[str, LinearPool]:
    """The poolings of an adapter by the names of the layers, as they were when it was saved."""
    path = folder / ADAPTER_WEIGHTS
    tensors, header = load_tensors(path, "adapter")
    try:
        found: dict[str, LinearPool] = {}
        pools: dict[str, LinearPool] = {}
        for layer in header["layers"]:
            key = layer["pool"]
            if key not in pools:
                sizes = {name: layer[name] for name in ("in_shape", "out_shape")}
                sizes |= {name: layer[name] for name in ("window", "center") if name in layer}
                pools[key] = LinearPool.of(tensors[f"{key}.weight"], **sizes)
                pools[key].fitted_for = layer["mode"]
            found |= dict.fromkeys(layer["names"], pools[key])
        return found
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"{path}: {error!r}; wanted what foveapool.save wrote: save the adapter again"
        ) from error


def read_adapter_layer(source: Path, layer: str | None = None) -> LinearPool | None:
    """The pooling of an adapter, as the only one or that of a layer; None where there is none."""
    folder = find_adapter_folder(source)
    if folder is None:
        return None
    if read_saved_fit(source) is not None:
        raise ValueError(
            f"{source}: got a fit and an adapter in one folder, wanted one of them; "
            "name the adapter's file or an operator's"
        )
    return _choose_layer(folder, read_adapter_pools(folder), layer)


def find_fit_operator(source: Path, layer: str | None = None) -> Path | None:
    """The operator's file in a folder of a saved fit; None where the source is no such folder.

    Layers have names there, and numbers in a run.
    """
    fit = read_saved_fit(source)
    if fit is not None:
        return _choose_layer(source, fit.operators, layer)
    if find_adapter_folder(source) is not None:
        raise ValueError(
            f"{source}: got an adapter, which holds weights and neither eigenvalues nor maps, "
            "wanted an operator; `foveapool figures operator` draws the weights"
        )
    if source.is_file() and layer is not None:
        raise ValueError(
            f"layer: got {layer!r} and a file, {source}, which is of one layer; wanted one or the "
            "other: leave it out, or name the folder"
        )
    if layer is not None and not layer.isdecimal():
        raise ValueError(
            f"layer: got {layer!r} for {source}, wanted a number, as `foveapool fit` and `study` "
            "count their layers; names are those of a folder that ClosedFormPooling.save wrote"
        )
    return None


def has_network(operator: Path) -> bool:
    """Whether the folder of an operator's file tells of the network that it was fitted on."""
    fit = read_saved_fit(operator.parent)
    if fit is not None and operator in fit.operators.values():
        return False
    return any((operator.parent / note).is_file() for note in (TRAINING, TRAIN_NOTE))


def _choose_layer(source: Path, found: Mapping[str, Found], layer: str | None) -> Found:
    """What is there for a layer; without a name, the only one, which layers may share."""
    names = ", ".join(found)
    if layer is None:
        if len(set(found.values())) > 1:
            raise ValueError(f"{source}: got the layers {names}, wanted one; name it by --layer")
        layer = next(iter(found))
    if layer not in found:
        raise ValueError(f"layer: got {layer!r} for {source}, wanted one of {names}")
    return found[layer]
