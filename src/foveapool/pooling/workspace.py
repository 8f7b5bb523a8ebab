"""Memory that is used again and again: fresh pages cost more than the sums made in them."""

from __future__ import annotations

import torch
from torch import Tensor


class Workspace:
    """Named pieces of uninitialised memory, kept between calls. Not for two threads at once."""

    def __init__(self) -> None:
        self._held: dict[str, Tensor] = {}

    def take(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: torch.dtype,
        device: torch.device,
    ) -> Tensor:
        """A contiguous tensor of that shape; what was taken under the name before is lost."""
        wanted = torch.Size(shape).numel()
        held = self._held.get(name)
        if held is None or held.dtype != dtype or held.device != device or held.numel() < wanted:
            self._held[name] = held = torch.empty(wanted, dtype=dtype, device=device)
        return held[:wanted].view(shape)
