"""LinearPool1d, 2d and 3d: a pooling matrix as a PyTorch layer.

The layer is exactly `P x + mean_c (1 - P 1)`: the paper's "normalize, pool, scale back" with the
deviations cancelled, one matrix product and one bias. Where the matrix came from (closed form,
a kernel, random numbers) is not its business.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from foveapool.pooling.functional import pool_checked
from foveapool.pooling.grid import (
    Center,
    as_shape,
    average_weights,
    check_shapes,
    kernel_weights,
    name_sizes,
    resample_weights,
    scale_out_shape,
    windows,
    write_out,
    write_out_checked,
)
from foveapool.pooling.layer import Layer
from foveapool.pooling.windowed import Slices, Tiling, lay_out, pool_windowed


def _check_components(components: int) -> None:
    if components < 1:
        raise ValueError(f"components: got {components}, wanted 1 or more, the maps of a channel")


def default_center(fitted_for: str | None) -> Center:
    """Where a pooling that was fitted for a form or mode is centered, unless it was told."""
    return "first" if (fitted_for or "").startswith("after") else "paper"


def default_window(fitted_for: str | None, stride: int) -> int | None:
    """How far a position of such a pooling looks, unless it was told; None is the whole map.

    One that keeps the convolution looks as far as one step, at 5 x 5 pixels where that is 2:
    docs/alpha.md has the evidence. In the convolution's place it sees the whole map.
    """
    return stride if (fitted_for or "").startswith("after") else None


class LinearPool(Layer):
    """Pools every channel of maps by one spatially varying matrix (k, M, N).

    `LinearPool1d`, `LinearPool2d` and `LinearPool3d` are this layer for maps of one, two and three
    spatial axes, (B, C, L), (B, C, H, W) and (B, C, D, H, W); `LinearPool.of` makes the right one.
    With a `window` it has the weights inside it alone, (k, M, n), in `weight` too, and pools by
    these or by the whole matrix, whichever is cheaper.

    Args:
        weight: The matrix, (k, M, N) or (M, N), rows in raster order; or its windows, (k, M, n).
        mean: The level of each channel that a constant map keeps, (C,).
        in_shape: The size of the maps, such as (H, W); N is its product.
        out_shape: The size of the output, such as (H', W'); M is its product.
        trainable: True makes the matrix a parameter. Otherwise it is a buffer that moves, saves and
            casts with the network and is never touched by an optimizer.
        dtype: Of the matrix and the mean; torch's default one unless given.
        window: r, where each row has weights in the (2r + 1)-wide neighborhood of its center alone.
        center: Where the rows of a window are centered, as for `solve_pooling`.

    Raises:
        ValueError: If the sizes do not fit.

    Example:
        >>> pool = LinearPool.of(torch.ones(2, 8) / 4, in_shape=(8,), out_shape=(2,))
        >>> type(pool).__name__, pool(torch.ones(1, 3, 8)).shape
        ('LinearPool1d', torch.Size([1, 3, 2]))
        >>> pool.components, pool.trainable, LinearPool2d.average((8, 8), (4, 4)).out_shape
        (1, False, (4, 4))
    """

    # How many spatial axes the maps have.
    axes: int
    weight: Tensor
    mean: Tensor | None
    window: int | None = None
    center: Center = "paper"
    # How a window is pooled with: the names of the buffers, the outputs of a tile, the slices.
    _tables: tuple[str, ...] = ()
    _tile: tuple[int, ...] = ()
    _deep: Slices = ()
    # The mode of `replace` that it was fitted for, if any, and the maps that its layer read then.
    fitted_for: str | None = None
    read_shape: tuple[int, ...] | None = None
    # What it was fitted on and with which settings, in words, for whoever reads of it.
    fitted_on: str | None = None
    # The number of channels that it takes, where it is made for one; a mean has one anyway.
    channels: int | None = None

    def __init__(
        self,
        weight: Tensor,
        mean: Tensor | None = None,
        *,
        in_shape: Sequence[int],
        out_shape: Sequence[int],
        trainable: bool = False,
        dtype: torch.dtype | None = None,
        window: int | None = None,
        center: Center = "paper",
    ) -> None:
        super().__init__()
        self.in_shape, self.out_shape = check_shapes(in_shape, out_shape)
        if len(self.in_shape) != self.axes:
            raise ValueError(f"in_shape: got {self.in_shape}, wanted {name_sizes(self.axes)}")
        outputs, inputs = math.prod(self.out_shape), math.prod(self.in_shape)
        if weight.dim() == 2:
            weight = weight[None]
        index = None
        if window is not None:
            index = windows(self.in_shape, self.out_shape, window, center)
            self.window, self.center = int(window), center
        allowed = (inputs,) if index is None else (inputs, index.shape[1])
        fits = weight.dim() == 3 and weight.shape[1] == outputs and weight.shape[2] in allowed
        if not fits or not len(weight):
            told = " or ".join(f"(components, {outputs}, {each})" for each in allowed)
            raise ValueError(
                f"weight: got shape {tuple(weight.shape)}, wanted {told}"
                f" for maps from {self.in_shape} to {self.out_shape}, rows in raster order"
            )
        if mean is not None and mean.dim() != 1:
            raise ValueError(f"mean: got shape {tuple(mean.shape)}, wanted (channels,)")
        if index is not None:
            self._lay_out(index, len(weight))
            weight = _cut_windows(weight, index)
        dtype = dtype or torch.get_default_dtype()
        weight = weight.detach().to(dtype).clone(memory_format=torch.contiguous_format)
        if trainable:
            self.weight = nn.Parameter(weight)
        else:
            self.register_buffer("weight", weight)
        self.register_buffer("mean", None if mean is None else mean.detach().to(dtype).clone())

    def _lay_out(self, index: Tensor, components: int) -> None:
        """Keeps what pooling with a window goes by, which no state has to tell."""
        assert self.window is not None
        shapes = (self.in_shape, self.out_shape)
        tiling, deep, is_cheaper = lay_out(*shapes, self.window, self.center, components)
        self._tile, self._deep, tables = tiling.tile, deep, {"_index": index}
        if is_cheaper:
            names = ("_cuts_down", "_cuts_across", "_inside_down", "_inside_across")
            tables = dict(zip(names, (*tiling.cuts, *tiling.inside), strict=True))
        for name, table in tables.items():
            self.register_buffer(name, table, persistent=False)
        self._tables = tuple(tables)

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        """Takes the whole matrix too, as it was saved before there were windows."""
        key = f"{prefix}weight"
        weight = state_dict.get(key)
        places = math.prod(self.in_shape)
        if self.window is not None and weight is not None and weight.shape[-1] == places:
            index = windows(self.in_shape, self.out_shape, self.window, self.center)
            state_dict = {**state_dict, key: _cut_windows(weight, index)}
        super()._load_from_state_dict(state_dict, prefix, *rest)

    @property
    def components(self) -> int:
        """How many output maps each channel gets."""
        return self.weight.shape[0]

    @property
    def trainable(self) -> bool:
        """Whether the matrix is a parameter."""
        return isinstance(self.weight, nn.Parameter)

    @staticmethod
    def of(
        weight: Tensor,
        mean: Tensor | None = None,
        *,
        in_shape: Sequence[int],
        out_shape: Sequence[int],
        **settings: Any,
    ) -> LinearPool:
        """Makes the layer for maps with as many axes as `in_shape` has sizes.

        Args:
            weight: The matrix.
            mean: The level of each channel that a constant map keeps.
            in_shape: The size of the maps.
            out_shape: The size of the output.
            **settings: The other arguments of the layer.

        Returns:
            A `LinearPool1d`, `LinearPool2d` or `LinearPool3d`.

        Example:
            >>> LinearPool.of(torch.ones(1, 4) / 4, in_shape=(2, 2), out_shape=(1, 1))
            LinearPool2d((2, 2) -> (1, 1), components=1, trainable=False)
        """
        shape = as_shape(in_shape)
        kind = (LinearPool1d, LinearPool2d, LinearPool3d)[len(shape) - 1]
        return kind(weight, mean, in_shape=shape, out_shape=out_shape, **settings)

    @classmethod
    def average(
        cls,
        in_shape: Sequence[int],
        out_shape: Sequence[int],
        components: int = 1,
        trainable: bool = False,
    ) -> Self:
        """Makes average pooling.

        Args:
            in_shape: The size of the maps, such as (H, W).
            out_shape: The size of the output.
            components: How often each channel is given.
            trainable: Whether the matrix is a parameter.

        Returns:
            The layer; its blocks are those of adaptive average pooling.
        """
        _check_components(components)
        weight = average_weights(in_shape, out_shape).repeat(components, 1, 1)
        return cls(weight, in_shape=in_shape, out_shape=out_shape, trainable=trainable)

    @classmethod
    def from_kernel(
        cls,
        kernel: Tensor,
        in_shape: Sequence[int],
        stride: int | Sequence[int] = 2,
        padding: int | Sequence[int] = 0,
        trainable: bool = False,
    ) -> Self:
        """Makes the strided convolution with one kernel for all channels.

        Args:
            kernel: (h, w), or (k, h, w), with as many axes as the maps have. A single 1 in it is
                plain subsampling.
            in_shape: The size of the maps, such as (H, W).
            stride: As of a convolution.
            padding: As of a convolution.
            trainable: Whether the matrix is a parameter.

        Returns:
            The layer.

        Example:
            >>> pool = LinearPool2d.from_kernel(torch.ones(3, 3), (8, 8), stride=2, padding=1)
            >>> pool.out_shape
            (4, 4)
        """
        weight, out_shape = kernel_weights(kernel, in_shape, stride, padding)
        return cls(weight, in_shape=in_shape, out_shape=out_shape, trainable=trainable)

    @classmethod
    def random(
        cls,
        in_shape: Sequence[int],
        out_shape: Sequence[int],
        components: int = 1,
        generator: torch.Generator | None = None,
    ) -> Self:
        """Makes a trainable matrix that starts where a linear layer would: uniform in +-1/sqrt(N).

        Args:
            in_shape: The size of the maps, such as (H, W).
            out_shape: The size of the output.
            components: How many output maps each channel gets.
            generator: Draws the numbers; torch's own unless given.

        Returns:
            The layer.

        Example:
            >>> LinearPool2d.random((8, 8), (4, 4), components=2)
            LinearPool2d((8, 8) -> (4, 4), components=2, trainable=True)
        """
        _check_components(components)
        source, target = check_shapes(in_shape, out_shape)
        inputs, outputs = torch.Size(source).numel(), torch.Size(target).numel()
        weight = torch.rand(components, outputs, inputs, generator=generator) * 2 - 1
        weight /= inputs**0.5
        return cls(weight, in_shape=source, out_shape=target, trainable=True)

    def resized(
        self, new_in_shape: Sequence[int], new_out_shape: Sequence[int] | None = None
    ) -> LinearPool:
        """Makes the same pooling for maps of another size; the output shrinks by the same factor.

        See `grid.py` for what "the same" means.

        Args:
            new_in_shape: The size of the other maps.
            new_out_shape: The size of their output, if it is to be another one.

        Returns:
            A layer that shares nothing with this one.

        Example:
            >>> LinearPool2d.average((8, 8), (4, 4)).resized((12, 10)).out_shape
            (6, 5)
        """
        target = new_out_shape or scale_out_shape(self.in_shape, self.out_shape, new_in_shape)
        weight = self.resized_weight(new_in_shape, target).detach()
        window = self.window
        if window is not None:
            window = _find_window(weight, new_in_shape, target, window, self.center)
        layer = LinearPool.of(
            weight,
            self.mean,
            in_shape=new_in_shape,
            out_shape=target,
            trainable=self.trainable,
            dtype=weight.dtype,
            window=window,
            center=self.center,
        )
        layer.train(self.training)
        layer.fitted_for, layer.channels = self.fitted_for, self.channels
        layer.fitted_on = self.fitted_on
        layer.weight.requires_grad_(self.weight.requires_grad)
        return layer

    def dense_weight(self) -> Tensor:
        """Gives the whole matrix, through which gradients reach the weights of a window.

        Returns:
            (k, M, N); `weight` itself where there is no window.

        Raises:
            ValueError: If the memory has no room for it.

        Example:
            >>> LinearPool2d.average((8, 8), (4, 4)).dense_weight().shape
            torch.Size([1, 16, 64])
        """
        if self.window is None:
            return self.weight
        index = windows(self.in_shape, self.out_shape, self.window, self.center)
        return write_out_checked(self.weight, index, math.prod(self.in_shape))

    def resized_weight(self, new_in_shape: Sequence[int], new_out_shape: Sequence[int]) -> Tensor:
        """Gives the matrix of `resized`, through which gradients reach this layer's own.

        Args:
            new_in_shape: The size of the other maps.
            new_out_shape: The size of their output.

        Returns:
            (k, M, N) of the new sizes.

        Example:
            >>> LinearPool2d.average((8, 8), (4, 4)).resized_weight((12, 10), (6, 5)).shape
            torch.Size([1, 30, 120])
        """
        return resample_weights(
            self.dense_weight(), self.in_shape, self.out_shape, new_in_shape, new_out_shape
        )

    def forward(self, x: Tensor) -> Tensor:
        """Pools maps.

        Args:
            x: (B, C, *in_shape).

        Returns:
            (B, components * C, *out_shape), first all channels under the first component.
        """
        shapes = (self.in_shape, self.out_shape)
        tables = tuple(getattr(self, name) for name in self._tables)
        cut = (self._tile, self._deep)
        return _check_and_pool(x, self.weight, shapes, self.mean, self.channels, tables, cut)

    def extra_repr(self) -> str:
        """Describes the layer for `print(model)`.

        Returns:
            Sizes, components, and whether it trains.
        """
        return (
            f"{self.in_shape} -> {self.out_shape}, components={self.components}, "
            f"trainable={self.trainable}"
            + ("" if self.window is None else f", window={self.window}")
        )


class LinearPool1d(LinearPool):
    """`LinearPool` for maps (B, C, L), of audio and other series; its arguments are those.

    Example:
        >>> pool = LinearPool1d.average((8,), (4,))
        >>> pool(torch.ones(1, 3, 8)).shape
        torch.Size([1, 3, 4])
    """

    axes = 1


class LinearPool2d(LinearPool):
    """`LinearPool` for maps (B, C, H, W), of images; its arguments are those.

    Example:
        >>> pool = LinearPool2d.average((4, 4), (2, 2))
        >>> pool(torch.ones(1, 3, 4, 4)).shape
        torch.Size([1, 3, 2, 2])
        >>> pool.components, pool.trainable
        (1, False)
        >>> narrow = LinearPool2d(pool.weight, in_shape=(4, 4), out_shape=(2, 2), window=1)
        >>> narrow.weight.shape, narrow.dense_weight().shape
        (torch.Size([1, 4, 9]), torch.Size([1, 4, 16]))
    """

    axes = 2


class LinearPool3d(LinearPool):
    """`LinearPool` for maps (B, C, D, H, W), of videos and volumes; its arguments are those.

    Example:
        >>> pool = LinearPool3d.average((4, 6, 6), (2, 3, 3))
        >>> pool(torch.ones(1, 3, 4, 6, 6)).shape
        torch.Size([1, 3, 2, 3, 3])
    """

    axes = 3


@torch.fx.wrap  # one node of a symbolic trace, which cannot look at sizes
def _check_and_pool(
    x: Tensor,
    weight: Tensor,
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
    mean: Tensor | None,
    channels: int | None,
    tables: tuple[Tensor, ...],
    cut: tuple[tuple[int, ...], Slices],
) -> Tensor:
    """Pools maps that have the size and the channels of the operator.

    tables: nothing for the whole matrix, the index of a window's weights, or the parts of a
    `Tiling`, of which `cut` has the tile, and the slices of a volume.
    """
    in_shape, out_shape = shapes
    axes = len(in_shape)
    if tuple(x.shape[2:]) != in_shape:
        raise ValueError(
            f"LinearPool{axes}d: got a map of shape {tuple(x.shape)}, wanted (batch, channels, "
            f"{', '.join(map(str, in_shape))}); the operator belongs to one map size: "
            f"`resized({name_sizes(axes)})` carries it to another"
        )
    wanted = channels if mean is None else mean.shape[0]
    if wanted is not None and x.shape[1] != wanted:
        raise ValueError(
            f"LinearPool{axes}d: got {x.shape[1]} channels, wanted {wanted}, as many as it was "
            f"{'made for' if mean is None else 'fitted on'}"
        )
    if len(tables) == 4:
        source, target = ((1, *shape)[-2:] for shape in shapes)
        tiling = Tiling(source, target, cut[0], tables[:2], tables[2:])
        return pool_windowed(x, weight, tiling, mean, cut[1])
    if tables:
        weight = write_out(weight, tables[0], math.prod(in_shape))
    return pool_checked(x, weight, out_shape, mean)


def _cut_windows(weight: Tensor, index: Tensor) -> Tensor:
    """The weights (k, M, n) at the places `index` (M, n) of (k, M, N); or these as they are."""
    if weight.shape[-1] == index.shape[1]:
        return weight
    return weight.gather(2, index.to(weight.device).expand(len(weight), -1, -1))


def _find_window(
    weight: Tensor,
    in_shape: Sequence[int],
    out_shape: Sequence[int],
    least: int,
    center: Center,
) -> int:
    """The narrowest window, from `least` on, that holds all weights of a matrix."""
    count = int(weight.count_nonzero())
    for radius in range(least, max(in_shape)):
        index = windows(in_shape, out_shape, radius, center)
        if int(_cut_windows(weight, index).count_nonzero()) == count:
            return radius
    return max(in_shape)
