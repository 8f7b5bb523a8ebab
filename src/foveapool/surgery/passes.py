"""The passes over a loader that turn a network's maps into scatter, for several layers at once.

Pass 1 finds class sizes and channel moments, pass 2 the scatter; pass 3, in mode `mix`, the mixings
behind the poolings. Under `torch.distributed` every process reads its own part of the data and all
end with the same sums. With a folder to keep them in, sums are written down now and then, and an
interrupted pass goes on from there.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor, nn

from foveapool.pooling.accumulate import ScatterAccumulator
from foveapool.pooling.gram import Panels, Precision, check_memory, check_precision
from foveapool.pooling.grid import widen_to_blocks
from foveapool.pooling.least_squares import (
    Mixing,
    MixingSizes,
    MixingSums,
    check_mixing_fits,
    split_pooled,
)
from foveapool.pooling.module import LinearPool
from foveapool.pooling.moments import ChannelMoments
from foveapool.pooling.operator import PoolingOperator
from foveapool.pooling.scatter import Scatter, Weighting
from foveapool.pooling.validation import gather_from_processes, is_distributed
from foveapool.surgery.capture import compute_outputs, find_targets, read_maps
from foveapool.surgery.cost import check_cost
from foveapool.surgery.find import Downsampling, unwrap_network
from foveapool.surgery.fit_files import (
    FitCheckpoint,
    FoundSums,
    Position,
    digest_batch,
    fingerprint_fit,
)
from foveapool.surgery.forward import get_device, unwrap
from foveapool.surgery.loader import (
    FitSource,
    LabeledBatch,
    check_rereadable,
    count_classes,
    explain_class_count,
    explain_first_batch,
    get_class_names,
)
from foveapool.surgery.progress import (
    Clock,
    Report,
    check_same_network,
    check_same_settings,
    open_reporter,
    telling_failures,
)
from foveapool.surgery.settings import Window, resolve_each, resolve_window

SAVE_SECONDS = 30.0


@dataclass(frozen=True)
class ScatterSettings:
    """How scatter is summed up; the names are those of `ClosedFormPooling`."""

    num_classes: int | None = None
    weighting: Weighting = "balanced"
    normalize: bool = True
    class_cap: int | None = 10_000
    seed: int = 0
    window: Window = "auto"
    precision: Precision = "ieee"


@dataclass
class FitPasses:
    """The state of the passes; `count` says how many there are to be."""

    reading: FitSource
    settings: ScatterSettings
    report: Report
    shelf: FitCheckpoint | None = None
    count: int = 2
    targets: dict[str, Downsampling] = field(default_factory=dict)
    moments: dict[str, ChannelMoments] = field(default_factory=dict)
    sums: dict[str, ScatterAccumulator] = field(default_factory=dict)
    mixings: dict[str, MixingSums] = field(default_factory=dict)
    bands: dict[str, int | None] = field(default_factory=dict)  # how far pairs lie apart at most
    pools: dict[str, LinearPool] = field(default_factory=dict)
    position: Position = field(default_factory=lambda: Position(1, 0))
    written: dict[str, bool] = field(default_factory=dict)
    first_labels: Tensor | None = None
    reordered: bool = False  # whether a pass began with other labels than the look before it

    def run(self, components: int | None = None) -> dict[str, Scatter]:
        """The scatter of every layer, by name in the order of the forward pass.

        Nothing is read but a first batch if a layer cannot have so many components, or the mixings
        behind them have no room.
        """
        targets = self.prepare()
        with telling_failures():
            numbers = resolve_each(components, targets, self.reading.mode)
            device = get_device(unwrap(self.reading.model))
            for name in self._sources():
                self._choose_band(name, numbers[name], device, asked=components is not None)
            if self.count > 2:
                check_mixings_fit(self.reading.model, targets, numbers)
        if self.position.number == 1:
            with telling_failures():
                self._through(self.moments)
            self._reduce_moments()
            with telling_failures(), self._refusing():
                self._check_drawn_alike()
                self.sums = {name: self._summing(name, each) for name, each in self.moments.items()}
            self.position = Position(2, 0, self.position.batches)
            self._keep(self.sums)
        if self.position.number == 2:
            with telling_failures():
                self._through(self.sums)
        if is_distributed():
            for each in self.sums.values():
                each.all_reduce()
        with self._refusing():
            scatters = {name: _compute_scatter(name, each) for name, each in self.sums.items()}
        return {name: scatters[self._source(name)] for name in self.targets}

    def fit_mixings(self, operators: Mapping[str, PoolingOperator]) -> dict[str, Mixing]:
        """Pass 3: the least-squares mixing behind the operator of every layer, by name.

        All samples are taken, also where a class had to be drawn from for the scatter.
        """
        device = get_device(unwrap(self.reading.model))
        with telling_failures():
            for name, operator in operators.items():
                pool = operator.module().to(device)
                self.pools[name] = pool
                digest = sha256(pool.weight.cpu().numpy().tobytes()).hexdigest()[:16]
                sizes = make_mixing_sizes(self.targets[name], operator.components)
                self.mixings[name] = MixingSums(sizes, device, digest)
        if self.position.number != 3 or not self._go_on_mixing(device):
            total = self.position.batches if self.position.number == 2 else self.position.total
            self.position = Position(3, 0, total)
        with telling_failures():
            self._through(self.mixings)
        if is_distributed():
            for each in self.mixings.values():
                each.all_reduce()
        return {name: each.solve() for name, each in self.mixings.items()}

    def _go_on_mixing(self, device: torch.device) -> bool:
        """Takes up the sums of an interrupted pass 3, if they are of these very poolings."""
        assert self.shelf is not None, "a pass that goes on was kept somewhere"
        with telling_failures():
            kept = self.shelf.read_mixing(self.position, list(self.mixings), device)
        same = all(kept[name].describes(each) for name, each in self.mixings.items())
        if is_distributed():
            same = all(gather_from_processes(same))
        if same:
            self.mixings = kept
        return same

    def prepare(self) -> dict[str, Downsampling]:
        """Finds the layers by means of a first batch, and what an interrupted run left behind."""
        with telling_failures():
            found = self._look_at_first_batch()
        classes = self.settings.num_classes or self._count_named() or 2
        check_same_settings({**self._facts(), "num_classes": classes})
        check_same_network(self.reading.model)
        if _all_in_the_same_pass(found) and found is not None:
            self.position, self.moments, self.sums = found
            return self.targets
        cap, seed = self.settings.class_cap, self.settings.seed
        # Channels that never fire are common behind a ReLU and say nothing about places.
        with self._naming_classes():
            self.moments = {
                name: ChannelMoments(classes, cap, seed, dead_channels="ignore")
                for name in self._sources()
            }
        return self.targets

    def _look_at_first_batch(self) -> FoundSums | None:
        reading = self.reading
        check_rereadable(reading.loader)
        check_precision(self.settings.precision, get_device(unwrap(reading.model)))
        _, first = next(reading.batches(), (0, None))
        if first is None:
            raise ValueError("loader: got no batch, wanted at least one")
        self.first_labels = first.labels
        with explain_first_batch(reading.model, first.inputs, reading.autocast):
            self.targets = find_targets(
                reading.model, first, reading.layer, reading.mode, reading.autocast
            )
        _check_calls(self.targets)
        if self.shelf is None:
            return None
        self.shelf.claim(fingerprint_fit(reading.model, self._facts()), digest_batch(first))
        return self.shelf.read(self._sources(), get_device(unwrap(reading.model)))

    def _facts(self) -> dict[str, Any]:
        """What tells fits of one network apart."""
        return {"layers": list(self.targets), **self.reading.facts(), **asdict(self.settings)}

    def _count_named(self) -> int:
        return len(get_class_names(self.reading.loader) or ())

    def _sources(self) -> list[str]:
        return [name for name in self.targets if self._source(name) == name]

    def _source(self, name: str) -> str:
        """The first layer that reads the same tensor: branches of a block need one sum only."""
        if self.reading.mode == "after":
            return name
        same = {name, *self.targets[name].siblings}
        return next(other for other in self.targets if other in same)

    def _through(self, takers: dict[str, Any]) -> None:
        """Gives every batch that is left in this pass to the accumulators."""
        position, reading = self.position, self.reading
        total = position.total or reading.length()
        clock = Clock(position.number, total, position.batches, self.count)
        targets = {name: self.targets[name] for name in takers}
        saved = time.monotonic()
        done = position.batches
        for number, batch in reading.batches(done):
            if number == 0:
                self._compare(batch)
            if number < position.batches:
                continue
            maps = read_maps(
                reading.model, batch, targets, reading.mode, reading.autocast, self.written
            )
            if position.number == 3:
                self._take_mixing(maps)
            else:
                self._take(takers, maps, batch)
            if position.number == 1:
                self._check_drawn_alike()
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

    def _take(self, takers: dict[str, Any], maps: dict[str, Tensor], batch: LabeledBatch) -> None:
        for name, taker in takers.items():
            found = self.targets[name]
            own = batch.repeat(found.maps_per_image, found.sample_first)
            if isinstance(taker, ChannelMoments):
                if taker.in_shape is None:
                    panels = Panels.for_grid(tuple(maps[name].shape[2:]), self.bands[name])
                    check_memory(panels, maps[name].device)
                if self._classes_unknown and len(batch.labels):
                    taker.grow(count_classes(batch.labels))
            with self._naming_classes():
                taker.update(maps[name], own.labels, own.ids)

    def _take_mixing(self, maps: dict[str, Tensor]) -> None:
        outputs = compute_outputs(self.reading.model, maps, self.reading.autocast)
        for name, sums in self.mixings.items():
            x, pool = maps[name], self.pools[name]
            # In the type in which the maps are pooled in the network, or a better one.
            pool.to(torch.promote_types(x.dtype, torch.float32))
            numbers = sums.sizes.components * x.shape[1] * outputs[name].shape[2:].numel()
            for piece in split_pooled(len(x), numbers, x.device):
                try:
                    sums.update(pool(x[piece].to(pool.weight)), outputs[name][piece])
                except ValueError as error:
                    raise ValueError(f"layer: {name}: {error}") from error

    def _compare(self, first: LabeledBatch) -> None:
        """Notices at a pass's first batch that the loader does not keep its order."""
        assert self.first_labels is not None
        count = min(len(first.labels), len(self.first_labels))
        alike = torch.equal(first.labels[:count], self.first_labels[:count])
        self.reordered |= first.ids is None and not alike
        if self.shelf is None:
            return
        if self.position.batches:
            self.shelf.check_begins_alike(digest_batch(first))
        elif self.position.number == 1 and not self.shelf.begins_alike(digest_batch(first)):
            warnings.warn(
                "resume: the loader's first batch is another in each reading, so that a fit that "
                "is stopped could not go on; pass shuffle=False and no random changes",
                stacklevel=5,
            )

    def _check_drawn_alike(self) -> None:
        """Raises if a class has to be drawn from and the second pass would draw others."""
        cap = self.settings.class_cap
        if not self.reordered or cap is None:
            return
        counts = next(iter(self.moments.values())).state_dict()["tensors"].get("counts")
        largest = 0 if counts is None else int(counts.sum(1).max())
        if largest > cap:
            raise ValueError(
                f"class_cap: got {cap} for a class of {largest} samples or more and a loader whose "
                "order changes from pass to pass, wanted the same samples in both; pass "
                "shuffle=False, class_cap=None, or numbers of the samples: "
                "unpack=lambda batch: (inputs, labels, ids)"
            )

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """What is refused here is in the sums for good, so that nothing could go on from them."""
        try:
            with self._naming_classes():
                yield
        except ValueError as error:
            if self.shelf is None:
                raise
            self.shelf.clear()
            raise ValueError(
                f"{error}; the sums in {self.shelf.folder} were deleted: fit again from the start"
            ) from error

    def _naming_classes(self) -> AbstractContextManager[None]:
        return explain_class_count(self.reading.loader, self.settings.num_classes)

    @property
    def _classes_unknown(self) -> bool:
        return not (self.settings.num_classes or get_class_names(self.reading.loader))

    def _reduce_moments(self) -> None:
        if not is_distributed():
            return
        self.reordered = any(gather_from_processes(self.reordered))
        for each in self.moments.values():
            if self._classes_unknown:
                each.grow(max(gather_from_processes(each.settings.num_classes)))
            each.all_reduce()

    def _choose_band(self, name: str, components: int, device: torch.device, asked: bool) -> None:
        """How wide a band of pairs is summed: what solving asks for, average pooling too."""
        found, mode = self.targets[name], self.reading.mode
        shapes = (found.in_shape, found.out_shape)
        window = resolve_window(self.settings.window, mode, *shapes, components, name)
        check_cost(name, shapes, components, window, device, asked=asked)
        self.bands[name] = None if window is None else widen_to_blocks(window, *shapes)

    def _summing(self, name: str, moments: ChannelMoments) -> ScatterAccumulator:
        settings = self.settings
        return ScatterAccumulator(
            moments.compute(f"layer {name}"),
            weighting=settings.weighting,
            normalize=settings.normalize,
            window=self.bands[name],
            precision=settings.precision,
        )


