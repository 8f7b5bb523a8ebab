"""How many classes the labels of a loader have: told, taken from its data set, or counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor

# Far above any labelled set of images; a label beyond it is a mistake that would eat the memory.
MOST_UNASKED_CLASSES = 30_000


def class_names(loader: Any) -> Sequence[str] | None:
    """The classes of the loader's data set, if it says."""
    classes = getattr(getattr(loader, "dataset", None), "classes", None)
    return classes if isinstance(classes, (list, tuple)) else None


def class_count(labels: Tensor) -> int:
    """As many classes as the labels of a batch need."""
    largest = int(labels.max())
    if largest >= MOST_UNASKED_CLASSES:
        raise ValueError(
            f"labels: got {largest}, wanted classes numbered from 0; pass num_classes if there are "
            f"more than {MOST_UNASKED_CLASSES:,}"
        )
    return max(2, largest + 1)


@contextmanager
def naming_classes(loader: Any, num_classes: int | None) -> Iterator[None]:
    """Says where the number of classes comes from if it is found wrong and was not given."""
    try:
        yield
    except ValueError as error:
        names = None if num_classes else class_names(loader)
        if not names or "num_classes" not in str(error):
            raise
        raise ValueError(
            f"{error}; num_classes was not given: {len(names)} is the length of "
            "loader.dataset.classes; pass num_classes= where the labels have another number"
        ) from error
