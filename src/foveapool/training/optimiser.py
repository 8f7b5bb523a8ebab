"""The optimiser of a recipe, with its whole state there from the start and its rate in reach.

A state that exists before the first step can be filled from a checkpoint, saved, and held by a
CUDA graph, all in place.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from foveapool.pooling.module import LinearPool2d
from foveapool.training.recipe import Recipe


def build_optimiser(network: nn.Module, recipe: Recipe, device: torch.device) -> Optimizer:
    """Adam or SGD over the network's trainable parameters; on a GPU fused and ready for a graph.

    Its rates are 0 until `set_rate`. Linear poolings are a group of their own where the recipe
    has another rate for them.
    """
    parts = _parts(network, recipe.pooling_rate)
    if not parts:
        raise ValueError("network: got no trainable parameter, wanted some to train")
    on_gpu = device.type == "cuda"
    groups: list[dict[str, Any]] = [
        # A graph replays what it has seen: a rate that is to change must be a tensor.
        {"params": part, "factor": factor, "lr": torch.zeros((), device=device) if on_gpu else 0.0}
        for factor, part in parts.items()
    ]
    options: dict[str, Any] = {"weight_decay": recipe.weight_decay}
    if on_gpu:
        options["fused"] = True
    optimiser: Optimizer
    if recipe.optimiser == "adam":
        options["capturable"] = on_gpu
        optimiser = torch.optim.Adam(groups, betas=(recipe.momentum, 0.999), **options)
    else:
        optimiser = torch.optim.SGD(groups, momentum=recipe.momentum, **options)
    # Torch makes the state in the first step. One at rate 0 makes it and moves nothing.
    for part in parts.values():
        for parameter in part:
            parameter.grad = torch.zeros_like(parameter)
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)
    with torch.no_grad():
        for tensor in optimiser_tensors(network, optimiser).values():
            tensor.zero_()
    return optimiser


def _parts(network: nn.Module, pooling_rate: float) -> dict[float, list[nn.Parameter]]:
    """The trainable parameters, each once, by the factor of their rate."""
    poolings = [module for module in network.modules() if isinstance(module, LinearPool2d)]
    pooled = {id(parameter) for pooling in poolings for parameter in pooling.parameters()}
    found: dict[float, list[nn.Parameter]] = {}
    for parameter in network.parameters():
        if parameter.requires_grad:
            factor = pooling_rate if id(parameter) in pooled else 1.0
            found.setdefault(factor, []).append(parameter)
    return found


def optimiser_tensors(network: nn.Module, optimiser: Optimizer) -> dict[str, Tensor]:
    """The optimiser's state by the name of the parameter and of the quantity."""
    return {
        f"{name}/{quantity}": tensor
        for name, parameter in network.named_parameters()
        for quantity, tensor in optimiser.state.get(parameter, {}).items()
        if isinstance(tensor, Tensor)
    }


def set_rate(optimiser: Optimizer, rate: float) -> None:
    """Sets the learning rate, times each group's factor, where a CUDA graph sees it too."""
    for group in optimiser.param_groups:
        own = rate * group["factor"]
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(own)
        else:
            group["lr"] = own
