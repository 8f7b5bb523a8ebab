"""A small network with branches, a loader for it, and a list of all that a network consists of."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from foveapool import LinearPool2d

MAIN, SHORTCUT, POOL = "block.main", "block.shortcut", "pool"


class Block(nn.Module):
    """Two branches that read one tensor, which is written into where no gradient needs it."""

    def __init__(self) -> None:
        super().__init__()
        self.main = nn.Conv2d(4, 8, 3, 2, 1)
        self.shortcut = nn.Conv2d(4, 8, 1, 2)

    def forward(self, x: Tensor) -> Tensor:
        sum_of_both = self.main(x) + self.shortcut(x)
        if not torch.is_grad_enabled():
            x.mul_(0)
        return sum_of_both


class Toy(nn.Module):
    """(B, 3, 8, 8) to (B, 3), shrinking in `block.main`, `block.shortcut` and `pool`."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.block = Block()
        self.relu = nn.ReLU(inplace=True)
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.block(self.norm(self.stem(x)).relu())
        return self.head(self.pool(self.relu(x)).mean((2, 3)))


def toy(seed: int = 0) -> Toy:
    torch.manual_seed(seed)
    return Toy().eval()


def pictures(count: int = 4, size: int = 8) -> Tensor:
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(count))


def loader(count: int = 45, batch: int = 10, size: int = 8) -> list[tuple[Tensor, Tensor]]:
    """Five batches of three classes, the last one smaller."""
    labels = torch.arange(count) % 3
    images = pictures(count, size) + labels[:, None, None, None] * torch.linspace(0, 1, size)
    return list(zip(images.split(batch), labels.split(batch), strict=True))


def halving(size: int = 8, components: int = 1, trainable: bool = False) -> LinearPool2d:
    """Average pooling as a learned one, for square maps."""
    return LinearPool2d.average((size, size), (size // 2, size // 2), components, trainable)


def every_layer(trainable: bool = False) -> dict[str, LinearPool2d]:
    """A pooling for each layer of `Toy` that shrinks."""
    sizes = {MAIN: 8, SHORTCUT: 8, POOL: 4}
    return {name: halving(size, 1, trainable) for name, size in sizes.items()}


def anatomy(model: nn.Module) -> dict[str, Any]:
    """All that has to be the same before and after: the very objects, their values and settings."""
    modules = dict(model.named_modules(remove_duplicate=False))
    return {
        "modules": [(name, id(module)) for name, module in modules.items()],
        "modes": [(name, module.training) for name, module in modules.items()],
        "hooks": [(name, _hooks(module)) for name, module in modules.items()],
        "settings": [(name, module.extra_repr()) for name, module in modules.items()],
        "tensors": [
            (name, id(tensor), tensor.dtype, tensor.tolist())
            for name, tensor in model.state_dict(keep_vars=True).items()
        ],
    }


def _hooks(module: nn.Module) -> list[int]:
    kinds = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks)
    return [id(hook) for kind in kinds for hook in kind.values()]
