"""Files: whole or absent, of our kind and version, and never unpickled."""

from __future__ import annotations

import json
import os
import pickle
import random
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from foveapool.pooling import storage
from foveapool.pooling.accumulate import ScatterAccumulator, compute_scatter
from foveapool.pooling.moments import ChannelMoments
from foveapool.pooling.scatter import Scatter
from foveapool.pooling.storage import FORMAT_VERSION, load_tensors, save_tensors

from .oracles import class_maps

LOADERS = {
    "moments": ChannelMoments.load,
    "scatter-sums": ScatterAccumulator.load,
    "scatter": Scatter.load,
}
every_loader = pytest.mark.parametrize("load", LOADERS.values(), ids=LOADERS)


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "thing.safetensors"


@pytest.fixture
def files(tmp_path) -> dict[str, Path]:
    """One good file of each kind."""
    maps, labels = class_maps((8, 6))
    moments = ChannelMoments(num_classes=2)
    moments.update(maps, labels)
    accumulator = ScatterAccumulator(moments.compute())
    accumulator.update(maps, labels)
    holders = {"moments": moments, "scatter-sums": accumulator, "scatter": accumulator.compute()}
    for kind, holder in holders.items():
        holder.save(tmp_path / kind)
    return {kind: tmp_path / kind for kind in holders}


def write_header(path: Path, header: object) -> None:
    text = header if isinstance(header, str) else json.dumps(header)
    save_file({"x": torch.ones(2)}, path, metadata={"foveapool": text})


# --- what goes in comes out


@pytest.mark.parametrize("window", [None, 1])
@pytest.mark.parametrize("in_shape", [(24, 8), (30,), (2, 3, 4)])
def test_a_scatter_comes_back_to_the_last_bit(path, in_shape, window):
    scatter = compute_scatter(*class_maps((8, 6), in_shape), window=window, weighting="frequency")
    scatter.save(path)
    again = Scatter.load(path)
    for name in ("between", "within", "mean", "std", "counts"):
        assert getattr(again, name).equal(getattr(scatter, name)), name
    for name in ("in_shape", "weighting", "window", "panels"):
        assert getattr(again, name) == getattr(scatter, name), name


def test_tensors_and_facts_come_back_whatever_their_layout(path):
    tensors = {"turned": torch.arange(6.0).reshape(2, 3).T, "half": torch.ones(2).bfloat16()}
    save_tensors(path, "test", tensors, {"words": ["a", "ü"], "none": None})
    found, facts = load_tensors(path, "test")
    assert found.keys() == tensors.keys()
    assert all(found[name].equal(tensor) for name, tensor in tensors.items())
    assert facts["words"] == ["a", "ü"] and facts["none"] is None


def test_the_header_can_be_read_without_us(files):
    for kind, path in files.items():
        with safe_open(path, framework="numpy") as file:
            header = json.loads(file.metadata()["foveapool"])
        assert header["kind"] == kind and header["format_version"] == FORMAT_VERSION


def test_a_file_replaces_the_one_before_and_leaves_nothing_else(path):
    for value in (1.0, 2.0):
        save_tensors(path, "test", {"x": torch.full((3,), value)}, {})
    assert load_tensors(path, "test")[0]["x"].tolist() == [2.0, 2.0, 2.0]
    assert list(path.parent.iterdir()) == [path]


def test_others_may_read_the_file(path):
    save_tensors(path, "test", {"x": torch.ones(3)}, {})
    assert os.stat(path).st_mode & 0o444 == 0o444


# --- interrupted writes


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_an_interrupted_write_leaves_the_old_file_whole_and_nothing_else(path, monkeypatch, error):
    save_tensors(path, "test", {"x": torch.ones(3)}, {})

    def stops_half_way(tensors, target, metadata):
        Path(target).write_bytes(b"half of it")
        raise error

    monkeypatch.setattr(storage, "save_file", stops_half_way)
    with pytest.raises(error):
        save_tensors(path, "test", {"x": torch.zeros(3)}, {})
    assert load_tensors(path, "test")[0]["x"].tolist() == [1.0, 1.0, 1.0]
    assert list(path.parent.iterdir()) == [path]


def test_a_disk_that_is_full_is_an_oserror_that_names_the_file(path, monkeypatch):
    def no_space(tensors, target, metadata):
        raise storage.SafetensorError("No space left on device")

    monkeypatch.setattr(storage, "save_file", no_space)
    with pytest.raises(OSError, match=rf"{path.name}: could not be written \(No space left"):
        save_tensors(path, "test", {"x": torch.zeros(3)}, {})


