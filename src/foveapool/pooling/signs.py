"""An eigenvector has no sign of its own: this room gives it one.

Neighbouring output places should agree, or the convolution behind the pooling meets a chessboard
of flipped signs. Sums alone cannot settle it: those of second eigenvectors are near zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from foveapool.pooling.grid import Centre, centres, coordinates

Sign = Literal["neighbour", "sum"]
SIGNS: tuple[Sign, ...] = ("neighbour", "sum")
# The cosine below which two rows have nothing in common.
NOTHING = 1e-6


def apply_signs(
    weight: Tensor,
    in_shape: Sequence[int],
    out_shape: Sequence[int],
    centre: Centre = "paper",
    sign: Sign = "neighbour",
) -> Tensor:
    """`weight` (k, M, N) with each row's sign settled.

    `sum`: no row sums to less than zero. `neighbour`: so at the middle of the map, and from there
    outwards each row points the way of its neighbour, moved to the same centre; a row that has
    nothing in common with its neighbour sums to no less than zero.
    """
    if sign not in SIGNS:
        raise ValueError(f"sign: got {sign!r}, wanted one of {SIGNS}")
    sums = weight.sum(-1)
    if sign == "sum":
        return weight * _sign(sums)[..., None]
    parents, order = _towards_middle(out_shape)
    agreement = _agreement(weight, parents, in_shape, out_shape, centre)
    length = weight.norm(dim=-1)
    # Rounding errors must not settle a sign. The middle has no neighbour to follow.
    alone = agreement.abs() <= NOTHING * length * length[:, parents]
    alone[:, order[0]] = True
    alone, signs = alone.cpu(), _sign(torch.where(alone, sums, agreement)).cpu()
    for place in order[1:]:
        followed = signs[:, parents[place]]
        signs[:, place] *= torch.where(alone[:, place], 1.0, followed)
    return weight * signs.to(weight)[..., None]


def _sign(values: Tensor) -> Tensor:
    return torch.where(values < 0, -1.0, 1.0).to(values)


def _towards_middle(out_shape: Sequence[int]) -> tuple[list[int], list[int]]:
    """Each place's neighbour on the way to the middle, and all places in an order from there."""
    places = (coordinates(out_shape) - 1).long()
    middle = torch.tensor([size // 2 for size in out_shape])
    away = places - middle
    axis = away.abs().argmax(1, keepdim=True)
    step = torch.zeros_like(away).scatter_(1, axis, away.gather(1, axis).sign())
    strides = torch.tensor([torch.Size(out_shape[i + 1 :]).numel() for i in range(len(out_shape))])
    parents = ((places - step) * strides).sum(1)
    order = away.abs().sum(1).argsort(stable=True)
    return parents.tolist(), order.tolist()


def _agreement(
    weight: Tensor,
    parents: list[int],
    in_shape: Sequence[int],
    out_shape: Sequence[int],
    centre: Centre,
) -> Tensor:
    """The inner product of each row with its parent's, moved to the same centre, (k, M)."""
    middles = centres(in_shape, out_shape, centre)
    parent = torch.tensor(parents)
    # Half a pixel goes up, on every machine.
    moves = (middles - middles[parent] + 0.5).floor().long()
    result = torch.zeros(weight.shape[:2], dtype=weight.dtype, device=weight.device)
    picture = weight.unflatten(-1, tuple(in_shape))
    for move in moves.unique(dim=0).tolist():
        chosen = (moves == torch.tensor(move)).all(1).nonzero().flatten().to(weight.device)
        rows, neighbours = picture[:, chosen], picture[:, parent.to(weight.device)[chosen]]
        for axis, distance in enumerate(move):
            size = in_shape[axis] - abs(distance)
            rows = rows.narrow(2 + axis, max(distance, 0), size)
            neighbours = neighbours.narrow(2 + axis, max(-distance, 0), size)
        result[:, chosen] = (rows * neighbours).flatten(2).sum(-1)
    return result
