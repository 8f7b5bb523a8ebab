"""Which layers of a network shrink its maps, and which ones a user's words mean.

Found by one dry run, whoever wrote the network; named by whole names, ends of names or patterns.
Layers that were replaced already are found under the names they went by.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from foveapool.surgery.forward import (
    call_network,
    dry_run,
    get_first_line,
    get_version,
    suggest_names,
    unwrap,
)
from foveapool.surgery.geometry import POOLINGS, as_pair, halves_maps, takes_steps
from foveapool.surgery.wrapper import PooledLayer


@dataclass(frozen=True)
class Downsampling:
    """A layer that shrinks (B, C, H, W) maps.

    Attributes:
        name: Its name in the network.
        kind: The class's name, such as Conv2d.
        in_channels: The channels that it reads.
        out_channels: The channels that it gives.
        in_shape: The spatial size of the maps that it reads.
        out_shape: The spatial size of the maps that it gives.
        components: How many components fit: C_out / C_in, at least 1.
        exact: Whether C_out is a whole multiple of C_in.
        siblings: Other such layers that read the same tensor.
        calls: How often one forward pass goes through it.
        alike: Whether it reads maps of one size in all of these calls.
        is_pooling: Whether it is one of torch's poolings, or made from one: these keep the number
            of channels.
        kernel_size: Of a convolution, as `groups` and `bias` are; None for a pooling.
        groups: The blocks of channels that do not see each other.
        bias: Whether it adds a number to each channel.

    Example:
        >>> import torch
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1))
        >>> (layer,) = downsampling_layers(model, torch.ones(1, 3, 8, 8))
        >>> layer.in_shape, layer.out_shape, layer.components, layer.exact
        ((8, 8), (4, 4), 3, False)
    """

    name: str
    kind: str
    in_channels: int
    out_channels: int
    in_shape: tuple[int, int]
    out_shape: tuple[int, int]
    components: int
    exact: bool
    siblings: tuple[str, ...]
    calls: int
    alike: bool = True
    is_pooling: bool = False
    kernel_size: tuple[int, int] | None = None
    groups: int = 1
    bias: bool = False


class DescribedLayer(Downsampling):
    """A module whose input a pooling is to read, in words of its owner: no dry run looks for it.

    For what shrinks maps in another way than by one convolution or pooling, such as a whole block,
    or down to one position.
    """


Layers = str | Downsampling | Sequence[str | Downsampling]


class DownsamplingLayers(list[Downsampling]):
    """Such layers in the order of the forward pass; `print` shows them as a table."""

    _header = ("layer", "kind", "channels", "map", "components", "reads the same as")

    def _cells(self) -> list[tuple[str, ...]]:
        """A line of the table for each layer, in words."""
        lines: list[tuple[str, ...]] = []
        for each in self:
            sizes = [f"{height}x{width}" for height, width in (each.in_shape, each.out_shape)]
            lines.append(
                (
                    each.name,
                    each.kind + (f", used {each.calls} times" if each.calls > 1 else ""),
                    f"{each.in_channels} -> {each.out_channels}",
                    " -> ".join(sizes),
                    f"{each.components}" + ("" if each.exact else " and a 1x1 convolution"),
                    ", ".join(each.siblings),
                )
            )
        return lines

    def __str__(self) -> str:
        if not self:
            return (
                "no convolution or pooling shrinks a (B, C, H, W) map to more than one place; one "
                "written as a function, such as F.avg_pool2d, is not seen: make it a module, "
                "nn.AvgPool2d"
            )
        lines = [self._header, *self._cells()]
        wide = [max(map(len, column)) for column in zip(*lines, strict=True)]
        padded = ([f"{cell:<{n}}" for cell, n in zip(cells, wide, strict=True)] for cells in lines)
        return "\n".join("  ".join(cells).rstrip() for cells in padded)


@dataclass
class _Visit:
    module: nn.Module
    source: Tensor
    target: Tensor
    version: int | None  # of the source, which others may write into later


def downsampling_layers(model: nn.Module, example: Any) -> DownsamplingLayers:
    """Lists the convolutions and poolings of a network that shrink a map, found by one dry run.

    Names are those inside of `torch.compile` and of parallel or averaging wrappers. Global pooling,
    down to one place, is left out; so is all that does not work on 4-D maps.

    Args:
        model: The network.
        example: What it is called with: a tensor, a tuple of arguments or a dict of them.

    Returns:
        The layers in the order of the forward pass, a list that prints as a table.

    Raises:
        ValueError: If the network cannot be called with the example.

    Example:
        >>> import torch
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, 2, 1))
        >>> found = downsampling_layers(model, torch.ones(1, 3, 8, 8))
        >>> [(layer.name, layer.components) for layer in found]
        [('1', 2)]
        >>> print(found)
        layer  kind    channels  map         components  reads the same as
        1      Conv2d  8 -> 16   8x8 -> 4x4  2
    """
    try:
        return watch_layers(model, example)
    except (TypeError, AttributeError) as error:
        # A whole batch or a size is easily taken for an example.
        if not isinstance(example, (tuple, list)) or not _raised_by_torch(error):
            raise
        parts = [
            f"a tensor {tuple(part.shape)}" if isinstance(part, Tensor) else repr(part)
            for part in example
        ]
        raise ValueError(
            f"example: got a {type(example).__name__} of {', '.join(parts)}, with which the model "
            f"cannot be called ({get_first_line(error)}); wanted what it is called with, such as "
            "the images of a batch without the labels, or torch.zeros(1, 3, 32, 32)"
        ) from error


def _raised_by_torch(error: BaseException) -> bool:
    """Whether a call was wrong, and not what the network's own code did with it."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return Path(last.filename).is_relative_to(Path(torch.__file__).parent)


