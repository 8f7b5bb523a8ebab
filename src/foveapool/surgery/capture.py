"""Feature maps from inside of a network: what a shrinking layer reads, batch by batch.

The forward pass is stopped as soon as the last layer asked for was reached. Between two batches
the network is as its owner left it: mode, gradients, hooks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from typing import Any

import torch
from torch import Tensor, nn

from foveapool.surgery.find import (
    DescribedLayer,
    Downsampling,
    Layers,
    match_layers,
    unwrap_network,
    watch_layers,
)
from foveapool.surgery.forward import call_network, dry_run, get_device, get_module, get_version
from foveapool.surgery.geometry import Unstrided, find_offset
from foveapool.surgery.loader import LabeledBatch, Unpack, unpack_batch
from foveapool.surgery.watch import get_first_argument
from foveapool.surgery.wrapper import Mode, PooledLayer, check_can_mix, check_mode


def capture(
    model: nn.Module,
    loader: Iterable[Any],
    layer: Layers,
    *,
    mode: Mode = "replace",
    unpack: Unpack | None = None,
    autocast: torch.dtype | None = None,
) -> Iterator[tuple[dict[str, Tensor], LabeledBatch]]:
    """Yields the maps that layers read, batch by batch over a loader, on the network's device.

    A layer that is passed several times shows what it reads the first time; one that reads several
    maps of an image, as attention of folded heads does, gives them as they are. Between two batches
    the network is as it was: mode, gradients, hooks.

    Args:
        model: The network.
        loader: Batches of (images, labels), dicts, or what `unpack` understands.
        layer: An exact name, the end of names or a pattern, one of `downsampling_layers`, or
            several of these.
        mode: The mode to fit for: in `after` the maps are the layer's output at stride 1, in the
            others its input.
        unpack: Turns a batch into (inputs, labels) or (inputs, labels, ids).
        autocast: The type in which the network runs, such as torch.bfloat16.

    Yields:
        ({layer: maps (B, C, H, W), or with one or three axes}, batch), the batch with `inputs`,
        `labels` and `ids`.

    Raises:
        ValueError: If a name means no layer that shrinks a map, or a batch is not understood.

    Example:
        >>> model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 8, 3, 2, 1))
        >>> loader = [(torch.randn(5, 3, 8, 8), torch.arange(5))]
        >>> for maps, batch in capture(model, loader, layer="1"):
        ...     print(maps["1"].shape, batch.labels.tolist())
        torch.Size([5, 4, 8, 8]) [0, 1, 2, 3, 4]
    """
    targets: dict[str, Downsampling] | None = None
    written: dict[str, bool] = {}
    for batch in loader:
        labeled = unpack_batch(batch, unpack).to(get_device(unwrap_network(model)))
        if targets is None:
            targets = find_targets(model, labeled, layer, mode, autocast)
        yield read_maps(model, labeled, targets, mode, autocast, written), labeled


def find_targets(
    model: nn.Module,
    batch: LabeledBatch,
    layer: Layers,
    mode: Mode,
    autocast: torch.dtype | None = None,
) -> dict[str, Downsampling]:
    """The layers that `layer` names, in the order of the forward pass, with their sizes."""
    check_mode(mode)
    model = unwrap_network(model)
    keys = _read_keys(layer)
    if isinstance(layer, DescribedLayer):
        return {layer.name: _check_described(model, batch, layer, mode, autocast)}
    with _autocast(model, autocast):
        found = {each.name: each for each in watch_layers(model, batch.first())}
    # A module that goes by several names is listed under its first.
    first = {module: name for name, module in model.named_modules()}
    wanted = set()
    for key in keys:
        try:
            names = {first[model.get_submodule(name)] for name in match_layers(model, key)}
        except ValueError as error:
            shrinking = f"these shrink a map: {list(found)}" if found else "no layer shrinks a map"
            raise ValueError(f"{error}; {shrinking}") from error
        if not names & set(found):
            if any(isinstance(model.get_submodule(name), PooledLayer) for name in names):
                raise ValueError(f"layer: got {key!r}, replaced already; call restore(model) first")
            others = f"wanted one of {list(found)}" if found else "and no other layer shrinks a map"
            why = _explain_refusal(model, names)
            raise ValueError(
                f"layer: got {key!r} ({', '.join(sorted(names))}), which {why}, {others}"
            )
        wanted |= names & set(found)
    targets = {name: each for name, each in found.items() if name in wanted}
    for name, each in targets.items():
        module = model.get_submodule(name)
        if mode == "mix":
            check_can_mix(f"layer: {name}", module)
        elif mode == "after":
            offset = find_offset(name, module, each.in_shape, each.in_channels, model)
            targets[name] = dataclasses.replace(each, offset=offset)
        if each.maps_per_image != 1:
            order = _find_order(model, batch, each, autocast)
            targets[name] = dataclasses.replace(targets[name], sample_first=order)
    return targets


def _find_order(
    model: nn.Module, batch: LabeledBatch, found: Downsampling, autocast: torch.dtype | None
) -> bool:
    """Whether the maps of an image stand side by side in the batch, rather than in turn."""
    count, times = len(batch.labels), found.maps_per_image
    if count < 2 and times:
        return True
    alone, among = (
        read_inputs(model, inputs, [found.name], autocast)[found.name].float()
        for inputs in (batch.first(), batch.inputs)
    )
    if times and len(among) == count * times:
        for order, maps in ((True, among[:times]), (False, among[::count])):
            if (maps - alone).abs().max() <= 0.05 * alone.abs().max():
                return order
    raise ValueError(
        f"layer: {found.name} ({found.kind}) reads {len(among)} maps of {count} images, and they "
        "cannot be told apart by image, wanted as many of each; choose another layer"
    )


def _check_described(
    model: nn.Module,
    batch: LabeledBatch,
    layer: DescribedLayer,
    mode: Mode,
    autocast: torch.dtype | None,
) -> DescribedLayer:
    """The layer, if its module reads maps of the size that it says."""
    if mode != "replace":
        raise ValueError(
            f"mode: got {mode!r} for {layer.name}, a described layer, wanted 'replace': the maps "
            "that its module reads"
        )
    shape = read_inputs(model, batch.first(), [layer.name], autocast)[layer.name].shape
    if shape[1:] != (wanted := (layer.in_channels, *layer.in_shape)):
        raise ValueError(f"layer: got maps {tuple(shape[1:])} at {layer.name}, wanted {wanted}")
    return layer


def _read_keys(layer: Any) -> list[str]:
    """The names, ends of names and patterns that a user's `layer` consists of."""
    one = isinstance(layer, (str, nn.Module)) or not isinstance(layer, Iterable)
    parts = [layer] if one else list(layer)
    keys = [each.name if isinstance(each, Downsampling) else each for each in parts]
    wrong = [key for key in keys if not isinstance(key, str)]
    if wrong:
        hint = f"; write {str(wrong[0])!r}" if isinstance(wrong[0], int) else ""
        raise ValueError(
            f"layer: got a {type(wrong[0]).__name__}, wanted the name of a layer, one of what "
            f"downsampling_layers(model, example) returns, or a list of these{hint}"
        )
    if not keys:
        raise ValueError("layer: got no name, wanted one or more")
    return keys


