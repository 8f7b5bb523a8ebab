"""What a fit reads: a network's layers over a loader, batch by batch, as often as it is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from foveapool.surgery.batches import Labelled, Unpack, classified, unpacked
from foveapool.surgery.find import Layers
from foveapool.surgery.standin import Mode
from foveapool.surgery.visit import device_of, unwrapped


@dataclass(frozen=True)
class Reading:
    """What is read: a network's layers over a loader."""

    model: nn.Module
    loader: Iterable[Any]
    layer: Layers
    mode: Mode = "replace"
    unpack: Unpack | None = None
    autocast: torch.dtype | None = None

    def batches(
        self, skip: int = 0, look: Callable[[Labelled], None] | None = None
    ) -> Iterator[Labelled]:
        """The loader's batches behind the first `skip`, on the network's device.

        `look` is shown the very first, skipped or not.
        """
        device = device_of(unwrapped(self.model))
        for number, batch in enumerate(self.loader):
            if 0 < number < skip:
                continue
            labelled = classified(unpacked(batch, self.unpack)).to(device)
            if look is not None and number == 0:
                look(labelled)
            if number >= skip:
                yield labelled

    def facts(self) -> dict[str, str]:
        """What the maps depend on, beside the network and the data."""
        return {"mode": self.mode, "autocast": str(self.autocast)}

    def length(self) -> int | None:
        """How many batches there are, if the loader says."""
        try:
            return len(self.loader)  # type: ignore[arg-type]
        except TypeError:
            return None