def test_a_first_write_that_is_interrupted_leaves_no_file(path, monkeypatch):
    def cannot_move(source, target):
        raise OSError

    monkeypatch.setattr(storage.os, "replace", cannot_move)
    with pytest.raises(OSError):
        save_tensors(path, "test", {"x": torch.zeros(3)}, {})
    assert list(path.parent.iterdir()) == []


# --- files that were changed


@every_loader
def test_a_file_with_one_bit_flipped_is_refused(files, load):
    (path,) = (files[kind] for kind, each in LOADERS.items() if each == load)
    whole = path.read_bytes()
    start = 8 + int.from_bytes(whole[:8], "little")
    for place in random.Random(0).sample(range(start, len(whole)), 40):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << place % 8
        path.write_bytes(flipped)
        with pytest.raises(ValueError, match=rf"{path.name}: got contents that are not those of"):
            load(path)


def test_a_fact_that_was_changed_is_refused(path):
    tensors = {"x": torch.ones(0), "y": torch.tensor(3), "z": torch.ones(2).bfloat16()}
    save_tensors(path, "test", tensors, {"alpha": 25})
    load_tensors(path, "test")
    for one, other in ((b"alpha", b"alpho"), (b": 25}", b": 26}"), (b'"BF16"', b'"U16" ')):
        changed = path.parent / "changed.safetensors"
        changed.write_bytes(path.read_bytes().replace(one, other))
        with pytest.raises(ValueError, match=r"changed\.safetensors: got contents that are not"):
            load_tensors(changed, "test")


def test_a_file_of_before_has_no_sha256_and_is_read(path):
    save_tensors(path, "test", {"x": torch.ones(2)}, {})
    with safe_open(path, framework="pt") as file:
        header = file.metadata()["foveapool"]
    save_file({"x": torch.zeros(2)}, path, metadata={"foveapool": header})
    assert load_tensors(path, "test")[0]["x"].tolist() == [0.0, 0.0]


# --- files that are not ours


@every_loader
@pytest.mark.parametrize("share", [0, 0.001, 0.1, 0.5, 0.999])
def test_a_truncated_file_is_refused(files, load, share):
    for path in files.values():
        whole = path.read_bytes()
        path.write_bytes(whole[: int(len(whole) * share)])
        with pytest.raises(ValueError, match=r"not a whole safetensors file.* make it anew"):
            load(path)


@pytest.mark.parametrize(("wanted", "load"), LOADERS.items())
def test_a_file_of_another_kind_is_refused_by_name(files, wanted, load):
    for kind in files.keys() - {wanted}:
        with pytest.raises(ValueError, match=f"got {kind}, wanted a foveapool {wanted} file"):
            load(files[kind])


@every_loader
def test_a_strangers_safetensors_file_is_refused(path, load):
    save_file({"weight": torch.ones(2, 2)}, path)
    with pytest.raises(ValueError, match=r"no foveapool header, wanted a .* file; give the path"):
        load(path)


@pytest.mark.parametrize("header", [["a", "list"], {"kind": "other"}, {}, "null", "{not json"])
def test_a_header_that_is_not_ours_is_refused(path, header):
    write_header(path, header)
    with pytest.raises(ValueError, match="wanted a foveapool test file"):
        load_tensors(path, "test")


@pytest.mark.parametrize("version", [0, FORMAT_VERSION + 1, "1", None])
def test_another_format_version_is_refused_by_number(path, version):
    write_header(path, {"kind": "test", "format_version": version})
    with pytest.raises(ValueError, match=f"got format version {version}, wanted {FORMAT_VERSION}"):
        load_tensors(path, "test")


@every_loader
def test_a_missing_file_is_named(path, load):
    with pytest.raises(FileNotFoundError, match=r"thing\.safetensors: no such file, wanted a"):
        load(path)


def test_a_folder_is_not_a_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file"):
        load_tensors(tmp_path, "test")


class Trap:
    """Writes a file when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self):
        return Path.touch, (self.target,)


@every_loader
def test_nothing_is_unpickled(path, load):
    trap = Trap(path.parent / "sprung")
    pickle.loads(pickle.dumps(trap))
    trap.target.unlink()
    path.write_bytes(pickle.dumps(trap))
    with pytest.raises(ValueError, match="not a whole safetensors file"):
        load(path)
    torch.save({"x": trap}, path)
    with pytest.raises(ValueError, match="not a whole safetensors file"):
        load(path)
    assert not trap.target.exists()
