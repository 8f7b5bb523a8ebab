"""One file format for all that this package saves: safetensors with a JSON header.

Nothing is ever unpickled. A reader finds the old file or the new one, never half of one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from foveapool.files import replacing

FORMAT_VERSION = 1
# What a folder with a saved fit has in it, and one with an adapter.
FIT_NOTE = "estimator.json"
ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_HEADER = "foveapool"


def save_tensors(
    path: str | os.PathLike[str], kind: str, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]
) -> None:
    """Writes `tensors` and the JSON-able `facts` to `path` as a file of the given kind."""
    path = Path(path)
    header = {"kind": kind, "format_version": FORMAT_VERSION, **facts}
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with replacing(path) as temporary:
        try:
            save_file(plain, temporary, metadata={_HEADER: json.dumps(header)})
        except SafetensorError as error:
            raise OSError(f"{path}: {error}") from error


def load_tensors(
    path: str | os.PathLike[str], kind: str, device: torch.device | str = "cpu"
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors, on `device`, and facts of a file that `save_tensors` wrote for that kind."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path}: no such file, wanted a foveapool {kind} file")
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            header = json.loads((file.metadata() or {}).get(_HEADER, "null"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, json.JSONDecodeError, UnicodeDecodeError, OSError) as error:
        raise ValueError(
            f"{path}: not a whole safetensors file ({error}); wanted a foveapool {kind} file: "
            "copy it again or make it anew"
        ) from error
    if not isinstance(header, dict) or header.get("kind") != kind:
        found = header.get("kind") if isinstance(header, dict) else "no foveapool header"
        raise ValueError(f"{path}: got {found}, wanted a foveapool {kind} file")
    if header.get("format_version") != FORMAT_VERSION:
        raise ValueError(
            f"{path}: got format version {header.get('format_version')}, wanted {FORMAT_VERSION}; "
            "read it with the version of foveapool that wrote it"
        )
    return tensors, header
