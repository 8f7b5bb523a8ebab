"""What makes two trainings the same: recipe, seed, data, and the network they start from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from foveapool.data.images import DataSet
from foveapool.training.recipe import Recipe

STRUCTURE = "network.structure"  # names of tensors, and the network as torch prints it


def configuration(network: nn.Module, data: DataSet, recipe: Recipe, seed: int) -> dict[str, Any]:
    """A flat dict that JSON can hold; equal for two trainings that must end alike on one machine.

    The network's numbers, a fitted pooling among them, are part of it, and so are the images.
    """
    tensors = network.state_dict()
    values = {**recipe.as_dict(), "pooling_rate": recipe.pooling_rate}
    augmentation = None if data.augmentation is None else asdict(data.augmentation)
    return {
        **{f"recipe.{key}": value for key, value in values.items()},
        "seed": seed,
        "network": type(network).__name__,
        "network.parameters": sum(p.numel() for p in network.parameters()),
        STRUCTURE: _digest([json.dumps(sorted(tensors)).encode(), str(network).encode()]),
        "network.start": _digest(_bytes(tensor) for tensor in tensors.values()),
        "data": data.name,
        "data.train": len(data.train),
        "data.test": len(data.test),
        "data.augmentation": augmentation,
        **shown_images(data),
    }


def shown_images(data: DataSet) -> dict[str, Any]:
    """What of the data decides what a trained network is shown, and how it is judged.

    The name is no part of it: images may be moved, and others may come to lie in their place.
    """
    return {
        "data.normalisation": data.normalisation,
        "data.content": _digest(
            _bytes(tensor)
            for part in (data.train, data.test)
            for tensor in (part.images, part.labels)
        ),
    }


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """What differs between the configuration of a folder and the one asked for, in words."""
    keys = [*here, *(key for key in there if key not in here)]
    return [
        f"{key} is {there.get(key)} there and {here.get(key)} here"
        for key in keys
        if there.get(key) != here.get(key)
    ]


def _bytes(tensor: Tensor) -> memoryview:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


def _digest(parts: Iterable[bytes | memoryview]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update(part)
    return digest.hexdigest()
