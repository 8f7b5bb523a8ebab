"""The folders of a fit: of a finished one, and of one that was stopped and can go on.

A finished fit is settings and layers as JSON, and what was found as safetensors; what several
layers share is one file, and one object again when it is read. An unfinished one is the sums so
far, a folder for each process: files carry the position in their names, and `position.json`, moved
into place when they are complete, says which ones hold.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Literal, TypeVar, get_type_hints

import torch
from torch import nn

from foveapool._io import (
    clear_leftovers,
    hold_folder,
    hold_lock,
    make_folder,
    read_json,
    read_sealed_json,
    seal_json,
    write_text,
)
from foveapool._stored_names import from_stored, to_stored
from foveapool.pooling.accumulate import ScatterAccumulator
from foveapool.pooling.least_squares import Mixing, MixingSums
from foveapool.pooling.moments import ChannelMoments
from foveapool.pooling.operator import PoolingOperator
from foveapool.pooling.scatter import Scatter
from foveapool.pooling.storage import (
    FIT_NOTE,
    add_to_digest,
    check_names,
    check_types,
    digest_tensors,
    explain_damage,
)
from foveapool.pooling.validation import is_distributed
from foveapool.surgery.find import Downsampling
from foveapool.surgery.forward import iterate_leaves, unwrap
from foveapool.surgery.loader import LabeledBatch
from foveapool.surgery.settings import MixingStart, check_settings
from foveapool.surgery.wrapper import Mode

FORMAT_VERSION = 1
_KINDS = ("scatter", "operator", "mixing")
_FILE = re.compile(rf"({'|'.join(_KINDS)})-\d+\.safetensors")
# Names the files of a fit that is being written, for who comes after a process that was killed.
_BEGUN = ".begun.json"


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
    """Puts a fit into a folder, in the place of one that may be there.

    Its files have names that no file there has, and the note that names them is moved into place
    last: whoever is killed leaves the old fit or the new one.
    """
    make_folder(folder, "a fit")
    with hold_folder(folder):
        older = _list_noted_files(folder / FIT_NOTE)
        _remove_unfinished(folder, older)
        values: list[Mapping[str, Any]] = [kept.scatters, kept.operators, kept.mixings]
        scatters, operators, mixings = (
            _name_files(kind, each, folder) for kind, each in zip(_KINDS, values, strict=True)
        )
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
        new = {
            files[name]: value
            for files, each in zip((scatters, operators, mixings), values, strict=True)
            for name, value in each.items()
        }
        note = seal_json(facts)  # what cannot be written down is refused before a file is
        write_text(folder / _BEGUN, json.dumps({"files": sorted(new.keys() | older)}))
        for file, value in new.items():
            value.save(folder / file)
        write_text(folder / FIT_NOTE, note)
        for name in older - new.keys():
            (folder / name).unlink(missing_ok=True)
        (folder / _BEGUN).unlink()


def _remove_unfinished(folder: Path, noted: set[str]) -> None:
    """Removes what a killed process had written of a fit, or left of the one before."""
    for name in (FIT_NOTE, _BEGUN, *(f"{kind}-*.safetensors" for kind in _KINDS)):
        clear_leftovers(folder / name)
    try:
        begun = _list_own(read_json(folder / _BEGUN)["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return
    for name in begun - noted:
        (folder / name).unlink(missing_ok=True)


def _list_own(names: Iterable[str]) -> set[str]:
    """Those of the names that can be of a fit's files; a note may name anything."""
    return {name for name in names if Path(name).name == name and _FILE.fullmatch(name)}


def _list_noted_files(note: Path) -> set[str]:
    """The files that a fit in this folder has by its own note; none where it cannot be read."""
    try:
        facts = _read_note(note)
        names = [*facts["scatters"].values(), *facts["operators"].values()]
        names += facts.get("mixings", {}).values()
        return _list_own(names)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return set()


def read_fit(folder: Path) -> FitState:
    """What `write_fit` put there."""
    while True:
        facts = _read_note(folder / FIT_NOTE)
        try:
            return _read_files(folder, facts)
        except FileNotFoundError:
            # Gone with the note, where another process saves another fit just now.
            if _read_note(folder / FIT_NOTE) == facts:
                raise


