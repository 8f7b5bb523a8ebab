"""Which layers of a network shrink its maps, and which ones a user's words mean.

Found by one dry run, whoever wrote the network; named by whole names, ends of names or patterns.
Layers that were replaced already are found under the names they went by.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from foveapool.surgery.cost import FitCost, choose_window
from foveapool.surgery.forward import (
    call_network,
    dry_run,
    get_first_line,
    iterate_leaves,
    suggest_names,
    unwrap,
)
from foveapool.surgery.geometry import (
    CONVOLUTIONS,
    TORCHS_OWN,
    as_sizes,
    count_axes,
    get_stride,
    halves_maps,
    keeps_channels,
    may_shrink,
    takes_steps,
)
from foveapool.surgery.watch import Unlisted, Visit, sort_out, watching
from foveapool.surgery.wrapper import PooledLayer


@dataclass(frozen=True)
class Downsampling:
    """A layer that shrinks maps of one to three axes: (B, C, L), (B, C, H, W), (B, C, D, H, W).

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
        is_pooling: Whether it keeps the number of channels, whichever that is, as torch's poolings
            do.
        kernel_size: Of a convolution, as `groups` and `bias` are; None for a pooling.
        groups: The blocks of channels that do not see each other.
        bias: Whether it adds a number to each channel.
        maps_per_image: How many maps it reads of one image: more than one where parts of an image,
            or heads, are folded into the batch; 0 where that is no whole number.
        sample_first: Whether an image's maps stand side by side in the batch; a fit finds it.
        offset: Where in each block of its map at stride 1 its own output lies, where it is not at
            the first place; mode `after` finds it.

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
    in_shape: tuple[int, ...]
    out_shape: tuple[int, ...]
    components: int
    exact: bool
    siblings: tuple[str, ...]
    calls: int
    alike: bool = True
    is_pooling: bool = False
    kernel_size: tuple[int, ...] | None = None
    groups: int = 1
    bias: bool = False
    maps_per_image: int = 1
    sample_first: bool = True
    offset: tuple[int, ...] = ()


class DescribedLayer(Downsampling):
    """A module whose input a pooling is to read, in words of its owner: no dry run looks for it.

    For what shrinks maps in another way than by one convolution or pooling, such as a whole block,
    or down to one position.
    """


Layers = str | Downsampling | Sequence[str | Downsampling]


class DownsamplingLayers(list[Downsampling]):
    """Such layers in the order of the forward pass; `print` shows them as a table.

    The cost to fit is the memory for sums over pairs of places, and the time to solve on a core, in
    mode `replace`: with the window that `window="auto"` takes, if one is named, and otherwise with
    the whole map. `unlisted` is what shrinks maps besides, and cannot be replaced as it stands.
    """

    _header = (
        *("layer", "kind", "channels", "map", "components", "cost to fit"),
        "reads the same as",
    )

    def __init__(
        self, layers: Iterable[Downsampling] = (), unlisted: Iterable[Unlisted] = ()
    ) -> None:
        super().__init__(layers)
        self.unlisted = list(unlisted)

    def _cells(self) -> list[tuple[str, ...]]:
        """A line of the table for each layer, in words."""
        lines: list[tuple[str, ...]] = []
        for each in self:
            sizes = ["x".join(map(str, shape)) for shape in (each.in_shape, each.out_shape)]
            kind = each.kind + (f", used {each.calls} times" if each.calls > 1 else "")
            if each.maps_per_image != 1:
                kind += f", {each.maps_per_image or 'varying'} maps an image"
            lines.append(
                (
                    each.name,
                    kind,
                    f"{each.in_channels} -> {each.out_channels}",
                    " -> ".join(sizes),
                    f"{each.components}" + ("" if each.exact else " and a 1x1 convolution"),
                    _say_cost(each),
                    ", ".join(each.siblings),
                )
            )
        return lines

    def __str__(self) -> str:
        besides = [f"  {each}" for each in self.unlisted]
        if besides:
            besides.insert(0, "shrinks maps too, and cannot be replaced as it stands:")
        if not self:
            return "\n".join(["no layer shrinks a map to more than one place", *besides])
        lines = [self._header, *self._cells()]
        wide = [max(map(len, column)) for column in zip(*lines, strict=True)]
        padded = ([f"{cell:<{n}}" for cell, n in zip(cells, wide, strict=True)] for cells in lines)
        return "\n".join([*("  ".join(cells).rstrip() for cells in padded), *besides])


