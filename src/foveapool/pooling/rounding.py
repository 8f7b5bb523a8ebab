"""What rounding leaves of the sums of channels: squares that vanish, channels that do not vary.

Nothing is left out in silence but channels that are constant to the last bit.
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

# Below this mean square of a number, float32 and float64 lose digits of it or all of it.
_LEAST_SQUARE = {torch.float32: 1e-30, torch.float64: 1e-290}


def square_small_ones(maps: Tensor, pilot: Tensor, sums: Tensor, squares: Tensor) -> None:
    """Takes sums (B, C) again where squares are too small for float32; refuses what float64 loses.

    maps: (B, C, N). Channels that are zero everywhere are as small, and cost a look.
    """
    least = maps.shape[2] * _LEAST_SQUARE[maps.dtype]
    sample, channel = (squares < least).nonzero(as_tuple=True)
    level = pilot.to(maps.dtype)[channel, None]
    varies = (maps[sample, channel] != level).any(1)
    if not bool(varies.any()):
        return
    sample, channel = sample[varies], channel[varies]
    around = maps[sample, channel].double() - pilot[channel, None]
    found = around.square().sum(1)
    if float(found.min()) < maps.shape[2] * _LEAST_SQUARE[torch.float64]:
        raise ValueError(
            f"features: got numbers down to {float(around.abs().amax(1).min()):.1e} around their "
            "mean, whose squares vanish in torch.float64, wanted larger ones; scale the features "
            "up; nothing of this batch was taken in"
        )
    sums[sample, channel], squares[sample, channel] = around.sum(1), found


def find_dead_channels(mean: Tensor, variance: Tensor, square: Tensor, rounding: float) -> Tensor:
    """Which channels do not vary, or by no more than what rounding leaves behind.

    Rounding of the numbers themselves, where all that differs are neighbors in their type, and of
    the sums: `variance` is what is left of `square`, the mean square around a value near the mean.
    """
    single = min(rounding, torch.finfo(torch.float32).eps)  # shorter types are summed in float32
    return (variance <= (rounding / 2 * mean).square()) | (variance <= 8 * single * square)


def warn_of_left_out(name: str, channels: Tensor, rounding: float) -> None:
    """Names the channels that vary and are left out all the same."""
    left = channels.nonzero().flatten().tolist()
    if left:
        warnings.warn(
            f"{name}: {len(left)} channels vary by no more than rounding ({rounding:.1e} of their "
            f"mean) and are left out: {left[:10]}; to count them in, subtract their mean, or give "
            "maps of a longer type",
            stacklevel=3,
        )


def check_no_dead_channels(dead: Tensor) -> None:
    """Raises a ValueError that names the dead channels."""
    if bool(dead.any()):
        names = torch.nonzero(dead).flatten().tolist()
        raise ValueError(
            f"features: got {len(names)} dead channels (variance 0, or no more than rounding): "
            f"{names[:10]}, wanted variance in each; pass dead_channels='ignore' to leave them out "
            "of the scatter"
        )
