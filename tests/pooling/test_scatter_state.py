"""Passes that are kept, in memory or in a file, and go on where they stopped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from foveapool.pooling.accumulate import ScatterAccumulator, compute_scatter
from foveapool.pooling.moments import ChannelMoments
from foveapool.pooling.storage import load_tensors, save_tensors

from .oracles import class_maps
from .shards import CAP, SEED, Shard, assert_same, cut, first_pass, second_pass, three_classes

Keep = Callable[[ChannelMoments | ScatterAccumulator, Path], ChannelMoments | ScatterAccumulator]


@pytest.fixture(scope="module")
def data() -> Shard:
    return three_classes()


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
    settings = {"weighting": "frequency", "normalize": False, "window": 1, "precision": "tf32"}
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


def test_a_state_of_other_sizes_is_refused_whole(data):
    accumulator = second_pass([data], first_pass([data]).compute())
    state = accumulator.state_dict()
    cut_off = {**state, "tensors": {**state["tensors"], "sums": state["tensors"]["sums"][:, 1:]}}
    fresh = ScatterAccumulator(accumulator.moments)
    with pytest.raises(ValueError, match=r"got the tensor sums of shape \(3, .*, wanted \(3, "):
        fresh.load_state_dict(cut_off)
    assert fresh.seen == 0 and not fresh.state_dict()["tensors"]["gram"].any()


FOREIGN = [
    {},
    {"tensors": {}, "facts": {"seen": 3}},
    {"tensors": {"gram": torch.zeros(2, 2)}, "facts": {"seen": 3, "alpha": 1.0}},
]


@pytest.mark.parametrize("state", FOREIGN)
def test_a_foreign_state_is_refused_and_changes_nothing(data, state):
    moments = first_pass([data])
    accumulator = second_pass([data], moments.compute())
    for holder, other in ((moments, accumulator), (accumulator, moments)):
        before, name = holder.state_dict(), type(holder).__name__
        for foreign in (state, other.state_dict()):
            with pytest.raises(ValueError, match=f"{name}: got .* wanted .*; give the state"):
                holder.load_state_dict(foreign)
        after = holder.state_dict()
        assert after["facts"] == before["facts"]
        assert all(torch.equal(after["tensors"][k], v) for k, v in before["tensors"].items())


@pytest.mark.parametrize("lost", ["counts", "sums", "level"])
def test_a_file_that_lost_a_tensor_is_named(data, tmp_path, lost):
    moments = first_pass([data])
    holders = {"moments": moments, "scatter-sums": second_pass([data], moments.compute())}
    for kind, holder in holders.items():
        path = tmp_path / "state.safetensors"
        holder.save(path)
        tensors, facts = load_tensors(path, kind)
        left = {name: each for name, each in tensors.items() if name.split(".")[-1] != lost}
        save_tensors(path, kind, left, facts)
        with pytest.raises(
            ValueError, match=rf"state\.safetensors: got no tensor .*{lost}, wanted"
        ):
            type(holder).load(path)
