"""The mixing behind a pooling in closed form: least squares to what a convolution gave.

`MixingSums` takes in pooled maps and the convolution's output, batch by batch, and holds nothing
but moments in float64. `Mixing` is the answer, with the share of the output that it gives.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, get_type_hints

import torch
from torch import Tensor

from foveapool._memory import get_free_memory
from foveapool.pooling.mixing import ChannelMixing
from foveapool.pooling.storage import (
    Shapes,
    check_contents,
    check_types,
    load_tensors,
    save_tensors,
)
from foveapool.pooling.validation import check_same_facts, gather_from_processes, sum_over_processes

# What is added to each feature's variance, as a share of it; more where Cholesky asks for it.
RIDGE = 1e-8
MOST_RIDGE = 1e-2


@dataclass(frozen=True, repr=False)
class Mixing:
    """A mixing that was solved for, and how much of the convolution's output it gives.

    Attributes:
        weight: (out_channels, components, in_channels / groups), float64.
        bias: (out_channels,), float64; None if the convolution has none.
        groups: The blocks of channels that do not see each other.
        ridge: What was added to the variance of each feature, as a share of it.
        explained: 1 - (mean squared error) / variance, both summed over the output channels and
            taken over all samples and places that were seen; below zero where there is no bias and
            the output's mean is not met.

    Example:
        >>> sums = MixingSums(MixingSizes(in_channels=2, out_channels=1, components=1, bias=True))
        >>> maps = torch.randn(20, 2, 3, 3)
        >>> sums.update(maps, 3 * maps[:, :1] - maps[:, 1:])
        >>> mixing = sums.solve()
        >>> mixing.groups, mixing.ridge, round(mixing.explained, 6)
        (1, 1e-08, 1.0)
        >>> mixing.module()
        ChannelMixing(2 -> 1, components=1, bias=True)
    """

    weight: Tensor
    bias: Tensor | None
    groups: int
    ridge: float
    explained: float

    def __str__(self) -> str:
        outputs, components, inputs = self.weight.shape
        grouped = f", {self.groups} groups" if self.groups > 1 else ""
        biased = "" if self.bias is None else ", with a bias"
        return (
            f"mixing of {components} x {inputs * self.groups} channels to {outputs}{grouped}"
            f"{biased}: {self.in_words()}, ridge {self.ridge:.0e}"
        )

    __repr__ = __str__

    def in_words(self) -> str:
        """Tells how it came about and how much it gives, for a report.

        Returns:
            Half a sentence.

        Example:
            >>> Mixing(torch.ones(1, 1, 1), None, groups=1, ridge=1e-8, explained=0.875).in_words()
            "least squares, 87.5% of the old output's variance"
        """
        return f"least squares, {100 * self.explained:.1f}% of the old output's variance"

    def module(self) -> ChannelMixing:
        """Makes a layer of the mixing.

        Returns:
            A layer that trains, in torch's default type, on the device of the numbers.
        """
        outputs, components, inputs = self.weight.shape
        mixing = ChannelMixing(
            inputs * self.groups, outputs, components, self.groups, self.bias is not None
        )
        with torch.no_grad():
            mixing.weight.copy_(self.weight)
            if mixing.bias is not None and self.bias is not None:
                mixing.bias.copy_(self.bias)
        return mixing.to(self.weight.device)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a safetensors file.

        Args:
            path: The file.

        Example:
            >>> import tempfile
            >>> mixing = Mixing(torch.ones(1, 1, 1), None, groups=1, ridge=1e-8, explained=0.875)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     mixing.save(f"{folder}/mixing.safetensors")
            ...     Mixing.load(f"{folder}/mixing.safetensors").explained
            0.875
        """
        tensors = {"weight": self.weight} | ({} if self.bias is None else {"bias": self.bias})
        facts = {name: getattr(self, name) for name in _MIXING_FACTS}
        save_tensors(path, "mixing", tensors, {**facts, "has_bias": self.bias is not None})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Mixing:
        """Reads what `save` wrote; `save` has an example.

        Args:
            path: The file.

        Returns:
            The mixing, on the CPU.

        Raises:
            ValueError: If the file is damaged or of another kind.
        """
        tensors, header = load_tensors(path, "mixing")
        check_contents(path, tensors, header, (*_MIXING_FACTS, "has_bias"), _mixing_shapes)
        facts = {name: header[name] for name in _MIXING_FACTS}
        if facts["groups"] < 1 or len(tensors["weight"]) % facts["groups"]:
            raise ValueError(
                f"{path}: got {facts['groups']} groups, wanted some that divide the "
                f"{len(tensors['weight'])} outputs; make it anew"
            )
        return cls(tensors["weight"], tensors.get("bias"), **facts)


