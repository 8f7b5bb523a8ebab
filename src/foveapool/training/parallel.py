"""Where training runs: the device, and the other processes where `torchrun` started several.

Each takes its part of every batch and averages its gradients with the others. That is done here
by one all-reduce of one flat buffer, which a CUDA graph can hold, rather than by torch's wrapper
around the network, which hooks into every backward pass.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from foveapool.pooling.validation import is_distributed


@dataclass(frozen=True)
class Workers:
    """This process among those that train one network together; by default it is alone."""

    rank: int = 0
    size: int = 1

    @classmethod
    def current(cls) -> Workers:
        """Those of the process group that is open, or this one alone."""
        if is_distributed():
            return cls(dist.get_rank(), dist.get_world_size())
        return cls()

    @property
    def leads(self) -> bool:
        """Whether this process writes files and speaks."""
        return self.rank == 0

    def average(self, tensors: Sequence[Tensor]) -> None:
        """Makes each tensor the mean of all processes' own, in place."""
        if self.size == 1 or not tensors:
            return
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        dist.all_reduce(flat)
        flat /= self.size
        parts = flat.split([tensor.numel() for tensor in tensors])
        for tensor, part in zip(tensors, parts, strict=True):
            tensor.copy_(part.view(tensor.shape))

    def total(self, tensor: Tensor) -> Tensor:
        """The sum of all processes' tensors."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def follow(self, tensors: Sequence[Tensor]) -> None:
        """Makes each tensor that of the first process, in place."""
        if self.size > 1:
            for tensor in tensors:
                dist.broadcast(tensor, 0)


def choose_device(device: torch.device | str | None = None) -> torch.device:
    """The device of that name; a GPU where none is named and there is one."""
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise ValueError(f"device: got {device!r}, wanted cpu, cuda or cuda:1; {error}") from error
    if chosen.type not in ("cpu", "cuda"):
        raise ValueError(f"device: got {device!r}, wanted cpu, cuda or cuda:1")
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device: got {device!r}, wanted cpu: torch finds no CUDA device here")
    return chosen


@contextmanager
def join_torchrun(device: torch.device) -> Iterator[torch.device]:
    """Joins the processes that `torchrun` started; gives the device of this one.

    Outside of torchrun it changes nothing, so a command can always use it.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield device
        return
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield device
    finally:
        dist.destroy_process_group()