def _explain_refusal(model: nn.Module, names: Iterable[str]) -> str:
    if any(getattr(model.get_submodule(name), "return_indices", False) for name in names):
        return "returns indices beside its map (return_indices=True), as no learned pooling can"
    return "does not shrink a map to more than one place"


class _AllSeen(BaseException):
    """All that was asked for was seen; not for a network's own `except Exception`."""


def read_maps(
    model: nn.Module,
    batch: LabeledBatch,
    targets: dict[str, Downsampling],
    mode: Mode = "replace",
    autocast: torch.dtype | None = None,
    written: dict[str, bool] | None = None,
) -> dict[str, Tensor]:
    """The maps of one batch, which is on the network's device, at each layer of `targets`."""
    model = unwrap_network(model)
    maps = read_inputs(model, batch.inputs, list(targets), autocast, written)
    if mode == "after":
        with dry_run(model), _autocast(model, autocast):
            for name, x in maps.items():
                maps[name] = _run_at_stride_one(model.get_submodule(name), x, targets[name])
    return maps


def compute_outputs(
    model: nn.Module, maps: Mapping[str, Tensor], autocast: torch.dtype | None = None
) -> dict[str, Tensor]:
    """What the layers of these names make of their maps, in evaluation mode, without gradients."""
    model = unwrap_network(model)
    with dry_run(model), _autocast(model, autocast):
        return {name: get_module(model, name)(x) for name, x in maps.items()}


def read_inputs(
    model: nn.Module,
    inputs: Any,
    names: Sequence[str],
    autocast: torch.dtype | None = None,
    written: dict[str, bool] | None = None,
) -> dict[str, Tensor]:
    """What the modules of these names are given when the network is called with `inputs`.

    In evaluation mode, without gradients; the pass ends where the last of them begins. A layer
    behind may write into what an earlier one was given, so copies are kept; `written`, handed on
    from batch to batch, remembers where that happens and spares the other copies.
    """
    model = unwrap_network(model)
    written = {} if written is None else written
    seen: dict[str, Tensor] = {}
    given: dict[str, tuple[Tensor, int | None]] = {}

    def watch(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
            if name in seen:
                return
            maps = get_first_argument(arguments, named)
            last = len(seen) == len(names) - 1
            given[name] = (maps, get_version(maps))
            seen[name] = maps.clone() if written.get(name, True) and not last else maps
            if last:
                raise _AllSeen

        return hook

    modules = {name: get_module(model, name) for name in names}
    with dry_run(model), _autocast(model, autocast), ExitStack() as watching, suppress(_AllSeen):
        for name, module in modules.items():
            # Before the module's own hooks: what the network hands over is wanted.
            handle = module.register_forward_pre_hook(watch(name), prepend=True, with_kwargs=True)
            watching.callback(handle.remove)
        call_network(model, inputs)
    missing = [name for name in names if name not in seen]
    if missing:
        raise ValueError(f"layer: {missing} were not reached by the forward pass of a batch")
    spoilt = False
    for name, (maps, version) in given.items():
        changed = version is None or get_version(maps) != version
        spoilt |= changed and not written.get(name, True)
        written[name] = changed or written.get(name, False)
    if spoilt:
        # Written to for the first time, in this batch: once more, with copies.
        return read_inputs(model, inputs, names, autocast, written)
    return {name: seen[name] for name in names}


def _autocast(model: nn.Module, dtype: torch.dtype | None) -> AbstractContextManager[Any]:
    if dtype is None:
        return nullcontext()
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"autocast: got {dtype!r}, wanted a type such as torch.bfloat16, or None")
    return torch.autocast(get_device(model).type, dtype=dtype)


def _run_at_stride_one(layer: nn.Module, x: Tensor, found: Downsampling) -> Tensor:
    stage = Unstrided(layer, found.in_shape, found.out_shape, found.offset)
    try:
        return stage(x)
    finally:
        stage.release()