_MIXING_FACTS = ("groups", "ridge", "explained")


def _mixing_shapes(facts: Mapping[str, Any]) -> Shapes:
    check_types(facts, {"groups": int, "ridge": float, "explained": float, "has_bias": bool})
    weight: Shapes = {"weight": ("outputs", "components", "inputs")}
    return {**weight, "bias": ("outputs",)} if facts["has_bias"] else weight


@dataclass(frozen=True)
class MixingSizes:
    """What a mixing mixes; the names are those of `ChannelMixing`."""

    in_channels: int
    out_channels: int
    components: int
    groups: int = 1
    bias: bool = False

    @property
    def features(self) -> int:
        """The numbers that an output channel is made of."""
        return self.components * self.in_channels // self.groups

    @property
    def bytes(self) -> int:
        """What the sums take in memory."""
        outputs = self.out_channels // self.groups
        return 8 * self.groups * (self.features + outputs) * self.features

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of what is summed, by name."""
        groups, inputs, outputs = self.groups, self.features, self.out_channels // self.groups
        return {
            "gram": (groups, inputs, inputs),
            "cross": (groups, inputs, outputs),
            "squares": (groups, outputs),
            "feature_mean": (groups, inputs),
            "target_mean": (groups, outputs),
        }


class MixingSums:
    """Accumulates what least squares from pooled maps to a convolution's output needs.

    Moments are kept around the means so far, so that large means do not cancel; without a bias
    they are taken around zero in the end. All in float64.

    Args:
        sizes: What is mixed.
        device: Where the sums are kept.
        pooling: Tells the pooling from others, so that sums do not go on with another one's maps.

    >>> sums = MixingSums(MixingSizes(in_channels=2, out_channels=1, components=1))
    >>> maps = torch.randn(20, 2, 3, 3)
    >>> sums.update(maps, 3 * maps[:, :1] - maps[:, 1:])
    >>> sums.solve().weight.flatten().round(decimals=3).tolist()
    [3.0, -1.0]
    """

    def __init__(
        self, sizes: MixingSizes, device: torch.device | str = "cpu", pooling: str = ""
    ) -> None:
        self.sizes, self.pooling, self.count = sizes, pooling, 0
        self._state = {
            name: torch.zeros(shape, dtype=torch.float64, device=device)
            for name, shape in sizes.tensor_shapes().items()
        }

    def update(self, pooled: Tensor, targets: Tensor) -> None:
        """Takes in pooled maps (B, k C, H', W') and the convolution's output (B, C_out, H', W').

        Raises:
            ValueError: If the sizes do not fit, or a number is not finite.
        """
        sizes = self.sizes
        channels = (sizes.components * sizes.in_channels, sizes.out_channels)
        places = {tuple(maps.shape[:1] + maps.shape[2:]) for maps in (pooled, targets)}
        if (pooled.shape[1], targets.shape[1]) != channels or len(places) > 1:
            raise ValueError(
                f"mixing: got pooled maps of {tuple(pooled.shape)} and an output of "
                f"{tuple(targets.shape)}, wanted {channels[0]} and {channels[1]} channels of as "
                "many places"
            )
        if not bool(torch.stack([pooled.isfinite().all(), targets.isfinite().all()]).all()):
            raise ValueError(
                "mixing: got NaN or infinity in the pooled maps or the convolution's output, "
                "wanted finite numbers; nothing of this batch was taken in"
            )
        if not pooled.numel():
            return
        groups, components = sizes.groups, sizes.components
        # All places of all samples below each other: (groups, B M, features) and (..., outputs).
        features = pooled.detach().double().flatten(2).unflatten(1, (components, groups, -1))
        features = features.permute(2, 0, 4, 1, 3).flatten(3).flatten(1, 2)
        outputs = targets.detach().double().flatten(2).unflatten(1, (groups, -1))
        outputs = outputs.permute(1, 0, 3, 2).flatten(1, 2)
        means = features.mean(1), outputs.mean(1)
        features, outputs = features - means[0][:, None], outputs - means[1][:, None]
        self._state["gram"].baddbmm_(features.mT, features)
        self._state["cross"].baddbmm_(features.mT, outputs)
        self._state["squares"] += outputs.square().sum(1)
        self._join(features.shape[1], *means)

    def _join(self, count: int, feature_mean: Tensor, target_mean: Tensor) -> None:
        """Moves the middle, around which all is summed, to that of `count` more places."""
        state, total = self._state, self.count + count
        steps = feature_mean - state["feature_mean"], target_mean - state["target_mean"]
        self._spread(self.count * count / total, *steps)
        state["feature_mean"] += steps[0] * (count / total)
        state["target_mean"] += steps[1] * (count / total)
        self.count = total

    def _spread(self, weight: float, feature: Tensor, target: Tensor) -> None:
        """Adds the moments of a point at these distances from the middle, (groups, ...)."""
        state = self._state
        state["gram"].baddbmm_(weight * feature[:, :, None], feature[:, None])
        state["cross"].baddbmm_(weight * feature[:, :, None], target[:, None])
        state["squares"] += weight * target.square()

    def all_reduce(self, group: Any = None) -> None:
        """Makes every process of `torch.distributed` hold the sums over all of them."""
        shards = gather_from_processes((self._facts(), self.count), group)
        for theirs, _ in shards:
            check_same_facts("MixingSums", self._facts(), theirs)
        state, total = self._state, sum(count for _, count in shards)
        names = ("feature_mean", "target_mean")
        own = [state[name].clone() for name in names]
        for name in names:
            state[name] *= self.count / max(1, total)
        sum_over_processes((state[name] for name in names), group)
        steps = [mean - state[name] for name, mean in zip(names, own, strict=True)]
        self._spread(self.count, *steps)
        sum_over_processes((state[name] for name in ("gram", "cross", "squares")), group)
        self.count = total

    def solve(self) -> Mixing:
        """The weights, and the bias where there is one, of the least squared error.

        Raises:
            ValueError: If nothing was taken in.
        """
        if not self.count:
            raise ValueError("mixing: got no maps, wanted one batch at least")
        sizes, state = self.sizes, self._state
        gram, cross, squares = (state[name].clone() for name in ("gram", "cross", "squares"))
        variance = float(squares.sum())
        if not sizes.bias:
            feature, target = state["feature_mean"], state["target_mean"]
            gram.baddbmm_(self.count * feature[:, :, None], feature[:, None])
            cross.baddbmm_(self.count * feature[:, :, None], target[:, None])
            squares += self.count * target.square()
        weight, ridge = _solve_ridge(gram, cross)
        error = float((squares + (weight * (gram @ weight - 2 * cross)).sum(1)).sum())
        bias = None
        if sizes.bias:
            bias = state["target_mean"] - (state["feature_mean"][:, None] @ weight)[:, 0]
            bias = bias.flatten()
        weight = weight.mT.reshape(sizes.out_channels, sizes.components, -1).contiguous()
        return Mixing(weight, bias, sizes.groups, ridge, _explained_share(error, variance))

    def describes(self, other: MixingSums) -> bool:
        """Whether both are sums over the same pooling, for the same mixing."""
        return self._facts() == other._facts()

    def _facts(self) -> dict[str, Any]:
        return {**asdict(self.sizes), "pooling": self.pooling}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the state to a safetensors file."""
        save_tensors(path, "mixing-sums", self._state, {**self._facts(), "count": self.count})

    @classmethod
    def load(cls, path: str | os.PathLike[str], device: torch.device | str = "cpu") -> MixingSums:
        """Reads what `save` wrote, to go on with on `device`."""
        tensors, header = load_tensors(path, "mixing-sums", device)
        names = (*MixingSizes.__dataclass_fields__, "pooling", "count")
        check_contents(
            path, tensors, header, names, lambda facts: _read_sizes(facts).tensor_shapes()
        )
        sums = cls(_read_sizes(header), device, header["pooling"])
        for name, tensor in sums._state.items():
            tensor.copy_(tensors[name])  # what lies in a file's order is added up in another one
        sums.count = header["count"]
        return sums


