"""The first pass over the feature maps: class sizes, and each channel's mean and deviation.

Between-class and within-class scatter want channels of equal variance and classes of known size;
this pass finds both. It also settles which samples count, at most `class_cap` a class, so that
the second pass (`scatter.py`) takes the same ones.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from itertools import combinations
from typing import Any, Literal, get_type_hints

import torch
from torch import Tensor

from foveapool.pooling.gram import Workspace
from foveapool.pooling.grid import as_shape, is_whole
from foveapool.pooling.storage import (
    Shapes,
    check_contents,
    check_types,
    explain_damage,
    load_tensors,
    save_tensors,
)
from foveapool.pooling.validation import (
    BINS,
    Batch,
    Layout,
    check_batch,
    check_class_sizes,
    check_no_dead_channels,
    check_not_itself,
    check_same_facts,
    count_kept_bins,
    draw_bins,
    find_dead_channels,
    gather_from_processes,
    get_collective_device,
    square_small_ones,
    sum_over_processes,
    warn_of_left_out,
)

DeadChannels = Literal["error", "ignore"]


@dataclass(frozen=True)
class Moments:
    """What the second pass has to know: sizes, means, deviations, and who was drawn.

    Attributes:
        counts: Samples of each class that count, (Q,).
        bins: The bins of `draw_bins` that each class keeps, (Q,).
        mean: The mean of each channel, (C,), float64.
        std: Its standard deviation, (C,), float64; 0 for a dead channel, which then takes no part.
        level: Near the mean of each channel at each place, (C, N), float64: what the second pass
            subtracts.
        in_shape: The spatial size of the maps.
        class_cap: At most so many samples of a class counted; None for all.
        seed: What the samples that count were drawn by.

    Example:
        >>> moments = ChannelMoments(num_classes=2)
        >>> moments.update(torch.randn(8, 3, 4, 4), torch.arange(8) % 2)
        >>> found = moments.compute()
        >>> found.in_shape, found.mean.shape, found.level.shape
        ((4, 4), torch.Size([3]), torch.Size([3, 16]))
    """

    counts: Tensor
    bins: Tensor
    mean: Tensor
    std: Tensor
    level: Tensor
    in_shape: tuple[int, ...]
    class_cap: int | None
    seed: int


@dataclass(frozen=True)
class _Settings:
    num_classes: int
    class_cap: int | None
    seed: int
    dead_channels: DeadChannels


class ChannelMoments:
    """Accumulates class sizes and channel moments over batches of (B, C, ...) feature maps.

    This is the first of two passes over the data; `ScatterAccumulator` is the second.

    Args:
        num_classes: The number of classes, 2 or more.
        class_cap: At most so many samples of each class count, drawn by seed; None for all.
        seed: Draws the samples that count.
        dead_channels: "error" refuses a channel that never varies, "ignore" leaves it out of the
            scatter.

    Raises:
        ValueError: If a setting is none of these.

    Example:
        >>> moments, shard = ChannelMoments(num_classes=2), ChannelMoments(num_classes=2)
        >>> moments.update(torch.randn(8, 3, 4, 4), torch.arange(8) % 2)
        >>> shard.update(torch.randn(4, 3, 4, 4), torch.arange(4) % 2)
        >>> moments.merge(shard)
        >>> moments.compute().counts.tolist()
        [6, 6]
    """

    def __init__(
        self,
        num_classes: int,
        class_cap: int | None = 10_000,
        seed: int = 0,
        dead_channels: DeadChannels = "error",
    ) -> None:
        if not is_whole(num_classes) or num_classes < 2:
            raise ValueError(f"num_classes: got {num_classes!r}, wanted 2 or more")
        if class_cap is not None and (not is_whole(class_cap) or class_cap < 2):
            raise ValueError(f"class_cap: got {class_cap!r}, wanted 2 or more, or None for no cap")
        if dead_channels not in ("error", "ignore"):
            raise ValueError(f"dead_channels: got {dead_channels!r}, wanted 'error' or 'ignore'")
        self.settings = _Settings(num_classes, class_cap, seed, dead_channels)
        self.in_shape: tuple[int, ...] | None = None
        self.seen = 0
        self._state: dict[str, Tensor] = {}
        self._rounding = 0.0  # of the coarsest type that maps came in
        self._workspace = Workspace()

    def update(self, features: Tensor, labels: Tensor, ids: Tensor | None = None) -> None:
        """Takes a batch in; a batch that is refused changes nothing.

        Args:
            features: The maps, (B, C, ...) with one to three spatial axes.
            labels: Their classes, (B,), in [0, num_classes).
            ids: The samples' names, any integers, (B,). Without them samples are numbered as they
                come, which is right when both passes read the data in the same order.

        Raises:
            ValueError: If sizes or labels do not fit, or a number is not finite.
        """
        settings = self.settings
        batch = check_batch(features, labels, ids, self.seen, settings.num_classes, self._layout())
        if len(batch.maps):
            pilot, level = self._state.get("pilot"), self._state.get("level")
            if pilot is None or level is None:
                # Any value near the mean will do: sums of squares around it do not cancel. It is
                # one that the maps' type holds, so that what is subtracted is what is remembered,
                # and lies among their values, so that what is constant leaves nothing behind.
                low, high = batch.maps.amin(0), batch.maps.amax(0)
                level = batch.maps.mean(0).clamp(low, high)
                pilot = level.mean(1).clamp(low.amin(1), high.amax(1)).double()
                level = level.double()
            batch = batch.in_type_of(pilot)
            sums, squares = self._around_pilot(batch, pilot)
            if not bool((sums.sum() + squares.sum()).isfinite()):
                batch.raise_not_finite()
            self._add(batch, pilot, level, sums, squares)
            self._rounding = max(self._rounding, torch.finfo(features.dtype).eps)
        self.seen += len(batch.maps)

    def _around_pilot(self, batch: Batch, pilot: Tensor) -> tuple[Tensor, Tensor]:
        """Sum and sum of squares of each sample's channels around `pilot`, float64 (B, C)."""
        sums = pilot.new_empty(batch.maps.shape[:2])
        squares = torch.empty_like(sums)
        level = pilot.to(batch.maps.dtype)[:, None]
        for piece in batch.pieces():
            maps = batch.maps[piece]
            around = self._workspace.take("around", maps.shape, maps.dtype, maps.device)
            torch.sub(maps, level, out=around)
            # One map's sums in its own precision, which rounds once: all others are float64.
            sums[piece] = around.sum(2)
            squares[piece] = torch.linalg.vector_norm(around, dim=2).double().square_()
            square_small_ones(maps, pilot, sums[piece], squares[piece])
        return sums, squares

    def _add(
        self, batch: Batch, pilot: Tensor, level: Tensor, sums: Tensor, squares: Tensor
    ) -> None:
        if not self._state:
            self._allocate(batch.in_shape, pilot, level)
        bins = draw_bins(batch.ids, self.settings.seed) if self._bins > 1 else 0
        cell = batch.labels * self._bins + bins
        state = self._state
        state["counts"].view(-1).index_add_(0, cell, torch.ones_like(cell))
        state["sums"].flatten(0, 1).index_add_(0, cell, sums)
        state["squares"].flatten(0, 1).index_add_(0, cell, squares)

    @property
    def _bins(self) -> int:
        return 1 if self.settings.class_cap is None else BINS

    def _layout(self) -> Layout | None:
        return (len(self._state["pilot"]), self.in_shape) if self.in_shape is not None else None

    def _allocate(self, in_shape: tuple[int, ...], pilot: Tensor, level: Tensor) -> None:
        self.in_shape = in_shape
        cells = (self.settings.num_classes, self._bins)
        self._state = {
            "pilot": pilot,
            "level": level,
            "counts": torch.zeros(cells, dtype=torch.int64, device=pilot.device),
            "sums": pilot.new_zeros(*cells, len(pilot)),
            "squares": pilot.new_zeros(*cells, len(pilot)),
        }

    def _around(self, pilot: Tensor) -> dict[str, Tensor]:
        """The same sums, taken around another value."""
        state = self._state
        move = state["pilot"] - pilot
        entries = state["counts"][..., None] * float(torch.Size(self.in_shape or ()).numel())
        return {
            "pilot": pilot,
            "level": state["level"],
            "counts": state["counts"],
            "sums": state["sums"] + entries * move,
            "squares": state["squares"] + 2 * move * state["sums"] + entries * move.square(),
        }

    def grow(self, num_classes: int) -> None:
        """Makes room for more classes, where their number shows only as labels come.

        Args:
            num_classes: As many as are known of now; fewer than before change nothing.

        Example:
            >>> moments = ChannelMoments(num_classes=2)
            >>> moments.grow(3)
            >>> moments.update(torch.randn(6, 3, 4, 4), torch.arange(6) % 3)
            >>> moments.compute().counts.tolist()
            [2, 2, 2]
        """
        more = num_classes - self.settings.num_classes
        if more <= 0:
            return
        self.settings = replace(self.settings, num_classes=num_classes)
        for name in ("counts", "sums", "squares") if self._state else ():
            old = self._state[name]
            self._state[name] = torch.cat((old, old.new_zeros(more, *old.shape[1:])))

    def merge(self, other: ChannelMoments) -> None:
        """Takes in all that another has seen, for example another shard of the data.

        Args:
            other: Moments of the same settings, over other samples.

        Raises:
            ValueError: If the settings or the sizes differ, or it is this very object.
        """
        check_not_itself("ChannelMoments", self, other)
        check_same_facts("ChannelMoments", self._facts(), other._facts())
        if other._state:
            if not self._state:
                assert other.in_shape is not None
                theirs = other._state
                self._allocate(other.in_shape, theirs["pilot"].clone(), theirs["level"].clone())
            theirs = other._around(self._state["pilot"].to(other._state["pilot"]))
            for name in ("counts", "sums", "squares"):
                self._state[name] += theirs[name].to(self._state[name].device)
        self._rounding = max(self._rounding, other._rounding)
        self.seen += other.seen

    def all_reduce(self, group: Any = None) -> None:
        """Makes every process of `torch.distributed` hold the sum over all of them.

        A process that has met no data must call it too.

        Args:
            group: The process group; None is the default one.

        Raises:
            RuntimeError: If `torch.distributed` is not initialized.
            ValueError: If the processes differ in settings or sizes.

        Example:
            >>> import torch.distributed as dist
            >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
            >>> moments = ChannelMoments(num_classes=2)
            >>> moments.update(torch.randn(8, 3, 4, 4), torch.arange(8) % 2)
            >>> moments.all_reduce()
            >>> dist.destroy_process_group()
        """
        everyone = gather_from_processes(self._facts(), group)
        # All with all: a process without data has met no sizes, but must not wait for the others.
        for one, other in combinations(everyone, 2):
            check_same_facts("ChannelMoments", one, other)
        mine = None
        if self._state:
            mine = (self._state["pilot"].cpu(), self._state["level"].cpu(), self.in_shape)
        # A process without data must still take part: it learns the sizes from the others.
        first = next(filter(None, gather_from_processes(mine, group)), None)
        self._rounding = max(gather_from_processes(self._rounding, group))
        if first is None:
            return
        pilot, level, in_shape = first
        assert in_shape is not None
        if self._state:
            device = self._state["pilot"].device
            self._state = {**self._around(pilot.to(device)), "level": level.to(device)}
        else:
            device = get_collective_device(group)
            self._allocate(in_shape, pilot.to(device), level.to(device))
        sum_over_processes((self._state[name] for name in ("counts", "sums", "squares")), group)

    def compute(self, name: str = "features") -> Moments:
        """Finds the moments over the samples that count.

        Warns of channels that vary but are left out, by no more than rounding; constant ones are
        left out in silence, for they say nothing about places.

        Args:
            name: What the maps are called in that warning.

        Returns:
            What `ScatterAccumulator` starts from.

        Raises:
            ValueError: If nothing was taken in, or a class has fewer than two samples, or a channel
                never varies and `dead_channels` is "error".
        """
        if not self._state:
            raise ValueError("ChannelMoments: got no samples, wanted at least two of each class")
        state, settings = self._state, self.settings
        kept = count_kept_bins(state["counts"], settings.class_cap)
        chosen = torch.arange(self._bins, device=kept.device) < kept[:, None]
        counts = (state["counts"] * chosen).sum(1)
        check_class_sizes(state["counts"], counts, settings.class_cap)
        entries = float(counts.sum() * torch.Size(self.in_shape or ()).numel())
        around = (state["sums"] * chosen[..., None]).sum((0, 1)) / entries
        square = (state["squares"] * chosen[..., None]).sum((0, 1)) / entries
        mean, variance = state["pilot"] + around, square - around.square()
        dead = find_dead_channels(mean, variance, square, self._rounding)
        if settings.dead_channels == "error":
            check_no_dead_channels(dead)
        warn_of_left_out(name, dead & (square > 0), self._rounding)
        std = torch.where(dead, 0.0, variance.clamp(min=0).sqrt())
        assert self.in_shape is not None
        return Moments(
            counts,
            kept,
            mean,
            std,
            state["level"],
            self.in_shape,
            settings.class_cap,
            settings.seed,
        )

    def _facts(self) -> dict[str, Any]:
        shape = None if self.in_shape is None else list(self.in_shape)
        channels = len(self._state["pilot"]) if self._state else None
        return {**asdict(self.settings), "in_shape": shape, "channels": channels}

    def state_dict(self) -> dict[str, Any]:
        """Gives all there is to go on from, for a checkpoint.

        Returns:
            {"tensors": sums, "facts": plain settings and sizes}; tensors are shared, not copied.

        Example:
            >>> moments = ChannelMoments(num_classes=2)
            >>> moments.update(torch.randn(8, 3, 4, 4), torch.arange(8) % 2)
            >>> again = ChannelMoments(num_classes=2)
            >>> again.load_state_dict(moments.state_dict())
            >>> again.seen
            8
        """
        facts = {**self._facts(), "seen": self.seen, "rounding": self._rounding}
        return {"tensors": dict(self._state), "facts": facts}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from the state of another, whose settings it takes over.

        Args:
            state: What `state_dict` gave.

        Raises:
            ValueError: If it is anything else.

        Example:
            >>> moments = ChannelMoments(num_classes=2)
            >>> moments.load_state_dict(ChannelMoments(num_classes=5, class_cap=100).state_dict())
            >>> moments.settings.num_classes
            5
        """
        tensors, facts = state.get("tensors", {}), _with_rounding(state.get("facts", {}))
        advice = "give the state_dict of a ChannelMoments"
        check_contents("ChannelMoments", tensors, facts, _FACTS, _shapes, advice)
        self.seen, self._rounding = facts.pop("seen"), facts.pop("rounding")
        shape = facts.pop("in_shape")
        facts.pop("channels")
        self.settings = _Settings(**facts)
        self.in_shape = None if shape is None else tuple(shape)
        self._state = {name: tensor.clone() for name, tensor in tensors.items()}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the state to a safetensors file.

        Args:
            path: The file.

        Example:
            >>> import tempfile
            >>> moments = ChannelMoments(num_classes=2)
            >>> moments.update(torch.randn(8, 3, 4, 4), torch.arange(8) % 2)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     moments.save(f"{folder}/moments.safetensors")
            ...     ChannelMoments.load(f"{folder}/moments.safetensors").seen
            8
        """
        state = self.state_dict()
        save_tensors(path, "moments", state["tensors"], state["facts"])

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], device: torch.device | str = "cpu"
    ) -> ChannelMoments:
        """Reads what `save` wrote, to go on with.

        Args:
            path: The file.
            device: Where the sums are kept from now on.

        Returns:
            Moments with the settings and sums of those that were saved.

        Raises:
            ValueError: If the file is damaged or of another kind.

        Example:
            >>> import tempfile
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     ChannelMoments(num_classes=5).save(f"{folder}/moments.safetensors")
            ...     ChannelMoments.load(f"{folder}/moments.safetensors").settings.num_classes
            5
        """
        tensors, header = load_tensors(path, "moments", device)
        header = _with_rounding(header)
        check_contents(path, tensors, header, _FACTS, _shapes)
        with explain_damage(path):
            moments = cls(num_classes=header["num_classes"])
            moments.load_state_dict({"tensors": tensors, "facts": {k: header[k] for k in _FACTS}})
        return moments


_FACTS = (*(each.name for each in fields(_Settings)), "in_shape", "channels", "seen", "rounding")


def _with_rounding(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of a state; those of before the rounding was noted were of float32 at best."""
    return {"rounding": torch.finfo(torch.float32).eps, **facts}


def _shapes(facts: Mapping[str, Any]) -> Shapes:
    check_types(facts, get_type_hints(_Settings) | {"seen": int, "rounding": float})
    if facts["in_shape"] is None:
        return {}
    cells = (facts["num_classes"], 1 if facts["class_cap"] is None else BINS)
    places = math.prod(as_shape(facts["in_shape"]))
    return {
        "pilot": ("channels",),
        "level": ("channels", places),
        "counts": cells,
        "sums": (*cells, "channels"),
        "squares": (*cells, "channels"),
    }
