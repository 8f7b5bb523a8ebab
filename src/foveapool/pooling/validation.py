"""What both passes do with data from outside: batches, shards, processes, samples that count.

A batch is checked whole before anything is added to a sum, so that an error leaves the sums as
they were. At most so many samples of each class count, drawn by seed, the same in every pass over
the data: a sample's fate depends on the seed and its id alone, never on what came before it, so
shards may be read in any order, on any number of processes. Ids fall into bins at random; the first
pass counts the bins of each class, and a class keeps as many whole bins as fit under the cap. So a
class above the cap keeps up to a bin less than the cap, and no sum ever has to be taken back.

A bin takes one id in 32. The first of these is halved again and again, since of a huge class it
may be too large by itself: a class keeps about half of the cap or more, whatever its size.

Channels that vary by no more than rounding are left out, and never in silence but where they are
constant to the last bit.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")
Layout = tuple[int, tuple[int, ...]]  # channels, spatial shape


@dataclass(frozen=True)
class Batch:
    """A batch in working form."""

    maps: Tensor  # (B, C, N), float64 if it came so, float32 otherwise
    labels: Tensor  # (B,) int64
    ids: Tensor  # (B,) int64
    in_shape: tuple[int, ...]

    def only(self, chosen: Tensor) -> Batch:
        """The samples for which `chosen` (B,) is true."""
        if bool(chosen.all()):
            return self
        return Batch(self.maps[chosen], self.labels[chosen], self.ids[chosen], self.in_shape)

    def in_type_of(self, level: Tensor) -> Batch:
        """The batch in float64 where float32 does not hold the `level` that is taken off it."""
        if self.maps.dtype == torch.float64 or torch.equal(level, level.float().double()):
            return self
        return replace(self, maps=self.maps.double())

    def pieces(self, minimum: int = 0) -> Iterator[slice]:
        """Parts that stay in the cache of a CPU, or fill a GPU, while they are worked on.

        At least `minimum` numbers each, where a piece has a fixed cost as large as that, but no
        more samples than float32 can add up.
        """
        entries = max(2**27 if self.maps.is_cuda else 2**21, minimum)
        most = 2**11 if self.maps.is_cuda else 2**8
        step = max(1, min(most, entries // max(1, self.maps.shape[1] * self.maps.shape[2])))
        for first in range(0, len(self.maps), step):
            yield slice(first, first + step)

    def largest(self) -> Tensor:
        """The largest magnitude, of one sample or more; NaN if there is one."""
        return torch.stack(self.maps.aminmax()).abs().amax()

    def raise_not_finite(self) -> NoReturn:
        """Says where the first NaN or infinity is, or what became infinite when it was squared."""
        found = (~self.maps.isfinite()).nonzero()
        if not len(found):
            raise ValueError(
                f"features: got numbers up to {float(self.maps.abs().max()):.1e}, whose squares "
                f"overflow {self.maps.dtype}, wanted smaller ones; scale the features down; "
                "nothing of this batch was taken in"
            )
        sample, channel, place = found[0].tolist()
        value = float(self.maps[sample, channel, place])
        raise ValueError(
            f"features: got {value} in sample {sample} of the batch, channel {channel}, place "
            f"{place}, wanted finite numbers; nothing of this batch was taken in; look at that "
            "image, and at the layers before these maps"
        )


def check_batch(
    features: Tensor,
    labels: Tensor,
    ids: Tensor | None,
    seen: int,
    num_classes: int,
    layout: Layout | None,
) -> Batch:
    """The batch, or a ValueError that says what is wrong with it."""
    if not isinstance(features, Tensor):
        raise ValueError(
            f"features: got {type(features).__name__}, wanted a torch.Tensor; torch.as_tensor makes"
            " one of an array"
        )
    usable = 3 <= features.dim() <= 5 and 0 not in features.shape[1:]
    if not usable or not features.is_floating_point():
        raise ValueError(
            f"features: got shape {tuple(features.shape)} of {features.dtype}, wanted floating "
            "point (batch, channels, height, width), or one or three spatial sizes, none of them 0"
        )
    channels, in_shape = features.shape[1], tuple(features.shape[2:])
    if layout is not None and layout != (channels, in_shape):
        raise ValueError(
            f"features: got {channels} channels of {in_shape}, wanted {layout[0]} of {layout[1]} "
            "as in the batches before; fit one map size at a time"
        )
    size = features.shape[0]
    try:
        labels = torch.as_tensor(labels, device=features.device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"labels: got {type(labels).__name__}, wanted {size} whole numbers, one a sample"
        ) from error
    if labels.shape != (size,) or labels.is_floating_point() or labels.is_complex():
        raise ValueError(
            f"labels: got shape {tuple(labels.shape)} of {labels.dtype}, wanted {size} whole "
            "numbers, one a sample; of one-hot rows give labels.argmax(1)"
        )
    labels = labels.long()
    low, high = torch.stack(labels.aminmax()).tolist() if size else (0, 0)
    if low < 0 or high >= num_classes:
        wrong = labels[(labels < 0) | (labels >= num_classes)].unique().tolist()
        raise ValueError(
            f"labels: got {wrong[:10]}, wanted 0 to {num_classes - 1}; raise num_classes or number "
            "the classes from 0"
        )
    if ids is None:
        ids = torch.arange(seen, seen + size, device=features.device)
    ids = torch.as_tensor(ids, device=features.device)
    if ids.shape != (size,) or ids.is_floating_point() or ids.is_complex():
        raise ValueError(
            f"ids: got shape {tuple(ids.shape)} of {ids.dtype}, wanted {size} whole numbers, one a "
            "sample"
        )
    maps = features.detach().flatten(2)
    if maps.dtype != torch.float64:
        maps = maps.float()
    return Batch(maps, labels, ids.long(), in_shape)


def check_not_itself(name: str, mine: object, theirs: object) -> None:
    """Raises if an accumulator is to take itself in, which would count everything twice."""
    if mine is theirs:
        raise ValueError(f"{name}: got itself to merge, wanted another shard")


def check_same_facts(name: str, mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> None:
    """Raises unless two accumulators were set up alike; sizes that one has not met may differ."""
    for key, value in mine.items():
        other = theirs.get(key)  # a file of an older version may not have noted it
        unmet = key in ("in_shape", "channels") and None in (value, other)
        if value != other and not unmet:
            raise ValueError(
                f"{name}: got shards with {key} {value!r} and {other!r}, wanted the same in all"
            )


def is_distributed() -> bool:
    """Whether `torch.distributed` is at work."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def gather_from_processes(value: T, group: Any = None) -> list[T]:
    """`value` of every process of the group, in the order of their ranks."""
    if not is_distributed():
        raise RuntimeError(
            "all_reduce: got no process group, wanted torch.distributed initialized; call "
            "init_process_group first, or leave all_reduce out in a single process"
        )
    values: list[Any] = [None] * torch.distributed.get_world_size(group)
    torch.distributed.all_gather_object(values, value, group=group)
    return values


