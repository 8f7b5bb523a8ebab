"""Shards, processes and interrupted passes: however the work is divided, the answer is one."""

from __future__ import annotations

import inspect
import itertools
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from foveapool.pooling.accumulate import ScatterAccumulator, compute_scatter
from foveapool.pooling.moments import ChannelMoments, Moments
from foveapool.pooling.scatter import Scatter

from .oracles import algorithm_1, class_maps, distance

Shard = tuple[Tensor, Tensor, Tensor]

CAP, SEED = 50, 3


@pytest.fixture(scope="module")
def data() -> Shard:
    """Maps, labels and ids of three unequal classes, two of them larger than the cap."""
    maps, labels = class_maps((120, 80, 15), (6, 5))
    return maps, labels, torch.arange(len(maps)) * 7 + 1


@pytest.fixture(scope="module")
def wanted(data: Shard) -> Scatter:
    """The answer of a single pass."""
    return second_pass([data], first_pass([data]).compute()).compute()


def first_pass(shards: Iterable[Shard], **settings: object) -> ChannelMoments:
    moments = ChannelMoments(3, **{"class_cap": CAP, "seed": SEED, **settings})
    for maps, labels, ids in shards:
        moments.update(maps, labels, ids)
    return moments


def second_pass(shards: Iterable[Shard], moments: Moments, **settings: object):
    accumulator = ScatterAccumulator(moments, **settings)
    for maps, labels, ids in shards:
        accumulator.update(maps, labels, ids)
    return accumulator


def cut(data: Shard, *edges: int) -> list[Shard]:
    ends = [0, *edges, len(data[0])]
    return [tuple(part[a:b] for part in data) for a, b in itertools.pairwise(ends)]


def assert_same(got: Scatter, wanted: Scatter, tolerance: float = 1e-12) -> None:
    for name in ("between", "within", "mean", "std"):
        assert distance(getattr(got, name), getattr(wanted, name)) < tolerance, name
    assert got.counts.equal(wanted.counts)
    assert got.in_shape == wanted.in_shape


# --- shards


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_shards_merged_in_any_order_give_the_single_pass_answer(data, wanted, order):
    shards = cut(data, 20, 150)
    parts = [first_pass([shard]) for shard in shards]
    moments = parts[order[0]]
    for i in order[1:]:
        moments.merge(parts[i])
    found = moments.compute()
    sums = [second_pass([shard], found) for shard in shards]
    total = sums[order[-1]]
    for i in order[-2::-1]:
        total.merge(sums[i])
    assert_same(total.compute(), wanted)
    assert moments.seen == total.seen == len(data[0])


def test_the_two_passes_may_be_cut_differently(data, wanted):
    moments = first_pass(cut(data, 1, 2, 3, 100))
    assert_same(second_pass(cut(data, 80, 81, 214), moments.compute()).compute(), wanted)


def test_shards_far_apart_lose_no_digits_when_merged():
    maps, labels = class_maps((40, 40, 40), (6, 5))
    far = maps.float()
    far[60:] += 1e4
    ids = torch.arange(120)
    shards = cut((far, labels, ids), 60)
    moments = first_pass(shards[:1], class_cap=None)
    moments.merge(first_pass(shards[1:], class_cap=None))
    found = moments.compute()
    scatter = second_pass(shards, found).compute()
    A, B = algorithm_1(far, labels)
    assert distance(scatter.between, A) < 1e-6 and distance(scatter.within, B) < 1e-6


def test_an_empty_shard_adds_nothing_from_either_side(data, wanted):
    none, all_of_it = first_pass([]), first_pass([data])
    all_of_it.merge(first_pass([]))
    none.merge(all_of_it)
    none.merge(first_pass(cut(data, 0)[:1]))
    for moments in (none, all_of_it):
        assert_same(second_pass([data], moments.compute()).compute(), wanted)


def test_merging_leaves_the_other_shard_as_it_was(data):
    one, two = (first_pass([shard]) for shard in cut(data, 120))
    empty = first_pass([])
    before = two.compute()
    empty.merge(two)
    one.merge(two)
    empty.update(*data)
    after = two.compute()
    assert after.counts.equal(before.counts) and after.mean.equal(before.mean)
    assert after.std.equal(before.std)


def test_bands_merge_too(data):
    maps, labels = class_maps((20, 15, 9), (24, 8))
    shards = cut((maps, labels, torch.arange(44)), 11)
    moments = first_pass(shards).compute()
    one, two = (second_pass([shard], moments, window=1) for shard in shards)
    one.merge(two)
    single = compute_scatter(maps, labels, window=1)
    assert_same(one.compute(), single)


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        ("class_cap", {"class_cap": 50}, {"class_cap": 60}),
        ("class_cap", {"class_cap": 50}, {"class_cap": None}),
        ("class_cap", {"class_cap": None}, {"class_cap": 50}),
        ("seed", {"seed": 1}, {"seed": 2}),
        ("dead_channels", {}, {"dead_channels": "ignore"}),
    ],
)
def test_first_passes_set_up_differently_do_not_merge(data, name, one, other):
    mine = first_pass([data], **one)
    before = mine.compute()
    with pytest.raises(ValueError, match=f"ChannelMoments: got shards with {name} "):
        mine.merge(first_pass([data], **other))
    assert mine.compute().counts.equal(before.counts)


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        ("window", {}, {"window": 2}),
        ("window", {"window": 2}, {}),
        ("weighting", {}, {"weighting": "frequency"}),
        ("normalise", {}, {"normalise": False}),
        ("precision", {}, {"precision": "tf32"}),
    ],
)
def test_second_passes_set_up_differently_do_not_merge(data, name, one, other):
    moments = first_pass([data]).compute()
    with pytest.raises(ValueError, match=f"ScatterAccumulator: got shards with {name} "):
        second_pass([data], moments, **one).merge(second_pass([data], moments, **other))


def test_shards_of_another_map_size_do_not_merge(data):
    for name, shape, channels in (("in_shape", (5, 6), 3), ("channels", (6, 5), 2)):
        maps, labels = class_maps((9, 8, 7), shape, channels)
        theirs = first_pass([(maps, labels, torch.arange(24))])
        with pytest.raises(ValueError, match=f"got shards with {name} .* wanted the same in all"):
            first_pass([data]).merge(theirs)


def test_sums_over_other_moments_do_not_merge_and_nothing_is_added():
    shards = [(*class_maps((9, 8, 7), (6, 5), channels), torch.arange(24)) for channels in (3, 2)]
    mine, theirs = (second_pass([shard], first_pass([shard]).compute()) for shard in shards)
    before = mine.compute()
    with pytest.raises(ValueError, match="got shards with channels 3 and 2"):
        mine.merge(theirs)
    assert mine.compute().within.equal(before.within)


def test_sums_over_moments_merged_in_another_order_do_not_merge(data):
    # The moments are the same, but each has the level of its own first batch.
    shards = cut(data, 100)
    moments = []
    for order in (shards, shards[::-1]):
        mine, theirs = (first_pass([shard]) for shard in order)
        mine.merge(theirs)
        moments.append(mine.compute())
    assert moments[0].counts.equal(moments[1].counts)
    mine, theirs = (second_pass([s], m) for s, m in zip(shards, moments, strict=True))
    with pytest.raises(ValueError, match=r"got shards with level .* wanted the same in all"):
        mine.merge(theirs)
    with pytest.raises(ValueError, match="got shards with level"):
        mine.load_state_dict(theirs.state_dict())


# --- state and files

Keep = Callable[[ChannelMoments | ScatterAccumulator, Path], ChannelMoments | ScatterAccumulator]


def by_file(holder, folder):
    holder.save(folder / "state.safetensors")
    return type(holder).load(folder / "state.safetensors")


def by_state_dict(holder, folder):
    new = (
        ChannelMoments(num_classes=3)
        if isinstance(holder, ChannelMoments)
        else ScatterAccumulator(holder.moments)
    )
    new.load_state_dict(holder.state_dict())
    return new


@pytest.mark.parametrize("keep", [by_file, by_state_dict])
@pytest.mark.parametrize("stop", [0, 1, 70, 215])
def test_an_interrupted_pass_goes_on_where_it_stopped(data, tmp_path, keep: Keep, stop):
    maps, labels, _ = data
    # Without ids: going on has to remember how many samples came before.
    moments = ChannelMoments(3, class_cap=CAP, seed=SEED)
    moments.update(maps[:stop], labels[:stop])
    moments = keep(moments, tmp_path)
    moments.update(maps[stop:], labels[stop:])
    accumulator = ScatterAccumulator(moments.compute())
    accumulator.update(maps[:stop], labels[:stop])
    accumulator = keep(accumulator, tmp_path)
    accumulator.update(maps[stop:], labels[stop:])
    single = compute_scatter(maps, labels, class_cap=CAP, seed=SEED)
    assert_same(accumulator.compute(), single)


@pytest.mark.parametrize("keep", [by_file, by_state_dict])
def test_what_was_kept_is_what_was_held_to_the_last_bit(data, tmp_path, keep: Keep):
    moments = first_pass([data], dead_channels="ignore")
    same = keep(moments, tmp_path)
    accumulator = second_pass([data], moments.compute())
    assert same.settings == moments.settings
    assert keep(accumulator, tmp_path).compute().within.equal(accumulator.compute().within)
    for name in ("counts", "bins", "mean", "std"):
        assert getattr(same.compute(), name).equal(getattr(moments.compute(), name))


