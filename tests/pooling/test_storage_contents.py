"""Files with our header whose contents are not those that we wrote: refused by name."""

from __future__ import annotations

import json
import re
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from foveapool.pooling.accumulate import compute_scatter
from foveapool.pooling.operator import PoolingOperator
from foveapool.pooling.scatter import Scatter
from foveapool.pooling.storage import check_contents

from .oracles import class_maps
from .solved_operator import smooth_scatter, solved

HOLDERS = {
    "scatter": smooth_scatter,
    "banded": lambda: compute_scatter(*class_maps((8, 6), (24, 8)), window=1),
    "operator": solved,
    "windowed": lambda: solved(2),
}
Change = Callable[[dict[str, Tensor], dict[str, Any]], object]


def load(path: Path) -> Scatter | PoolingOperator:
    return (Scatter if path.name in ("scatter", "banded") else PoolingOperator).load(path)


def written(folder: Path, name: str, change: Change) -> Path:
    """The file of that holder, with its tensors and its header changed."""
    path = folder / name
    HOLDERS[name]().save(path)
    with safe_open(path, framework="pt") as file:
        header = json.loads(file.metadata()["foveapool"])
    tensors = load_file(path)
    change(tensors, header)
    save_file(tensors, path, metadata={"foveapool": json.dumps(header)})
    return path


def refused(path: Path) -> str:
    with pytest.raises(ValueError, match=rf"{path.name}: .*; copy it again or make it") as told:
        load(path)
    return str(told.value)


every_holder = pytest.mark.parametrize("name", HOLDERS)


@every_holder
def test_what_is_written_again_as_it_was_is_read(tmp_path, name):
    load(written(tmp_path, name, lambda tensors, header: None))


@every_holder
def test_a_tensor_that_is_missing_is_named(tmp_path, name):
    HOLDERS[name]().save(tmp_path / name)
    for each in load_file(tmp_path / name):
        path = written(tmp_path, name, lambda tensors, _, each=each: tensors.pop(each))
        assert f"got no tensor {each}, wanted " in refused(path)


@every_holder
def test_a_tensor_too_many_is_named(tmp_path, name):
    more = {"bias": torch.zeros(1), "more": torch.zeros(2)}
    path = written(tmp_path, name, lambda tensors, _: tensors.update(more))
    assert "got a tensor bias, a tensor more, wanted " in refused(path)


@every_holder
def test_a_tensor_with_an_axis_too_many_is_named_with_both_shapes(tmp_path, name):
    HOLDERS[name]().save(tmp_path / name)
    for each, tensor in load_file(tmp_path / name).items():
        path = written(tmp_path, name, lambda t, _, each=each: t.update({each: t[each][None]}))
        shape = re.escape(str((1, *tensor.shape)))
        assert re.search(rf"got the tensor {each} of shape {shape}, wanted \(", refused(path))


@pytest.mark.parametrize(
    ("name", "tensor", "wanted"),
    [
        ("scatter", "between", "(160, 160)"),
        ("banded", "within", "(192, 13)"),
        ("scatter", "std", "(4,)"),
        ("operator", "weight", "(2, 32, 160)"),
        ("windowed", "weight", "(2, 32, 25)"),
        ("operator", "gaps", "(2, 32)"),
        ("operator", "average_separability", "(32,)"),
    ],
)
def test_a_tensor_that_is_too_short_or_too_long_is_named(tmp_path, name, tensor, wanted):
    for cut in (lambda t: t[..., 1:].contiguous(), lambda t: torch.cat((t, t), -1)):
        path = written(tmp_path, name, lambda t, _, cut=cut: t.update({tensor: cut(t[tensor])}))
        told = refused(path)
        assert f"got the tensor {tensor} of shape" in told and f"wanted {wanted}" in told


@pytest.mark.parametrize("name", ["scatter", "banded", "operator"])
def test_maps_of_another_size_than_the_tensors_are_refused(tmp_path, name):
    for shape in ([12, 10], [16, 20], [16, 10, 2], [40]):
        path = written(tmp_path, name, lambda _, header, shape=shape: header.update(in_shape=shape))
        refused(path)


@every_holder
def test_a_size_that_is_none_is_told_with_the_file(tmp_path, name):
    for shape in (16, None, [], [0, 10], [-16, -10], ["a", 2]):
        path = written(tmp_path, name, lambda _, header, shape=shape: header.update(in_shape=shape))
        assert "in_shape: got" in refused(path), shape


