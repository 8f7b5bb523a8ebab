"""What shrinks maps while a network is called, whether or not a pooling could take its place.

Modules are seen from outside, by what they are given and what they return; functions and slices in
a module's own code by torch's dispatch, with the module in whose code they stand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from foveapool.pooling.module import LinearPool
from foveapool.surgery.forward import get_version
from foveapool.surgery.geometry import (
    TORCHS_OWN,
    count_axes,
    count_channels,
    may_shrink,
    takes_steps,
)
from foveapool.surgery.wrapper import PooledLayer

Shape = tuple[int, ...]

# Functions that may shrink a map; the number of axes stands behind most names.
_FUNCTIONS = (
    *("avg_pool", "max_pool", "lp_pool", "fractional_max_pool", "adaptive_avg_pool"),
    *("adaptive_max_pool", "conv", "interpolate", "pixel_unshuffle"),
)
_MODULES = {"avg_pool": "AvgPool", "max_pool": "MaxPool", "lp_pool": "LPPool"}
_MODULES |= {f"adaptive_{name}": f"Adaptive{kind}" for name, kind in _MODULES.items()}


@dataclass(frozen=True)
class Unlisted:
    """Something that shrinks maps and is no layer, so that no pooling can take its place.

    Attributes:
        holder: The module in whose code it stands, "" for the network itself.
        kind: That module's class.
        what: Such as "F.avg_pool2d" or "a slice in steps".
        in_shape: The tensor that it reads, without the batch.
        out_shape: The tensor that it gives.
        advice: What to do to have it listed, if something is known.

    Example:
        >>> from foveapool import downsampling_layers
        >>> class Halving(nn.Module):
        ...     def forward(self, x):
        ...         return nn.functional.avg_pool2d(x, 2)
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.Sequential(Halving()))
        >>> downsampling_layers(model, torch.ones(1, 3, 8, 8))[0].kind  # a layer of its own
        'Halving'
        >>> class Block(Halving):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.conv = nn.Conv2d(3, 8, 3, padding=1)
        ...     def forward(self, x):
        ...         return super().forward(self.conv(x))
        >>> print(downsampling_layers(nn.Sequential(Block()), torch.ones(1, 3, 8, 8)).unlisted[0])
        0 (Block): F.avg_pool2d, 8x8x8 -> 8x4x4; make it a module, nn.AvgPool2d
    """

    holder: str
    kind: str
    what: str
    in_shape: Shape
    out_shape: Shape
    advice: str = ""

    def __str__(self) -> str:
        place = f"{self.holder} ({self.kind})" if self.holder else f"the network ({self.kind})"
        sizes = (
            "x".join(map(str, shape)) if shape else "?" for shape in (self.in_shape, self.out_shape)
        )
        return f"{place}: {self.what}, {' -> '.join(sizes)}" + (
            f"; {self.advice}" if self.advice else ""
        )


@dataclass
class Visit:
    """A call of a module that made its map smaller."""

    module: nn.Module
    source: Tensor
    target: Tensor
    version: int | None  # of the source, which others may write into later
    alone: bool  # whether it was called with the map and nothing else


@dataclass
class Watched:
    """One call of a network, in the order in which what shrinks came to its end.

    `visits` are the first calls that shrink a map; `read` the shapes without the batch of all
    calls; `fewer` the modules whose output has fewer places, tokens among them, with what they read
    and gave; `events` the functions that shrink: the modules around them, their name, their shapes.
    """

    visits: dict[str, Visit] = field(default_factory=dict)
    read: dict[str, list[Any]] = field(default_factory=dict)
    fewer: dict[str, tuple[Shape, Shape]] = field(default_factory=dict)
    events: dict[tuple[tuple[str, ...], str, Shape, Shape], None] = field(default_factory=dict)


class _Functions(TorchFunctionMode):
    """Notes functions that shrink, and within which modules they were called."""

    def __init__(self, model: nn.Module, watched: Watched, within: list[str]) -> None:
        super().__init__()
        self.modules, self.watched, self.within = dict(model.named_modules()), watched, within

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        source = args[0] if args else (kwargs or {}).get("input")
        name = getattr(func, "__name__", "")
        if isinstance(source, Tensor) and isinstance(result, Tensor):
            shapes = tuple(source.shape[1:]), tuple(result.shape[1:])
            if self._may_step(name, args, *shapes) and _are_halved(*shapes):
                what = "a slice in steps" if name == "__getitem__" else f"F.{name}"
                self.watched.events[tuple(self.within), what, *shapes] = None
        return result

    def _may_step(self, name: str, args: Any, before: Shape, after: Shape) -> bool:
        if name != "__getitem__":
            return name.rstrip("123d") in _FUNCTIONS
        index = args[1] if isinstance(args[1], tuple) else (args[1],)
        steps = sum(isinstance(each, slice) and (each.step or 1) > 1 for each in index)
        if steps != 1:
            return steps > 1
        # Along one axis alone it may be every other channel, as of rotary embeddings; or tokens.
        beside = self.modules[self.within[-1]].modules()
        return before[:1] == after[:1] and len(before) - 1 in map(count_axes, beside)


@contextmanager
def watching(model: nn.Module) -> Iterator[Watched]:
    """What shrinks while the model is called."""
    watched, within = Watched(), list[str]()

    def enter(name: str) -> Callable[..., None]:
        return lambda *_: within.append(name)

    def leave(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, given: Any, named: Any, output: Any) -> None:
            within.pop()
            source = get_first_argument(given, named)
            if not isinstance(source, Tensor):
                return
            watched.read.setdefault(name, []).append(source.shape[1:])
            is_layer = isinstance(output, Tensor)
            if isinstance(output, tuple) and output:
                output = output[0]  # as blocks of tokens give what they attended to besides
            if not isinstance(output, Tensor):
                return
            fits = is_layer and count_axes(module) in (None, source.dim() - 2)
            if name not in watched.visits and fits and shrinks(source, output):
                alone = len(given) + len(named) == 1
                visit = Visit(module, source, output, get_version(source), alone)
                watched.visits[name] = visit
            if _has_fewer_places(source, output, module):
                shapes = tuple(source.shape[1:]), tuple(output.shape[1:])
                watched.fewer.setdefault(name, shapes)

        return hook

    with ExitStack() as stack:
        for name, module in model.named_modules():
            if isinstance(module, torch.jit.ScriptModule):
                continue
            for handle in (
                module.register_forward_pre_hook(enter(name), prepend=True),
                module.register_forward_hook(leave(name), with_kwargs=True, always_call=True),
            ):
                stack.callback(handle.remove)
        stack.enter_context(_Functions(model, watched, within))
        yield watched


def get_first_argument(given: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    """What a layer was called with: torch's own call it `input`."""
    return given[0] if given else named.get("input")


