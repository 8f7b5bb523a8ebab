"""The paper's four-layer CNN: one plain convolution, then three that halve the maps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch.nn.functional as F
from torch import Tensor, nn

from foveapool.networks.sites import (
    AFTER,
    LAYERS,
    PoolingChoice,
    Poolings,
    PoolingSite,
    check_form,
    check_sizes,
    count_components,
    index_choices,
    make_site,
)
from foveapool.pooling.mixing import ChannelMixing, MixingPool


class CNN(nn.Module):
    """Four 3 x 3 convolutions, global average pooling and a linear layer.

    The last three convolutions have stride 2, double the channels and are followed by batch-norm
    and ReLU: `down1`, `down2`, `down3`. What stands at a layer instead is a `PoolingChoice`, see
    `networks/sites.py`; in form `replace` a pooling gives k C channels, and all layers behind
    it follow. The poolings of the two forms that keep the convolution are `pool1`, `pool2`,
    `pool3`.

    Args:
        classes: The number of logits.
        width: The channels of the first convolution.
        poolings: A `PoolingChoice` a layer, or {layer: module} for form `replace`.
        in_channels: The images' channels.
        in_shape: Their height and width.

    >>> import torch
    >>> network = CNN(width=8)
    >>> network(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    >>> network.site(3).module, network.site(3).channels, network.site(3).in_shape
    ('down3', 32, (8, 8))
    """

    down1: nn.Module
    down2: nn.Module
    down3: nn.Module
    norm1: nn.Module
    norm2: nn.Module
    norm3: nn.Module
    pool1: nn.Module | None
    pool2: nn.Module | None
    pool3: nn.Module | None

    def __init__(
        self,
        classes: int = 10,
        width: int = 64,
        poolings: Poolings | None = None,
        in_channels: int = 3,
        in_shape: Sequence[int] = (32, 32),
    ) -> None:
        super().__init__()
        check_sizes(classes, width, in_channels, in_shape)
        self.width, self.in_shape = width, (in_shape[0], in_shape[1])
        self._reaching = [width]  # channels that reach the first layer, the second, ...
        choices = index_choices(poolings)
        self._forms = {layer: choice.form for layer, choice in choices.items()}
        pooled: list[str] = []
        self.stem = nn.Conv2d(in_channels, width, 3, padding=1)
        for layer in LAYERS:
            name = self._add_layer(layer, choices.get(layer))
            pooled += [] if name is None else [name]
        self.pooling_modules = tuple(pooled)
        self.head = nn.Linear(self._reaching[3], classes)

    def _add_layer(self, layer: int, choice: PoolingChoice | None) -> str | None:
        """Adds the layer's modules; gives the name of its pooling, if it has one."""
        channels = self._reaching[layer - 1]
        down, given = _make_strided(channels), 2 * channels
        pool: nn.Module | None = None
        name: str | None = None
        if choice is not None:
            site = self.site(layer, choice.placement, choice.form)
            if choice.shortcut is not None:
                raise ValueError(
                    f"poolings[{layer}]: got a pooling for a shortcut, wanted none: a CNN has none"
                )
            keeps = choice.form in AFTER
            components = count_components(choice.pooling, site, any_number=not keeps)
            name = f"pool{layer}" if keeps else f"down{layer}"
            if choice.form == "replace":
                down, given = choice.pooling, components * channels
            elif choice.form == "mix":
                mixing = ChannelMixing(channels, given, components)
                down, name = MixingPool(choice.pooling, mixing), f"{name}.pool"
            else:
                down, pool = _make_strided(channels, stride=1), choice.pooling
        self._reaching.append(given)
        setattr(self, f"down{layer}", down)
        setattr(self, f"pool{layer}", pool)
        setattr(self, f"norm{layer}", nn.BatchNorm2d(given))
        return name

    def site(self, layer: int, placement: str | None = None, form: str = "replace") -> PoolingSite:
        """What a pooling at that layer meets; a CNN has one path and so no placements."""
        if placement is not None:
            raise ValueError(
                f"placement: got {placement!r}, wanted none: a pooling of the CNN has one place "
                "a layer, in the main path"
            )
        check_form(form)
        site = make_site(layer, f"down{layer}", self.width, self.in_shape)
        site = replace(site, channels=self._reaching[layer - 1])
        if form in AFTER:
            return replace(site, module=f"pool{layer}", channels=2 * site.channels, components=1)
        return replace(site, components=9) if form == "mix" else site

    def forward(self, images: Tensor) -> Tensor:
        """The logits (B, classes) of images (B, in_channels, H, W)."""
        maps = F.relu(self.stem(images))
        maps = self._shrink(maps, 1, self.down1, self.norm1, self.pool1)
        maps = self._shrink(maps, 2, self.down2, self.norm2, self.pool2)
        maps = self._shrink(maps, 3, self.down3, self.norm3, self.pool3)
        return self.head(maps.mean((2, 3)))

    def _shrink(
        self, maps: Tensor, layer: int, down: nn.Module, norm: nn.Module, pool: nn.Module | None
    ) -> Tensor:
        maps = down(maps)
        if pool is None:
            return F.relu(norm(maps))
        if self._forms[layer] == "after":
            return F.relu(norm(pool(maps)))
        return pool(F.relu(norm(maps)))


def _make_strided(channels: int, stride: int = 2) -> nn.Module:
    return nn.Conv2d(channels, 2 * channels, 3, stride, padding=1, bias=False)
