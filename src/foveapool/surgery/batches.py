"""What a loader yields, whoever wrote it, as (inputs, labels, ids)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

IMAGE_KEYS = ("pixel_values", "images", "image", "img", "inputs", "input", "x", "data")
LABEL_KEYS = ("labels", "label", "targets", "target", "y", "class", "fine_label")

Unpack = Callable[[Any], Sequence[Any]]


@dataclass(frozen=True)
class Labelled:
    """A batch as the network is called with it, its labels, and the samples' ids if it has any."""

    inputs: Any  # a tensor, a tuple of arguments or a dict of them
    labels: Tensor
    ids: Tensor | None = None

    def first(self) -> Any:
        """The inputs of the first sample alone: enough to see what sizes the maps have.

        What has not one row a sample (a scale, each image of a list) is left whole.
        """
        count = len(self.labels)
        return over_tensors(
            self.inputs, lambda tensor: tensor[:1] if tensor.shape[:1] == (count,) else tensor
        )

    def to(self, device: torch.device) -> Labelled:
        """The same on another device."""
        # On the way back from a GPU nobody would wait for the numbers to arrive.
        later = device.type == "cuda"
        inputs = over_tensors(self.inputs, lambda tensor: tensor.to(device, non_blocking=later))
        return Labelled(inputs, self.labels.to(device, non_blocking=later), self.ids)


def unpacked(batch: Any, unpack: Unpack | None = None) -> Labelled:
    """A loader's batch: (images, labels, ...), a dict with common keys, or what `unpack` makes.

    `unpack` returns (inputs, labels) or (inputs, labels, ids).
    """
    if unpack is not None:
        made = unpack(batch)
        parts = tuple(made) if isinstance(made, Iterable) else ()
        if len(parts) not in (2, 3):
            got = f"{len(parts)} parts" if parts else repr(made)
            raise ValueError(f"unpack: got {got}, wanted (inputs, labels) or (inputs, labels, ids)")
        ids = _numbers("ids", parts[2]) if len(parts) == 3 else None
        return Labelled(parts[0], _numbers("labels", parts[1]), ids)
    if isinstance(batch, Mapping):
        image = next((key for key in IMAGE_KEYS if key in batch), None)
        label = next((key for key in LABEL_KEYS if key in batch), None)
        if image is None or label is None:
            raise ValueError(
                f"loader: got a dict with keys {sorted(map(str, batch))}, wanted one of "
                f"{IMAGE_KEYS} and one of {LABEL_KEYS}; pass unpack=lambda batch: (inputs, labels)"
            )
        return Labelled(batch[image], _numbers("labels", batch[label]))
    if isinstance(batch, (tuple, list)) and len(batch) >= 2:
        return Labelled(batch[0], _numbers("labels", batch[1]))
    raise ValueError(
        f"loader: got batches of {type(batch).__name__}, wanted (images, labels) or a dict; pass "
        "unpack=lambda batch: (inputs, labels)"
    )


def _numbers(name: str, values: Any) -> Tensor:
    """The labels or ids of a batch as a tensor."""
    try:
        # A batch of one may come with its label alone.
        return torch.atleast_1d(torch.as_tensor(values))
    except (TypeError, ValueError, RuntimeError) as error:
        wanted = "(inputs, labels)" if name == "labels" else f"(inputs, labels, {name})"
        raise ValueError(
            f"{name}: got a {type(values).__name__} ({error}), wanted whole numbers, one a sample; "
            f"pass unpack=lambda batch: {wanted}"
        ) from error


def classified(batch: Labelled) -> Labelled:
    """The batch with one int64 label a sample, or a ValueError that says how to come by them."""
    labels = batch.labels
    broken = labels.is_floating_point() or labels.is_complex()
    if labels.dim() == 1 and not broken:
        return replace(batch, labels=labels.long())
    advice = "(inputs, labels)"
    if labels.dim() == 2 and labels.shape[1] > 1:
        advice = "(batch[0], batch[1].argmax(1))"
    elif labels.dim() <= 2:
        change = ".squeeze(1)" * (labels.dim() - 1) + ".long()" * broken
        advice = f"(batch[0], batch[1]{change})"
    raise ValueError(
        f"labels: got shape {tuple(labels.shape)} of {labels.dtype}, wanted whole numbers, one a "
        f"sample: the number of its class; pass unpack=lambda batch: {advice}"
    )


def check_rereadable(loader: Iterable[Any]) -> None:
    """Raises unless `loader` yields batches and can be read twice."""
    if not any(hasattr(type(loader), name) for name in ("__iter__", "__getitem__")):
        call = ": call it, and pass what it returns" if callable(loader) else ""
        raise ValueError(
            f"loader: got a {type(loader).__name__}, which yields nothing, wanted a DataLoader or "
            f"a list of batches{call}"
        )
    if isinstance(loader, Dataset) and not isinstance(loader, IterableDataset):
        raise ValueError(
            f"loader: got a {type(loader).__name__}, a data set, wanted batches; pass "
            "DataLoader(dataset, batch_size=256), or batch_size=None if its items are batches"
        )
    # A DataLoader is not asked for its iterator here, which may start processes.
    if isinstance(loader, Iterator) and iter(loader) is loader:
        raise ValueError(
            f"loader: got a {type(loader).__name__}, which can be read only once, wanted one that "
            "starts anew for each pass, such as a DataLoader or a list of batches"
        )


def leaves(inputs: Any) -> Iterator[Any]:
    """The tensors, and whatever else, that a network's inputs consist of."""
    if isinstance(inputs, (Mapping, tuple, list)):
        for value in inputs.values() if isinstance(inputs, Mapping) else inputs:
            yield from leaves(value)
    else:
        yield inputs


def over_tensors(inputs: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """A network's inputs with every tensor changed, in the same tuples, lists and dicts."""
    if isinstance(inputs, Tensor):
        return change(inputs)
    if isinstance(inputs, Mapping):
        return {key: over_tensors(value, change) for key, value in inputs.items()}
    if isinstance(inputs, (tuple, list)):
        parts = [over_tensors(value, change) for value in inputs]
        if hasattr(inputs, "_fields"):  # of a named tuple, which may be asked for them
            return type(inputs)(*parts)
        return tuple(parts) if isinstance(inputs, tuple) else parts
    return inputs