def shrinks(source: Tensor, target: Tensor) -> bool:
    """Whether maps of one to three axes come out smaller, and not as one place."""
    if source.dim() != target.dim() or not 3 <= source.dim() <= 5:
        return False
    before, after = source.shape[2:], target.shape[2:]
    grows = any(new > old for old, new in zip(before, after, strict=True))
    return not grows and 1 < after.numel() < before.numel()


def _are_halved(before: Shape, after: Shape) -> bool:
    """Whether some axes come out half as long or less, and not all of these as one place."""
    if len(before) != len(after) or not 2 <= len(before) <= 4:
        return False
    sizes = zip(before[-len(before) + 1 :], after[-len(after) + 1 :], strict=True)
    halved = [new for old, new in ((b, a) for b, a in sizes) if new < old and 2 * new <= old + 1]
    return any(new > 1 for new in halved)


def _has_fewer_places(source: Tensor, target: Tensor, module: nn.Module) -> bool:
    """Whether tokens (B, L, C) or maps, channels first or last, come out as half as many or less.

    The others of their axes must not shrink: channels do so in any network. A module with layers
    of one axis inside has channels first.
    """
    before, after = source.shape, target.shape
    if len(before) != len(after) or before[0] != after[0] or not 3 <= len(before) <= 5:
        return False
    axes = range(1, len(before))
    lines = len(before) == 3 and any(count_axes(inner) == 1 for inner in module.modules())
    for channels in (1,) if lines else (1, len(before) - 1):
        places = [axis for axis in axes if axis != channels]
        halved = all(2 * after[axis] <= before[axis] + 1 for axis in places)
        fewer = math.prod(after[axis] for axis in places) > 1
        keeps = after[channels] >= before[channels]
        if len(before) == 3 and channels == 1:
            # A linear layer may make each token shorter, which is no map with fewer places.
            keeps = after[channels] > before[channels]
        if halved and fewer and keeps and any(after[axis] < before[axis] for axis in places):
            return True
    return False