def _read_files(folder: Path, facts: Mapping[str, Any]) -> FitState:
    note = folder / FIT_NOTE
    with explain_damage(note, "read it with the version that wrote it, or fit again"):
        check_types({"mixings": {}} | dict(facts), _NOTE)
        layers = {each["name"]: _read_layer(each) for each in facts["layers"]}
        _check_names(facts, layers)
        return FitState(
            check_settings(from_stored(facts["settings"])),
            facts["mode"],
            facts["seconds"],
            layers,
            _load_each(folder, facts["scatters"], Scatter.load),
            _load_each(folder, facts["operators"], PoolingOperator.load),
            facts.get("mixing", "least-squares"),
            _load_each(folder, facts.get("mixings", {}), Mixing.load),
        )


# What a note says, by its names.
_NOTE = {
    "settings": dict[str, Any],
    "mode": Mode,
    "seconds": dict[str, float],
    "layers": list[dict[str, Any]],
    **dict.fromkeys(("scatters", "operators", "mixings"), dict[str, str]),
}


def _read_layer(facts: Mapping[str, Any]) -> Downsampling:
    values: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in facts.items()
    }
    layer = Downsampling(**values)
    check_types(vars(layer), get_type_hints(Downsampling))
    return layer


def _check_names(facts: Mapping[str, Any], layers: Mapping[str, Downsampling]) -> None:
    """Raises unless a note names files in its own folder, for layers that it tells of."""
    for kind in ("scatters", "operators", "mixings"):
        files = facts.get(kind, {})
        if wrong := set(files.values()) - _list_own(files.values()):
            raise ValueError(f"{kind}: got the file {min(wrong)!r}, wanted one that a fit has")
        if wrong := files.keys() - layers.keys():
            raise ValueError(f"{kind}: got the layer {min(wrong)!r}, wanted one of {list(layers)}")
        # Mixings are found in a pass of their own.
        if kind != "mixings" and (lacking := layers.keys() - files.keys()):
            raise ValueError(f"{kind}: got none of the layer {min(lacking)!r}, wanted one of each")


