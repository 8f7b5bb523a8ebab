"""The replaced layers of a network as a small adapter on disk.

Two files, as PEFT has them: `adapter_config.json` says which layers gave way to what,
`adapter_model.safetensors` holds the poolings' numbers. The network's own weights stay its owner's
business; nothing is pickled and no training code is needed to load.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from foveapool.files import made_folder, write_text
from foveapool.pooling.module import LinearPool2d
from foveapool.pooling.storage import load_tensors, save_tensors
from foveapool.surgery.names import standins
from foveapool.surgery.replace import Change, Replacement, check_pool, replace
from foveapool.surgery.standin import StandIn
from foveapool.surgery.visit import module_named, unwrapped

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


def save(model: nn.Module, folder: str | os.PathLike[str]) -> None:
    """Writes the replaced layers of `model` into `folder`."""
    places = standins(unwrapped(model))
    if not places:
        raise ValueError("model: got no replaced layer, wanted one at least; call replace first")
    folder = made_folder(folder, "an adapter")
    tensors: dict[str, Tensor] = {}
    pools: dict[LinearPool2d, str] = {}
    layers = []
    for standin, names in places.items():
        pool = standin.pool
        if not isinstance(pool, LinearPool2d):
            raise ValueError(f"{names[0]}: got a {type(pool).__name__}, wanted a LinearPool2d")
        key = pools.setdefault(pool, f"pool.{len(pools)}")
        tensors[f"{key}.weight"] = pool.weight
        if pool.mean is not None:
            tensors[f"{key}.mean"] = pool.mean
        if standin.project is not None:
            state = standin.project.state_dict()
            tensors |= {f"project.{names[0]}.{k}": v for k, v in state.items()}
        layers.append({"names": names, "pool": key, **_described(standin, pool)})
    facts: dict[str, Any] = {"layers": layers}
    save_tensors(folder / WEIGHTS, "adapter", tensors, facts)
    write_text(folder / CONFIG, json.dumps({"kind": "foveapool adapter", **facts}, indent=1))


def _described(standin: StandIn, pool: LinearPool2d) -> dict[str, Any]:
    return {
        "mode": standin.mode,
        "in_shape": list(pool.in_shape),
        "out_shape": list(pool.out_shape),
        "trainable": pool.trainable,
        "on_resize": standin.on_resize,
        "project": standin.project is not None,
        "original": _identity(standin.original),
        "read_shape": None if standin.read_shape is None else list(standin.read_shape),
    }


def _identity(layer: nn.Module) -> dict[str, Any]:
    """What a layer of the same kind of network has in common with this one."""
    facts: dict[str, Any] = {"kind": type(layer).__name__}
    if isinstance(layer, nn.Conv2d):
        facts |= {"in_channels": layer.in_channels, "out_channels": layer.out_channels}
    return facts


def load(
    model: nn.Module, folder: str | os.PathLike[str], *, optimizer: Optimizer | None = None
) -> Replacement:
    """Replaces the layers of a fresh network of the same kind by those in `folder`.

    The network is left untouched if the adapter does not fit it.
    """
    folder = Path(folder)
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder / name}: no such file, wanted an adapter's folder")
    tensors, header = load_tensors(folder / WEIGHTS, "adapter")
    layers = header["layers"]
    if _config(folder / CONFIG) != layers:
        raise ValueError(
            f"{folder}: {CONFIG} and {WEIGHTS} belong to different adapters; save it again"
        )
    pools = _pools(tensors, layers)
    for layer in layers:
        _check_fits(unwrapped(model), layer, pools[layer["pool"]], folder)
    changes: list[Change] = []
    sizes: list[int] = []
    for layer in layers:
        done = replace(
            model,
            {layer["names"][0]: pools[layer["pool"]]},
            mode=layer["mode"],
            optimizer=optimizer,
            on_resize=layer["on_resize"],
            in_shapes={layer["names"][0]: layer["read_shape"]},
        )
        changes += done.changes
        sizes += done.parameters
        project = changes[-1].new.project
        if project is not None:
            stem = f"project.{layer['names'][0]}"
            state = {k: tensors[f"{stem}.{k}"] for k in project.state_dict()}
            project.load_state_dict(state)
    return Replacement(tuple(changes), (sizes[0], sizes[-1]))


def _config(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8")).get("layers")
    except (json.JSONDecodeError, UnicodeDecodeError, AttributeError) as error:
        raise ValueError(f"{path}: not a foveapool adapter's configuration ({error})") from error


def _check_fits(model: nn.Module, layer: dict[str, Any], pool: LinearPool2d, folder: Path) -> None:
    for name in layer["names"]:
        try:
            module = module_named(model, name)
        except ValueError as error:
            raise ValueError(f"{folder}: an adapter for another network: {error}") from error
        if not isinstance(module, StandIn) and _identity(module) != layer["original"]:
            raise ValueError(
                f"{folder}: an adapter for another network: {name} is {_identity(module)}, wanted "
                f"{layer['original']}"
            )
        check_pool(name, module, pool, layer["mode"])


def _pools(tensors: dict[str, Tensor], layers: list[dict[str, Any]]) -> dict[str, LinearPool2d]:
    pools = {}
    for layer in layers:
        key = layer["pool"]
        weight, mean = tensors[f"{key}.weight"], tensors.get(f"{key}.mean")
        pools[key] = LinearPool2d(
            weight,
            mean,
            in_shape=layer["in_shape"],
            out_shape=layer["out_shape"],
            trainable=layer["trainable"],
            dtype=weight.dtype,
        )
    return pools
