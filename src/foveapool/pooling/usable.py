"""What the first pass may find that no scatter can be made of: small classes, dead channels."""

from __future__ import annotations

import torch
from torch import Tensor


def check_class_sizes(samples: Tensor, counts: Tensor, class_cap: int | None) -> None:
    """Raises a ValueError if a class has fewer than two samples that count.

    samples: (Q, bins), all that were seen; counts: (Q,), those that count.
    """
    few = (counts < 2).nonzero().flatten().tolist()
    for q in few:
        drawn = samples[q].cumsum(0).tolist()
        if drawn[-1] >= 2:
            least = next(size for size in drawn if size >= 2)
            raise ValueError(
                f"class_cap: got {class_cap} for {drawn[-1]} samples of class {q}, wanted {least} "
                "or more: classes are drawn in parts"
            )
    if few:
        raise ValueError(_too_few(counts.tolist()))


def _too_few(counts: list[int]) -> str:
    few = {q: size for q, size in enumerate(counts) if size < 2}
    empty = [q for q, size in few.items() if size == 0]
    if empty and any(counts[empty[0] :]):
        advice = "number the classes from 0 without gaps"
    elif empty:
        advice = "give samples of these, or lower num_classes if it was given"
    else:
        advice = "give more samples of these classes or leave them out"
    return (
        "labels: got classes with fewer than two samples {class: samples} "
        f"{dict(list(few.items())[:10])}, wanted two or more of each of the {len(counts)} classes; "
        f"{advice}"
    )


def not_varying(mean: Tensor, variance: Tensor) -> Tensor:
    """Which channels do not vary: a constant one leaves rounding behind, relative to its level."""
    return variance <= 1e-12 * mean.square().clamp(min=1e-30)


def check_alive(dead: Tensor) -> None:
    """Raises a ValueError that names the dead channels."""
    if bool(dead.any()):
        names = torch.nonzero(dead).flatten().tolist()
        raise ValueError(
            f"features: got {len(names)} dead channels (variance 0): {names[:10]}, wanted "
            "variance in each; pass dead_channels='ignore' to leave them out of the scatter"
        )
