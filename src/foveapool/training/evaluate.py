"""How often a network is wrong: in evaluation mode, in float32, all images, none augmented."""

from __future__ import annotations

import torch
from torch import nn

from foveapool.data.batches import ResidentImages, plain_batches
from foveapool.modes import evaluating
from foveapool.training.parallel import Workers


def error_percent(
    network: nn.Module, images: ResidentImages, workers: Workers | None = None
) -> float:
    """The percentage of images that get another label than their own.

    Weights and maps are float32 on every device; on a GPU torch's own setting for convolutions
    holds, which allows TF32. Several workers share the images. FloatingPointError where the largest
    output is no finite number: such a network is not wrong by so many percent, it has broken down.
    """
    workers = workers or Workers()
    if not len(images):
        raise ValueError("images: got none to evaluate on, wanted 1 or more")
    counts = torch.zeros(2, dtype=torch.int64, device=images.labels.device)
    with evaluating(network):
        for number, (batch, labels) in enumerate(plain_batches(images)):
            if number % workers.size == workers.rank:
                outputs = network(batch)
                # A class may be ruled out by -inf; the one that is chosen must be a number.
                wrong, broken = outputs.argmax(1) != labels, ~outputs.amax(1).isfinite()
                counts += torch.stack([wrong.sum(), broken.sum()])
    wrong_ones, broken_ones = workers.total(counts).tolist()
    if broken_ones:
        raise FloatingPointError(
            f"network: got outputs that are not finite for {broken_ones} of {len(images)} images, "
            "wanted finite numbers"
        )
    return 100 * wrong_ones / len(images)