@contextmanager
def open_passes(
    source: FitSource,
    settings: ScatterSettings,
    progress: bool | Report = False,
    resume: str | os.PathLike[str] | None = None,
    count: int = 2,
) -> Iterator[FitPasses]:
    """The passes over a source; at the end what `resume` keeps of unfinished sums goes.

    Args:
        source: The network and the loader.
        settings: How scatter is summed up.
        progress: As for `ClosedFormPooling.fit`.
        resume: As for `ClosedFormPooling.fit`.
        count: How many passes there are to be.

    Yields:
        The passes.
    """
    checkpoint = None if resume is None else FitCheckpoint(resume)
    with ExitStack() as stack:
        report = stack.enter_context(open_reporter(progress))
        if checkpoint is not None:
            stack.callback(checkpoint.release)
        yield FitPasses(source, settings, report, checkpoint, count)
        if checkpoint is not None:
            checkpoint.clear()


def check_mixings_fit(
    model: nn.Module, layers: Mapping[str, Downsampling], components: Mapping[str, int]
) -> None:
    """Raises unless the sums for the mixings of these layers fit into the memory."""
    sizes = {name: make_mixing_sizes(found, components[name]) for name, found in layers.items()}
    check_mixing_fits(sizes, get_device(unwrap_network(model)))


