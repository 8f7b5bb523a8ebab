"""The replaced layers of a network as a small adapter on disk.

Two files, as PEFT has them: `adapter_config.json` says which layers gave way to what,
`adapter_model.safetensors` says it too and holds the poolings' numbers. It decides: whoever is
killed between the two files has saved the new adapter. The network's own weights stay its owner's
business; nothing is pickled and no training code is needed to load. A model card, README.md, says
the same to people.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from foveapool._io import clear_leftovers, hold_folder, make_folder, read_json, write_text
from foveapool.pooling.mixing import ChannelMixing, MixingPool
from foveapool.pooling.module import LinearPool
from foveapool.pooling.storage import ADAPTER_CONFIG as CONFIG
from foveapool.pooling.storage import ADAPTER_WEIGHTS as WEIGHTS
from foveapool.pooling.storage import explain_damage, load_tensors, save_tensors
from foveapool.surgery.adapter_contents import check_layers, get_mixing_shapes
from foveapool.surgery.find import find_pooled_layers, unwrap_network
from foveapool.surgery.forward import get_module
from foveapool.surgery.geometry import CONVOLUTIONS, as_sizes, get_stride
from foveapool.surgery.replace import Change, Replacement, replace
from foveapool.surgery.sharing import (
    FILES,
    HUB,
    check_repository,
    fetch_adapter,
    upload_adapter,
    write_card,
)
from foveapool.surgery.wrapper import PooledLayer, check_mode, check_pool, check_stage

# What may stand behind a pooling: a 1x1 convolution in mode `replace`, or in mode `mix`.
FOLLOWERS = ("project", "mixing")


def save(
    model: nn.Module,
    folder: str | os.PathLike[str],
    *,
    data: str | None = None,
    figures: Mapping[str, object] | None = None,
) -> None:
    """Writes the replaced layers of a network into a folder; equal poolings are written once.

    The network's own weights are not in it: save these as you always do. A model card, README.md,
    says what was replaced and what each layer was fitted on; one that you wrote yourself stays.

    Args:
        model: A network in which `replace` has put linear poolings.
        folder: Where to; it is made if it is not there.
        data: For the card: which images these were, in a sentence.
        figures: For the card: what came of it, such as {"test error, %": 12.8}.

    Raises:
        ValueError: If no layer is replaced, or a pooling is no linear one.

    Example:
        >>> import tempfile
        >>> from foveapool import LinearPool2d, replace
        >>> model, fresh = (nn.Sequential(nn.Conv2d(3, 6, 3, 2, 1)) for _ in range(2))
        >>> changed = replace(model, {"0": LinearPool2d.average((8, 8), (4, 4), components=2)})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save(model, folder)
        ...     print(load(fresh, folder))
        0: Conv2d -> replace LinearPool2d((8, 8) -> (4, 4), components=2, trainable=False)
        parameters: 168 -> 0
    """
    layers = _write_adapter(model, folder)
    write_card(Path(folder), layers, _name_network(model), data, figures)


def push(
    model: nn.Module,
    name: str,
    *,
    data: str | None = None,
    figures: Mapping[str, object] | None = None,
    private: bool = False,
    message: str = "Save the poolings",
) -> str:
    """Saves the replaced layers of a network on the Hugging Face Hub, card included.

    Needs the extra `hub` and a token, as `hf auth login` leaves it. HF_ENDPOINT names another
    server.

    Args:
        model: As for `save`.
        name: The repository, "user/name"; it is made if it is not there.
        data: As for `save`.
        figures: As for `save`.
        private: Whether a repository that is made is for you alone.
        message: What the commit says.

    Returns:
        The address of the repository's page; `load(model, "hf://user/name")` reads it.

    Raises:
        ValueError: If the name is none, or as for `save`.
        ImportError: If huggingface_hub is not installed.

    Example:
        >>> push(nn.Sequential(nn.Conv2d(3, 6, 3, 2, 1)), "me/digits")
        Traceback (most recent call last):
        ...
        ValueError: model: got no replaced layer, wanted one at least; call replace first
    """
    name = check_repository(name)
    with tempfile.TemporaryDirectory() as folder:
        layers = _write_adapter(model, folder)
        write_card(Path(folder), layers, _name_network(model), data, figures, HUB + name)
        return upload_adapter(Path(folder), name, private, message)


def _name_network(model: nn.Module) -> str:
    return type(unwrap_network(model)).__name__


def _write_adapter(model: nn.Module, folder: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Writes what `load` reads; gives the facts of the layers."""
    places = find_pooled_layers(unwrap_network(model))
    if not places:
        raise ValueError("model: got no replaced layer, wanted one at least; call replace first")
    for standin, names in places.items():
        if not isinstance(standin.pool, LinearPool):
            raise ValueError(
                f"{names[0]}: got a {type(standin.pool).__name__}, wanted a linear pooling, "
                "which is all that an adapter holds; save the network's state_dict instead"
            )
    folder = make_folder(folder, "an adapter")
    tensors: dict[str, Tensor] = {}
    pools: dict[str, LinearPool] = {}
    layers = []
    for standin, names in places.items():
        pool = standin.pool
        key = next(
            (k for k, other in pools.items() if _are_equal(other, pool)), f"pool.{len(pools)}"
        )
        pools.setdefault(key, pool)
        tensors |= {f"{key}.{k}": v for k, v in _list_tensors(pools[key]).items()}
        for part in FOLLOWERS:
            follower: nn.Module | None = getattr(standin, part)
            if follower is not None:
                state = follower.state_dict()
                tensors |= {f"{part}.{names[0]}.{k}": v for k, v in state.items()}
        layers.append({"names": names, "pool": key, **_describe_layer(standin, pool)})
    facts: dict[str, Any] = {"layers": layers}
    config = json.dumps({"kind": "foveapool adapter", **facts}, indent=1)
    with hold_folder(folder):
        for name in FILES:
            clear_leftovers(folder / name)
        before = {"replaces": _digest_config(folder)} if (folder / CONFIG).is_file() else {}
        save_tensors(folder / WEIGHTS, "adapter", tensors, facts | before)
        write_text(folder / CONFIG, config)
    return layers


