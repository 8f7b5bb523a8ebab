"""Maps of one layer, pooled twice: by the network itself, and by an operator.

The operator's file lies in the folder of a study's training or of `foveapool train`; the network
is the one it was fitted on, so both poolings are given the same maps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from foveapool.cli.trained import trained_network
from foveapool.modes import evaluating
from foveapool.pooling.operator import PoolingOperator
from foveapool.runs import TRAINING, read_json
from foveapool.study.maps import layer_of, network_of_fit, sample_maps
from foveapool.study.training import Means, Training
from foveapool.training.parallel import chosen_device


@dataclass(frozen=True, eq=False)
class PooledMaps:
    """Test images' maps (n, C, h, w) as the network pools them itself and as the operator does."""

    default: Tensor
    learned: Tensor
    labels: Tensor  # (n,)
    classes: tuple[str, ...]


def operator_file(source: Path, layer: int | None = None) -> Path:
    """The operator's file that `source` is or, as the only one or that of a layer, has in it."""
    if source.is_file():
        return source
    if not source.is_dir():
        raise FileNotFoundError(f"{source}: no such file or folder, wanted a run or an operator")
    wanted = "operator*.safetensors" if layer is None else f"operator-{layer}.safetensors"
    found = sorted(source.glob(wanted))
    if not found:
        if layer is not None and (other := _of_earlier_layer(source, layer)) is not None:
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


def _of_earlier_layer(folder: Path, layer: int) -> Path | None:
    """The training of which a layer before a training's last one was the last; None if none."""
    try:
        training = Training.from_facts(read_json(folder / TRAINING))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    while (before := training.fitted_on) is not None:
        training = before
        if training.setting.pools and training.setting.pools[-1].layer == layer:
            return folder.parent / training.name
    return None


def pooled_maps(
    path: Path,
    images: int = 1000,
    placement: str | None = None,
    data_root: Path | None = None,
    device: str | None = None,
) -> PooledMaps:
    """The maps of the first test images at the layer of the operator in file `path`.

    `placement` says where in a residual block the operator of a `foveapool train` folder goes; a
    study's training knows.
    """
    operator, layer = PoolingOperator.load(path), layer_of(path)
    network: Any
    if (path.parent / TRAINING).is_file():
        if placement is not None:
            raise ValueError(
                f"placement: got {placement!r} for {path.parent}, a training of a study, which "
                "knows its own; leave it out"
            )
        network, data, module = network_of_fit(path, Means(data_root=data_root))
    else:
        trained = trained_network(path.parent, data_root)
        network, data = trained.network, trained.data
        module = network.site(layer, placement).module
    place = chosen_device(device)
    sample = sample_maps(network, data, module, device, images)

    def pooled(pooling: Callable[[Tensor], Tensor]) -> Tensor:
        return torch.cat([pooling(part.to(place)).cpu() for part in sample.maps.split(500)])

    with evaluating(network):
        default = pooled(network.get_submodule(module))
        learned = pooled(operator.module().to(place))
    return PooledMaps(default, learned, sample.labels, sample.classes)