def sum_over_processes(tensors: Iterable[Tensor], group: Any = None) -> None:
    """Replaces each tensor by its sum over the processes of the group."""
    for tensor in tensors:
        torch.distributed.all_reduce(tensor, group=group)


def get_collective_device(group: Any = None) -> torch.device:
    """Where a tensor has to live to be summed over the processes of the group."""
    backend = str(torch.distributed.get_backend(group))
    return torch.device("cuda" if "nccl" in backend else "cpu")


EQUAL, HALVINGS = 32, 10
BINS = EQUAL + HALVINGS


def draw_bins(ids: Tensor, seed: int) -> Tensor:
    """The bin of each id, int64 in [0, BINS): splitmix64, whose top bits are as good as random.

    >>> draw_bins(torch.arange(4), seed=0).tolist() == draw_bins(torch.arange(4), 0).tolist()
    True
    """

    def shifted(value: Tensor, bits: int) -> Tensor:
        # torch has no unsigned shift: clear the sign's copies.
        return (value >> bits) & ((1 << (64 - bits)) - 1)

    state = (ids.long() + 1) * _as_int64(0x9E3779B97F4A7C15) + _as_int64(seed * 0xD1342543DE82EF95)
    state = (state ^ shifted(state, 30)) * _as_int64(0xBF58476D1CE4E5B9)
    state = (state ^ shifted(state, 27)) * _as_int64(0x94D049BB133111EB)
    state = state ^ shifted(state, 31)
    bins = shifted(state, 59)
    # Of the first, where the next bits begin: half of the ids in the last, a quarter before it.
    halved = torch.frexp(shifted(state, 59 - HALVINGS).double()).exponent.long()
    return torch.where(bins > 0, bins + HALVINGS, halved)