def _say_cost(layer: Downsampling) -> str:
    """The cost of a fit with an automatic window, and which that is, unless it is the whole map."""
    sizes = (layer.in_shape, layer.out_shape, layer.components)
    window = choose_window(*sizes)
    seen = "" if window is None else f", window {window}"
    return f"{FitCost.estimate(*sizes, window)}{seen}"


def downsampling_layers(model: nn.Module, example: Any) -> DownsamplingLayers:
    """Lists the layers of a network that shrink a map, found by one dry run.

    Convolutions, poolings, and other modules that make maps smaller by code of their own, such as a
    BlurPool. What shrinks maps otherwise is named below the table: functions and slices in the code
    of a block, merged tokens. Names are those inside of `torch.compile` and of parallel or
    averaging wrappers. Global pooling, down to one place, is left out.

    Args:
        model: The network.
        example: What it is called with: a tensor, a tuple of arguments or a dict of them.

    Returns:
        The layers in the order of the forward pass, a list that prints as a table; its `unlisted`
        is what shrinks maps and cannot be replaced.

    Raises:
        ValueError: If the network cannot be called with the example.

    Example:
        >>> import torch
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, 2, 1))
        >>> found = downsampling_layers(model, torch.ones(1, 3, 8, 8))
        >>> [(layer.name, layer.components) for layer in found]
        [('1', 2)]
        >>> print(found)
        layer  kind    channels  map         components  cost to fit      reads the same as
        1      Conv2d  8 -> 16   8x8 -> 4x4  2           1 MB, under 1 s
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
    with dry_run(model):
        with watching(model) as watched:
            call_network(model, example)
        visits, unlisted = sort_out(model, watched)
    first = next((each for each in iterate_leaves(example) if isinstance(each, Tensor)), None)
    images = len(first) if first is not None and first.dim() else 1
    layers = [_describe_layer(name, visits, watched.read[name], images) for name in visits]
    return DownsamplingLayers(layers, unlisted)


def _describe_layer(
    name: str, visits: Mapping[str, Visit], read: Sequence[Any], images: int
) -> Downsampling:
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
    if isinstance(layer, CONVOLUTIONS):
        convolution = {"kernel_size": as_sizes(layer.kernel_size, count_axes(layer) or 1)}
        convolution["groups"] = layer.groups
        convolution["bias"] = layer.bias is not None
    return Downsampling(
        name=name,
        kind=type(layer).__name__,
        in_channels=source.shape[1],
        out_channels=target.shape[1],
        in_shape=tuple(source.shape[2:]),
        out_shape=tuple(target.shape[2:]),
        components=max(1, round(ratio)),
        exact=ratio >= 1 and ratio == int(ratio),
        siblings=siblings,
        calls=len(read),
        alike=all(shape == read[0] for shape in read),
        is_pooling=keeps_channels(layer),
        maps_per_image=len(source) // images if images and len(source) % images == 0 else 0,
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
        if name and (isinstance(module, PooledLayer) or may_shrink(module))
        if not name.startswith(inside)
    ]
    # A pattern means what is known for a layer that shrinks, or may be one.
    known = [name for name in layers if _looks_like_a_layer(model.get_submodule(name))]
    tests: list[tuple[Callable[[str], object], list[str]]] = [
        (lambda name: name == key, layers),
        (lambda name: name.endswith("." + key), known),
        (lambda name: name.endswith("." + key), layers),
        (lambda name: _fullmatch(key, name), known),
    ]
    for test, names in tests:
        if found := [name for name in names if test(name)]:
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


def _looks_like_a_layer(module: nn.Module) -> bool:
    own = isinstance(module, (PooledLayer, *TORCHS_OWN))
    return own or get_stride(module) is not None


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
