"""Random numbers of one block of images.

Everything random in this room is drawn through `Draws`, so that a corruption is a function of the
images and of these numbers alone: the same numbers from another source give the same pixels.
"""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor


class Draws:
    """A source of random numbers in float64 on one device, fixed by a key.

    key: anything that prints the same each time, say (name, severity, seed, block). Other keys
    give unrelated numbers; another kind of device gives other numbers too.
    """

    def __init__(self, device: torch.device | str, *key: object) -> None:
        digest = hashlib.blake2b("/".join(map(str, key)).encode(), digest_size=8).digest()
        self.device = torch.device(device)
        self.generator = torch.Generator(self.device)
        self.generator.manual_seed(int.from_bytes(digest, "little") >> 1)

    def normal(self, *shape: int) -> Tensor:
        """Standard normal numbers."""
        return torch.randn(shape, generator=self.generator, dtype=torch.float64, device=self.device)

    def uniform(self, *shape: int) -> Tensor:
        """Numbers spread evenly over [0, 1)."""
        return torch.rand(shape, generator=self.generator, dtype=torch.float64, device=self.device)

    def poisson(self, rate: Tensor) -> Tensor:
        """Whole numbers with these means."""
        return torch.poisson(rate, generator=self.generator)