def sort_out(model: nn.Module, watched: Watched) -> tuple[dict[str, Visit], list[Unlisted]]:
    """The layers that a pooling could replace, in order, and what shrinks besides."""
    modules = dict(model.named_modules())
    listed = {
        name: visit
        for name, visit in watched.visits.items()
        if name and takes_steps(visit.module) and not _is_closed(modules, name, within=False)
        if isinstance(visit.module, TORCHS_OWN) or _is_one_layer(name, visit, watched)
    }
    unlisted: dict[Unlisted, None] = {}
    explained: set[str] = set()
    for path, what, before, after in watched.events:
        holder, explained = path[-1], explained | set(path)
        if not any(name in listed for name in path) and not _is_closed(modules, holder):
            advice = _advise(what)
            kind = type(modules[holder]).__name__
            unlisted[Unlisted(holder, kind, what, before, after, advice)] = None
    # A linear layer may make each token shorter, which looks like a line with fewer places.
    maps = [name for name, visit in watched.visits.items() if visit.source.dim() > 3]
    for name, (before, after) in watched.fewer.items():
        inner = [each for each in (*listed, *maps, *watched.fewer) if _is_inside(each, name)]
        torchs = type(modules[name]).__module__.startswith("torch.")
        if name in listed or name in explained or inner or torchs or _is_closed(modules, name):
            continue
        kind = type(modules[name]).__name__
        unlisted[Unlisted(name, kind, "by its own code", before, after)] = None
    return listed, list(unlisted)


def _is_inside(name: str, other: str) -> bool:
    return name != other and (not other or name.startswith(f"{other}."))


def _is_closed(modules: Mapping[str, nn.Module], name: str, within: bool = True) -> bool:
    """Whether a module is, or stands in, a pooling of ours, or is a layer that could be listed."""
    parts = name.split(".")
    around = [modules.get(".".join(parts[: n + 1])) for n in range(len(parts))] if name else []
    if any(isinstance(each, (PooledLayer, LinearPool)) for each in around):
        return True
    return within and isinstance(modules[name], TORCHS_OWN)


def _is_one_layer(name: str, visit: Visit, watched: Watched) -> bool:
    """Whether another's module works as a layer of torch's does: on maps of any size, alone."""
    if not (visit.alone and may_shrink(visit.module)):
        return False
    if any(_is_inside(other, name) for other in watched.visits):
        return False
    source, target = visit.source, visit.target
    read, gave = source.shape[1], target.shape[1]
    if read != gave and count_channels(visit.module) != (read, gave):
        return False
    if not _are_halved(tuple(source.shape[1:]), tuple(target.shape[1:])):
        return False
    sizes = [2 * size for size in source.shape[2:]]
    maps = source.new_ones(1, read, *sizes)
    try:
        larger = visit.module.forward(maps)
        if len(sizes) == 1:
            # A line of numbers may be no map, but two halves of which one gates the other.
            maps[..., sizes[0] // 2 :] = 2
            changed, begin = visit.module.forward(maps), larger.shape[-1] // 4
            if not torch.equal(changed[..., :begin], larger[..., :begin]):
                return False
    except (RuntimeError, ValueError, AssertionError, TypeError, IndexError):
        return False
    # Channels last would look like maps, but for a size that has to be that of its weights.
    if larger.dim() != target.dim() or larger.shape[:2] != (1, gave):
        return False
    grown = zip(larger.shape[2:], target.shape[2:], strict=True)
    return all(abs(new - 2 * old) <= 2 for new, old in grown)


def _advise(what: str) -> str:
    name = what.removeprefix("F.")
    kind = _MODULES.get(name.rstrip("123d"))
    axes = name[len(name.rstrip("123d")) :]
    return f"make it a module, nn.{kind}{axes}" if kind and axes else ""