@every_holder
def test_a_fact_that_is_missing_or_too_many_is_named(tmp_path, name):
    path = written(tmp_path, name, lambda _, header: header.pop("in_shape"))
    assert "got no fact in_shape, wanted in_shape, " in refused(path)
    path = written(tmp_path, name, lambda _, header: header.update(color=1))
    assert "got a fact color, wanted in_shape, " in refused(path)


def test_a_setting_that_is_missing_or_too_many_is_named(tmp_path):
    path = written(tmp_path, "operator", lambda _, header: header["settings"].pop("ridge"))
    assert "got no setting ridge, wanted alpha, " in refused(path)
    path = written(tmp_path, "operator", lambda _, header: header["settings"].update(color=1))
    assert "got a setting color, wanted alpha, " in refused(path)
    path = written(tmp_path, "operator", lambda _, header: header.update(settings=None))
    refused(path)


@pytest.mark.parametrize("window", [None, 3, -1, "wide", [2]], ids=str)
def test_another_window_than_that_of_the_tensors_is_refused(tmp_path, window):
    path = written(tmp_path, "windowed", lambda _, h: h["settings"].update(window=window))
    refused(path)
    refused(written(tmp_path, "banded", lambda _, header: header.update(window=window)))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("windowed", {"in_shape": [30_000, 30_000], "out_shape": [15_000, 15_000]}),
        ("operator", {"in_shape": [10**12, 10**12], "out_shape": [10**12, 10**11]}),
        ("banded", {"in_shape": [10**9, 10**12]}),
    ],
)
def test_sizes_far_beyond_the_tensors_are_refused_before_anything_is_made(tmp_path, name, change):
    path = written(tmp_path, name, lambda _, header: header.update(change))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match=rf"{name}: "):
        load(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # kilobytes


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("operator", "alpha", "x"),
        ("operator", "alpha", float("nan")),
        ("operator", "tolerance", True),
        ("operator", "norm", 3),
        ("operator", "centre", "second"),
        ("windowed", "window", 2.0),
        ("scatter", "weighting", "heavy"),
        ("scatter", "weighting", ["balanced"]),
        ("banded", "window", True),
    ],
)
def test_a_fact_of_another_type_is_named(tmp_path, name, key, value):
    def change(_: dict[str, Tensor], header: dict[str, Any]) -> None:
        header.get("settings", header)[key] = value

    key = {"centre": "center"}.get(key, key)
    assert f"{key}: got {value!r}, wanted " in refused(written(tmp_path, name, change))


@every_holder
def test_a_tensor_of_another_type_or_not_finite_is_named(tmp_path, name):
    HOLDERS[name]().save(tmp_path / name)
    for each, tensor in load_file(tmp_path / name).items():
        floating = tensor.is_floating_point()
        others = [torch.bool, torch.complex64, torch.float32 if not floating else torch.int64]
        for dtype in others:
            path = written(tmp_path, name, lambda t, _, e=each, d=dtype: t.update({e: t[e].to(d)}))
            assert f"got the tensor {each} of {dtype}, wanted " in refused(path)
        if floating and each not in ("gaps", "separability", "average_separability"):
            for value in (torch.nan, -torch.inf):
                path = written(
                    tmp_path, name, lambda t, _, e=each, v=value: t[e].view(-1)[-1:].fill_(v)
                )
                assert f"got NaN or infinity in the tensor {each}, wanted finite" in refused(path)


def test_a_size_with_a_name_is_the_same_wherever_it_stands():
    def check(*shapes: tuple[int, ...]) -> None:
        tensors = {name: torch.zeros(shape) for name, shape in zip("ab", shapes, strict=True)}
        wanted = {"a": ("rows", 3), "b": ("rows", "columns")}
        check_contents("file", tensors, {"kind": "test"}, (), lambda facts: wanted)

    check((2, 3), (2, 7))
    check((5, 3), (5, 0))
    with pytest.raises(ValueError, match=r"got the tensor b of shape \(4, 7\), wanted \(2, 7\)"):
        check((2, 3), (4, 7))
    with pytest.raises(ValueError, match=r"got the tensor a of shape \(2, 4\), wanted \(2, 3\)"):
        check((2, 4), (2, 7))
    with pytest.raises(ValueError, match=r"got the tensor a of shape \(2,\), wanted \(rows, 3\)"):
        check((2,), (2, 7))
