"""What the processes of one fit tell each other: that they agree, and that one of them failed."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from torch import nn

from foveapool.pooling.validation import gather_from_processes, is_distributed
from foveapool.surgery.fit_files import digest_tensors
from foveapool.surgery.forward import unwrap

T = TypeVar("T")
_SILENT = (
    "fit: got no answer from another process, which ended without a word (killed, or out of "
    "memory?), wanted all of them to the end; see its output and start all of them again"
)


@contextmanager
def telling_failures() -> Iterator[None]:
    """A part of the work in which no process waits for another; one that fails tells the others.

    Raises:
        RuntimeError: In the processes that did not fail, naming the one that did and why.
    """
    if not is_distributed():
        yield
        return
    try:
        yield
    except Exception as error:
        with suppress(RuntimeError):  # its own failure is worth more than that nobody listens
            gather_from_processes(f"{type(error).__name__}: {error}")
        raise
    try:
        told = gather_from_processes(None)
    except RuntimeError as error:
        raise RuntimeError(_SILENT) from error
    failed = {rank: each for rank, each in enumerate(told) if each is not None}
    if failed:
        named = "; ".join(f"rank {rank} failed with {each}" for rank, each in failed.items())
        raise RuntimeError(f"fit: {named}; mend it there and start all processes again")


def check_same_settings(settings: Mapping[str, Any]) -> None:
    """Raises unless every process was given the same settings."""
    for rank, theirs in enumerate(_gather({k: str(v) for k, v in settings.items()})):
        for name, value in settings.items():
            if theirs.get(name) != str(value):
                raise ValueError(
                    f"{name}: got {value} here and {theirs.get(name)} on rank {rank}, wanted the "
                    "same in every process"
                )


def check_same_network(model: nn.Module) -> None:
    """Raises unless every process has the same weights: sums over maps of several belong to none.

    Buffers may differ a little, as the statistics of batch norm do behind DistributedDataParallel;
    this is a warning.
    """
    if not is_distributed():
        return
    network = unwrap(model)
    mine = digest_tensors(network.named_parameters()), digest_tensors(network.named_buffers())
    for rank, (weights, buffers) in enumerate(_gather(mine)):
        if weights != mine[0]:
            raise ValueError(
                f"model: got other weights on rank {rank} than here, wanted the same network in "
                "every process; load the same checkpoint everywhere, or broadcast rank 0's"
            )
        if buffers != mine[1]:
            warnings.warn(
                f"model: buffers, such as the statistics of batch norm, differ on rank {rank}; "
                "broadcast rank 0's first, so that all read maps of one network",
                stacklevel=5,
            )
            return


def _gather(value: T) -> list[T]:
    return gather_from_processes(value) if is_distributed() else [value]
