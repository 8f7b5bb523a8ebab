"""Which layers of a network shrink its maps: found by one dry run, whoever wrote the network."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from foveapool.surgery.geometry import POOLINGS, stride_of
from foveapool.surgery.visit import call, dry_run, hooked, unwrapped, version_of


@dataclass(frozen=True)
class Downsampling:
    """A layer that shrinks (B, C, H, W) maps."""

    name: str
    kind: str  # the class's name, such as Conv2d
    in_channels: int
    out_channels: int
    in_shape: tuple[int, int]
    out_shape: tuple[int, int]
    components: int  # how many fit: C_out / C_in, at least 1
    exact: bool  # whether C_out is a whole multiple of C_in
    siblings: tuple[str, ...]  # other such layers that read the same tensor
    calls: int  # how often one forward pass goes through it
    alike: bool = True  # whether it reads maps of one size in all of these calls


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
    """The convolutions and poolings in `model` that shrink a map, a list that prints as a table.

    `example` is what the model is called with: a tensor, a tuple of arguments or a dict of them.
    Names are those inside of `torch.compile` and `DistributedDataParallel`. Global pooling, down
    to one place, is left out; so is all that does not work on 4-D maps.

    >>> import torch
    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, 2, 1))
    >>> found = downsampling_layers(model, torch.ones(1, 3, 8, 8))
    >>> [(layer.name, layer.components) for layer in found]
    [('1', 2)]
    >>> print(found)
    layer  kind    channels  map         components  reads the same as
    1      Conv2d  8 -> 16   8x8 -> 4x4  2
    """
    model = unwrapped(model)
    visits: dict[str, _Visit] = {}
    read: dict[str, list[Any]] = {}  # the shapes without the batch, call by call

    def visit(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            if not inputs or not isinstance(inputs[0], Tensor):
                return
            read.setdefault(name, []).append(inputs[0].shape[1:])
            if name not in visits and _strides(module) and _shrinks(inputs[0], output):
                visits[name] = _Visit(module, inputs[0], output, version_of(inputs[0]))

        return hook

    candidates = {
        name: module
        for name, module in model.named_modules()
        if name and isinstance(module, (nn.Conv2d, *POOLINGS))
    }
    with dry_run(model), hooked((m, visit(name)) for name, m in candidates.items()):
        call(model, example)
    return DownsamplingLayers(_described(name, visits, read[name]) for name in visits)


def _strides(module: nn.Module) -> bool:
    """Whether the layer leaves places out, rather than losing its edges for want of padding."""
    steps = stride_of(module)
    return steps is None or max(steps) > 1


def _shrinks(source: Tensor, target: Any) -> bool:
    if not isinstance(target, Tensor):
        return False
    if source.dim() != 4 or target.dim() != 4:
        return False
    smaller = target.shape[2] * target.shape[3] < source.shape[2] * source.shape[3]
    grows = target.shape[2] > source.shape[2] or target.shape[3] > source.shape[3]
    return smaller and not grows and target.shape[2] * target.shape[3] > 1


def _described(name: str, visits: Mapping[str, _Visit], read: Sequence[Any]) -> Downsampling:
    visit = visits[name]
    source, target = visit.source, visit.target
    siblings = tuple(
        other
        for other, that in visits.items()
        if other != name and that.source is source and that.version == visit.version
    )
    ratio = target.shape[1] / source.shape[1]
    return Downsampling(
        name=name,
        kind=type(visit.module).__name__,
        in_channels=source.shape[1],
        out_channels=target.shape[1],
        in_shape=(source.shape[2], source.shape[3]),
        out_shape=(target.shape[2], target.shape[3]),
        components=max(1, round(ratio)),
        exact=ratio >= 1 and ratio == int(ratio),
        siblings=siblings,
        calls=len(read),
        alike=all(shape == read[0] for shape in read),
    )
