"""How often a network is wrong: in evaluation mode, in float32, all images, none augmented."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from foveapool.data.batches import ResidentImages, plain_batches
from foveapool.training.parallel import Workers


def error_percent(
    network: nn.Module, images: ResidentImages, workers: Workers | None = None
) -> float:
    """The percentage of images that get another label than their own.

    Weights and maps are float32 on every device; on a GPU torch's own setting for convolutions
    holds, which allows TF32. Several workers share the images.
    """
    workers = workers or Workers()
    if not len(images):
        raise ValueError("images: got none to evaluate on, wanted 1 or more")
    wrong = torch.zeros((), dtype=torch.int64, device=images.labels.device)
    with evaluating(network):
        for number, (batch, labels) in enumerate(plain_batches(images)):
            if number % workers.size == workers.rank:
                wrong += (network(batch).argmax(1) != labels).sum()
    return 100 * int(workers.total(wrong)) / len(images)


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; every module's own mode is put back, come what may."""
    modes = {module: module.training for module in network.modules()}
    try:
        network.eval()
        with torch.no_grad():
            yield
    finally:
        for module, training in modes.items():
            module.training = training
