"""Moving a layer's stride behind the norm and the activation that follow it.

A pooling does best behind them, where the network's next layer reads its maps. A strided layer
gives the same numbers there: at stride 1, with every other place dropped later on. The module that
drops them is a layer that shrinks its maps like any other, and a pooling can take its place.
"""

from __future__ import annotations

import warnings
from typing import Any

from torch import Tensor, nn

from foveapool.surgery.find import unwrap_network
from foveapool.surgery.forward import (
    call_network,
    dry_run,
    get_module,
    iterate_leaves,
)
from foveapool.surgery.geometry import get_stride, ones_for
from foveapool.surgery.wrapper import PooledLayer

NAME = "subsample"
# Of the largest output: sums are added up in another order at another stride.
TOLERANCE, TOLERANCE_HALF = 1e-3, 5e-2


class KeepsFirst(nn.Module):
    """Keeps the first place of each block: the stride of `source`, which has stride 1 now."""

    source: Any
    own_stride: Any

    @classmethod
    def of(cls, source: Any, axes: int) -> KeepsFirst:
        """The layer for maps of so many axes: a max pooling over one place."""
        kind: Any = (Subsampling1d, Subsampling, Subsampling3d)[axes - 1]
        made: KeepsFirst = kind(1, stride=get_stride(source, axes))
        # Past nn.Module, which would list its weights twice.
        object.__setattr__(made, "source", source)
        made.own_stride = source.stride
        return made


class Subsampling1d(nn.MaxPool1d, KeepsFirst):
    """For maps (B, C, L)."""


class Subsampling(nn.MaxPool2d, KeepsFirst):
    """For maps (B, C, H, W); adapters have known it by this name since before the others."""


class Subsampling3d(nn.MaxPool3d, KeepsFirst):
    """For maps (B, C, D, H, W)."""


def move_stride(
    model: nn.Module,
    example: Any,
    layer: str,
    *,
    behind: str | None = None,
    before: str | None = None,
) -> str:
    """Has a layer work at stride 1 and drops the places between later on, in place.

    The network stays the same function of the same weights, with the same names in its state; what
    stands between the layer and the new one works on larger maps. Fit the new one in mode `after`:
    the pooling then stands behind norm and activation, at full resolution.

    Args:
        model: The network.
        example: What it is called with: a tensor, a tuple of arguments or a dict of them.
        layer: The exact name of a layer with a stride.
        behind: The name of the module behind whose output the places are dropped, such as the
            activation.
        before: Or that of the module in front of which they are dropped, such as the next
            convolution: for an activation that is a function, or a module used several times.

    Returns:
        The name of the layer that drops them, for `ClosedFormPooling.fit`.

    Raises:
        ValueError: If there are no such modules, the layer has no stride, or the network would not
            be the same: where something between them is not done place by place, say. It is then
            as it was.

    Example:
        >>> import torch
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU())
        >>> images, labels = torch.randn(40, 3, 8, 8), torch.arange(40) % 2
        >>> name = move_stride(model, images[:1], "0", behind="2")
        >>> name
        '2.subsample'
        >>> from foveapool import ClosedFormPooling
        >>> fit = ClosedFormPooling().fit(model, [(images, labels)], layer=name, mode="after")
        >>> fit.replace(model).parameters
        (240, 240)
        >>> model(images).shape, model[2].subsample.pool.in_shape
        (torch.Size([40, 8, 4, 4]), (8, 8))
    """
    model = unwrap_network(model)
    if (behind is None) == (before is None):
        raise ValueError(
            f"move_stride: got behind={behind!r} and before={before!r}, wanted one of them"
        )
    strided: Any = get_module(model, layer)
    _check_has_stride(layer, strided)
    other = behind if before is None else before
    assert other is not None
    neighbor = get_module(model, other)
    if hasattr(neighbor, NAME):
        raise ValueError(
            f"{other}: has something called {NAME} already, wanted a module that a stride can be "
            "moved to; restore_stride(model) undoes an earlier call"
        )
    wanted, calls = _run_watching(model, example, neighbor)
    if len(calls) != 1:
        raise ValueError(
            f"{other}: is used {len(calls)} times in one forward pass, wanted once; name a module "
            "that is used here only, such as the layer that reads the maps, by before="
        )
    subsampling = KeepsFirst.of(strided, calls[0])
    strided.stride = ones_for(subsampling.own_stride)
    neighbor.add_module(NAME, subsampling)
    if before is None:
        neighbor.register_forward_hook(_subsample_output)
    else:
        neighbor.register_forward_pre_hook(_subsample_input)
    try:
        found, _ = _run_watching(model, example, neighbor)
        why = _find_difference(wanted, found)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        why = f"it cannot be called so ({str(error).splitlines()[0]})"
    if why:
        _undo(neighbor, subsampling)
        where = f"behind {other}" if before is None else f"before {other}"
        raise ValueError(
            f"{layer}: its stride cannot be moved {where}: {why}, wanted the same numbers as "
            "before; what stands between them has to work place by place, as norms in evaluation "
            "mode and activations do; name another module"
        )
    return f"{other}.{NAME}"


