"""Run folders: one process at a time, and a checkpoint that is whole or not there.

A checkpoint is one safetensors file with a JSON header. The tensors are the state itself; the
header says where in the training they belong and which training that is.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_type_hints

import torch
from torch import Tensor, nn

from foveapool._io import clear_leftovers, hold_lock, make_folder
from foveapool.data.images import DataSet
from foveapool.pooling.storage import (
    check_numbers,
    check_types,
    explain_damage,
    load_tensors,
    save_tensors,
)
from foveapool.training.metrics import METRICS, EpochRecord
from foveapool.training.recipe import Recipe

CHECKPOINT = "checkpoint.safetensors"
_AFRESH = "start afresh with resume=False, on the command line --no-resume"


class UnusableCheckpoint(ValueError):
    """A checkpoint that cannot be read, or that is another training's."""


@dataclass(frozen=True)
class Position:
    """How far a training has come: the epochs behind it, the steps of this one, and their time."""

    epoch: int = 0
    step: int = 0
    elapsed: float = 0.0
    history: tuple[EpochRecord, ...] = ()


class RunFolder:
    """Saves and restores one training in one folder."""

    def __init__(self, folder: str | os.PathLike[str], configuration: Mapping[str, Any]) -> None:
        self.folder = Path(folder)
        self.path = self.folder / CHECKPOINT
        self.configuration = dict(configuration)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the folder for this process; refuses where another one holds it."""
        with hold_lock(make_folder(self.folder, "a training") / "lock"):
            for name in (CHECKPOINT, METRICS):
                clear_leftovers(self.folder / name)
            yield

    def restore(self, tensors: Mapping[str, Tensor]) -> Position | None:
        """Fills the tensors from the checkpoint and says where it stood; None where there is none.

        Refuses, before anything is changed, a checkpoint of another training. One of another kind
        of device is a plain ValueError, and one that the disk does not give an OSError: nothing is
        wrong with it where it was begun, or later.
        """
        if not self.path.exists():
            return None
        saved, facts, position = read_checkpoint(self.path)
        there, here = facts["configuration"], self.configuration
        if STRUCTURE in here and facts.get("torch") != torch.__version__:
            # Another version of torch may print the same network in other words.
            there[STRUCTURE] = here[STRUCTURE]
        if found := list_differences(there, here):
            raise UnusableCheckpoint(
                f"{self.folder}: holds a training of another configuration: {'; '.join(found)}. "
                f"Choose another folder, or {_AFRESH}"
            )
        if (begun := _get_device(saved)) != (device := _get_device(tensors)):
            raise ValueError(
                f"{self.path}: got {device} to go on with, wanted {begun}, where it was begun: "
                f"choose the device {begun!r}, or remove {self.folder} to train it afresh"
            )
        shapes = {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}
        if shapes != {name: (tensor.shape, tensor.dtype) for name, tensor in saved.items()}:
            raise UnusableCheckpoint(
                f"{self.path}: holds other tensors than this training has; it was written by "
                f"another version: {_AFRESH}"
            )
        with torch.no_grad():
            for name, tensor in tensors.items():
                tensor.copy_(saved[name])
        return position

    def clear(self) -> None:
        """Removes the checkpoint: what is noted of a new training must not stand beside an old."""
        with explain_disk_errors(self.path):
            self.path.unlink(missing_ok=True)

    def save(self, tensors: Mapping[str, Tensor], position: Position) -> None:
        """Replaces the checkpoint by a new one; the old one stays where that fails."""
        # Copies, since safetensors refuses tensors that share their memory.
        held = {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}
        facts = {
            **asdict(position),
            "configuration": self.configuration,
            "torch": str(torch.__version__),
        }
        with explain_disk_errors(self.path):
            save_tensors(self.path, "checkpoint", held, facts)


def load_weights(
    network: nn.Module,
    folder: str | os.PathLike[str],
    data: DataSet | None = None,
    seed: int | None = None,
) -> Position:
    """Fills a network with the weights that a run folder holds, and says how far they had come.

    To use what was trained; `train` restores by itself what it has to go on from. Give the `data`
    and the `seed` that they are taken for: ValueError where they were trained with others.
    """
    path = Path(folder) / CHECKPOINT
    saved, facts, position = read_checkpoint(path)
    asked = {} if data is None else describe_images(data)
    asked |= {} if seed is None else {"seed": seed}
    trained = {key: facts["configuration"].get(key) for key in asked}
    if other := list_differences(trained, asked):
        raise ValueError(
            f"{path}: holds the weights of another training: {'; '.join(other)}; wanted them with "
            "the images and the seed that they were trained with: put these back, or train again"
        )
    start = "network/"
    weights = {n.removeprefix(start): t for n, t in saved.items() if n.startswith(start)}
    wanted = {name: tensor.shape for name, tensor in network.state_dict().items()}
    found = {name: tensor.shape for name, tensor in weights.items()}
    if found != wanted:
        names = sorted(n for n in found.keys() | wanted.keys() if found.get(n) != wanted.get(n))
        shown = [f"{n} {tuple(found.get(n, ()))}, not {tuple(wanted.get(n, ()))}" for n in names]
        raise ValueError(
            f"{path}: holds the weights of another network than {type(network).__name__}: "
            f"{'; '.join(shown[:3])}; {len(names)} tensors differ: build it as it was trained"
        )
    with explain_damage(path, "train again"):
        check_numbers(weights)
    network.load_state_dict(weights)
    return position


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any], Position]:
    """What a checkpoint holds; UnusableCheckpoint where it is not whole.

    OSError where it is not given to us: too many open files, say, tell nothing about it.
    """
    try:
        saved, facts = load_tensors(path, "checkpoint")
        with explain_damage(path, f"it was written by another version: {_AFRESH}"):
            check_types(facts, _FACTS)
            history = tuple(_read_record(record) for record in facts["history"])
            if facts["epoch"] != len(history) or min(facts["step"], facts["elapsed"]) < 0:
                raise ValueError(
                    f"got epoch {facts['epoch']}, step {facts['step']} and {len(history)} epochs "
                    "behind it, wanted a place in a training"
                )
            return saved, facts, Position(facts["epoch"], facts["step"], facts["elapsed"], history)
    except ValueError as error:
        if isinstance(error.__cause__, OSError):
            raise OSError(
                f"{path}: is there and could not be read ({error.__cause__}); see that this "
                "process may read it and open more files, then try again"
            ) from error
        raise UnusableCheckpoint(str(error)) from error


_FACTS = {
    "configuration": dict[str, Any],
    "epoch": int,
    "step": int,
    "elapsed": float,
    "history": list[dict[str, Any]],
}


def _read_record(facts: Mapping[str, Any]) -> EpochRecord:
    record = EpochRecord(**facts)
    check_types(facts, get_type_hints(EpochRecord))
    return record


def _get_device(tensors: Mapping[str, Tensor]) -> str:
    """The kind of device that a training's state belongs to, by its generators of noise."""
    return "cuda" if "noise/cuda" in tensors else "cpu"


