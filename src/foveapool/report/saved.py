"""What the library itself saves, by the names of the layers: folders of fits, and adapters.

`ClosedFormPooling.save` numbers its files as they come and notes in `estimator.json` whose they
are; `foveapool.save` leaves the weights of replaced layers. Networks are not touched here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from foveapool.pooling.grid import Centre
from foveapool.pooling.module import LinearPool2d, usual_centre
from foveapool.pooling.storage import (
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    FIT_NOTE,
    load_tensors,
)
from foveapool.runs import read_json


@dataclass(frozen=True)
class SavedFit:
    """The files of a fit by layer, and its settings in words.

    Layers that read one tensor and shrink it alike share a file.
    """

    operators: dict[str, Path]
    scatters: dict[str, Path]
    settings: tuple[tuple[str, str], ...]
    centre: Centre

    def layers(self, path: Path) -> list[str]:
        """The names of the layers whose operator or scatter is in a file."""
        kinds = (self.operators, self.scatters)
        return [name for files in kinds for name, file in files.items() if file == path]


def saved_fit(folder: Path) -> SavedFit | None:
    """What `ClosedFormPooling.save` noted in a folder; None where it did not save there."""
    path = folder / FIT_NOTE
    if not path.is_file():
        return None
    try:
        note = read_json(path)
        told = {"mode": note["mode"], **note["settings"]}
        return SavedFit(
            {name: folder / file for name, file in note["operators"].items()},
            {name: folder / file for name, file in note["scatters"].items()},
            tuple((k.replace("_", " "), str(v)) for k, v in told.items() if v is not None),
            told["centre"] or usual_centre(note["mode"]),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(
            f"{path}: {error!r}; wanted what ClosedFormPooling.save wrote: save the fit again"
        ) from error


def adapter_folder(path: Path) -> Path | None:
    """The folder of the adapter that `path` is, as a folder or one of its files, if it is one."""
    if path.is_file() and path.name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS):
        return path.parent
    return path if (path / ADAPTER_CONFIG).is_file() else None


def adapter_pools(folder: Path) -> dict[str, LinearPool2d]:
    """The poolings of an adapter by the names of the layers, as they were when it was saved."""
    path = folder / ADAPTER_WEIGHTS
    tensors, header = load_tensors(path, "adapter")
    try:
        found: dict[str, LinearPool2d] = {}
        pools: dict[str, LinearPool2d] = {}
        for layer in header["layers"]:
            key = layer["pool"]
            if key not in pools:
                shapes = {"in_shape": layer["in_shape"], "out_shape": layer["out_shape"]}
                pools[key] = LinearPool2d(tensors[f"{key}.weight"], **shapes)
                pools[key].fitted_for = layer["mode"]
            found |= dict.fromkeys(layer["names"], pools[key])
        return found
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"{path}: {error!r}; wanted what foveapool.save wrote: save the adapter again"
        ) from error
