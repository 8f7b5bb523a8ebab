"""Mixing: a 1 x 1 convolution behind a pooling with several components (form `mix`).

A pooling with k components turns C channels into k C; `ChannelMixing` makes `out_channels` of
them. Nine components that are the shifts of a 3 x 3 kernel, mixed by its weights, are the strided
convolution. Both steps are linear and may be exchanged; `pool_and_mix` takes the cheaper order.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foveapool.pooling.functional import linear_pool
from foveapool.pooling.grid import name_sizes
from foveapool.pooling.layer import Layer
from foveapool.pooling.module import LinearPool


class ChannelMixing(Layer):
    """A 1 x 1 convolution over the k C channels that a pooling with k components gives.

    `weight` (out_channels, components, in_channels / groups) has an axis for the components: with
    groups, an output channel sees all components of the input channels of its group. It starts as
    torch starts a convolution with as many inputs.

    Args:
        in_channels: C, the channels before the pooling.
        out_channels: The channels that the layer gives.
        components: k, the maps that the pooling makes of each channel.
        groups: As of a convolution: blocks of channels that do not see each other.
        bias: Whether a number is added to each output channel.

    Raises:
        ValueError: If `groups` does not divide the channels.

    Example:
        >>> mixing = ChannelMixing(4, 8, components=9)
        >>> mixing(torch.zeros(2, 36, 5, 5)).shape
        torch.Size([2, 8, 5, 5])
    """

    weight: nn.Parameter
    bias: nn.Parameter | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        components: int,
        groups: int = 1,
        bias: bool = False,
    ) -> None:
        super().__init__()
        if in_channels % groups or out_channels % groups:
            raise ValueError(
                f"groups: got {groups} for {in_channels} and {out_channels} channels, wanted a "
                "number that divides both"
            )
        self.in_channels, self.out_channels = in_channels, out_channels
        self.components, self.groups = components, groups
        weight = torch.empty(out_channels, components, in_channels // groups)
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(torch.empty(out_channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the numbers anew, uniform in +-1/sqrt(inputs), as torch's convolutions do.

        Example:
            >>> mixing = ChannelMixing(4, 8, components=9)
            >>> mixing.reset_parameters()
            >>> bool(mixing.weight.abs().max() <= 1 / 6)
            True
        """
        bound = 1 / math.sqrt(self.components * self.in_channels // self.groups)
        nn.init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, pooled: Tensor) -> Tensor:
        """Mixes pooled maps, of one to three axes.

        Args:
            pooled: (B, components * in_channels, H', W'), first all channels under the first
                component.

        Returns:
            (B, out_channels, H', W').
        """
        if self.groups > 1:
            # A pooling gives all channels under one component, then all under the next; a grouped
            # convolution wants the channels of a group beside each other.
            split = (self.components, self.groups, self.in_channels // self.groups)
            pooled = pooled.unflatten(1, split).transpose(1, 2).flatten(1, 3)
        return mix_channels(pooled, self.weight.flatten(1), self.bias, self.groups)

    def extra_repr(self) -> str:
        """Describes the layer for `print(model)`.

        Returns:
            Channels, components, groups and bias.
        """
        grouped = f", groups={self.groups}" if self.groups > 1 else ""
        biased = "" if self.bias is None else ", bias=True"
        return (
            f"{self.in_channels} -> {self.out_channels}, components={self.components}"
            f"{grouped}{biased}"
        )


class MixingPool(Layer):
    """A pooling and the mixing behind it, as one layer (B, C, H, W) -> (B, out_channels, H', W').

    Maps may have one or three axes too, as its pooling has.

    Args:
        pool: The pooling; it gives k C channels, all of them under the first component first.
        mixing: The 1 x 1 convolution behind it, made for as many components.

    Raises:
        ValueError: If a linear pooling has another number of components than the mixing.

    Example:
        >>> from foveapool import LinearPool2d
        >>> pool = LinearPool2d.random((8, 8), (4, 4), components=9)
        >>> layer = MixingPool(pool, ChannelMixing(3, 6, components=9))
        >>> layer(torch.zeros(2, 3, 8, 8)).shape
        torch.Size([2, 6, 4, 4])
        >>> layer.in_shape, layer.out_shape
        ((8, 8), (4, 4))
    """

    # The mode of `replace` that it was fitted for, if any, and the maps that its layer read then.
    fitted_for: str | None = None
    read_shape: tuple[int, ...] | None = None
    # How a fit came by the mixing's numbers, in words.
    origin: str | None = None

    def __init__(self, pool: nn.Module, mixing: ChannelMixing) -> None:
        super().__init__()
        if isinstance(pool, LinearPool) and pool.components != mixing.components:
            raise ValueError(
                f"mixing: got one for {mixing.components} components, wanted one for "
                f"{pool.components}, as many as the pooling has"
            )
        self.pool, self.mixing = pool, mixing

    @property
    def in_shape(self) -> tuple[int, ...] | None:
        """The size of the maps that it takes, where its pooling belongs to one."""
        return getattr(self.pool, "in_shape", None)

    @property
    def out_shape(self) -> tuple[int, ...] | None:
        """The size of the maps that it gives, where its pooling belongs to one."""
        return getattr(self.pool, "out_shape", None)

    def forward(self, maps: Tensor) -> Tensor:
        """Pools and mixes, in the order that costs less.

        Args:
            maps: (B, C, H, W).

        Returns:
            (B, out_channels, H', W').
        """
        return pool_and_mix(maps, self.pool, self.mixing)


def pool_and_mix(maps: Tensor, pool: nn.Module, mixing: ChannelMixing) -> Tensor:
    """`mixing(pool(maps))`; a linear pooling that is cheaper behind the mixing is taken there."""
    if isinstance(pool, LinearPool) and is_mixing_first_cheaper(pool, mixing):
        sizes = (pool.in_shape, pool.out_shape)
        return mix_then_pool(
            maps, pool.weight, pool.mean, sizes, mixing.weight, mixing.bias, mixing.groups
        )
    mixed: Tensor = mixing(pool(maps))
    return mixed


def is_mixing_first_cheaper(pool: LinearPool, mixing: ChannelMixing) -> bool:
    """Whether mixing all places of the input map takes fewer multiply-adds than pooling it.

    Pooling with a window takes so few that it comes first.
    """
    if pool.window is not None:
        return False
    places, pooled = math.prod(pool.in_shape), math.prod(pool.out_shape)
    inputs, outputs = mixing.in_channels, mixing.out_channels
    per_place = inputs // mixing.groups * outputs
    mixing_first = places * per_place + pooled * places * outputs
    pooling_first = pooled * places * inputs + pooled * per_place
    return mixing_first < pooling_first


@torch.fx.wrap  # one node of a symbolic trace, which cannot look at sizes
def mix_then_pool(
    maps: Tensor,
    rows: Tensor,
    mean: Tensor | None,
    sizes: tuple[tuple[int, ...], tuple[int, ...]],
    weight: Tensor,
    bias: Tensor | None,
    groups: int,
) -> Tensor:
    """Each component has a 1 x 1 convolution of its own, and its rows pool what that gives.

    `rows` (k, M, N) and `mean` (C,) are the pooling's, `sizes` its (in_shape, out_shape); `weight`
    (out_channels, k, C / groups) and `bias` the mixing's.
    """
    in_shape, out_shape = sizes
    if tuple(maps.shape[2:]) != in_shape:
        raise ValueError(
            f"MixingPool: got a map of shape {tuple(maps.shape)}, wanted (batch, channels, "
            f"{', '.join(map(str, in_shape))}); the operator belongs to one map size: "
            f"`pool.resized({name_sizes(len(in_shape))})` carries it to another"
        )
    total: Tensor | None = None
    for component in range(len(rows)):
        mixed = mix_channels(maps, weight[:, component], None, groups)
        level = None
        if mean is not None:
            # The level that a constant map keeps is mixed as the map is.
            level = mix_channels(mean[None, :, None], weight[:, component], None, groups).flatten()
        pooled = linear_pool(mixed, rows[component : component + 1], out_shape, level)
        total = pooled if total is None else total + pooled
    assert total is not None, "a pooling has one component or more"
    return total if bias is None else total + bias.unflatten(0, (-1, *[1] * len(out_shape)))


@torch.fx.wrap  # one node of a symbolic trace, which cannot look at sizes
def mix_channels(maps: Tensor, matrix: Tensor, bias: Tensor | None, groups: int) -> Tensor:
    """The 1 x 1 convolution with a matrix (out_channels, in_channels / groups), on any axes."""
    axes = maps.dim() - 2
    convolve: Any = (F.conv1d, F.conv2d, F.conv3d)[axes - 1]
    kernel = matrix.unflatten(1, (-1, *[1] * axes))
    mixed: Tensor = convolve(maps, kernel, bias, groups=groups)
    return mixed
