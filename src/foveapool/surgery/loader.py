"""What a loader yields, whoever wrote it, as inputs, labels and ids on the network's device.

The first batch is where most mistakes with a stranger's data show, as errors from deep inside of
torch: here they become advice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, IterableDataset

from foveapool.surgery.find import Layers
from foveapool.surgery.forward import (
    came_from_forward,
    get_device,
    get_first_line,
    iterate_leaves,
    map_tensors,
    unwrap,
)
from foveapool.surgery.wrapper import Mode

IMAGE_KEYS = (
    *("pixel_values", "images", "image", "img", "inputs", "input", "x", "data"),
    *("pixel_values_videos", "input_values", "input_features"),
)
LABEL_KEYS = ("labels", "label", "targets", "target", "y", "class", "fine_label")

Unpack = Callable[[Any], Sequence[Any]]


@dataclass(frozen=True)
class LabeledBatch:
    """A batch as the network is called with it, its labels, and the samples' ids if it has any."""

    inputs: Any  # a tensor, a tuple of arguments or a dict of them
    labels: Tensor
    ids: Tensor | None = None

    def first(self) -> Any:
        """The inputs of the first sample alone: enough to see what sizes the maps have.

        What has not one row a sample (a scale, each image of a list) is left whole.
        """
        count = len(self.labels)
        return map_tensors(
            self.inputs, lambda tensor: tensor[:1] if tensor.shape[:1] == (count,) else tensor
        )

    def repeat(self, times: int, sample_first: bool) -> LabeledBatch:
        """The labels and ids of a batch of so many maps an image, side by side or in turn."""
        if times == 1:
            return self
        ids = self.ids
        if ids is not None:
            ids = (ids[:, None] * times + torch.arange(times, device=ids.device)).flatten()
            ids = ids if sample_first else ids.unflatten(0, (-1, times)).mT.flatten()
        labels = self.labels.repeat_interleave(times) if sample_first else self.labels.repeat(times)
        return LabeledBatch(self.inputs, labels, ids)

    def to(self, device: torch.device) -> LabeledBatch:
        """The same on another device."""
        # On the way back from a GPU nobody would wait for the numbers to arrive.
        later = device.type == "cuda"
        inputs = map_tensors(self.inputs, lambda tensor: tensor.to(device, non_blocking=later))
        return LabeledBatch(inputs, self.labels.to(device, non_blocking=later), self.ids)


def unpack_batch(batch: Any, unpack: Unpack | None = None) -> LabeledBatch:
    """A loader's batch: (images, labels, ...), a dict with common keys, or what `unpack` makes.

    `unpack` returns (inputs, labels) or (inputs, labels, ids).
    """
    if unpack is not None:
        made = unpack(batch)
        parts = tuple(made) if isinstance(made, Iterable) else ()
        if len(parts) not in (2, 3):
            got = f"{len(parts)} parts" if parts else repr(made)
            raise ValueError(f"unpack: got {got}, wanted (inputs, labels) or (inputs, labels, ids)")
        ids = _as_tensor("ids", parts[2]) if len(parts) == 3 else None
        return LabeledBatch(parts[0], _as_tensor("labels", parts[1]), ids)
    if isinstance(batch, Mapping):
        image = next((key for key in IMAGE_KEYS if key in batch), None)
        label = next((key for key in LABEL_KEYS if key in batch), None)
        if image is None or label is None:
            raise ValueError(
                f"loader: got a dict with keys {sorted(map(str, batch))}, wanted one of "
                f"{IMAGE_KEYS} and one of {LABEL_KEYS}; pass unpack=lambda batch: (inputs, labels)"
            )
        return LabeledBatch(batch[image], _as_tensor("labels", batch[label]))
    if isinstance(batch, (tuple, list)) and len(batch) >= 2:
        return LabeledBatch(batch[0], _as_tensor("labels", batch[1]))
    raise ValueError(
        f"loader: got batches of {type(batch).__name__}, wanted (images, labels) or a dict; pass "
        "unpack=lambda batch: (inputs, labels)"
    )


def _as_tensor(name: str, values: Any) -> Tensor:
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


def check_labels(batch: LabeledBatch) -> LabeledBatch:
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


