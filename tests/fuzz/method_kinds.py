"""Files of the method: operators, scatter and what it is summed from, fits, adapters."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import nn

import foveapool as fp
from foveapool.pooling.least_squares import Mixing, MixingSizes, MixingSums
from foveapool.pooling.module import LinearPool2d
from foveapool.report.examples import Examples
from foveapool.report.operator_files import read_adapter_pools, read_saved_fit
from foveapool.report.sources import summarize_run
from foveapool.surgery.fit_files import FitCheckpoint, Position

from .kind import Kind, check_tensors, copy_frozen, list_tensors
from .mutations import mutate_json, mutate_safetensors

SIZES = MixingSizes(in_channels=4, out_channels=6, components=2)
IMAGES, LABELS = torch.randn(40, 3, 8, 8), torch.arange(40) % 4


def make_scatter(folder: Path, window: int | None = None) -> fp.Scatter:
    scatter = fp.compute_scatter(IMAGES, LABELS, window=window)
    scatter.save(folder / "scatter.safetensors")
    return scatter


def read_scatter(folder: Path) -> object:
    scatter = fp.Scatter.load(folder / "scatter.safetensors")
    assert scatter.within_diagonal().shape == (math.prod(scatter.in_shape),)
    scatter.save(folder / "again")
    return list_tensors(scatter)


def make_operator(folder: Path, window: int | None = None) -> None:
    scatter = fp.compute_scatter(IMAGES, LABELS, window=window)
    operator = fp.solve_pooling(scatter, (4, 4), alpha=9.0, components=2, window=window)
    operator.save(folder / "operator.safetensors")


def read_operator(folder: Path) -> object:
    operator = fp.PoolingOperator.load(folder / "operator.safetensors")
    # A window of weights says nothing of how large the maps around it are.
    if math.prod(operator.in_shape) < 10_000:
        maps = torch.ones(1, len(operator.mean), *operator.in_shape)
        assert operator.module()(maps).shape[2:] == tuple(operator.out_shape)
    operator.save(folder / "again")
    assert torch.equal(fp.PoolingOperator.load(folder / "again").rows, operator.rows)
    return list_tensors(operator)


def read_moments(folder: Path) -> object:
    moments = fp.ChannelMoments.load(folder / "moments.safetensors")
    assert moments.seen >= 0
    moments.save(folder / "again")
    with suppress(ValueError):  # of numbers that are none of maps
        moments.compute()
    return None


def read_sums(folder: Path) -> object:
    sums = fp.ScatterAccumulator.load(folder / "sums.safetensors")
    assert sums.seen >= 0
    sums.save(folder / "again")
    with suppress(ValueError):
        sums.compute()
    return None


def make_mixing_sums(folder: Path) -> MixingSums:
    sums = MixingSums(SIZES)
    sums.update(torch.randn(4, 8, 3, 3), torch.randn(4, 6, 3, 3))
    sums.save(folder / "sums.safetensors")
    return sums


def read_mixing_sums(folder: Path) -> object:
    sums = MixingSums.load(folder / "sums.safetensors")
    assert sums.count >= 0
    with suppress(ValueError):
        sums.solve()
    return None


def read_mixing(folder: Path) -> object:
    mixing = Mixing.load(folder / "mixing.safetensors")
    mixing.module()
    return list_tensors(mixing)


def make_network() -> nn.Sequential:
    """As the frozen fits and adapters have it."""
    torch.manual_seed(0)
    first = nn.Conv2d(3, 4, 3, padding=1)
    return nn.Sequential(first, nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 8, 3, 2, 1)).eval()


def make_fit(folder: Path, mode: Any = "mix") -> fp.ClosedFormPooling:
    fit = fp.ClosedFormPooling(25.0).fit(make_network(), [(IMAGES, LABELS)], ["3"], mode=mode)
    fit.save(folder)
    return fit


def read_fit(folder: Path) -> object:
    fit = fp.ClosedFormPooling.load(folder)
    saved = read_saved_fit(folder)
    assert saved is not None and saved.operators.keys() == fit.operators_.keys()
    assert summarize_run(folder).title
    network = make_network()
    with suppress(ValueError):  # of a note that tells of other layers, or of fewer passes
        fit.replace(network)
        network(IMAGES[:1])
    return check_tensors({name: each.weight for name, each in fit.operators_.items()})


def make_adapter(folder: Path) -> None:
    network = make_network()
    make_fit(folder / "fit").replace(network)
    shutil.rmtree(folder / "fit")
    fp.save(network, folder)


def make_adapter_after(folder: Path) -> None:
    network = make_network()
    fp.replace(network, {"3": LinearPool2d.average((8, 8), (4, 4))}, mode="after")
    fp.save(network, folder)


def make_adapter_with_projection(folder: Path) -> None:
    network = make_network()
    fp.replace(network, {"3": LinearPool2d.average((8, 8), (4, 4), components=3)})
    fp.save(network, folder)


def read_adapter(folder: Path) -> object:
    network = make_network()
    fp.load(network, folder)
    assert network(IMAGES[:1]).shape == (1, 8, 4, 4)
    pools = read_adapter_pools(folder)
    return check_tensors({name: each.weight.detach() for name, each in pools.items()})


def make_unfinished_fit(folder: Path) -> None:
    kept = FitCheckpoint(folder)
    kept.claim("fit", "batch")
    moments = fp.ChannelMoments(4)
    moments.update(IMAGES, LABELS)
    kept.write(Position(1, 1), [moments])
    kept.release()


def read_unfinished_fit(folder: Path) -> object:
    kept = FitCheckpoint(folder)
    try:
        kept.claim("fit", "batch")
        found = kept.read(["3"], torch.device("cpu"))
        assert found is None or found[0].batches >= 0
    finally:
        kept.release()
    return None


def make_examples(folder: Path) -> None:
    images, maps = torch.zeros(2, 3, 8, 8, dtype=torch.uint8), torch.zeros(2, 2, 4, 4)
    Examples(images, maps, ("a", "b"), (0, 5)).save(folder / "examples.safetensors")


def read_examples(folder: Path) -> object:
    found = Examples.load(folder / "examples.safetensors")
    assert len(found.images) == len(found.maps) == len(found.labels)
    return list_tensors(found)


def describe(
    make: Callable[[Path], object], read: Callable[[Path], object], files: str = "*.safetensors"
) -> Kind:
    """Of which the tensors are damaged, or else a note in JSON."""
    return Kind(make, read, files, mutate_json if files.endswith("json") else mutate_safetensors)


KINDS = {
    "scatter": describe(make_scatter, read_scatter),
    "banded-scatter": describe(lambda folder: make_scatter(folder, 2), read_scatter),
    "old-scatter": describe(copy_frozen("scatter.safetensors"), read_scatter),
    "operator": describe(make_operator, read_operator),
    "windowed-operator": describe(lambda folder: make_operator(folder, 2), read_operator),
    "old-operator": describe(copy_frozen("operator.safetensors"), read_operator),
    "moments": describe(copy_frozen("moments.safetensors"), read_moments),
    "sums": describe(copy_frozen("sums.safetensors"), read_sums),
    "mixing": describe(
        lambda folder: make_mixing_sums(folder).solve().save(folder / "mixing.safetensors"),
        read_mixing,
    ),
    "mixing-sums": describe(make_mixing_sums, read_mixing_sums),
    "fit": describe(make_fit, read_fit),
    "fit-note": describe(make_fit, read_fit, "*.json"),
    "old-fit": describe(copy_frozen("fit-mix"), read_fit),
    "old-fit-note": describe(copy_frozen("fit-after"), read_fit, "*.json"),
    "adapter": describe(make_adapter, read_adapter),
    "adapter-after": describe(make_adapter_after, read_adapter),
    "adapter-with-projection": describe(make_adapter_with_projection, read_adapter),
    "adapter-note": describe(make_adapter, read_adapter, "*.json"),
    "old-adapter": describe(copy_frozen("adapter-mix"), read_adapter),
    "unfinished-fit": describe(make_unfinished_fit, read_unfinished_fit, "*/*.safetensors"),
    "unfinished-fit-note": describe(make_unfinished_fit, read_unfinished_fit, "*/*.json"),
    "examples": describe(make_examples, read_examples),
}
