"""A small network with replaced layers, and its adapter in a folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch import nn

import foveapool as fp
from foveapool import ClosedFormPooling

from .toys import MAIN, POOL, SHORTCUT, loader, toy

LAYERS = [MAIN, SHORTCUT, POOL]
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
modes = pytest.mark.parametrize("mode", ["replace", "after"])


def fitted(mode: str = "replace", **more: object) -> nn.Module:
    model = toy()
    settings = {"components": more.pop("components", None)}
    layers = more.pop("layers", LAYERS)
    ClosedFormPooling(**settings).fit(model, loader(), layers, mode).replace(model, **more)
    return model


def saved(folder: Path, mode: str = "replace", **more: object) -> nn.Module:
    model = fitted(mode, **more)
    fp.save(model, folder)
    return model
