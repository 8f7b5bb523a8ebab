"""Adapters for others: the model card beside an adapter, and the way to the Hugging Face Hub.

`adapter.py` says what an adapter is; here is what people read of it, and how its files travel.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from foveapool._io import write_text
from foveapool._suggest import how_to_install
from foveapool.pooling.storage import ADAPTER_CONFIG, ADAPTER_WEIGHTS

CARD = "README.md"
HUB = "hf://"
FILES = (ADAPTER_CONFIG, ADAPTER_WEIGHTS, CARD)
# A card with this line is ours and is written again; one without it is its reader's own.
_OURS = "<!-- This page was written by foveapool.save; without this line it stays as it is. -->"
_FORMS = {
    "replace": "the pooling instead of the layer",
    "mix": "the pooling and a 1x1 convolution instead of the layer",
    "after": "the layer at stride 1, then the pooling",
}


def write_card(
    folder: Path,
    layers: Sequence[Mapping[str, Any]],
    network: str,
    data: str | None = None,
    figures: Mapping[str, object] | None = None,
    address: str = "",
) -> None:
    """Writes the model card of an adapter, unless somebody has written one of their own there."""
    path = folder / CARD
    if path.exists() and _OURS not in path.read_text("utf-8", errors="replace"):
        return
    write_text(path, make_card(layers, network, data, figures, address or folder.name))


def make_card(
    layers: Sequence[Mapping[str, Any]],
    network: str,
    data: str | None,
    figures: Mapping[str, object] | None,
    address: str,
) -> str:
    """The text of a model card: what was replaced, on what it was fitted, what came of it."""
    lines = [
        "---",
        "library_name: foveapool",
        "tags: [foveapool, pooling, adapter]",
        "---",
        "",
        _OURS,
        "",
        f"# Learned poolings for {_plain(network)}",
        "",
        "Poolings that foveapool computed from data in closed form, as an adapter. The network's "
        "own weights are not in it.",
        "",
        "## What was replaced",
        "",
        "| layer | was | is now | maps | components | P |",
        "| --- | --- | --- | --- | --- | --- |",
        *map(_describe_line, layers),
        "",
        "## Fitted on",
        "",
    ]
    fitted = dict.fromkeys(layer["fitted_on"] for layer in layers if layer.get("fitted_on"))
    said = ([_plain(data)] if data else []) + [f"- {each}" for each in fitted]
    lines += said or ["Not said."]
    if figures:
        lines += ["", "## Figures", "", "| what | value |", "| --- | --- |"]
        lines += [f"| {_plain(name)} | {_plain(value)} |" for name, value in figures.items()]
    return "\n".join([*lines, "", "## Use", "", *_describe_use(layers, address), ""])


def _describe_line(layer: Mapping[str, Any]) -> str:
    sizes = " to ".join(" x ".join(map(str, layer[key])) for key in ("in_shape", "out_shape"))
    cells = [", ".join(layer["names"]), layer["original"]["kind"], _FORMS[layer["mode"]], sizes]
    cells += [layer["components"], "trains" if layer["trainable"] else "is fixed"]
    return f"| {' | '.join(map(_plain, cells))} |"


def _describe_use(layers: Sequence[Mapping[str, Any]], address: str) -> list[str]:
    moved = [name for layer in layers for name in layer["names"] if _is_moved(layer)]
    first = ["# first fp.move_stride, as there, for: " + ", ".join(moved)] if moved else []
    return [
        "```python",
        "import foveapool as fp",
        "",
        "model = ...  # a network of the same kind, with its own weights",
        *first,
        f'print(fp.load(model, "{address}"))',
        "```",
    ]


def _is_moved(layer: Mapping[str, Any]) -> bool:
    """Whether a layer is what `move_stride` puts into a network."""
    kind: str = layer["original"]["kind"]
    return kind.startswith("Subsampling")


def _plain(value: object) -> str:
    """Text for one cell of a table: one line, no column of its own."""
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return " ".join(text.split()).replace("|", "\\|")


def fetch_adapter(address: str) -> Path:
    """The folder into which the files of `hf://user/name` or `hf://user/name@revision` came."""
    hub = _import_hub()
    name, _, revision = _check_name(address.removeprefix(HUB)).partition("@")
    try:
        # One commit for all files, and none but those that an adapter has.
        folder = hub.snapshot_download(
            name,
            revision=revision or None,
            allow_patterns=list(FILES),
            library_name="foveapool",
            endpoint=_find_endpoint(),
        )
    except hub.errors.RepositoryNotFoundError as error:
        raise FileNotFoundError(
            f"{address}: no such repository, or none that you may read; wanted hf://user/name of "
            "one that foveapool.push wrote; `hf auth login` gives you access to your own"
        ) from error
    except hub.errors.RevisionNotFoundError as error:
        raise FileNotFoundError(
            f"{address}: got no revision {revision}, wanted a branch, a tag or a commit"
        ) from error
    return Path(folder)


def upload_adapter(folder: Path, name: str, private: bool, message: str) -> str:
    """Puts the files of an adapter into a repository, made if it is not there; gives its page."""
    hub = _import_hub()
    api = hub.HfApi(endpoint=_find_endpoint(), library_name="foveapool")
    page = api.create_repo(name, private=private, exist_ok=True)
    api.upload_folder(
        repo_id=name, folder_path=folder, commit_message=message, allow_patterns=list(FILES)
    )
    return str(page)


def check_repository(name: str) -> str:
    """A repository's name without "hf://"; ValueError unless it is user/name."""
    plain = _check_name(name.removeprefix(HUB))
    if "@" in plain:
        raise ValueError(f"name: got {name!r}, wanted user/name without a revision to write to")
    return plain


def _check_name(name: str) -> str:
    parts = name.partition("@")[0].split("/")
    if len(parts) != 2 or not all(parts):
        raise ValueError(
            f"name: got {name!r}, wanted user/name, as in the address of a repository on the Hub"
        )
    return name


def _find_endpoint() -> str | None:
    """Another server than the public one, if the environment names one."""
    return os.environ.get("HF_ENDPOINT") or None


def _import_hub() -> Any:
    try:
        import huggingface_hub
        import huggingface_hub.errors
    except ImportError as error:
        raise ImportError(
            f"huggingface_hub: not installed ({error}), wanted it for hf:// addresses; "
            f"{how_to_install('hub')}"
        ) from error
    return huggingface_hub
