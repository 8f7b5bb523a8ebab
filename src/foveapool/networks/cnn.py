"""The paper's four-layer CNN: one plain convolution, then three that halve the maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch.nn.functional as F
from torch import Tensor, nn

from foveapool.networks.sites import (
    LAYERS,
    PoolingSite,
    check_layer,
    check_sizes,
    fitting_poolings,
    site_at,
)


class CNN(nn.Module):
    """Four 3 x 3 convolutions, global average pooling and a linear layer.

    The last three convolutions have stride 2, double the channels and are followed by batch-norm
    and ReLU. `poolings` maps a layer (1, 2, 3) to the module that takes the place of its
    convolution, (B, C, H, W) -> (B, k C, H / 2, W / 2); batch-norm and ReLU stay behind it. Two
    components, k = 2, leave the channels of all other layers as they are.

    >>> import torch
    >>> network = CNN(width=8)
    >>> network(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    >>> network.site(3).module, network.site(3).channels, network.site(3).in_shape
    ('down3', 32, (8, 8))
    """

    def __init__(
        self,
        classes: int = 10,
        width: int = 64,
        poolings: Mapping[int, nn.Module] | None = None,
        in_channels: int = 3,
        in_shape: Sequence[int] = (32, 32),
    ) -> None:
        super().__init__()
        check_sizes(classes, width, in_channels, in_shape)
        self.width, self.in_shape = width, (in_shape[0], in_shape[1])
        self._reaching = [width]  # channels that reach the first layer, the second, ...
        downs, pooled = [], []
        for layer in poolings or {}:
            check_layer(layer)
        for layer in LAYERS:
            site = self.site(layer)
            own = {layer: poolings[layer]} if poolings and layer in poolings else {}
            found = fitting_poolings(own, {layer: site}, any_channels=True)
            down, given = found.get(layer) or (_strided(site.channels), 2 * site.channels)
            pooled += [site.module] if found else []
            downs.append(down)
            self._reaching.append(given)
        self.pooling_modules = tuple(pooled)
        self.stem = nn.Conv2d(in_channels, width, 3, padding=1)
        self.down1, self.norm1 = downs[0], nn.BatchNorm2d(self._reaching[1])
        self.down2, self.norm2 = downs[1], nn.BatchNorm2d(self._reaching[2])
        self.down3, self.norm3 = downs[2], nn.BatchNorm2d(self._reaching[3])
        self.head = nn.Linear(self._reaching[3], classes)

    def site(self, layer: int, placement: str | None = None) -> PoolingSite:
        """What a pooling at that layer meets; a CNN has one place a layer and so no placements."""
        if placement is not None:
            raise ValueError(
                f"placement: got {placement!r}, wanted none: a pooling of the CNN always takes the "
                "place of the strided convolution"
            )
        site = site_at(layer, f"down{layer}", self.width, self.in_shape)
        return replace(site, channels=self._reaching[layer - 1])

    def forward(self, images: Tensor) -> Tensor:
        """The logits (B, classes) of images (B, in_channels, H, W)."""
        maps = F.relu(self.stem(images))
        maps = F.relu(self.norm1(self.down1(maps)))
        maps = F.relu(self.norm2(self.down2(maps)))
        maps = F.relu(self.norm3(self.down3(maps)))
        return self.head(maps.mean((2, 3)))


def _strided(channels: int) -> nn.Module:
    return nn.Conv2d(channels, 2 * channels, 3, stride=2, padding=1, bias=False)
