"""Maps before a pooling: what reaches it in the network that its operator was fitted on.

For whoever wants to look at some of them; what the fit sums up is in `trial.scatter_at`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from foveapool.data.batches import plain_batches, resident
from foveapool.data.images import DataSet
from foveapool.pooling.operator import PoolingOperator
from foveapool.pooling.storage import load_tensors
from foveapool.runs import TRAINING, read_json
from foveapool.study.fits import WEIGHTS, operator_file_name
from foveapool.study.training import Means, Training, trial_of
from foveapool.surgery.capture import inputs_of
from foveapool.training.parallel import chosen_device

COUNT = 300


class SampleMaps(NamedTuple):
    """Images, the maps of a layer for them, and what they show."""

    images: Tensor  # uint8 (n, C, H, W)
    maps: Tensor  # (n, C, h, w)
    labels: Tensor  # (n,)
    classes: tuple[str, ...]


def sample_maps(
    network: Any, data: DataSet, module: str, device: str | None = None, count: int = COUNT
) -> SampleMaps:
    """The first images that the network is measured on, and what reaches a module for them."""
    place = chosen_device(device)
    network.to(place)
    some = data.test.part(torch.arange(min(count, len(data.test))))
    _, images = resident(replace(data, test=some), place)
    maps = [inputs_of(network, batch, [module])[module] for batch, _ in plain_batches(images)]
    return SampleMaps(some.images, torch.cat(maps).cpu(), some.labels, some.classes)


class ReadNetwork(NamedTuple):
    """A trained network, its data, and the module that reads what an operator is for."""

    network: Any
    data: DataSet
    module: str


def maps_of_fit(operator: Path, means: Means | None = None) -> SampleMaps:
    """The maps that an operator-LAYER.safetensors in a training's folder is for.

    Those of the network that it was fitted on: its weights have to be there still, since nothing
    is trained here.
    """
    means = means or Means("cpu")
    return sample_maps(*network_of_fit(operator, means), means.device)


def network_of_fit(operator: Path, means: Means) -> ReadNetwork:
    """The network that an operator in a training's folder was fitted on, with its weights."""
    name, folder = operator_name(operator), operator.parent
    before = fitted_on(folder, layer_of(operator))
    setting = Training.from_facts(read_json(folder / TRAINING)).setting
    pool = next(pool for pool in setting.pools if pool.layer == layer_of(operator))
    path = next(path for path, own in setting.operator_names(pool).items() if own == name)
    its = folder.parent / before.name
    weights, _ = load_tensors(its / WEIGHTS, "weights")
    trial = trial_of(before, means)
    network, site = trial.network_to_read(pool, path, kept_operators(before, its))
    try:
        network.load_state_dict(weights)
    except RuntimeError as error:
        raise ValueError(f"{its / WEIGHTS}: not the weights of this network: {error}") from error
    return ReadNetwork(network, trial.data, site.module)


def kept_operators(training: Training, folder: Path) -> dict[str, PoolingOperator]:
    """The operators of the closed forms of a training in `folder`, by name: nothing is fitted."""
    setting, found = training.setting, {}
    for pool in setting.pools:
        if not pool.is_fitted:
            continue
        # One that others were put in after lies with the training that ended with it.
        until = replace(training, setting=setting.until(pool))
        for name in setting.operator_names(pool).values():
            own = folder / operator_file_name(name)
            files = [own, folder.parent / until.name / own.name]
            if (file := next((each for each in files if each.is_file()), None)) is None:
                raise FileNotFoundError(
                    f"{own}: no such file, wanted the operator that the network was trained with; "
                    f"copy it from its folder of runs, where it is trainings/{until.name}/"
                    f"{own.name}"
                )
            found[name] = PoolingOperator.load(file)
    return found


def operator_name(operator: Path) -> str:
    """The operator's name in its file's name: its layer, and the path of a block that has two.

    >>> operator_name(Path("run/operator-3-shortcut.safetensors"))
    '3-shortcut'
    """
    found = re.match(r"operator-(\d+(-shortcut)?)\b", operator.name)
    if found is None:
        raise ValueError(
            f"{operator}: an operator of an unknown layer, wanted operator-LAYER.safetensors"
        )
    return found[1]


def layer_of(operator: Path) -> int:
    """The layer in an operator's file name.

    >>> layer_of(Path("run/operator-3.safetensors"))
    3
    """
    return int(operator_name(operator).partition("-")[0])


def fitted_on(folder: Path, layer: int) -> Training:
    """The training whose network the operator of a layer in a training's folder was fitted on."""
    try:
        training = Training.from_facts(read_json(folder / TRAINING))
    except (KeyError, TypeError) as error:
        raise ValueError(f"{folder / TRAINING}: {error!r}; wanted a training's facts") from error
    setting = training.setting
    while setting.pools and setting.pools[-1].layer != layer:
        setting = replace(setting, pools=setting.pools[:-1])
    before = replace(training, setting=setting).fitted_on
    if before is None:
        raise ValueError(f"{folder}: no pooling at layer {layer} was fitted, wanted a closed form")
    return before