@contextmanager
def explain_first_batch(
    model: nn.Module, inputs: Any, autocast: torch.dtype | None
) -> Iterator[None]:
    """Turns what the network raises when it is called within into a ValueError with advice."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise  # of which the batch is innocent
    except Exception as error:
        if not came_from_forward(error):
            raise
        raise ValueError(
            f"loader: the network does not take the first batch, {_describe_inputs(inputs)} "
            f"({type(error).__name__}: {get_first_line(error)}); "
            f"{_advise(unwrap(model), inputs, autocast)}"
        ) from error


def _describe_inputs(inputs: Any) -> str:
    if isinstance(inputs, (Tensor, np.ndarray)):
        kind = "a tensor" if isinstance(inputs, Tensor) else "a NumPy array"
        return f"{kind} of shape {tuple(inputs.shape)} and {inputs.dtype}"
    if isinstance(inputs, Mapping):
        return f"a dict with keys {list(inputs)}"
    many = f" of {len(inputs)}" if isinstance(inputs, (tuple, list)) else ""
    return f"a {type(inputs).__name__}{many}"


def _advise(model: nn.Module, inputs: Any, autocast: torch.dtype | None) -> str:
    own = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    for leaf in iterate_leaves(inputs):
        if isinstance(leaf, np.ndarray):
            as_bytes, images = leaf.dtype == np.uint8, f"torch.as_tensor(batch[0]).to({own})"
        elif isinstance(leaf, Tensor) and leaf.dtype != own and autocast is None:
            as_bytes, images = leaf.dtype == torch.uint8, f"batch[0].to({own})"
            if not as_bytes and not leaf.is_floating_point():
                continue  # numbers of words, say
        else:
            continue
        scaled = " / 255" if as_bytes else ""
        also = ", scaled as for its training" if as_bytes else ""
        if isinstance(leaf, Tensor) and own != torch.float32:
            also += f", or autocast={own}"
        return (
            f"it wants tensors of {own}: pass unpack=lambda batch: ({images}{scaled}, batch[1])"
            f"{also}"
        )
    return (
        "give it what it was trained on, or pass unpack=lambda batch: (inputs, labels), with "
        "inputs a tensor, a tuple of arguments or a dict of them"
    )


# Far above any labeled set of images; a label beyond it is a mistake that would eat the memory.
MOST_UNASKED_CLASSES = 30_000


def get_class_names(loader: Any) -> Sequence[str] | None:
    """The classes of the loader's data set, if it says."""
    classes = getattr(getattr(loader, "dataset", None), "classes", None)
    return classes if isinstance(classes, (list, tuple)) else None


def count_classes(labels: Tensor) -> int:
    """As many classes as the labels of a batch need."""
    largest = int(labels.max())
    if largest >= MOST_UNASKED_CLASSES:
        raise ValueError(
            f"labels: got {largest}, wanted classes numbered from 0; pass num_classes if there are "
            f"more than {MOST_UNASKED_CLASSES:,}"
        )
    return max(2, largest + 1)


@contextmanager
def explain_class_count(loader: Any, num_classes: int | None) -> Iterator[None]:
    """Says where the number of classes comes from if it is found wrong and was not given."""
    try:
        yield
    except ValueError as error:
        names = None if num_classes else get_class_names(loader)
        if not names or "num_classes" not in str(error):
            raise
        raise ValueError(
            f"{error}; num_classes was not given: {len(names)} is the length of "
            "loader.dataset.classes; pass num_classes= where the labels have another number"
        ) from error


@dataclass(frozen=True)
class FitSource:
    """What is read: a network's layers over a loader."""

    model: nn.Module
    loader: Iterable[Any]
    layer: Layers
    mode: Mode = "replace"
    unpack: Unpack | None = None
    autocast: torch.dtype | None = None

    def batches(self, skip: int = 0) -> Iterator[tuple[int, LabeledBatch]]:
        """The loader's first batch and those behind the first `skip`, with their numbers from 0.

        They are on the network's device.
        """
        device = get_device(unwrap(self.model))
        for number, batch in enumerate(self.loader):
            if number == 0 or number >= skip:
                yield number, check_labels(unpack_batch(batch, self.unpack)).to(device)

    def facts(self) -> dict[str, str]:
        """What the maps depend on, beside the network and the data."""
        return {"mode": self.mode, "autocast": str(self.autocast)}

    def length(self) -> int | None:
        """How many batches there are, if the loader says."""
        try:
            return len(self.loader)  # type: ignore[arg-type]
        except TypeError:
            return None
