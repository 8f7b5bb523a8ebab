"""The paper's pre-activation ResNet-18 for small images, and the ways to put a pooling into it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from foveapool.networks.sites import LAYERS, PoolingSite, check_sizes, fitting_poolings, site_at

# The placements of a pooling in a block that halves its maps, and the module of that block whose
# input the pooling reads; "" is the block itself.
PLACEMENTS = {"both": "conv1", "before": "", "main": "conv1", "shortcut": "shortcut"}


def _check_placement(placement: str) -> None:
    if placement not in PLACEMENTS:
        raise ValueError(f"placement: got {placement!r}, wanted one of {', '.join(PLACEMENTS)}")


class PreActBlock(nn.Module):
    """Batch-norm, ReLU and convolution, twice, beside a shortcut.

    He et al. 2016, "Identity Mappings in Deep Residual Networks".

    A `pooling` in a block that halves its maps goes to one of four places. `both`: one pooled map
    feeds the main path and is the shortcut. `before`: the block's input is pooled, and the block
    is an ordinary one without a stride. `main` and `shortcut`: in place of the 3 x 3 and of the
    1 x 1 convolution only.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        stride: int = 1,
        pooling: nn.Module | None = None,
        placement: str = "both",
    ) -> None:
        super().__init__()
        at = placement if pooling is not None else ""
        self.before = pooling if at == "before" else None
        self.shares_pooled_map = at == "both"
        stride = 1 if at == "before" else stride
        self.norm1 = nn.BatchNorm2d(inputs)
        self.conv1: nn.Module
        if pooling is not None and at in ("both", "main"):
            self.conv1 = pooling
        else:
            self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.shortcut: nn.Module | None = None
        if at == "shortcut":
            self.shortcut = pooling
        elif at != "both" and (stride != 1 or inputs != outputs):
            self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, maps: Tensor) -> Tensor:
        """(B, inputs, H, W) -> (B, outputs, H / stride, W / stride)."""
        if self.before is not None:
            maps = self.before(maps)
        active = F.relu(self.norm1(maps))
        main = self.conv1(active)
        if self.shares_pooled_map:
            shortcut = main
        else:
            shortcut = maps if self.shortcut is None else self.shortcut(active)
        return self.conv2(F.relu(self.norm2(main))) + shortcut


class PreActResNet18(nn.Module):
    """Eight pre-activation blocks of `width`, 2, 4 and 8 `width` channels, two of each.

    `poolings` maps a layer (1, 2, 3) to a pooling in the block that halves the maps there:
    `layer2.0`, `layer3.0`, `layer4.0`. `placement` says where in the block, see `PreActBlock`.
    `final_norm` puts batch-norm and ReLU before the last average, as the paper on pre-activation
    does; the implementation that the pooling paper names leaves them out.

    >>> import torch
    >>> network = PreActResNet18(width=4)
    >>> network(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    >>> network.site(2, placement="shortcut").module
    'layer3.0.shortcut'
    """

    def __init__(
        self,
        classes: int = 10,
        width: int = 64,
        poolings: Mapping[int, nn.Module] | None = None,
        placement: str = "both",
        final_norm: bool = True,
        in_channels: int = 3,
        in_shape: Sequence[int] = (32, 32),
    ) -> None:
        super().__init__()
        check_sizes(classes, width, in_channels, in_shape)
        _check_placement(placement)
        self.width, self.in_shape, self.placement = width, (in_shape[0], in_shape[1]), placement
        sites = {layer: self.site(layer) for layer in LAYERS}
        before = placement == "before"
        pooled = fitting_poolings(poolings, sites, any_channels=before)
        self.pooling_modules = tuple(
            f"{sites[layer].module}.before" if before else sites[layer].module for layer in pooled
        )
        self.stem = nn.Conv2d(in_channels, width, 3, padding=1, bias=False)

        def stage(layer: int) -> nn.Sequential:
            channels = sites[layer].channels
            pooling, given = pooled.get(layer, (None, 2 * channels))
            inputs = given if before and pooling is not None else channels
            first = PreActBlock(inputs, 2 * channels, 2, pooling, placement)
            return nn.Sequential(first, PreActBlock(2 * channels, 2 * channels))

        self.layer1 = nn.Sequential(PreActBlock(width, width), PreActBlock(width, width))
        self.layer2, self.layer3, self.layer4 = (stage(layer) for layer in LAYERS)
        self.norm = nn.BatchNorm2d(8 * width) if final_norm else None
        self.head = nn.Linear(8 * width, classes)

    def site(self, layer: int, placement: str | None = None) -> PoolingSite:
        """What a pooling at that layer meets, in this network's placement or another one."""
        placement = placement or self.placement
        _check_placement(placement)
        module = f"layer{layer + 1}.0.{PLACEMENTS[placement]}".rstrip(".")
        return site_at(layer, module, self.width, self.in_shape)

    def forward(self, images: Tensor) -> Tensor:
        """The logits (B, classes) of images (B, in_channels, H, W)."""
        maps = self.layer4(self.layer3(self.layer2(self.layer1(self.stem(images)))))
        if self.norm is not None:
            maps = F.relu(self.norm(maps))
        return self.head(maps.mean((2, 3)))
