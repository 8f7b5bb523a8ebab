"""All that a training changes, and the step that changes it.

A step is batch, forward, backward, update: plain on a CPU, one CUDA graph on a GPU. It takes no
argument and gives nothing back: it reads its place from the feed and leaves its loss in a vector,
so that the processor need not wait for the GPU within an epoch.
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
from foveapool.data.batches import Feed, ResidentImages, iterate_batches, load_resident
from foveapool.data.images import DataSet
from foveapool.pooling.module import LinearPool2d
from foveapool.training.parallel import Workers
from foveapool.training.recipe import Recipe

WARM_UP = 3


def compute_batch_loss(network: nn.Module, feed: Feed) -> Tensor:
    """The mean cross-entropy of the batch that the feed has next."""
    images, labels = feed.batch()
    return F.cross_entropy(network(images), labels)


@functools.cache
def compile_batch_loss() -> Callable[[nn.Module, Feed], Tensor]:
    """`compute_batch_loss` compiled, once for all networks and data of one shape.

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


class TrainingState:
    """A network on its device with its optimizer, its data, and the losses of the epoch."""

    def __init__(
        self,
        network: nn.Module,
        data: DataSet,
        recipe: Recipe,
        seed: int,
        device: torch.device,
        workers: Workers,
    ) -> None:
        self.device, self.workers = device, workers
        images, self.test = load_resident(data, device)
        self.feed = Feed(
            images, recipe.batch_size, seed, data.augmentation, workers.rank, workers.size
        )
        _check_holds_tensors(network)
        self.network = network.to(device).train()
        if device.type == "cuda":
            network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._check_outputs(data)
        workers.follow(list(network.state_dict().values()))
        self.optimizer = build_optimizer(network, recipe, device)
        self.losses = torch.zeros(self.feed.steps, device=device)
        # A mask may hold infinities from the start; they say nothing of the training.
        self._finite = [t for t in network.state_dict().values() if _is_finite(t)]
        self._noise: dict[str, Tensor] = {}
        # Such as the rival "lps", whose choices harden.
        modules: list[Any] = list(network.modules())
        self._annealed = [each for each in modules if ismethod(getattr(each, "anneal", None))]

    def tensors(self) -> dict[str, Tensor]:
        """The state by name: to save, or to be filled and followed by `use_noise`."""
        self._noise = {"noise/cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            self._noise["noise/cuda"] = torch.cuda.get_rng_state(self.device)
        optimizer = list_optimizer_tensors(self.network, self.optimizer)
        return {
            **{f"network/{name}": tensor for name, tensor in self.network.state_dict().items()},
            **{f"optimizer/{name}": tensor for name, tensor in optimizer.items()},
            "losses": self.losses,
            **self._noise,
        }

    def use_noise(self) -> None:
        """Puts torch's random generators where `tensors` last found them, or was told they were."""
        torch.set_rng_state(self._noise["noise/cpu"])
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(self._noise["noise/cuda"], self.device)

    def step(self, compile: bool) -> Callable[[], None]:
        """One step on this state; on a GPU as a CUDA graph."""
        loss_of = compile_batch_loss() if compile else compute_batch_loss
        step = make_plain_step(
            self.network, self.feed, self.optimizer, self.losses, self.workers, loss_of
        )
        if self.device.type != "cuda":
            return step
        captured = make_graph_step(step, [*self.tensors().values(), self.feed.step])
        self.use_noise()
        return captured

    def anneal(self, progress: float) -> None:
        """Tells the modules that change as training goes on how much of it is done, 0 to 1."""
        for module in self._annealed:
            module.anneal(progress)

    def release(self) -> None:
        """Lets the gradients go, which lie in the memory of a graph that will not be replayed."""
        self.optimizer.zero_grad(set_to_none=True)

    def is_finite(self) -> bool:
        """Whether every number of the network that was one at the start still is, and some were."""
        still = [tensor.isfinite().all() for tensor in self._finite]
        return bool(still) and bool(torch.stack(still).all())

    def _check_outputs(self, data: DataSet) -> None:
        """Refuses a network for another number of classes, where CUDA would only say "assert"."""
        images, _ = next(iterate_batches(self.feed.images, 1))
        with eval_mode(self.network):
            outputs = self.network(images)
        classes = len(data.train.classes)
        wanted = f"wanted (1, {classes}), one for each class of {data.name}"
        if not isinstance(outputs, Tensor):
            raise ValueError(
                f"network: got a {type(outputs).__name__} for one image, {wanted}; wrap it in a "
                "module that returns the scores alone"
            )
        if outputs.shape != (1, classes):
            shape = tuple(outputs.shape)
            raise ValueError(f"network: got outputs of shape {shape} for one image, {wanted}")


def _check_holds_tensors(network: nn.Module) -> None:
    """Refuses a network with extra state, which would be lost in every checkpoint."""
    for name, value in network.state_dict().items():
        if not isinstance(value, Tensor):
            raise ValueError(
                f"network: got {name} in its state, a {type(value).__name__}, wanted tensors, all "
                "that a checkpoint holds; keep it in a buffer instead of an extra state"
            )


def _is_finite(tensor: Tensor) -> bool:
    return tensor.is_floating_point() and bool(tensor.isfinite().all())


def build_optimizer(network: nn.Module, recipe: Recipe, device: torch.device) -> Optimizer:
    """Adam or SGD over the network's trainable parameters; on a GPU fused and ready for a graph.

    Its rates are 0 until `set_rate`. Linear poolings are a group of their own where the recipe
    has another rate for them.
    """
    parts = _group_by_rate(network, recipe.pooling_rate)
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
    optimizer: Optimizer
    if recipe.optimizer == "adam":
        options["capturable"] = on_gpu
        optimizer = torch.optim.Adam(groups, betas=(recipe.momentum, 0.999), **options)
    else:
        optimizer = torch.optim.SGD(groups, momentum=recipe.momentum, **options)
    # Torch makes the state in the first step. One at rate 0 makes it and moves nothing.
    for part in parts.values():
        for parameter in part:
            parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    with torch.no_grad():
        for tensor in list_optimizer_tensors(network, optimizer).values():
            tensor.zero_()
    return optimizer


def _group_by_rate(network: nn.Module, pooling_rate: float) -> dict[float, list[nn.Parameter]]:
    """The trainable parameters, each once, by the factor of their rate."""
    poolings = [module for module in network.modules() if isinstance(module, LinearPool2d)]
    pooled = {id(parameter) for pooling in poolings for parameter in pooling.parameters()}
    found: dict[float, list[nn.Parameter]] = {}
    for parameter in network.parameters():
        if parameter.requires_grad:
            factor = pooling_rate if id(parameter) in pooled else 1.0
            found.setdefault(factor, []).append(parameter)
    return found


def list_optimizer_tensors(network: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """The optimizer's state by the name of the parameter and of the quantity."""
    return {
        f"{name}/{quantity}": tensor
        for name, parameter in network.named_parameters()
        for quantity, tensor in optimizer.state.get(parameter, {}).items()
        if isinstance(tensor, Tensor)
    }


def set_rate(optimizer: Optimizer, rate: float) -> None:
    """Sets the learning rate, times each group's factor, where a CUDA graph sees it too."""
    for group in optimizer.param_groups:
        own = rate * group["factor"]
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(own)
        else:
            group["lr"] = own
