"""One step of training: batch, forward, backward, update. Plain on a CPU, one CUDA graph on a GPU.

A step takes no argument and gives nothing back: it reads its place from the feed and leaves its
loss in a vector, so that the processor need not wait for the GPU within an epoch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from inspect import ismethod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

from foveapool._eval_mode import eval_mode
from foveapool.data.batches import Feed, ResidentImages, iterate_batches
from foveapool.training.parallel import Workers

WARM_UP = 3


def compute_batch_loss(network: nn.Module, feed: Feed) -> Tensor:
    """The mean cross-entropy of the batch that the feed has next."""
    images, labels = feed.batch()
    return F.cross_entropy(network(images), labels)


@functools.cache
def compile_batch_loss() -> Callable[[nn.Module, Feed], Tensor]:
    """`batch_loss` compiled, once for all networks and data of one shape.

    The network is an argument and its weights are inputs, so that the next trial finds the code
    that the last one compiled.
    """
    # A study trains more shapes in one process than torch expects before it gives up compiling.
    torch._dynamo.config.recompile_limit = max(64, torch._dynamo.config.recompile_limit)
    return torch.compile(compute_batch_loss, dynamic=False)


def make_plain_step(
    network: nn.Module,
    feed: Feed,
    optimizer: Optimizer,
    losses: Tensor,
    workers: Workers,
    loss_of: Callable[[nn.Module, Feed], Tensor] = compute_batch_loss,
) -> Callable[[], None]:
    """A step that runs as it is written: float32 on a CPU, bfloat16 autocast on a GPU.

    A module with a method `penalty()`, such as the rival "sgd-local", has it added to the loss.
    """
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
    # A number or a loss of that name is the network's own business.
    penalised: list[Any] = [m for m in network.modules() if ismethod(getattr(m, "penalty", None))]
    device = losses.device

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss = loss_of(network, feed)
        for module in penalised:
            loss = loss + module.penalty()
        loss.backward()
        workers.average([p.grad for p in parameters if p.grad is not None])
        optimizer.step()
        losses.index_copy_(0, feed.step, loss.detach().to(losses.dtype)[None])
        feed.step.add_(1)

    return step


def make_graph_step(step: Callable[[], None], touched: Iterable[Tensor]) -> Callable[[], None]:
    """The same step as one CUDA graph, which the GPU runs without waiting for Python.

    Capturing runs the step a few times; `touched`, all that it changes, is put back afterwards.
    """
    held = [(tensor, tensor.clone()) for tensor in touched]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    graph = torch.cuda.CUDAGraph()
    with torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=True):
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                step()
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(graph):
            step()
    with torch.no_grad():
        for tensor, copy in held:
            tensor.copy_(copy)
    return graph.replay


def measure_error(
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
    with eval_mode(network):
        for number, (batch, labels) in enumerate(iterate_batches(images)):
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