def watch_layers(model: nn.Module, example: Any) -> DownsamplingLayers:
    """`downsampling_layers`, with the network's own errors as they are."""
    model = unwrap_network(model)
    visits: dict[str, _Visit] = {}
    read: dict[str, list[Any]] = {}  # the shapes without the batch, call by call

    def visit(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, given: Any, named: Any, output: Any) -> None:
            source = get_first_argument(given, named)
            if not isinstance(source, Tensor):
                return
            read.setdefault(name, []).append(source.shape[1:])
            if name not in visits and takes_steps(module) and _shrinks(source, output):
                visits[name] = _Visit(module, source, output, get_version(source))

        return hook

    candidates = {
        name: module
        for name, module in model.named_modules()
        if name and isinstance(module, (nn.Conv2d, *POOLINGS))
    }
    with dry_run(model), ExitStack() as watching:
        for name, module in candidates.items():
            handle = module.register_forward_hook(visit(name), with_kwargs=True)
            watching.callback(handle.remove)
        call_network(model, example)
    return DownsamplingLayers(_describe_layer(name, visits, read[name]) for name in visits)


def get_first_argument(given: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    """What a layer was called with: torch's own call it `input`."""
    return given[0] if given else named.get("input")


def _shrinks(source: Tensor, target: Any) -> bool:
    if not isinstance(target, Tensor):
        return False
    if source.dim() != 4 or target.dim() != 4:
        return False
    smaller = target.shape[2] * target.shape[3] < source.shape[2] * source.shape[3]
    grows = target.shape[2] > source.shape[2] or target.shape[3] > source.shape[3]
    return smaller and not grows and target.shape[2] * target.shape[3] > 1


def _describe_layer(name: str, visits: Mapping[str, _Visit], read: Sequence[Any]) -> Downsampling:
    visit = visits[name]
    source, target = visit.source, visit.target
    siblings = tuple(
        other
        for other, that in visits.items()
        if other != name and that.source is source
        # Where changes are not counted, there may have been one.
        if visit.version is not None and that.version == visit.version
    )
    ratio = target.shape[1] / source.shape[1]
    layer = visit.module
    convolution: dict[str, Any] = {}
    if isinstance(layer, nn.Conv2d):
        height, width = as_pair(layer.kernel_size)
        convolution = {"kernel_size": (height, width), "groups": layer.groups}
        convolution["bias"] = layer.bias is not None
    return Downsampling(
        name=name,
        kind=type(layer).__name__,
        in_channels=source.shape[1],
        out_channels=target.shape[1],
        in_shape=(source.shape[2], source.shape[3]),
        out_shape=(target.shape[2], target.shape[3]),
        components=max(1, round(ratio)),
        exact=ratio >= 1 and ratio == int(ratio),
        siblings=siblings,
        calls=len(read),
        alike=all(shape == read[0] for shape in read),
        is_pooling=isinstance(layer, POOLINGS),
        **convolution,
    )


def check_same_layer(found: Downsampling, fitted: Downsampling) -> None:
    """Raises unless a layer has the sizes of the one that was fitted."""
    for name in ("in_channels", "out_channels", "in_shape", "out_shape", "groups", "bias"):
        got, wanted = getattr(found, name), getattr(fitted, name)
        if got != wanted:
            raise ValueError(
                f"model: got {name} {got} at {found.name}, wanted {wanted}, as in the fit; give "
                "the network of the fit and images of the same size"
            )


def unwrap_network(model: nn.Module) -> nn.Module:
    """The network inside of `torch.compile`, of parallel and of averaging wrappers."""
    model = unwrap(model)
    if isinstance(model, torch.jit.ScriptModule):
        raise ValueError(
            "model: got a scripted or traced network, whose layers can be neither watched nor "
            "changed, wanted the nn.Module it was made from; script it again afterwards"
        )
    return model


def match_layers(model: nn.Module, key: str) -> list[str]:
    """The names of the layers that `key` means; raises if there is none."""
    if not isinstance(key, str) or not key:
        hint = f"; write {str(key)!r}" if isinstance(key, int) else ""
        raise ValueError(f"layer: got {key!r}, wanted the name of a layer of the model{hint}")
    inside = tuple(name + "." for names in find_pooled_layers(model).values() for name in names)
    layers = [
        name
        for name, module in model.named_modules(remove_duplicate=False)
        # The network itself has no name and no place that something else could take.
        if name and isinstance(module, (nn.Conv2d, *POOLINGS, PooledLayer))
        if not name.startswith(inside)
    ]
    tests: list[Callable[[str], object]] = [
        lambda name: name == key,
        lambda name: name.endswith("." + key),
        lambda name: _fullmatch(key, name),
    ]
    for test in tests:
        if found := [name for name in layers if test(name)]:
            return found
    if key in dict(model.named_modules()):
        kind = type(model.get_submodule(key))
        if "quantized" in kind.__module__:
            raise ValueError(
                f"layer: got {key!r}, a quantized {kind.__name__}, wanted one that works on "
                "floating-point maps; give the network as it was before, and quantize it afterwards"
            )
        raise ValueError(
            f"layer: got {key!r}, a {kind.__name__}, wanted a convolution or a pooling; "
            "downsampling_layers(model, example) lists those that shrink a map"
        )
    raise ValueError(
        f"layer: got {key!r}, which is no convolution's or pooling's name, end of a name or "
        f"pattern; {suggest_names(key, layers)}; a pooling written as a function, such as "
        "F.avg_pool2d, has no name: make it a module"
    )


def match_poolings(
    model: nn.Module, pools: Mapping[str, nn.Module]
) -> dict[nn.Module, tuple[tuple[str, ...], nn.Module]]:
    """The layers to replace, each once, with all their names and the pooling for them."""
    if not pools:
        raise ValueError("pools: got none, wanted {name of a layer: pooling}")
    every: dict[nn.Module, list[str]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        every.setdefault(module, []).append(name)
    chosen: dict[nn.Module, tuple[tuple[str, ...], nn.Module]] = {}
    for key, pool in pools.items():
        if not isinstance(pool, nn.Module):
            raise ValueError(f"{key}: got a {type(pool).__name__}, wanted a pooling module")
        for name in _match_shrinking(model, key, pool):
            layer = model.get_submodule(name)
            _check_is_asked_for(model, name)
            if layer in chosen and chosen[layer][1] is not pool:
                raise ValueError(
                    f"{name}: got two poolings, {chosen[layer][0]} is the same layer; wanted one"
                )
            chosen[layer] = (tuple(every[layer]), pool)
    return chosen


def _check_is_asked_for(model: nn.Module, name: str) -> None:
    """Raises for a layer that is called without a look at its place."""
    holder = model.get_submodule(name.rpartition(".")[0])
    if isinstance(holder, torch._dynamo.eval_frame.OptimizedModule):
        raise ValueError(
            f"{name}: got a layer in a torch.compile of its own, which would go on calling it, "
            "wanted one that can be exchanged; compile it by layer.compile(), or the network"
        )


def _match_shrinking(model: nn.Module, key: str, pool: nn.Module) -> list[str]:
    """Of the layers that `key` means those which shrink by steps, as a fit takes them."""
    names = match_layers(model, key)
    # Who names a layer exactly means it.
    if names == [key] or not halves_maps(pool):
        return names
    layers = ((name, model.get_submodule(name)) for name in names)
    found = [name for name, m in layers if isinstance(m, PooledLayer) or takes_steps(m)]
    if not found:
        raise ValueError(
            f"{key}: got a pooling that shrinks maps for {', '.join(names)}, of stride 1, wanted "
            "a layer that shrinks them; downsampling_layers(model, example) lists these"
        )
    return found


def _fullmatch(key: str, name: str) -> bool:
    try:
        return re.fullmatch(key, name) is not None
    except re.error:
        return False


def find_pooled_layers(model: nn.Module) -> dict[PooledLayer, list[str]]:
    """The stand-ins of a network with all their names."""
    places: dict[PooledLayer, list[str]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        if isinstance(module, PooledLayer):
            places.setdefault(module, []).append(name)
    return places
