"""The file of a PoolingOperator: nothing is lost in it, and no other file is taken for one."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from foveapool.pooling.accumulate import compute_scatter
from foveapool.pooling.operator import PoolingOperator
from foveapool.pooling.solve import solve_pooling

from .solved_operator import smooth_scatter, solved, windows


def same(one: PoolingOperator, other: PoolingOperator) -> bool:
    """Whether all fields are equal, and of equal types."""
    for field in fields(PoolingOperator):
        mine, theirs = getattr(one, field.name), getattr(other, field.name)
        if type(mine) is not type(theirs):
            return False
        if isinstance(mine, Tensor):
            if mine.dtype != theirs.dtype or not torch.equal(mine, theirs):
                return False
        elif mine != theirs:
            return False
    return True


@windows
def test_what_is_saved_is_what_is_loaded(tmp_path, window):
    operator = solved(window)
    for path in (tmp_path / "operator.safetensors", str(tmp_path / "other.safetensors")):
        operator.save(path)
        assert same(PoolingOperator.load(path), operator)


@pytest.mark.parametrize("shape", [(30,), (5, 6, 4)])
def test_operators_on_lines_and_volumes_are_saved_too(tmp_path, shape):
    maps = torch.randn(40, 3, *shape, generator=torch.Generator().manual_seed(1))
    scatter = compute_scatter(maps, torch.arange(40) % 2)
    operator = solve_pooling(scatter, [size // 2 for size in shape], window=1)
    operator.save(tmp_path / "operator")
    assert same(PoolingOperator.load(tmp_path / "operator"), operator)


def test_a_window_makes_the_file_smaller(tmp_path):
    solved(None).save(tmp_path / "whole")
    solved(2).save(tmp_path / "window")
    whole, window = (load_file(tmp_path / name)["weight"] for name in ("whole", "window"))
    assert (whole.shape, window.shape) == ((2, 32, 160), (2, 32, 25))
    assert (tmp_path / "window").stat().st_size < (tmp_path / "whole").stat().st_size / 4


def test_the_file_is_safetensors_with_the_settings_as_json(tmp_path):
    solved().save(tmp_path / "operator")
    with safe_open(tmp_path / "operator", framework="np") as file:
        header = json.loads(file.metadata()["foveapool"])
    assert header["kind"] == "operator" and header["format_version"] == 1
    assert header["in_shape"] == [16, 10] and header["out_shape"] == [8, 4]
    assert header["settings"]["alpha"] == 25.0 and header["settings"]["window"] is None


def test_saving_leaves_nothing_else_behind_and_replaces_what_was_there(tmp_path):
    path = tmp_path / "operator"
    solved(2).save(path)
    solved(None).save(path)
    assert [file.name for file in tmp_path.iterdir()] == ["operator"]
    assert same(PoolingOperator.load(path), solved(None))


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_a_truncated_file_is_refused_by_name(tmp_path, share):
    path = tmp_path / "half.safetensors"
    solved().save(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(ValueError, match=r"half\.safetensors: not a whole safetensors file"):
        PoolingOperator.load(path)


def foreign(path: Path, kind: str) -> None:
    if kind == "scatter":
        smooth_scatter().save(path)
    elif kind == "text":
        path.write_text("alpha = 25\n" * 100)
    elif kind == "no header":
        save_file({"weight": torch.zeros(2, 4, 16)}, path)
    else:
        metadata = {"foveapool": json.dumps({"kind": "operator", "format_version": 999})}
        save_file({"weight": torch.zeros(2, 4, 16)}, path, metadata=metadata)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("scatter", "got scatter, wanted a foveapool operator file"),
        ("text", "not a whole safetensors file"),
        ("no header", "got no foveapool header, wanted a foveapool operator file"),
        ("later version", "got format version 999, wanted 1"),
    ],
)
def test_a_foreign_file_is_refused_by_name(tmp_path, kind, message):
    path = tmp_path / "foreign.safetensors"
    foreign(path, kind)
    with pytest.raises(ValueError, match=rf"foreign\.safetensors: {message}"):
        PoolingOperator.load(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere: no such file"):
        PoolingOperator.load(tmp_path / "nowhere")