def _as_int64(value: int) -> int:
    """The 64-bit pattern of `value` as torch's int64 holds it."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def count_kept_bins(counts: Tensor, class_cap: int | None) -> Tensor:
    """How many bins each class keeps, int64 (Q,), from its samples a bin, (Q, bins).

    >>> count_kept_bins(torch.tensor([[4, 4, 4], [1, 0, 1]]), class_cap=9).tolist()
    [2, 3]
    """
    # A cap that no tensor can hold is never met.
    if class_cap is None or class_cap > torch.iinfo(torch.int64).max:
        return torch.full_like(counts[:, 0], counts.shape[1])
    return (counts.cumsum(1) <= class_cap).sum(1)


def check_class_sizes(samples: Tensor, counts: Tensor, class_cap: int | None) -> None:
    """Raises a ValueError if a class has fewer than two samples that count.

    samples: (Q, bins), all that were seen; counts: (Q,), those that count.
    """
    few = (counts < 2).nonzero().flatten().tolist()
    for q in few:
        drawn = samples[q].cumsum(0).tolist()
        if drawn[-1] >= 2:
            least = next(size for size in drawn if size >= 2)
            raise ValueError(
                f"class_cap: got {class_cap} for {drawn[-1]} samples of class {q}, wanted {least} "
                "or more: classes are drawn in parts"
            )
    if few:
        raise ValueError(_describe_small_classes(counts.tolist()))


def _describe_small_classes(counts: list[int]) -> str:
    few = {q: size for q, size in enumerate(counts) if size < 2}
    empty = [q for q, size in few.items() if size == 0]
    if empty and any(counts[empty[0] :]):
        advice = "number the classes from 0 without gaps"
    elif empty:
        advice = "give samples of these, or lower num_classes if it was given"
    else:
        advice = "give more samples of these classes or leave them out"
    return (
        "labels: got classes with fewer than two samples {class: samples} "
        f"{dict(list(few.items())[:10])}, wanted two or more of each of the {len(counts)} classes; "
        f"{advice}"
    )


# Below this mean square of a number, float32 and float64 lose digits of it or all of it.
_LEAST_SQUARE = {torch.float32: 1e-30, torch.float64: 1e-290}


def square_small_ones(maps: Tensor, pilot: Tensor, sums: Tensor, squares: Tensor) -> None:
    """Takes sums (B, C) again where squares are too small for float32; refuses what float64 loses.

    maps: (B, C, N). Channels that are zero everywhere are as small, and cost a look.
    """
    least = maps.shape[2] * _LEAST_SQUARE[maps.dtype]
    sample, channel = (squares < least).nonzero(as_tuple=True)
    level = pilot.to(maps.dtype)[channel, None]
    varies = (maps[sample, channel] != level).any(1)
    if not bool(varies.any()):
        return
    sample, channel = sample[varies], channel[varies]
    around = maps[sample, channel].double() - pilot[channel, None]
    found = around.square().sum(1)
    if float(found.min()) < maps.shape[2] * _LEAST_SQUARE[torch.float64]:
        raise ValueError(
            f"features: got numbers down to {float(around.abs().amax(1).min()):.1e} around their "
            "mean, whose squares vanish in torch.float64, wanted larger ones; scale the features "
            "up; nothing of this batch was taken in"
        )
    sums[sample, channel], squares[sample, channel] = around.sum(1), found


def find_dead_channels(mean: Tensor, variance: Tensor, square: Tensor, rounding: float) -> Tensor:
    """Which channels do not vary, or by no more than what rounding leaves behind.

    Rounding of the numbers themselves, where all that differs are neighbors in their type, and of
    the sums: `variance` is what is left of `square`, the mean square around a value near the mean.
    """
    single = min(rounding, torch.finfo(torch.float32).eps)  # shorter types are summed in float32
    return (variance <= (rounding / 2 * mean).square()) | (variance <= 8 * single * square)


def warn_of_left_out(name: str, channels: Tensor, rounding: float) -> None:
    """Names the channels that vary and are left out all the same."""
    left = channels.nonzero().flatten().tolist()
    if left:
        warnings.warn(
            f"{name}: {len(left)} channels vary by no more than rounding ({rounding:.1e} of their "
            f"mean) and are left out: {left[:10]}; to count them in, subtract their mean, or give "
            "maps of a longer type",
            stacklevel=3,
        )


def check_no_dead_channels(dead: Tensor) -> None:
    """Raises a ValueError that names the dead channels."""
    if bool(dead.any()):
        names = torch.nonzero(dead).flatten().tolist()
        raise ValueError(
            f"features: got {len(names)} dead channels (variance 0, or no more than rounding): "
            f"{names[:10]}, wanted variance in each; pass dead_channels='ignore' to leave them out "
            "of the scatter"
        )
