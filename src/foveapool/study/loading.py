"""Trained networks from their folders, with their operators and the maps that these pool.

The folders are those of `foveapool train` and of a study's trainings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from foveapool._eval_mode import eval_mode
from foveapool._io import read_json
from foveapool.data.batches import iterate_batches, load_resident
from foveapool.data.images import DataSet
from foveapool.pooling.operator import PoolingOperator
from foveapool.runs import TRAINING
from foveapool.study.fits import WEIGHTS, load_kept_weights, name_operator_file
from foveapool.study.rows import label_data, setting_columns
from foveapool.study.setting import Setting
from foveapool.study.spec import (
    ExecutionOptions,
    Source,
    TrainingSpec,
    build_job,
    load_training_data,
)
from foveapool.surgery.capture import read_inputs
from foveapool.training.checkpoint import load_weights
from foveapool.training.parallel import choose_device
from foveapool.training.recipe import Recipe

COUNT = 300


class SampleMaps(NamedTuple):
    """Images, the maps of a layer for them, and what they show."""

    images: Tensor  # uint8 (n, C, H, W)
    maps: Tensor  # (n, C, h, w)
    labels: Tensor  # (n,)
    classes: tuple[str, ...]


def read_sample_maps(
    network: Any, data: DataSet, module: str, device: str | None = None, count: int = COUNT
) -> SampleMaps:
    """The first images that the network is measured on, and what reaches a module for them."""
    chosen = choose_device(device)
    network.to(chosen)
    some = data.test.part(torch.arange(min(count, len(data.test))))
    _, images = load_resident(replace(data, test=some), chosen)
    maps = [read_inputs(network, batch, [module])[module] for batch, _ in iterate_batches(images)]
    return SampleMaps(some.images, torch.cat(maps).cpu(), some.labels, some.classes)


class ReadNetwork(NamedTuple):
    """A trained network, its data, and the module that reads what an operator is for."""

    network: Any
    data: DataSet
    module: str


def load_fit_maps(operator: Path, means: ExecutionOptions | None = None) -> SampleMaps:
    """The maps that an operator-LAYER.safetensors in a run's folder is for.

    Those of the network that it was fitted on: its weights have to be there still, since nothing
    is trained here.
    """
    means = means or ExecutionOptions("cpu")
    return read_sample_maps(*load_fit_network(operator, means), means.device)


def load_fit_network(
    operator: Path, means: ExecutionOptions, placement: str | None = None
) -> ReadNetwork:
    """The network that an operator in a run's folder was fitted on, with its weights.

    `placement` says where in a residual block the operator of a `foveapool train` folder goes; a
    study's training knows.
    """
    name, layer, folder = parse_operator_name(operator), parse_layer(operator), operator.parent
    if not (folder / TRAINING).is_file():
        trained = load_trained_network(folder, means.data_root)
        module = trained.network.site(layer, placement).module
        return ReadNetwork(trained.network, trained.data, module)
    if placement is not None:
        raise ValueError(
            f"placement: got {placement!r} for {folder}, a training of a study, which knows its "
            "own; leave it out"
        )
    before, setting = find_fitted_on(folder, layer), _read_facts(folder).setting
    pool = next(pool for pool in setting.pools if pool.layer == layer)
    path = next(path for path, own in setting.operator_names(pool).items() if own == name)
    its = folder.parent / before.name
    trial = build_job(before, means)
    network, site = trial.network_to_read(pool, path, load_operators(before, its))
    load_kept_weights(network, before, its)
    return ReadNetwork(network, trial.data, site.module)


def load_operators(training: TrainingSpec, folder: Path) -> dict[str, PoolingOperator]:
    """The operators of the closed forms of a training in `folder`, by name: nothing is fitted."""
    setting, found = training.setting, {}
    for pool in setting.pools:
        if not pool.is_fitted:
            continue
        # One that others were put in after lies with the training that ended with it.
        until = replace(training, setting=setting.until(pool))
        for name in setting.operator_names(pool).values():
            own = folder / name_operator_file(name)
            files = [own, folder.parent / until.name / own.name]
            if (file := next((each for each in files if each.is_file()), None)) is None:
                raise FileNotFoundError(
                    f"{own}: no such file, wanted the operator that the network was trained with; "
                    f"copy it from its folder of runs, where it is trainings/{until.name}/"
                    f"{own.name}"
                )
            found[name] = PoolingOperator.load(file)
    return found


def parse_operator_name(operator: Path) -> str:
    """The operator's name in its file's name: its layer, and the path of a block that has two.

    >>> parse_operator_name(Path("run/operator-3-shortcut.safetensors"))
    '3-shortcut'
    """
    found = re.match(r"operator-(\d+(-shortcut)?)\b", operator.name)
    if found is None:
        raise ValueError(
            f"{operator}: an operator of an unknown layer, wanted operator-LAYER.safetensors"
        )
    return found[1]


def parse_layer(operator: Path) -> int:
    """The layer in an operator's file name.

    >>> parse_layer(Path("run/operator-3.safetensors"))
    3
    """
    return int(parse_operator_name(operator).partition("-")[0])


def find_fitted_on(folder: Path, layer: int) -> TrainingSpec:
    """The training whose network the operator of a layer in a training's folder was fitted on."""
    training = _read_facts(folder)
    setting = training.setting
    while setting.pools and setting.pools[-1].layer != layer:
        setting = replace(setting, pools=setting.pools[:-1])
    before = replace(training, setting=setting).fitted_on
    if before is None:
        raise ValueError(f"{folder}: no pooling at layer {layer} was fitted, wanted a closed form")
    return before


