"""The optimiser of a recipe, with its whole state there from the start and its rate in reach.

A state that exists before the first step can be filled from a checkpoint, saved, and held by a
CUDA graph, all in place.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from foveapool.training.recipe import Recipe


def build_optimiser(network: nn.Module, recipe: Recipe, device: torch.device) -> Optimizer:
    """Adam or SGD over the network's trainable parameters; on a GPU fused and ready for a graph."""
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
    if not parameters:
        raise ValueError("network: got no trainable parameter, wanted some to train")
    options: dict[str, Any] = {"weight_decay": recipe.weight_decay, "lr": 0.0}
    if device.type == "cuda":
        # A graph replays what it has seen: a rate that is to change must be a tensor.
        options |= {"fused": True, "lr": torch.zeros((), device=device)}
    optimiser: Optimizer
    if recipe.optimiser == "adam":
        options["capturable"] = device.type == "cuda"
        optimiser = torch.optim.Adam(parameters, betas=(recipe.momentum, 0.999), **options)
    else:
        optimiser = torch.optim.SGD(parameters, momentum=recipe.momentum, **options)
    # Torch makes the state in the first step. One at rate 0 makes it and moves nothing.
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)
    with torch.no_grad():
        for tensor in optimiser_tensors(network, optimiser).values():
            tensor.zero_()
    return optimiser


def optimiser_tensors(network: nn.Module, optimiser: Optimizer) -> dict[str, Tensor]:
    """The optimiser's state by the name of the parameter and of the quantity."""
    return {
        f"{name}/{quantity}": tensor
        for name, parameter in network.named_parameters()
        for quantity, tensor in optimiser.state.get(parameter, {}).items()
        if isinstance(tensor, Tensor)
    }


def set_rate(optimiser: Optimizer, rate: float) -> None:
    """Sets the learning rate, where a CUDA graph sees it too."""
    for group in optimiser.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate
