"""Trained networks from their folders: those of `foveapool train`, and those of a study."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from foveapool.cli.fit import RUN, data_options, read_run
from foveapool.data.images import DataSet
from foveapool.pooling.storage import load_tensors
from foveapool.runs import TRAINING, read_json
from foveapool.study.fits import WEIGHTS
from foveapool.study.maps import kept_operators
from foveapool.study.setting import Setting
from foveapool.study.training import Means, Source, Training, data_of, trial_of
from foveapool.study.trials import data_label, place
from foveapool.training.checkpoint import load_weights
from foveapool.training.recipe import Recipe


@dataclass(frozen=True)
class Trained:
    """A network with the weights that a folder holds, its data, and its columns of a `Row`."""

    folder: Path
    network: nn.Module
    data: DataSet
    seed: int
    columns: dict[str, str]


def trained_network(folder: Path, data_root: Path | None = None) -> Trained:
    """The network of a folder that `foveapool train` or, with --keep, `foveapool study` made."""
    means = Means(data_root=data_root)
    if (folder / TRAINING).is_file():
        training = _of_study(folder)
        if not (folder / WEIGHTS).is_file():
            raise FileNotFoundError(
                f"{folder / WEIGHTS}: no such file; a study keeps the weights of networks with "
                "poolings only with --keep: do it again so, into another folder of runs"
            )
        network = trial_of(training, means).network(kept_operators(training, folder))
        _fill(network, folder / WEIGHTS, training)
        columns = {"epochs": str(training.recipe.epochs), "batch": str(training.recipe.batch_size)}
    else:
        training = _of_train(folder)
        network = trial_of(training, means).network()
        done = load_weights(network, folder, data_of(training, means), training.seed)
        columns = {"epochs": str(done.epoch)}
    columns |= place(training.setting, training.recipe) | {"data": data_label(training)}
    return Trained(folder, network, data_of(training, means), training.seed, columns)


def _fill(network: nn.Module, path: Path, training: Training) -> None:
    """Fills the network with the weights that a study kept of this training, and no others."""
    weights, facts = load_tensors(path, "weights")
    if facts.get("training") != training.name:
        raise ValueError(
            f"{path}: holds the weights of {facts.get('training')}, wanted those of "
            f"{training.name}, which {TRAINING} beside it tells of"
        )
    try:
        network.load_state_dict(weights)
    except RuntimeError as error:
        raise ValueError(f"{path}: not the weights of this network: {error}") from error


def _of_study(folder: Path) -> Training:
    try:
        facts = read_json(folder / TRAINING)
        if facts["held_out"] is not None:
            raise ValueError("it was trained in a search, without its test images")
        return Training.from_facts(facts)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{folder / TRAINING}: {error}; wanted a training of a study that was measured on the "
            "test images"
        ) from error


def _of_train(folder: Path) -> Training:
    facts: dict[str, Any] = read_run(folder)
    try:
        setting = Setting(network=facts["network"], width=facts["width"])
        source = Source(facts["data"], facts["data_seed"], data_options(facts))
        # How it was trained does not matter any more.
        return Training(setting, source, Recipe("adam", 1e-3, 1), facts["seed"])
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{folder / RUN}: {error}; wanted the note that `foveapool train` wrote"
        ) from error