def _read_facts(folder: Path) -> TrainingSpec:
    try:
        return TrainingSpec.from_facts(read_json(folder / TRAINING))
    except (KeyError, TypeError, ValueError) as error:
        why = error if type(error) is ValueError else repr(error)
        raise ValueError(f"{folder / TRAINING}: {why}; wanted a training's facts") from error


@dataclass(frozen=True)
class TrainedNetwork:
    """A network with the weights that a folder holds, its data, and its columns of a `Row`."""

    folder: Path
    network: Any
    data: DataSet
    seed: int
    columns: dict[str, str]


def load_trained_network(folder: Path, data_root: Path | None = None) -> TrainedNetwork:
    """The network of a folder that `foveapool train` or, with --keep, `foveapool study` made."""
    means = ExecutionOptions(data_root=data_root)
    if (folder / TRAINING).is_file():
        training = _read_study_training(folder)
        if not (folder / WEIGHTS).is_file():
            raise FileNotFoundError(
                f"{folder / WEIGHTS}: no such file; a study keeps the weights of networks with "
                "poolings only with --keep: do it again so, into another folder of runs"
            )
        network = build_job(training, means).network(load_operators(training, folder))
        load_kept_weights(network, training, folder)
        columns = {"epochs": str(training.recipe.epochs), "batch": str(training.recipe.batch_size)}
    else:
        training = _read_train_run(folder)
        network = build_job(training, means).network()
        done = load_weights(network, folder, load_training_data(training, means), training.seed)
        columns = {"epochs": str(done.epoch)}
    columns |= setting_columns(training.setting, training.recipe) | {"data": label_data(training)}
    return TrainedNetwork(
        folder, network, load_training_data(training, means), training.seed, columns
    )


def _read_study_training(folder: Path) -> TrainingSpec:
    try:
        facts = read_json(folder / TRAINING)
        if facts["held_out"] is not None:
            raise ValueError("it was trained in a search, without its test images")
        return TrainingSpec.from_facts(facts)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{folder / TRAINING}: {error}; wanted a training of a study that was measured on the "
            "test images"
        ) from error