@contextmanager
def explain_disk_errors(path: Path) -> Iterator[None]:
    """Says of a failed write which file it was and that nothing is lost."""
    try:
        yield
    except OSError as error:
        raise OSError(
            f"{path}: could not be written ({error}); what was saved before is kept. Free space "
            "on the disk, then train on with the same command"
        ) from error


STRUCTURE = "network.structure"  # names of tensors, and the network as torch prints it


def describe_configuration(
    network: nn.Module, data: DataSet, recipe: Recipe, seed: int
) -> dict[str, Any]:
    """A flat dict that JSON can hold; equal for two trainings that must end alike on one machine.

    The network's numbers, a fitted pooling among them, are part of it, and so are the images.
    """
    tensors = network.state_dict()
    values = {**recipe.facts(), "pooling_rate": recipe.pooling_rate}
    augmentation = None if data.augmentation is None else asdict(data.augmentation)
    return {
        **{f"recipe.{key}": value for key, value in values.items()},
        "seed": seed,
        "network": type(network).__name__,
        "network.parameters": sum(p.numel() for p in network.parameters()),
        STRUCTURE: _digest_parts([json.dumps(sorted(tensors)).encode(), str(network).encode()]),
        "network.start": _digest_parts(_to_bytes(tensor) for tensor in tensors.values()),
        "data": data.name,
        "data.train": len(data.train),
        "data.test": len(data.test),
        "data.augmentation": augmentation,
        **describe_images(data),
    }


def describe_images(data: DataSet) -> dict[str, Any]:
    """What of the data decides what a trained network is shown, and how it is judged.

    The name is no part of it: images may be moved, and others may come to lie in their place.
    """
    return {
        "data.normalisation": data.normalization,
        "data.content": _digest_parts(
            _to_bytes(tensor)
            for part in (data.train, data.test)
            for tensor in (part.images, part.labels)
        ),
    }


def list_differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """What differs between the configuration of a folder and the one asked for, in words."""
    keys = [*here, *(key for key in there if key not in here)]
    return [
        f"{key} is {there.get(key)} there and {here.get(key)} here"
        for key in keys
        if there.get(key) != here.get(key)
    ]


def _to_bytes(tensor: Tensor) -> memoryview:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


def _digest_parts(parts: Iterable[bytes | memoryview]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update(part)
    return digest.hexdigest()
