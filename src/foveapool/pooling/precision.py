"""Keeps matrix products at the precision that was asked for, whatever the global switches say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch

Precision = Literal["ieee", "tf32", "bf16"]
PRECISIONS: tuple[Precision, ...] = ("ieee", "tf32", "bf16")


def check_precision(precision: str, device: torch.device) -> None:
    """Raises a ValueError unless sums can be taken so on that device; before data is read, say."""
    if precision not in PRECISIONS or (precision == "bf16" and device.type != "cuda"):
        raise ValueError(
            f"precision: got {precision!r} on {device.type}, wanted 'ieee', 'tf32', or on a "
            "GPU 'bf16'"
        )


@contextmanager
def float32_products(precision: Precision = "ieee") -> Iterator[None]:
    """Within it, float32 matrix products are true float32, or TF32 if `precision` says so.

    For `bf16` the operands themselves are rounded, by whoever multiplies them.
    A user's `torch.set_float32_matmul_precision("high")`, or an autocast around the fit, must not
    change what is fitted; they are put back afterwards.
    """
    switches = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)  # type: ignore[attr-defined]
    before = [switch.fp32_precision for switch in switches]
    try:
        for switch in switches:
            switch.fp32_precision = "tf32" if precision == "tf32" else "ieee"
        with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
            yield
    finally:
        for switch, value in zip(switches, before, strict=True):
            switch.fp32_precision = value