def _read_train_run(folder: Path) -> TrainingSpec:
    facts: dict[str, Any] = read_run(folder)
    try:
        setting = Setting(network=facts["network"], width=facts["width"])
        source = Source(facts["data"], facts["data_seed"], read_data_options(facts))
        # How it was trained does not matter any more.
        return TrainingSpec(setting, source, Recipe("adam", 1e-3, 1), facts["seed"])
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{folder / RUN_NOTE}: {error}; wanted the note that `foveapool train` wrote"
        ) from error


@dataclass(frozen=True, eq=False)
class PooledMaps:
    """Test images' maps (n, C, h, w) as the network pools them itself and as the operator does."""

    default: Tensor
    learned: Tensor
    labels: Tensor  # (n,)
    classes: tuple[str, ...]


def find_operator_file(source: Path, layer: int | None = None) -> Path:
    """The operator's file that `source` is or, as the only one or that of a layer, has in it."""
    if source.is_file():
        return source
    if not source.is_dir():
        raise FileNotFoundError(f"{source}: no such file or folder, wanted a run or an operator")
    wanted = "operator*.safetensors" if layer is None else f"operator-{layer}.safetensors"
    found = sorted(source.glob(wanted))
    if not found:
        if layer is not None and (other := _find_of_earlier_layer(source, layer)) is not None:
            gone = "" if (other / wanted).is_file() else ", which is not there any more"
            raise FileNotFoundError(
                f"{source}: no {wanted} in it, since a training keeps the operator of its last "
                f"layer alone; wanted the folder of the network that it was fitted on: {other}"
                f"{gone}"
            )
        raise FileNotFoundError(
            f"{source}: no {wanted} in it, wanted the folder of a training with a closed form, in "
            "trainings/ of a study's runs, or one that `foveapool fit` wrote to"
        )
    if len(found) > 1:
        raise ValueError(
            f"{source}: got {', '.join(each.name for each in found)}, wanted one; name a layer"
        )
    return found[0]


def _find_of_earlier_layer(folder: Path, layer: int) -> Path | None:
    """The training of which a layer before a training's last one was the last; None if none."""
    try:
        training = _read_facts(folder)
    except (OSError, ValueError):
        return None
    while (before := training.fitted_on) is not None:
        training = before
        if training.setting.pools and training.setting.pools[-1].layer == layer:
            return folder.parent / training.name
    return None


def pool_both_ways(
    path: Path,
    images: int = 1000,
    placement: str | None = None,
    data_root: Path | None = None,
    device: str | None = None,
) -> PooledMaps:
    """The maps of the first test images at the layer of the operator in file `path`.

    `placement` is that of `load_fit_network`.
    """
    operator, means = PoolingOperator.load(path), ExecutionOptions(data_root=data_root)
    network, data, module = load_fit_network(path, means, placement)
    chosen = choose_device(device)
    sample = read_sample_maps(network, data, module, device, images)

    def pooled(pooling: Callable[[Tensor], Tensor]) -> Tensor:
        return torch.cat([pooling(part.to(chosen)).cpu() for part in sample.maps.split(500)])

    with eval_mode(network):
        default = pooled(network.get_submodule(module))
        learned = pooled(operator.module().to(chosen))
    return PooledMaps(default, learned, sample.labels, sample.classes)


RUN_NOTE = "run.json"


RUN_FACTS = ("network", "data", "width", "seed", "data_seed")


def read_data_options(facts: Mapping[str, Any]) -> dict[str, Any]:
    """How the data of such a run were asked for, beside their name and seed."""
    return {"size": facts["size"]} if "size" in facts else {}


def read_run(folder: Path) -> dict[str, Any]:
    """What `foveapool train` noted of its network and data."""
    path = folder / RUN_NOTE
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file, wanted a run folder of `foveapool train`")
    try:
        facts = read_json(path)
        if missing := [name for name in RUN_FACTS if name not in facts]:
            raise ValueError(f"got no {', no '.join(missing)}")
    except ValueError as error:
        raise ValueError(
            f"{path}: {error}; wanted the note that `foveapool train` wrote: train again into "
            "this folder"
        ) from error
    return facts