def _read_sizes(facts: Mapping[str, Any]) -> MixingSizes:
    check_types(facts, get_type_hints(MixingSizes) | {"pooling": str, "count": int})
    if not 0 <= facts["count"] <= 2**53:  # more than float64 can count
        raise ValueError(f"count: got {facts['count']}, wanted 0 to 2^53, the places of all maps")
    return MixingSizes(**{name: facts[name] for name in MixingSizes.__dataclass_fields__})


def _solve_ridge(gram: Tensor, cross: Tensor) -> tuple[Tensor, float]:
    """The solution (g, n, m) of `gram` (g, n, n) times it = `cross`, and the ridge that it took.

    Every feature is brought to variance one first: channels of any scale are treated alike, and
    those that never vary get no weight.
    """
    variances = gram.diagonal(dim1=1, dim2=2)
    scale = torch.where(variances > 0, variances.rsqrt(), 0.0)
    scaled, ridge = scale[:, :, None] * gram * scale[:, None], RIDGE
    while True:
        # In the type of the sums: `torch.where` of two plain numbers is float32, without the ridge.
        scaled.diagonal(dim1=1, dim2=2).copy_(1 + ridge * (variances > 0).to(scaled.dtype))
        factor, failures = torch.linalg.cholesky_ex(scaled)
        if not bool(failures.any()):
            answer = torch.cholesky_solve(scale[:, :, None] * cross, factor)
            return scale[:, :, None] * answer, ridge
        if ridge >= MOST_RIDGE:
            raise ValueError(
                f"mixing: got sums that have no Cholesky factor with a ridge of {ridge:.0e}, "
                "wanted those of finite maps; pass mixing='random'"
            )
        ridge *= 10