def make_mixing_sizes(found: Downsampling, components: int) -> MixingSizes:
    """What the mixing behind a pooling with so many components mixes in a layer's place."""
    return MixingSizes(found.in_channels, found.out_channels, components, found.groups, found.bias)


def _compute_scatter(name: str, sums: ScatterAccumulator) -> Scatter:
    try:
        scatter = sums.compute()
    except ValueError as error:
        raise ValueError(f"{error}: unpack=lambda batch: (inputs, labels, ids)") from error
    if not float(scatter.within_diagonal().mean()) > 0:
        raise ValueError(
            f"layer: the maps at {name} do not vary within the classes (all zero, perhaps), wanted "
            "some that do; leave this layer out, or give images that differ"
        )
    return scatter


def _check_calls(targets: Mapping[str, Downsampling]) -> None:
    """Raises for a module that is used on maps of several sizes, warns of one used repeatedly."""
    for name, found in targets.items():
        if not found.alike:
            raise ValueError(
                f"layer: {name} ({found.kind}) is used {found.calls} times in one forward pass, on "
                "maps of different sizes or channels, wanted one size: a learned pooling belongs "
                "to one; give the network a module of its own for each use"
            )
        if found.calls > 1:
            warnings.warn(
                f"layer: {name} ({found.kind}) is used {found.calls} times in one forward pass and "
                "is fitted on the maps of its first use alone; if the others differ, give the "
                "network a module of its own for each use",
                stacklevel=6,
            )


def _all_in_the_same_pass(found: FoundSums | None) -> bool:
    """Whether all processes were; if one was killed between the passes, all start again."""
    number = found[0].number if found is not None else 1
    return not is_distributed() or len(set(gather_from_processes(number))) == 1