def restore_stride(model: nn.Module) -> nn.Module:
    """Undoes `move_stride`: every layer has its own stride again.

    Args:
        model: The network, with `restore` called before if poolings were put in.

    Returns:
        The network itself.

    Raises:
        ValueError: If a pooling stands where places were dropped.

    Example:
        >>> import torch
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU())
        >>> name = move_stride(model, torch.zeros(1, 3, 8, 8), "0", behind="1")
        >>> restore_stride(model)[0].stride
        (2, 2)
    """
    inside = unwrap_network(model)
    for name, module in inside.named_modules():
        if isinstance(module, PooledLayer) and isinstance(module.original, KeepsFirst):
            raise ValueError(
                f"{name}: got a pooling where places were dropped, wanted none; call "
                "restore(model) first"
            )
    moved = [
        (module, child)
        for module in inside.modules()
        for child in module.children()
        if isinstance(child, KeepsFirst)
    ]
    if not moved:
        warnings.warn("restore_stride: got a network whose strides are its own", stacklevel=2)
    for module, subsampling in moved:
        _undo(module, subsampling)
    return model


def _check_has_stride(name: str, layer: Any) -> None:
    if isinstance(layer, PooledLayer):
        raise ValueError(f"{name}: is replaced already; call restore(model) first")
    steps = get_stride(layer)
    if steps is None or max(steps) == 1:
        raise ValueError(
            f"{name}: got a {type(layer).__name__} without a stride of 2 or more, wanted a layer "
            "that has one; downsampling_layers(model, example) lists those that shrink a map"
        )


def _subsample_output(module: nn.Module, given: Any, output: Any) -> Any:
    return module.subsample(output)  # type: ignore[operator]


def _subsample_input(module: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
    first, *others = given
    return (module.subsample(first), *others)  # type: ignore[operator]


def _undo(module: nn.Module, subsampling: KeepsFirst) -> None:
    subsampling.source.stride = subsampling.own_stride
    delattr(module, NAME)
    for hooks in (module._forward_hooks, module._forward_pre_hooks):
        ours = [key for key, hook in hooks.items() if hook in (_subsample_output, _subsample_input)]
        for key in ours:
            del hooks[key]


def _run_watching(
    model: nn.Module, example: Any, module: nn.Module
) -> tuple[list[Tensor], list[int]]:
    """The network's output tensors, and the axes of the maps in each use of a module."""
    calls: list[int] = []

    def watch(module: nn.Module, given: Any, output: Any) -> None:
        maps = next((each for each in (output, *given) if isinstance(each, Tensor)), None)
        calls.append(2 if maps is None else min(max(maps.dim() - 2, 1), 3))

    handle = module.register_forward_hook(watch)
    try:
        with dry_run(model):
            output = call_network(model, example)
    finally:
        handle.remove()
    return [leaf for leaf in iterate_leaves(output) if isinstance(leaf, Tensor)], calls


def _find_difference(wanted: list[Tensor], found: list[Tensor]) -> str:
    """How outputs differ, in words; nothing where they are the same up to rounding."""
    shapes = [[tuple(each.shape) for each in outputs] for outputs in (wanted, found)]
    if shapes[0] != shapes[1]:
        return f"the network's output had the shapes {shapes[0]} and would have {shapes[1]}"
    for before, after in zip(wanted, found, strict=True):
        if not before.is_floating_point():
            continue
        tolerance = TOLERANCE if before.dtype.itemsize >= 4 else TOLERANCE_HALF
        largest, apart = float(before.abs().max()), float((after - before).abs().max())
        if not apart <= tolerance * largest:
            return f"the network's output, at most {largest:.3g}, would differ by {apart:.3g}"
    return ""