def _explained_share(error: float, variance: float) -> float:
    """1 - error / variance; of an output that never varies, all of it or nothing."""
    if variance > 0:
        return 1 - max(0.0, error) / variance
    return float(error <= 0)


def check_mixing_fits(sizes: Mapping[str, MixingSizes], device: torch.device) -> None:
    """Raises unless the sums of all layers, and solving, fit into half of the free memory.

    Args:
        sizes: What is mixed, by layer.
        device: Where the sums are to be kept.

    Raises:
        ValueError: If they do not; with the gigabytes, and what to do.
    """
    largest = max(sizes, key=lambda name: sizes[name].bytes)
    # Solving needs a copy, its scaled form and its factor, of one layer at a time.
    need = sum(each.bytes for each in sizes.values()) + 3 * sizes[largest].bytes
    free = get_free_memory(device)
    if free is not None and need > free / 2:
        of = sizes[largest]
        raise ValueError(
            f"components: the least squares of the mixing would need {need / 1e9:.1f} GB of "
            f"memory, most of it for {largest} ({of.components} components of {of.in_channels} "
            f"channels), wanted at most half of the {free / 1e9:.1f} GB that are free on {device}; "
            "ask for fewer components, fit fewer layers at a time, or pass mixing='random'"
        )


def split_pooled(samples: int, numbers: int, device: torch.device) -> list[slice]:
    """Parts of a batch whose pooled maps, `numbers` a sample, are worked on at once."""
    entries = 2**26 if device.type == "cuda" else 2**21
    step = max(1, entries // max(1, numbers))
    return [slice(first, first + step) for first in range(0, samples, step)]