def _name_files(kind: str, values: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """A new file's name for each layer; an object has one, however many layers have it."""
    free = (name for i in count() if not (folder / (name := f"{kind}-{i}.safetensors")).exists())
    files: dict[int, str] = {}
    for value in values.values():
        if id(value) not in files:
            files[id(value)] = next(free)
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
        facts = read_sealed_json(path)
    except ValueError as error:
        raise ValueError(f"{path}: not what ClosedFormPooling.save wrote ({error})") from error
    if (version := facts.get("format_version")) != FORMAT_VERSION:
        raise ValueError(
            f"{path}: got format version {version}, wanted {FORMAT_VERSION}; read it with the "
            "version of foveapool that wrote it"
        )
    return facts


T = TypeVar("T")
_POSITION = {
    **dict.fromkeys(("fingerprint", "first_batch"), str),
    "number": Literal[1, 2, 3],
    "batches": int,
    "total": int | None,
}


@dataclass(frozen=True)
class Position:
    """Pass 1, 2 or 3, batches done in it, and behind pass 1 how many there are."""

    number: int
    batches: int
    total: int | None = None


FoundSums = tuple[Position, dict[str, ChannelMoments], dict[str, ScatterAccumulator]]


class FitCheckpoint:
    """A folder with the sums of one process."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        rank = torch.distributed.get_rank() if is_distributed() else 0
        self.folder = Path(folder) / f"process-{rank}"
        self._fingerprint, self._first_batch = "", ""
        self._lock = ExitStack()

    def claim(self, fingerprint: str, first_batch: str) -> None:
        """Makes the folder ready for the fit of that fingerprint; another's is not touched.

        `first_batch` is the digest of what the loader yields first. The folder is this process's
        own until `release`; BlockingIOError where another fit works in it.
        """
        self._fingerprint, self._first_batch = fingerprint, first_batch
        make_folder(self.folder, "unfinished sums")
        self._lock.enter_context(hold_lock(self.folder / "lock"))
        found = self._note()
        if found is not None and found["fingerprint"] != fingerprint:
            raise ValueError(
                f"{self.folder.parent}: got the sums of another fit (network, layers, mode or "
                "settings differ), wanted those of this one; give another folder or delete this one"
            )
        if found is not None:
            self.check_begins_alike(found["first_batch"])

    def begins_alike(self, first_batch: str) -> bool:
        """Whether a reading that begins with that batch began as the first one did."""
        return first_batch == self._first_batch

    def check_begins_alike(self, first_batch: str) -> None:
        """Raises unless it did: sums must not go on with other samples."""
        if not self.begins_alike(first_batch):
            raise ValueError(
                f"{self.folder.parent}: got sums that were begun with another first batch, wanted "
                "the same again: the loader does not keep its order, changes its images at random, "
                "or holds others; pass shuffle=False and no random changes, or give another folder "
                "(or delete this one) to begin anew"
            )

    def write(self, position: Position, takers: Sequence[Any]) -> None:
        """Keeps the sums of all layers at a position, and forgets the ones before."""
        stem = f"{position.number}-{position.batches}"
        for index, taker in enumerate(takers):
            taker.save(self.folder / f"{stem}-{index}.safetensors")
        digests = {"fingerprint": self._fingerprint, "first_batch": self._first_batch}
        note = {**digests, **asdict(position)}
        write_text(self.folder / "position.json", json.dumps(note))
        stems = [stem, _second_pass_stem(position)] if position.number == 3 else [stem]
        for old in self.folder.glob("*.safetensors"):
            if not old.name.startswith(tuple(f"{each}-" for each in stems)):
                old.unlink(missing_ok=True)

    def read(self, names: Sequence[str], device: torch.device) -> FoundSums | None:
        """The sums that were kept, by layer; None if there are none.

        In pass 3 these are the finished ones of pass 2; `read_mixing` has its own.
        """
        note = self._note()
        if note is None:
            return None
        position = Position(note["number"], note["batches"], note["total"])
        if position.number == 1:
            stem = f"1-{position.batches}"
            return position, self._load_each(ChannelMoments.load, stem, names, device), {}
        stem = f"2-{position.batches}" if position.number == 2 else _second_pass_stem(position)
        return position, {}, self._load_each(ScatterAccumulator.load, stem, names, device)

    def read_mixing(
        self, position: Position, names: Sequence[str], device: torch.device
    ) -> dict[str, MixingSums]:
        """The sums of pass 3 at a position that `read` gave, by layer."""
        return self._load_each(MixingSums.load, f"3-{position.batches}", names, device)

    def _load_each(
        self,
        load: Callable[[Path, torch.device], T],
        stem: str,
        names: Sequence[str],
        device: torch.device,
    ) -> dict[str, T]:
        files = {n: self.folder / f"{stem}-{i}.safetensors" for i, n in enumerate(names)}
        try:
            return {name: load(file, device) for name, file in files.items()}
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{error}; {self._anew}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{error}; {self._anew}") from error

    def release(self) -> None:
        """Leaves the folder to others."""
        self._lock.close()

    def clear(self) -> None:
        """Forgets everything: the fit is done, or the sums are of no use."""
        shutil.rmtree(self.folder, ignore_errors=True)
        # Not empty as long as another process has not come here, or if it held other things.
        with suppress(OSError):
            self.folder.parent.rmdir()

    @property
    def _anew(self) -> str:
        return (
            "what was kept of an unfinished fit is damaged or of another version: delete "
            f"{self.folder} to begin anew"
        )

    def _note(self) -> dict[str, Any] | None:
        path = self.folder / "position.json"
        if not path.is_file():
            return None
        try:
            note = read_json(path)
        except ValueError as error:
            raise ValueError(f"{error}; {self._anew}") from error
        with explain_damage(path, self._anew):
            check_names("fact", note, _POSITION)
            check_types(note, _POSITION)
        return note


def _second_pass_stem(position: Position) -> str:
    """How the files of the finished second pass begin."""
    return f"2-{position.total}"


def fingerprint_fit(model: nn.Module, facts: Mapping[str, Any]) -> str:
    """Tells fits apart: by the network's numbers and the JSON-able `facts` of the fit."""
    processes = torch.distributed.get_world_size() if is_distributed() else 1
    known = json.dumps([processes, to_stored(facts)], sort_keys=True).encode()
    return digest_tensors(unwrap(model).state_dict().items(), known)


def digest_batch(batch: LabeledBatch) -> str:
    """Tells batches apart: by the numbers of the inputs and the labels."""
    digest = hashlib.sha256()
    for leaf in (*iterate_leaves(batch.inputs), batch.labels):
        if isinstance(leaf, torch.Tensor):
            add_to_digest(digest, leaf)
    return digest.hexdigest()
