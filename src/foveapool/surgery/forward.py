"""Running a stranger's network as a guest: evaluation mode, no gradients, nothing left behind."""

from __future__ import annotations

import difflib
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from foveapool._eval_mode import eval_mode

_WRAPPERS = (nn.parallel.DistributedDataParallel, nn.DataParallel, AveragedModel)


def unwrap(model: nn.Module) -> nn.Module:
    """The network inside of `torch.compile`, of parallel and of averaging wrappers."""
    while True:
        if isinstance(model, torch._dynamo.eval_frame.OptimizedModule):
            model = model._orig_mod
        elif isinstance(model, _WRAPPERS):
            model = model.module
        elif isinstance(model, nn.Module):
            return model
        else:
            raise ValueError(
                f"model: got a {type(model).__name__}, wanted a network, a torch.nn.Module"
            )


def get_device(model: nn.Module) -> torch.device:
    """Where the network lives; a network without parameters lives on the CPU."""
    tensors = [*model.parameters(), *model.buffers()]
    if any(tensor.is_meta for tensor in tensors):
        raise ValueError(
            "model: got parameters on the meta device, which hold no numbers (as where accelerate "
            "has them offloaded), wanted all on a CPU or GPU; load the network without offloading, "
            "or call model.to_empty(device=...) and load its weights"
        )
    return tensors[0].device if tensors else torch.device("cpu")


def call_network(model: nn.Module, example: Any) -> Any:
    """Calls the model with a tensor, a tuple of arguments or a dict of them.

    With copies: some networks write into what they are given, which would be another batch then
    the next time that it is read.
    """
    example = map_tensors(example, Tensor.clone)
    if isinstance(example, Mapping):
        return model(**example)
    if isinstance(example, tuple):
        return model(*example)
    return model(example)


def came_from_forward(error: BaseException) -> bool:
    """Whether the error came out of a network that was called by `call`."""
    return any(
        at.f_code is call_network.__code__ for at, _ in traceback.walk_tb(error.__traceback__)
    )


def get_first_line(error: BaseException) -> str:
    """What an error says, without the pages that torch may add."""
    return next(iter(str(error).splitlines()), "")


@contextmanager
def dry_run(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; every module's own mode is put back, come what may.

    What is compiled runs as it was written: compiled code would pass hooks by. Inference mode is
    left for as long: torch counts no changes in place there, and `get_version` needs them.
    """
    get_device(model)
    counting = torch.inference_mode(False)
    with counting, eval_mode(model), torch.compiler.set_stance("force_eager"):
        yield


def get_version(tensor: Tensor) -> int | None:
    """Grows with each change in place; None where torch does not count them."""
    return None if tensor.is_inference() else tensor._version


def get_module(model: nn.Module, name: str) -> nn.Module:
    """The module of that exact name, or a ValueError with the nearest names there are."""
    modules = dict(model.named_modules(remove_duplicate=False))
    if name and name in modules:
        return modules[name]
    raise ValueError(
        f"layer: got {name!r}, wanted the name of a layer of the model; "
        f"{suggest_names(name, modules)}"
    )


def suggest_names(name: str, names: Iterable[str]) -> str:
    """The names most like `name`, as the end of a message."""
    found = difflib.get_close_matches(name, list(names), n=3, cutoff=0.4)
    return f"near it are {found}" if found else "model.named_modules() lists them"


def iterate_leaves(inputs: Any) -> Iterator[Any]:
    """The tensors, and whatever else, that a network's inputs consist of."""
    if isinstance(inputs, (Mapping, tuple, list)):
        for value in inputs.values() if isinstance(inputs, Mapping) else inputs:
            yield from iterate_leaves(value)
    else:
        yield inputs


def map_tensors(inputs: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """A network's inputs with every tensor changed, in the same tuples, lists and dicts."""
    if isinstance(inputs, Tensor):
        return change(inputs)
    if isinstance(inputs, Mapping):
        return {key: map_tensors(value, change) for key, value in inputs.items()}
    if isinstance(inputs, (tuple, list)):
        parts = [map_tensors(value, change) for value in inputs]
        if hasattr(inputs, "_fields"):  # of a named tuple, which may be asked for them
            return type(inputs)(*parts)
        return tuple(parts) if isinstance(inputs, tuple) else parts
    return inputs
