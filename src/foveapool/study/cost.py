"""What a network costs: its parameters and the multiply-adds of one image."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from foveapool.modes import evaluating


def parameters(network: nn.Module) -> int:
    """The numbers that training changes."""
    return sum(p.numel() for p in network.parameters() if p.requires_grad)


def multiply_adds(network: nn.Module, image_shape: Sequence[int]) -> int:
    """Products of matrices and convolutions for one image (C, H, W).

    Additions alone cost none, and neither do maxima, exponentials and Fourier transforms.
    """
    device = next(network.parameters()).device
    counter = FlopCounterMode(display=False)
    with evaluating(network), counter:
        network(torch.zeros(1, *image_shape, device=device))
    return counter.get_total_flops() // 2
