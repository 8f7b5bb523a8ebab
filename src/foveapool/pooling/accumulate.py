"""The second pass: A and B from batches of feature maps.

With class sizes known from the first pass, B is one weighted Gram matrix: N x N, not Q x N x N.
Neither changes with a constant added to a place of a channel, so each place is brought near zero
before it is multiplied: large means do not cancel, and constant places vanish. Products are float32
(float64 for float64 features, and for maps of few places), their sum is float64.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from hashlib import sha256
from typing import Any, get_type_hints

import torch
from torch import Tensor

from foveapool._stored_names import STORED, from_stored, to_stored
from foveapool.pooling.gram import (
    Panels,
    Precision,
    Workspace,
    check_memory,
    check_precision,
    describe_layout,
    float32_products,
    subtract_and_weight,
    sum_by_class,
    take_layout,
)
from foveapool.pooling.moments import ChannelMoments, DeadChannels, Moments
from foveapool.pooling.scatter import WEIGHTINGS, Scatter, Weighting
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
    check_batch,
    check_not_itself,
    check_same_facts,
    draw_bins,
    gather_from_processes,
    sum_over_processes,
)

# Maps of fewer places are multiplied in float64: BLAS adds up such narrow products one by one.
FEW = 32
# Numbers smaller than this, or larger than one by it, are multiplied in float64: float32 would lose
# their squares.
_LEAST = 1e-15


@dataclass(frozen=True)
class _Settings:
    weighting: Weighting
    normalize: bool
    window: int | None
    precision: Precision


class ScatterAccumulator:
    """Accumulates A and B over the batches that `ChannelMoments` has seen.

    Args:
        moments: What the first pass found.
        weighting: "balanced" counts every class alike (Algorithm 1), "frequency" by its size.
        normalize: Whether channels are brought to variance one; False leaves them at their scale.
        window: Keeps only what solving with that window, or a smaller one, needs; None keeps all.
        precision: Of the products: "ieee", or on a GPU "tf32" and "bf16", which trade accuracy for
            speed.

    Raises:
        ValueError: If a setting is none of these, or the sums do not fit into the memory.

    Example:
        >>> maps, labels = torch.randn(20, 3, 4, 4), torch.arange(20) % 2
        >>> moments = ChannelMoments(num_classes=2)
        >>> moments.update(maps, labels)
        >>> accumulator = ScatterAccumulator(moments.compute())
        >>> for part in (slice(0, 10), slice(10, 20)):
        ...     accumulator.update(maps[part], labels[part])
        >>> accumulator.compute().between.shape
        torch.Size([16, 16])
    """

    def __init__(
        self,
        moments: Moments,
        weighting: Weighting = "balanced",
        normalize: bool = True,
        window: int | None = None,
        precision: Precision = "ieee",
    ) -> None:
        if weighting not in WEIGHTINGS:
            raise ValueError(f"weighting: got {weighting!r}, wanted one of {WEIGHTINGS}")
        device = moments.mean.device
        check_precision(precision, device)
        self.moments = moments
        self.settings = _Settings(weighting, normalize, window, precision)
        self.panels = Panels.for_grid(moments.in_shape, window)
        sizes = torch.Size((len(moments.counts), len(moments.mean), self.panels.size))
        check_memory(self.panels, device, sums=sizes.numel())
        self.seen = 0
        self._gram = self.panels.zeros(device)
        self._sums = torch.zeros(sizes, dtype=torch.float64, device=device)
        self._counts = torch.zeros_like(moments.counts)
        self._workspace = Workspace()
        # What no batch changes: on a GPU each small step costs as much as a large one.
        share = (self._class_weights() / moments.counts).sqrt()
        self._weights = share[:, None, None] * self._channel_scale()[:, None]
        self._double = self._is_beyond_float32()
        self._rounding = torch.finfo(torch.float64).eps  # of the coarsest products so far
        self._draws = moments.class_cap is not None and bool((moments.bins < BINS).any())

    def _class_weights(self) -> Tensor:
        """One for each class (Algorithm 1), or proportional to its size; Q in all either way."""
        counts = self.moments.counts.double()
        if self.settings.weighting == "balanced":
            return torch.ones_like(counts)
        return counts * len(counts) / counts.sum()

    def _channel_scale(self) -> Tensor:
        std = self.moments.std
        scale = 1 / std if self.settings.normalize else torch.ones_like(std)
        return torch.where(std > 0, scale, 0.0)

    def _is_beyond_float32(self) -> bool:
        """Whether levels or weights need float64, or numbers are of a size whose products do."""
        moments, live = self.moments, self.moments.std > 0
        weights = self._weights[:, live]
        rows = (moments.std * self._channel_scale())[live]
        sizes = torch.cat((weights.flatten(), rows.amax(0, keepdim=True) if len(rows) else rows))
        held = bool(((sizes > _LEAST) & (sizes < 1 / _LEAST)).all())
        return not held or not torch.equal(moments.level, moments.level.float().double())

    def update(self, features: Tensor, labels: Tensor, ids: Tensor | None = None) -> None:
        """Takes a batch in; a batch that is refused changes nothing.

        Args:
            features: The maps, (B, C, ...), as in the first pass.
            labels: Their classes, (B,).
            ids: The samples' names, (B,), if the first pass had them.

        Raises:
            ValueError: If sizes or labels do not fit, or a number is not finite.
        """
        moments = self.moments
        layout = (len(moments.mean), moments.in_shape)
        batch = check_batch(features, labels, ids, self.seen, len(moments.counts), layout)
        if self._double:
            batch = replace(batch, maps=batch.maps.double())
        if len(batch.maps) and not bool(batch.largest().square().isfinite()):
            # Near the level that is taken off, squares may be small all the same.
            around = batch.maps - moments.level.to(batch.maps.dtype)
            if not bool(around.square().isfinite().all()):
                batch.raise_not_finite()
        self.seen += len(batch.maps)
        if self._draws:
            batch = batch.only(draw_bins(batch.ids, moments.seed) < moments.bins[batch.labels])
        with float32_products(self.settings.precision):
            for piece in batch.pieces(minimum=4 * self.panels.size * self.panels.extent):
                self._add(batch.maps[piece], batch.labels[piece])

    def _add(self, maps: Tensor, labels: Tensor) -> None:
        self._rounding = max(self._rounding, torch.finfo(maps.dtype).eps)
        weight = self._weights[labels].to(maps.dtype)
        rows = self._workspace.take("rows", maps.shape, maps.dtype, maps.device)
        subtract_and_weight(maps, self.moments.level.to(maps.dtype), weight, out=rows)
        self._add_class_sums(rows, labels)
        rows = rows.flatten(0, 1)
        if self.settings.precision == "bf16" and rows.dtype == torch.float32:
            rows = rows.bfloat16()
        elif self.panels.size < FEW:
            rows = rows.double()
        self.panels.add_gram(self._gram, rows)

    def _add_class_sums(self, rows: Tensor, labels: Tensor) -> None:
        self._counts.index_add_(0, labels, torch.ones_like(labels))
        classes = len(self._counts)
        if labels.is_cuda and classes <= 4 * len(labels):
            self._sums += sum_by_class(rows, labels, classes)
        else:
            # Only classes that are there: most may not be.
            present, labels = labels.unique(return_inverse=True)
            sums = sum_by_class(rows, labels, len(present))
            self._sums.index_add_(0, present, sums.double())

    def compute(self) -> Scatter:
        """Finishes A and B over all that was taken in.

        Returns:
            The scatter, to solve with.

        Raises:
            ValueError: If these are not the samples of the first pass.
        """
        moments, settings = self.moments, self.settings
        missing = (self._counts != moments.counts).nonzero().flatten().tolist()
        if missing:
            q = missing[0]
            raise ValueError(
                f"ScatterAccumulator: got {int(self._counts[q])} samples of class {q}, wanted "
                f"{int(moments.counts[q])} as in the first pass; give both passes the same samples"
                " in the same order, or pass ids"
            )
        weights = self._class_weights()
        # `_sums` holds sqrt(weight / count) times the sum of each class.
        share = (weights * moments.counts).rsqrt()
        middle = torch.tensordot(weights * share, self._sums, 1) / weights.sum()
        between, within = self.panels.zeros(self._sums.device), self._gram.clone()
        # A few classes at a time, since all of them may be as large as the matrices.
        step = max(1, max(2**22, 4 * self.panels.size * self.panels.extent) // middle.numel())
        for some, root, part in zip(
            self._sums.split(step), weights.sqrt().split(step), share.split(step), strict=True
        ):
            means, root = some * part[:, None, None], root[:, None, None]
            self.panels.add_gram(between, (root * (means - middle)).flatten(0, 1))
            self.panels.add_gram(within, (root * means).flatten(0, 1), sign=-1)
        self._warn_of_cancellation(within)
        if settings.window is None:
            between, within = self.panels.symmetrize(between), self.panels.symmetrize(within)
        found = (moments.mean, moments.std, moments.counts, moments.in_shape)
        return Scatter(between, within, *found, settings.weighting, settings.window)

    def _warn_of_cancellation(self, within: Tensor) -> None:
        """Says so where B is a difference so small that weights were off by 1e-6 in cosine."""
        diagonal = torch.arange(self.panels.size, device=within.device)[:, None]
        left, before = (
            float(self.panels.blocks(each, diagonal).sum()) for each in (within, self._gram)
        )
        if left < 2e4 * self._rounding * before:
            warnings.warn(
                f"features: within the classes they vary by {max(left, 0) / before:.0e} of their "
                f"mean square, which is near rounding ({self._rounding:.0e}): B is not exact; "
                "give float64 features, and trust few digits of what they say",
                stacklevel=3,
            )

    def merge(self, other: ScatterAccumulator) -> None:
        """Takes in all that another has seen over the same moments, another shard of the data, say.

        "The same" are moments computed once and handed to all, or those after `all_reduce`.

        Args:
            other: Sums of the same settings, over other samples.

        Raises:
            ValueError: If settings or moments differ, or it is this very object.

        Example:
            >>> maps, labels = torch.randn(20, 3, 4, 4), torch.arange(20) % 2
            >>> moments = ChannelMoments(num_classes=2)
            >>> moments.update(maps, labels)
            >>> shards = [ScatterAccumulator(moments.compute()) for _ in range(2)]
            >>> for shard, part in zip(shards, (slice(0, 10), slice(10, 20))):
            ...     shard.update(maps[part], labels[part], ids=torch.arange(20)[part])
            >>> shards[0].merge(shards[1])
            >>> shards[0].compute().counts.tolist()
            [10, 10]
        """
        check_not_itself("ScatterAccumulator", self, other)
        check_same_facts("ScatterAccumulator", self._facts(), other._facts())
        for mine, theirs in zip(self._tensors().values(), other._tensors().values(), strict=True):
            mine += theirs.to(mine.device)
        self._rounding = max(self._rounding, other._rounding)
        self.seen += other.seen

    def all_reduce(self, group: Any = None) -> None:
        """Makes every process of `torch.distributed` hold the sum over all of them.

        The moments must be those after their own `all_reduce`.

        Args:
            group: The process group; None is the default one.

        Raises:
            RuntimeError: If `torch.distributed` is not initialized.
            ValueError: If the processes differ in settings or moments.

        Example:
            >>> import torch.distributed as dist
            >>> maps, labels = torch.randn(20, 3, 4, 4), torch.arange(20) % 2
            >>> moments = ChannelMoments(num_classes=2)
            >>> moments.update(maps, labels)
            >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
            >>> moments.all_reduce()
            >>> accumulator = ScatterAccumulator(moments.compute())
            >>> accumulator.update(maps, labels)
            >>> accumulator.all_reduce()
            >>> dist.destroy_process_group()
        """
        for theirs in gather_from_processes(self._facts(), group):
            check_same_facts("ScatterAccumulator", self._facts(), theirs)
        sum_over_processes(self._tensors().values(), group)

    def _tensors(self) -> dict[str, Tensor]:
        return {"gram": self._gram, "sums": self._sums, "counts": self._counts}

    def _facts(self) -> dict[str, Any]:
        moments = self.moments
        facts = {"in_shape": moments.in_shape, "seed": moments.seed, "cap": moments.class_cap}
        sizes = {"channels": len(moments.mean), "counts": moments.counts.tolist()}
        # Sums around different levels do not add up, and shards of the first pass that were merged
        # in another order have another level.
        level = sha256(moments.level.cpu().numpy().tobytes()).hexdigest()[:12]
        return {**asdict(self.settings), **facts, **sizes, "level": level}

    def state_dict(self) -> dict[str, Any]:
        """Gives all there is to go on from, beside the moments, for a checkpoint.

        Returns:
            {"tensors": sums, "facts": plain settings and sizes}; tensors are shared, not copied.

        Example:
            >>> maps, labels = torch.randn(20, 3, 4, 4), torch.arange(20) % 2
            >>> moments = ChannelMoments(num_classes=2)
            >>> moments.update(maps, labels)
            >>> first, second = (ScatterAccumulator(moments.compute()) for _ in range(2))
            >>> first.update(maps[:10], labels[:10])
            >>> second.load_state_dict(first.state_dict())
            >>> second.update(maps[10:], labels[10:])
            >>> second.compute().counts.tolist()
            [10, 10]
        """
        return {"tensors": self._tensors(), "facts": to_stored(self._facts() | {"seen": self.seen})}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from the state of another over the same moments; `state_dict` has an example.

        Args:
            state: What `state_dict` gave.

        Raises:
            ValueError: If it is anything else, or belongs to other moments or settings.
        """
        tensors, facts = state.get("tensors", {}), dict(state.get("facts", {}))
        held = {name: tuple(tensor.shape) for name, tensor in self._tensors().items()}
        advice = "give the state of an accumulator over these moments"
        check_contents("ScatterAccumulator", tensors, facts, _FACTS, lambda facts: held, advice)
        facts = from_stored(facts)
        seen = facts.pop("seen")
        facts["in_shape"] = tuple(facts["in_shape"])
        check_same_facts("ScatterAccumulator", self._facts(), facts)
        for name, tensor in self._tensors().items():
            tensor.copy_(tensors[name])
        self.seen = seen
        # What came before is not said: it was float32, as most maps are.
        self._rounding = torch.finfo(torch.float32).eps

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the state, and the moments, to a safetensors file.

        Args:
            path: The file.

        Example:
            >>> import tempfile
            >>> maps, labels = torch.randn(20, 3, 4, 4), torch.arange(20) % 2
            >>> moments = ChannelMoments(num_classes=2)
            >>> moments.update(maps, labels)
            >>> accumulator = ScatterAccumulator(moments.compute())
            >>> accumulator.update(maps, labels)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     accumulator.save(f"{folder}/sums.safetensors")
            ...     ScatterAccumulator.load(f"{folder}/sums.safetensors").seen
            20
        """
        state = self.state_dict()
        moments = {f"moments.{k}": getattr(self.moments, k) for k in _MOMENT_TENSORS}
        tensors, facts = state["tensors"] | moments, state["facts"] | describe_layout(self.panels)
        save_tensors(path, "scatter-sums", tensors, facts)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], device: torch.device | str = "cpu"
    ) -> ScatterAccumulator:
        """Reads what `save` wrote, to go on with; `save` has an example.

        Args:
            path: The file.
            device: Where the sums are kept from now on.

        Returns:
            An accumulator with the settings, moments and sums of the one that was saved.

        Raises:
            ValueError: If the file is damaged or of another kind.
        """
        tensors, header = load_tensors(path, "scatter-sums", device)
        is_new = take_layout(header)
        check_contents(path, tensors, header, _FACTS, partial(_shapes, is_new=is_new))
        facts = {name: header[name] for name in _FACTS}
        with explain_damage(path):
            moments = Moments(
                **{name: tensors.pop(f"moments.{name}") for name in _MOMENT_TENSORS},
                in_shape=tuple(facts["in_shape"]),
                class_cap=facts["cap"],
                seed=facts["seed"],
            )
            known = from_stored(facts)
            settings = {field.name: known[field.name] for field in fields(_Settings)}
            accumulator = cls(moments, **settings)
            if not is_new:
                tensors["gram"] = accumulator.panels.read_lines(tensors["gram"])
            accumulator.load_state_dict({"tensors": tensors, "facts": facts})
        return accumulator


_MOMENT_TENSORS = ("counts", "bins", "mean", "std", "level")
_FACTS = (
    *(STORED.get(each.name, each.name) for each in fields(_Settings)),
    *("in_shape", "seed", "cap", "channels", "counts", "level", "seen"),
)


def _shapes(facts: Mapping[str, Any], is_new: bool) -> Shapes:
    whole = {"seen": int, "seed": int, "cap": int | None}
    check_types(from_stored(facts), get_type_hints(_Settings) | whole)
    panels = Panels.for_grid(facts["in_shape"], facts["window"])
    classes, channels = len(facts["counts"]), facts["channels"]
    moments = {
        **dict.fromkeys(("counts", "bins"), (classes,)),
        **dict.fromkeys(("mean", "std"), (channels,)),
        "level": (channels, panels.size),
    }
    return {
        "gram": panels.list_sizes(is_new),
        "sums": (classes, channels, panels.size),
        "counts": (classes,),
        **{f"moments.{name}": shape for name, shape in moments.items()},
    }


def compute_scatter(
    features: Tensor,
    labels: Tensor,
    num_classes: int | None = None,
    *,
    class_cap: int | None = 10_000,
    seed: int = 0,
    dead_channels: DeadChannels = "error",
    batch_size: int = 512,
    **settings: Any,
) -> Scatter:
    """Makes both passes over maps that are in memory.

    Args:
        features: The maps, (n, C, ...), a tensor or an array.
        labels: Their classes, (n,).
        num_classes: The number of classes; one more than the largest label unless given.
        class_cap: As for `ChannelMoments`.
        seed: As for `ChannelMoments`.
        dead_channels: As for `ChannelMoments`.
        batch_size: How many maps are worked on at once.
        **settings: Those of `ScatterAccumulator`, such as `weighting` and `window`.

    Returns:
        The scatter, to solve with.

    Raises:
        ValueError: If maps and labels do not belong together, or cannot be worked with.

    Example:
        >>> scatter = compute_scatter(torch.randn(20, 3, 4, 4), torch.arange(20) % 2)
        >>> scatter.between.shape
        torch.Size([16, 16])
    """
    features, labels = torch.as_tensor(features), torch.as_tensor(labels)
    if len(features) != len(labels):
        raise ValueError(f"labels: got {len(labels)}, wanted {len(features)}, one a feature map")
    if num_classes is None:
        num_classes = int(labels.max()) + 1 if len(labels) else 0
    moments = ChannelMoments(num_classes, class_cap, seed, dead_channels)
    pairs = list(zip(features.split(batch_size), labels.split(batch_size), strict=True))
    for maps, classes in pairs:
        moments.update(maps, classes)
    accumulator = ScatterAccumulator(moments.compute(), **settings)
    for maps, classes in pairs:
        accumulator.update(maps, classes)
    return accumulator.compute()
