"""Evaluation mode for a while: what measuring, fitting and corrupting all need of a network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def eval_mode(network: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; every module's own mode is put back, come what may."""
    modes = {module: module.training for module in network.modules()}
    try:
        network.eval()
        with torch.no_grad():
            yield
    finally:
        # Some layers do more than note their mode; parents come first and take others with them.
        for module, training in modes.items():
            if module.training != training:
                module.train(training)
        for module, training in modes.items():
            module.training = training
