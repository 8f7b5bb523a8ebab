"""What an adapter's file has to hold, checked before the network or memory is touched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from foveapool.pooling.mixing import ChannelMixing
from foveapool.pooling.storage import check_numbers, check_types
from foveapool.surgery.wrapper import OnResize

_LAYER = {
    "names": list[str],
    "pool": str,
    "mode": str,
    "in_shape": list[int],
    "out_shape": list[int],
    "trainable": bool,
    "on_resize": OnResize,
    "project": bool,
    "original": dict[str, Any],
    "read_shape": list[int] | None,
}
_MIXING = {"components": int, "groups": int, "bias": bool}
_CHANNELS = {"in_channels": int, "out_channels": int}


def check_layers(header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> list[dict[str, Any]]:
    """The facts of the layers; what is wrong with them or with the numbers is raised.

    As whatever error it comes to: callers tell it with the file's name.
    """
    check_types(header, {"layers": list[dict[str, Any]]})
    check_numbers(tensors)
    layers: list[dict[str, Any]] = header["layers"]
    for layer in layers:
        check_types(layer, _LAYER)
        if not layer["names"]:
            raise ValueError("names: got none, wanted those of a layer")
        if layer["project"]:
            _check_projection(layer, tensors)
        if "mixing" in layer:
            check_types(layer["mixing"], _MIXING)
            check_types(layer["original"], _CHANNELS)
    return layers


def _check_projection(layer: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Raises unless the 1x1 convolution behind a pooling is the one that `replace` will make."""
    check_types(layer["original"], _CHANNELS)
    name, original = layer["names"][0], layer["original"]
    components = tensors[f"{layer['pool']}.weight"].shape[0]
    ones = (1,) * len(layer["in_shape"])
    weight = (original["out_channels"], components * original["in_channels"], *ones)
    biased = bool(original.get("bias", f"project.{name}.bias" in tensors))
    for key, wanted in {"weight": weight, **({"bias": weight[:1]} if biased else {})}.items():
        found = tuple(tensors[f"project.{name}.{key}"].shape)
        if found != wanted:
            raise ValueError(f"got the tensor project.{name}.{key} of {found}, wanted {wanted}")


def get_mixing_shapes(layer: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The shapes of a mixing's numbers by what the file says of it; nothing is allocated."""
    original = layer["original"]
    with torch.device("meta"):
        mixing = ChannelMixing(original["in_channels"], original["out_channels"], **layer["mixing"])
    return {key: tuple(value.shape) for key, value in mixing.state_dict().items()}
