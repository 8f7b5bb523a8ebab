"""The two passes over a loader that turn a network's maps into scatter, for several layers at once.

Pass 1 finds class sizes and channel moments, pass 2 the scatter. Under `torch.distributed` every
process reads its own part of the data and all end with the same sums. With a folder to keep them
in, sums are written down now and then, and an interrupted pass goes on from there.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from foveapool.pooling.accumulate import ScatterAccumulator
from foveapool.pooling.incoming import distributed, from_all_processes
from foveapool.pooling.moments import ChannelMoments
from foveapool.pooling.precision import Precision, check_precision
from foveapool.pooling.scatter import Scatter, Weighting
from foveapool.pooling.symmetric import Panels, check_fits
from foveapool.surgery.batches import Labelled, Unpack, check_rereadable, class_names, unpacked
from foveapool.surgery.capture import maps_of, shrinking
from foveapool.surgery.find import Downsampling, Layers
from foveapool.surgery.progress import Clock, Report
from foveapool.surgery.resume import Found, Position, Shelf, fingerprint
from foveapool.surgery.standin import Mode
from foveapool.surgery.visit import device_of, unwrapped

# Far above any labelled set of images; a label beyond it is a mistake that would eat the memory.
MOST_UNASKED_CLASSES = 30_000
SAVE_SECONDS = 30.0


@dataclass(frozen=True)
class ScatterSettings:
    """How scatter is summed up; the names are those of `ClosedFormPooling`."""

    num_classes: int | None = None
    weighting: Weighting = "balanced"
    normalise: bool = True
    class_cap: int | None = 10_000
    seed: int = 0
    window: int | None = None
    precision: Precision = "ieee"


@dataclass(frozen=True)
class Reading:
    """What is read: a network's layers over a loader."""

    model: nn.Module
    loader: Iterable[Any]
    layer: Layers
    mode: Mode = "replace"
    unpack: Unpack | None = None
    autocast: torch.dtype | None = None

    def batches(self, skip: int = 0) -> Iterator[Labelled]:
        """The loader's batches behind the first `skip`, on the network's device."""
        device = device_of(unwrapped(self.model))
        for batch in islice(iter(self.loader), skip, None):
            yield unpacked(batch, self.unpack).to(device)

    def facts(self) -> dict[str, str]:
        """What the maps depend on, beside the network and the data."""
        return {"mode": self.mode, "autocast": str(self.autocast)}

    def length(self) -> int | None:
        """How many batches there are, if the loader says."""
        try:
            return len(self.loader)  # type: ignore[arg-type]
        except TypeError:
            return None