def _list_tensors(pool: LinearPool) -> dict[str, Tensor]:
    return {"weight": pool.weight} | ({} if pool.mean is None else {"mean": pool.mean})


def _are_equal(one: LinearPool, other: LinearPool) -> bool:
    """Whether two poolings hold the same numbers, as those of one fit do until they are trained."""
    ours, theirs = _list_tensors(one), _list_tensors(other)
    alike = (one.window, one.center) == (other.window, other.center)
    return (
        alike
        and ours.keys() == theirs.keys()
        and all(
            (ours[key].dtype, ours[key].device) == (theirs[key].dtype, theirs[key].device)
            and torch.equal(ours[key], theirs[key])
            for key in ours
        )
    )


def _describe_layer(standin: PooledLayer, pool: LinearPool) -> dict[str, Any]:
    role = standin.role
    mixing = None
    if standin.mixing is not None:
        own = standin.mixing
        mixing = {"components": own.components, "groups": own.groups}
        mixing["bias"] = own.bias is not None
    described = {
        "mode": role.mode,
        "in_shape": list(pool.in_shape),
        "out_shape": list(pool.out_shape),
        "components": pool.components,
        "trainable": pool.trainable,
        "fitted_on": pool.fitted_on,
        "on_resize": role.on_resize,
        "project": standin.project is not None,
        "original": _identify_layer(standin.original, pool.axes, standin),
        "read_shape": None if role.read_shape is None else list(role.read_shape),
    }
    if pool.window is not None:
        described |= {"window": pool.window, "center": pool.center}
    return described if mixing is None else described | {"mixing": mixing}


def _identify_layer(layer: nn.Module, axes: int, sizes: Any = None) -> dict[str, Any]:
    """What a layer of the same kind of network has in common with this one.

    `axes` are those of its maps; `sizes` has its kernel and stride as they were, by default the
    layer itself.
    """
    facts: dict[str, Any] = {"kind": type(layer).__name__}
    sizes = layer if sizes is None else sizes
    if isinstance(layer, CONVOLUTIONS):
        facts |= {"in_channels": layer.in_channels, "out_channels": layer.out_channels}
        facts |= {"groups": layer.groups, "bias": layer.bias is not None}
    if hasattr(sizes, "kernel_size"):
        facts["kernel_size"] = list(map(int, as_sizes(sizes.kernel_size, axes)))
    steps = get_stride(sizes, axes)
    return facts if steps is None else facts | {"stride": [int(step) for step in steps]}


def load(
    model: nn.Module, folder: str | os.PathLike[str], *, optimizer: Optimizer | None = None
) -> Replacement:
    """Replaces the layers of a fresh network of the same kind by those in a folder.

    The network is left untouched if the adapter does not fit it. `save` has an example.

    Args:
        model: The network, with the layers that gave way in the saved one.
        folder: What `save` wrote, or "hf://user/name" for what `push` wrote; "@revision" behind the
            name is a branch, a tag or a commit.
        optimizer: Loses the parameters that leave and gets those that come.

    Returns:
        What was changed.

    Raises:
        FileNotFoundError: If the folder or the repository holds no adapter.
        ValueError: If the adapter is damaged or belongs to another network.
    """
    address = os.fspath(folder)
    folder = fetch_adapter(address) if address.startswith(HUB) else Path(address)
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder / name}: no such file, wanted an adapter's folder")
    tensors, header = load_tensors(folder / WEIGHTS, "adapter")
    with explain_damage(folder / WEIGHTS, "save the adapter again"):
        layers = check_layers(header, tensors)
    # The older one, where whoever saved this adapter over it was killed before its last step.
    is_older = header.get("replaces") == _digest_config(folder)
    if not is_older and _read_config(folder / CONFIG) != layers:
        raise ValueError(
            f"{folder}: {CONFIG} and {WEIGHTS} belong to different adapters; save it again"
        )
    with explain_damage(folder, "save the adapter again"):
        pools = [_build_pooling(tensors, layer, folder) for layer in layers]
    for layer, pool in zip(layers, pools, strict=True):
        _check_fits(unwrap_network(model), layer, pool, folder)
    _check_shared(unwrap_network(model), layers, folder)
    changes: list[Change] = []
    sizes: list[int] = []
    for layer, pool in zip(layers, pools, strict=True):
        done = replace(
            model,
            {layer["names"][0]: pool},
            mode=layer["mode"],
            optimizer=optimizer,
            on_resize=layer["on_resize"],
            in_shapes={layer["names"][0]: layer["read_shape"]},
        )
        changes += [dataclasses.replace(each, origin="as it was saved") for each in done.changes]
        sizes += done.parameters
        project = changes[-1].new.project
        if project is not None:
            stem = f"project.{layer['names'][0]}"
            state = {k: tensors[f"{stem}.{k}"] for k in project.state_dict()}
            project.load_state_dict(state)
    return Replacement(tuple(changes), (sizes[0], sizes[-1]))