@pytest.mark.parametrize("keep", [by_file, by_state_dict])
def test_going_on_changes_neither_the_origin_nor_the_file(data, tmp_path, keep: Keep):
    moments = first_pass([data])
    accumulator = second_pass([data], moments.compute())
    before = moments.compute(), accumulator.compute()
    new_sums = keep(accumulator, tmp_path)
    new_sums.update(*data)
    new_moments = keep(moments, tmp_path)
    written = {path: path.read_bytes() for path in tmp_path.iterdir()}
    new_moments.update(*data)
    assert new_moments.seen == new_sums.seen == 2 * len(data[0])
    assert moments.compute().mean.equal(before[0].mean)
    assert moments.compute().counts.equal(before[0].counts)
    assert accumulator.compute().within.equal(before[1].within)
    assert written == {path: path.read_bytes() for path in tmp_path.iterdir()}


def test_settings_of_the_second_pass_survive_the_file(tmp_path):
    maps, labels = class_maps((9, 8, 7), (24, 8))
    moments = first_pass([(maps, labels, torch.arange(24))]).compute()
    settings = {"weighting": "frequency", "normalise": False, "window": 1, "precision": "tf32"}
    accumulator = ScatterAccumulator(moments, **settings)
    accumulator.update(maps, labels)
    again = by_file(accumulator, tmp_path)
    assert again.settings == accumulator.settings
    assert again.compute().within.equal(accumulator.compute().within)


def test_a_state_of_other_moments_is_refused(data):
    moments = first_pass([data]).compute()
    other = first_pass(cut(data, 150)[:1]).compute()
    with pytest.raises(ValueError, match="got shards with counts"):
        ScatterAccumulator(moments).load_state_dict(ScatterAccumulator(other).state_dict())


# --- processes


def one_process(rank: str, folder: str) -> None:
    """What each of two processes does; it runs in an interpreter of its own."""
    from datetime import timedelta
    from pathlib import Path

    import torch.distributed as dist
    from safetensors.torch import load_file

    from foveapool import ChannelMoments, ScatterAccumulator

    here = Path(folder)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{here / 'meeting'}",
        rank=int(rank),
        world_size=2,
        timeout=timedelta(seconds=60),
    )
    for scenario in ("halves", "one_has_none"):
        shard = load_file(here / f"{scenario}{rank}.safetensors")
        moments = ChannelMoments(3, class_cap=50, seed=3)
        if len(shard["maps"]):
            moments.update(shard["maps"], shard["labels"], shard["ids"])
        moments.all_reduce()
        accumulator = ScatterAccumulator(moments.compute())
        accumulator.update(shard["maps"], shard["labels"], shard["ids"])
        accumulator.all_reduce()
        accumulator.compute().save(here / f"{scenario}{rank}.scatter")
    nobody = ChannelMoments(3)
    nobody.all_reduce()
    refused = []
    for holder in (ChannelMoments(3, seed=int(rank)), ChannelMoments(3 + int(rank))):
        try:
            holder.all_reduce()
        except ValueError as error:
            refused.append(str(error))
    (here / f"refused{rank}.txt").write_text("\n".join(refused))
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def processes(data: Shard, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder into which two gloo processes have written their answers."""
    folder = tmp_path_factory.mktemp("processes")
    for scenario, edge in (("halves", 90), ("one_has_none", 215)):
        for rank, shard in enumerate(cut(data, edge)):
            named = dict(zip(("maps", "labels", "ids"), shard, strict=True))
            named = {name: tensor.clone() for name, tensor in named.items()}
            save_file(named, folder / f"{scenario}{rank}.safetensors")
    program = f"{inspect.getsource(one_process)}\nimport sys\none_process(*sys.argv[1:])"
    running = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(rank), str(folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        said = [process.communicate(timeout=90)[0] for process in running]
    finally:
        for process in running:
            process.kill()
    assert [process.returncode for process in running] == [0, 0], "\n".join(said)
    return folder


@pytest.mark.parametrize("scenario", ["halves", "one_has_none"])
def test_two_processes_give_the_single_pass_answer(processes, wanted, scenario):
    one, other = (Scatter.load(processes / f"{scenario}{rank}.scatter") for rank in range(2))
    assert_same(one, wanted)
    assert_same(other, wanted)


def test_processes_set_up_differently_are_told_so(processes):
    for rank in range(2):
        seed, classes = (processes / f"refused{rank}.txt").read_text().splitlines()
        assert "got shards with seed" in seed
        assert "got shards with num_classes" in classes


def test_all_reduce_without_processes_says_what_is_missing(data):
    moments = first_pass([data])
    for holder in (moments, second_pass([data], moments.compute())):
        with pytest.raises(RuntimeError, match="init_process_group"):
            holder.all_reduce()