@dataclass
class Passes:
    """The state of the two passes."""

    reading: Reading
    settings: ScatterSettings
    report: Report
    shelf: Shelf | None = None
    targets: dict[str, Downsampling] = field(default_factory=dict)
    moments: dict[str, ChannelMoments] = field(default_factory=dict)
    sums: dict[str, ScatterAccumulator] = field(default_factory=dict)
    position: Position = field(default_factory=lambda: Position(1, 0))
    written: dict[str, bool] = field(default_factory=dict)

    def run(self) -> dict[str, Scatter]:
        """The scatter of every layer, by name in the order of the forward pass."""
        if not self.targets:
            self.prepare()
        if self.position.number == 1:
            self._through(self.moments)
            self._reduce_moments()
            self.sums = {name: self._summing(each) for name, each in self.moments.items()}
            self.position = Position(2, 0, self.position.batches)
            self._keep(self.sums)
        self._through(self.sums)
        if distributed():
            for each in self.sums.values():
                each.all_reduce()
        scatters = {name: each.compute() for name, each in self.sums.items()}
        return {name: scatters[self._source(name)] for name in self.targets}

    def prepare(self) -> dict[str, Downsampling]:
        """Finds the layers by means of a first batch, and what an interrupted run left behind."""
        reading = self.reading
        check_rereadable(reading.loader)
        check_precision(self.settings.precision, device_of(unwrapped(reading.model)))
        first = next(reading.batches(), None)
        if first is None:
            raise ValueError("loader: got no batch, wanted at least one")
        self.targets = shrinking(
            reading.model, first, reading.layer, reading.mode, reading.autocast
        )
        _check_one_size(self.targets)
        names = [name for name in self.targets if self._source(name) == name]
        if self.shelf is not None:
            facts = {"layers": list(self.targets), **reading.facts(), **asdict(self.settings)}
            self.shelf.claim(fingerprint(reading.model, facts))
            found = self.shelf.read(names, device_of(unwrapped(reading.model)))
            if _all_in_the_same_pass(found) and found is not None:
                self.position, self.moments, self.sums = found
                return self.targets
        classes = self.settings.num_classes or len(class_names(reading.loader) or ()) or 2
        cap, seed = self.settings.class_cap, self.settings.seed
        # Channels that never fire are common behind a ReLU and say nothing about places.
        self.moments = {
            name: ChannelMoments(classes, cap, seed, dead_channels="ignore") for name in names
        }
        return self.targets

    def _source(self, name: str) -> str:
        """The first layer that reads the same tensor: branches of a block need one sum only."""
        if self.reading.mode == "after":
            return name
        same = {name, *self.targets[name].siblings}
        return next(other for other in self.targets if other in same)

    def _through(self, takers: dict[str, Any]) -> None:
        """Gives every batch that is left in this pass to the accumulators."""
        position, reading = self.position, self.reading
        total = reading.length() if position.number == 1 else position.total
        clock = Clock(position.number, total, position.batches)
        targets = {name: self.targets[name] for name in takers}
        saved = time.monotonic()
        done = position.batches
        for batch in reading.batches(done):
            maps = maps_of(
                reading.model, batch, targets, reading.mode, reading.autocast, self.written
            )
            self._take(takers, maps, batch)
            done += 1
            self.position = Position(position.number, done, position.total)
            self.report(clock.after(done))
            if time.monotonic() - saved > SAVE_SECONDS:
                self._keep(takers)
                saved = time.monotonic()
        self._keep(takers)

    def _keep(self, takers: dict[str, Any]) -> None:
        if self.shelf is not None:
            self.shelf.write(self.position, list(takers.values()))

    def _take(self, takers: dict[str, Any], maps: dict[str, Tensor], batch: Labelled) -> None:
        for name, taker in takers.items():
            if isinstance(taker, ChannelMoments):
                if taker.in_shape is None:
                    window = self.settings.window
                    panels = Panels.for_grid(tuple(maps[name].shape[2:]), window)
                    check_fits(panels, maps[name].device)
                if self._classes_unknown and len(batch.labels):
                    taker.grow(_class_count(batch.labels))
            taker.update(maps[name], batch.labels, batch.ids)

    @property
    def _classes_unknown(self) -> bool:
        return not (self.settings.num_classes or class_names(self.reading.loader))

    def _reduce_moments(self) -> None:
        if not distributed():
            return
        for each in self.moments.values():
            if self._classes_unknown:
                each.grow(max(from_all_processes(each.settings.num_classes)))
            each.all_reduce()

    def _summing(self, moments: ChannelMoments) -> ScatterAccumulator:
        settings = self.settings
        return ScatterAccumulator(
            moments.compute(),
            weighting=settings.weighting,
            normalise=settings.normalise,
            window=settings.window,
            precision=settings.precision,
        )


def _check_one_size(targets: Mapping[str, Downsampling]) -> None:
    """Raises for a module that the network uses on maps of several sizes."""
    for name, found in targets.items():
        if not found.alike:
            raise ValueError(
                f"layer: {name} ({found.kind}) is used {found.calls} times in one forward pass, on "
                "maps of different sizes, wanted one size: a learned pooling belongs to one; give "
                "the network a module of its own for each use"
            )


def _class_count(labels: Tensor) -> int:
    """As many classes as the labels of a batch need."""
    largest = 0 if labels.is_floating_point() else int(labels.max())
    if largest >= MOST_UNASKED_CLASSES:
        raise ValueError(
            f"labels: got {largest}, wanted classes numbered from 0; pass num_classes if there are "
            f"more than {MOST_UNASKED_CLASSES:,}"
        )
    return max(2, largest + 1)


def _all_in_the_same_pass(found: Found | None) -> bool:
    """Whether all processes were; if one was killed between the passes, all start again."""
    number = found[0].number if found is not None else 1
    return not distributed() or len(set(from_all_processes(number))) == 1
