"""One file format for all that this package saves: safetensors with a JSON header.

Nothing is ever unpickled. A reader finds the old file or the new one, never half of one, and the
SHA-256 beside the header says whether it is as it was written; files of before had none.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from foveapool._io import parse_json, replace_file

FORMAT_VERSION = 1
# What a folder with a saved fit has in it, and one with an adapter.
FIT_NOTE = "estimator.json"
ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_HEADER, _SHA256 = "foveapool", "foveapool.sha256"
_OF_EVERY_FILE = ("kind", "format_version")

# For each tensor its sizes; one with a name may be any, but is the same wherever it stands.
Shapes = Mapping[str, Sequence[int | str]]


def save_tensors(
    path: str | os.PathLike[str], kind: str, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]
) -> None:
    """Writes `tensors` and the JSON-able `facts` to `path` as a file of the given kind."""
    path = Path(path)
    header = json.dumps({"kind": kind, "format_version": FORMAT_VERSION, **facts})
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    metadata = {_HEADER: header, _SHA256: _digest_contents(header, plain)}
    with replace_file(path) as temporary:
        try:
            save_file(plain, temporary, metadata=metadata)
        except SafetensorError as error:
            # It names a file of its own, which is gone by now.
            why = str(error).split(" at path ")[0]
            raise OSError(f"{path}: could not be written ({why})") from error


def load_tensors(
    path: str | os.PathLike[str], kind: str, device: torch.device | str = "cpu"
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors, on `device`, and facts of a file that `save_tensors` wrote for that kind."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path}: no such file, wanted a foveapool {kind} file")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            text = metadata.get(_HEADER, "null")
            header = parse_json(text, "its header")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, ValueError, OSError) as error:
        raise ValueError(
            f"{path}: not a whole safetensors file ({error}); wanted a foveapool {kind} file: "
            "copy it again or make it anew"
        ) from error
    if not isinstance(header, dict) or header.get("kind") != kind:
        found = header.get("kind") if isinstance(header, dict) else "no foveapool header"
        raise ValueError(
            f"{path}: got {found}, wanted a foveapool {kind} file; give the path of one that "
            "foveapool saved"
        )
    if header.get("format_version") != FORMAT_VERSION:
        raise ValueError(
            f"{path}: got format version {header.get('format_version')}, wanted {FORMAT_VERSION}; "
            "read it with the version of foveapool that wrote it"
        )
    # The name of the SHA-256 may be what was damaged.
    if others := metadata.keys() - {_HEADER, _SHA256}:
        raise ValueError(
            f"{path}: got {min(others)!r} beside its header, wanted {_SHA256} alone: copy it again "
            "or make it anew"
        )
    if metadata.get(_SHA256, wanted := _digest_contents(text, tensors)) != wanted:
        raise ValueError(
            f"{path}: got contents that are not those of its SHA-256, wanted the file as it was "
            "written: copy it again or make it anew"
        )
    return {name: tensor.to(device) for name, tensor in tensors.items()}, header


def _digest_contents(header: str, tensors: Mapping[str, Tensor]) -> str:
    return digest_tensors(sorted(tensors.items()), header.encode())


def digest_tensors(named: Iterable[tuple[str, object]], known: bytes = b"") -> str:
    """Tells tensors apart by names, types, sizes and numbers; what is no tensor by its name."""
    digest = hashlib.sha256(known)
    for name, tensor in named:
        digest.update(name.encode())
        if isinstance(tensor, Tensor):
            add_to_digest(digest, tensor)
    return digest.hexdigest()


def add_to_digest(digest: hashlib._Hash, tensor: Tensor) -> None:
    """Adds the type, the sizes and the numbers of a tensor."""
    plain = tensor.detach().cpu().contiguous().reshape(-1)
    digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
    digest.update(plain.view(torch.uint8).numpy().data)


def check_contents(
    path: str | os.PathLike[str],
    tensors: Mapping[str, Tensor],
    facts: Mapping[str, Any],
    names: Iterable[str],
    shapes: Callable[[Mapping[str, Any]], Shapes],
    advice: str = "copy it again or make it anew",
) -> None:
    """Raises a ValueError unless a file holds the facts of these names and the tensors of `shapes`.

    `shapes` makes them of the facts; what it raises about the facts is told with the file's name.
    A state that was never a file has the name of its class for a path, and another advice.
    """
    with explain_damage(path, advice):
        check_names("fact", [name for name in facts if name not in _OF_EVERY_FILE], names)
        wanted = shapes(facts)
        check_names("tensor", tensors, wanted)
        _check_shapes(tensors, wanted)
        check_numbers(tensors)


@contextmanager
def explain_damage(
    path: str | os.PathLike[str], advice: str = "copy it again or make it anew"
) -> Iterator[None]:
    """Raises a ValueError that names the file, whatever its contents make the code inside raise."""
    try:
        yield
    except (
        *(ArithmeticError, AttributeError, LookupError, MemoryError),
        *(RuntimeError, TypeError, ValueError),
    ) as error:
        told = str(error)
        if isinstance(error, ValueError) and told.startswith(str(path)):
            raise
        if isinstance(error, KeyError):
            told = f"got no {told}"
        elif not isinstance(error, ValueError):
            told = f"{type(error).__name__}: {told}"
        raise ValueError(f"{path}: {told}; {advice}") from error


def check_names(what: str, found: Iterable[str], wanted: Iterable[str]) -> None:
    """Raises a ValueError that says which are missing and which are too many."""
    found, wanted = set(found), set(wanted)
    wrong = [f"no {what} {name}" for name in sorted(wanted - found)]
    wrong += [f"a {what} {name}" for name in sorted(found - wanted)]
    if wrong:
        raise ValueError(f"got {', '.join(wrong)}, wanted {', '.join(sorted(wanted)) or 'none'}")


def check_types(facts: Mapping[str, Any], types: Mapping[str, Any]) -> None:
    """Raises a ValueError unless each fact is of its type; numbers have to be finite.

    >>> check_types({"window": None, "norm": "l2"}, {"window": int | None, "norm": str})
    """
    for name, wanted in types.items():
        if not _is_of_type(facts[name], wanted):
            told = wanted.__name__ if wanted in (str, int, float, bool) else wanted
            raise ValueError(f"{name}: got {facts[name]!r}, wanted {told}")


def _is_of_type(value: Any, wanted: Any) -> bool:
    if get_origin(wanted) is Literal:
        return value in get_args(wanted)
    if get_origin(wanted) in (list, tuple):
        return isinstance(value, (list, tuple)) and all(
            any(_is_of_type(each, of) for of in get_args(wanted) if of is not ...) for each in value
        )
    if get_origin(wanted) is dict:
        _, of = get_args(wanted)
        return isinstance(value, dict) and all(_is_of_type(each, of) for each in value.values())
    if wanted is Any:
        return True
    if choices := get_args(wanted):
        return any(_is_of_type(value, each) for each in choices)
    if wanted is float:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return is_number and math.isfinite(value)
    if wanted is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, NoneType if wanted is None else wanted)


# Tensors of whole numbers, and those that divide by what may be nothing, whatever holds them.
_WHOLE = ("counts", "bins", "num_batches_tracked")
_RATIOS = ("gaps", "separability", "average_separability")


def check_numbers(tensors: Mapping[str, Tensor]) -> None:
    """Raises a ValueError unless the tensors hold finite floating-point numbers, or counts."""
    for name, tensor in tensors.items():
        kind = name.rsplit(".", 1)[-1]
        if kind in _WHOLE:
            if tensor.dtype != torch.int64:
                raise ValueError(f"got the tensor {name} of {tensor.dtype}, wanted torch.int64")
            if tensor.numel() and int(tensor.min()) < 0:
                raise ValueError(f"got {int(tensor.min())} in the tensor {name}, wanted 0 or more")
        elif not tensor.is_floating_point():
            raise ValueError(f"got the tensor {name} of {tensor.dtype}, wanted floating point")
        elif kind not in _RATIOS and not _is_finite(tensor.detach()):
            raise ValueError(f"got NaN or infinity in the tensor {name}, wanted finite numbers")


def _is_finite(tensor: Tensor) -> bool:
    # The extremes tell, and need no second tensor of that size.
    return not tensor.numel() or bool(torch.stack(tensor.aminmax()).isfinite().all())


def _check_shapes(tensors: Mapping[str, Tensor], shapes: Shapes) -> None:
    free: dict[str, int] = {}
    for name, shape in shapes.items():
        found = tuple(tensors[name].shape)
        if len(found) == len(shape):
            for size, own in zip(shape, found, strict=True):
                if isinstance(size, str):
                    free.setdefault(size, own)
        wanted = tuple(free.get(size, size) if isinstance(size, str) else size for size in shape)
        if found != wanted:
            told = str(wanted).replace("'", "")
            raise ValueError(f"got the tensor {name} of shape {found}, wanted {told}")