def _digest_config(folder: Path) -> str:
    with open(folder / CONFIG, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_config(path: Path) -> Any:
    try:
        return read_json(path).get("layers")
    except ValueError as error:
        raise ValueError(f"{path}: not a foveapool adapter's configuration ({error})") from error


def _check_fits(model: nn.Module, layer: dict[str, Any], pool: nn.Module, folder: Path) -> None:
    for name in layer["names"]:
        try:
            module = get_module(model, name)
        except ValueError as error:
            raise ValueError(f"{folder}: an adapter for another network: {error}") from error
        own, wanted = _identify_layer(module, len(layer["in_shape"])), dict(layer["original"])
        if layer["mode"] != "mix":
            # Only a mixing has the layer's groups, and only a 1x1 convolution its bias; without
            # one they do not matter.
            wanted.pop("groups", None)
            if not layer["project"]:
                wanted.pop("bias", None)
        # Adapters of earlier versions say less.
        if not isinstance(module, PooledLayer) and {key: own.get(key) for key in wanted} != wanted:
            raise ValueError(
                f"{folder}: an adapter for another network: {name} is {own}, wanted {wanted}"
            )
        check_pool(name, module, pool, layer["mode"])
        if layer["mode"] == "after" and not isinstance(module, PooledLayer):
            check_stage(model, name, module, pool, layer["read_shape"])


def _check_shared(model: nn.Module, layers: list[dict[str, Any]], folder: Path) -> None:
    """Raises unless the same names mean one and the same layer as where the adapter was saved."""
    modules = [{id(get_module(model, name)) for name in layer["names"]} for layer in layers]
    if any(len(each) > 1 for each in modules) or len(set().union(*modules)) < len(modules):
        names = "; ".join(" = ".join(layer["names"]) for layer in layers)
        raise ValueError(
            f"{folder}: an adapter for another network: its layers are {names}, and here others of "
            "them are one and the same"
        )


def _build_pooling(tensors: dict[str, Tensor], layer: dict[str, Any], folder: Path) -> nn.Module:
    """A layer's pooling, a module of its own even where the numbers are shared on disk.

    In mode `mix` with its mixing.
    """
    name, mode, key = layer["names"][0], layer["mode"], layer["pool"]
    try:
        check_mode(mode)
    except ValueError as error:
        raise ValueError(
            f"{folder}: {error}, for {name}; load it with the version of foveapool that saved it"
        ) from error
    if (mode == "mix") != ("mixing" in layer):
        raise ValueError(
            f"{folder}: got mode {mode!r} for {name} and {'a' if 'mixing' in layer else 'no'} "
            "mixing, wanted one in mode 'mix' and in no other; save it again"
        )
    weight = _get_tensor(tensors, f"{key}.weight", folder)
    pool = LinearPool.of(
        weight,
        tensors.get(f"{key}.mean"),
        in_shape=layer["in_shape"],
        out_shape=layer["out_shape"],
        trainable=layer["trainable"],
        dtype=weight.dtype,
        window=layer.get("window"),
        center=layer.get("center", "paper"),
    )
    pool.fitted_on = layer.get("fitted_on")
    if mode != "mix":
        return pool
    stem, sizes = f"mixing.{name}", layer["mixing"]
    mixed = _get_tensor(tensors, f"{stem}.weight", folder)
    state = {"weight": mixed}
    if sizes["bias"]:
        state["bias"] = _get_tensor(tensors, f"{stem}.bias", folder)
    original = layer["original"]
    wanted = get_mixing_shapes(layer)
    got = {key: tuple(value.shape) for key, value in state.items()}
    if got != wanted or sizes["components"] != pool.components:
        raise ValueError(
            f"{folder}: got a mixing of {got} behind {pool.components} components for {name}, "
            f"wanted {wanted}; it is damaged: save it again"
        )
    mixing = ChannelMixing(original["in_channels"], original["out_channels"], **sizes)
    mixing.to(mixed.dtype).load_state_dict(state)
    return MixingPool(pool, mixing)


def _get_tensor(tensors: dict[str, Tensor], name: str, folder: Path) -> Tensor:
    if name not in tensors:
        raise ValueError(f"{folder / WEIGHTS}: got no {name}, wanted it; save the adapter again")
    return tensors[name]
