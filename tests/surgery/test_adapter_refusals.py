"""Adapters that are refused, for another network or broken, and change nothing; so with saving."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import foveapool as fp
from foveapool import ClosedFormPooling, LinearPool2d, replace
from foveapool.pooling.storage import load_tensors, save_tensors

from .adapters import CONFIG, WEIGHTS, modes, saved
from .toys import MAIN, POOL, anatomy, loader, toy


def assert_refused(model: nn.Module, folder: Path, error: type[Exception], message: str) -> None:
    before = anatomy(model)
    with pytest.raises(error, match=message):
        fp.load(model, folder)
    assert anatomy(model) == before


def renamed() -> nn.Module:
    return nn.ModuleDict({"inner": toy()})


def wider() -> nn.Module:
    model = toy()
    model.block.shortcut = nn.Conv2d(4, 16, 1, 2)
    return model


def of_another_stride() -> nn.Module:
    model = toy()
    model.block.shortcut = nn.Conv2d(4, 8, 1, 1)
    return model


def of_another_window() -> nn.Module:
    model = toy()
    model.pool = nn.MaxPool2d(3, 2, 1)
    return model


def averaging() -> nn.Module:
    model = toy()
    model.pool = nn.AvgPool2d(2)
    return model


@modes
@pytest.mark.parametrize("make", [renamed, wider, of_another_stride, of_another_window, averaging])
def test_an_adapter_for_another_network_is_refused(tmp_path, make, mode):
    saved(tmp_path, mode)
    assert_refused(make(), tmp_path, ValueError, "an adapter for another network")


def test_a_network_that_was_changed_already_is_refused(tmp_path):
    saved(tmp_path)
    model = toy()
    replace(model, {POOL: LinearPool2d.average((4, 4), (2, 2))})
    assert_refused(model, tmp_path, ValueError, "pool: is replaced already; call restore")


def test_files_of_two_adapters_are_not_mixed(tmp_path):
    saved(tmp_path / "one")
    saved(tmp_path / "two", "after")
    (tmp_path / "one" / CONFIG).write_bytes((tmp_path / "two" / CONFIG).read_bytes())
    assert_refused(toy(), tmp_path / "one", ValueError, "belong to different adapters")


def test_broken_and_missing_files_are_named(tmp_path):
    assert_refused(toy(), tmp_path / "nowhere", FileNotFoundError, CONFIG)
    saved(tmp_path)
    whole = {name: (tmp_path / name).read_bytes() for name in (CONFIG, WEIGHTS)}
    (tmp_path / WEIGHTS).write_bytes(whole[WEIGHTS][:-100])
    assert_refused(toy(), tmp_path, ValueError, f"{WEIGHTS}: not a whole safetensors file")
    (tmp_path / WEIGHTS).unlink()
    assert_refused(toy(), tmp_path, FileNotFoundError, WEIGHTS)
    (tmp_path / WEIGHTS).write_bytes(whole[WEIGHTS])
    for broken in (whole[CONFIG][:-10], b"[]", b"\xff"):
        (tmp_path / CONFIG).write_bytes(broken)
        assert_refused(toy(), tmp_path, ValueError, f"{CONFIG}: not a foveapool adapter's")


def rewritten(folder: Path, change: Callable[[dict, dict], object]) -> None:
    """Both files of an adapter with the facts of its first layer and its tensors changed."""
    tensors, header = load_tensors(folder / WEIGHTS, "adapter")
    change(header["layers"][0], tensors)
    save_tensors(folder / WEIGHTS, "adapter", tensors, {"layers": header["layers"]})
    (folder / CONFIG).write_text(json.dumps({"layers": header["layers"]}))


@pytest.mark.parametrize("key", ["names", "pool", "mode", "in_shape", "original", "project"])
def test_a_fact_that_is_missing_or_of_another_type_is_named(tmp_path, key):
    saved(tmp_path)
    rewritten(tmp_path, lambda layer, _: layer.update({key: 7}))
    assert_refused(toy(), tmp_path, ValueError, f"{WEIGHTS}: {key}: got 7, wanted .*; save the")
    rewritten(tmp_path, lambda layer, _: layer.pop(key))
    assert_refused(toy(), tmp_path, ValueError, f"{WEIGHTS}: got no '{key}'; save the adapter")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda layer, _: layer.update(names=[]), "names: got none"),
        (lambda layer, _: layer.update(on_resize="never"), "on_resize: got 'never'"),
        (lambda layer, _: layer.update(in_shape=[30_000, 30_000]), "weight: got shape"),
        (lambda layer, _: layer.update(in_shape=[10**30, 8]), "in_shape: got"),
        (lambda _, tensors: tensors.pop("pool.0.weight"), r"got no pool\.0\.weight"),
        (lambda _, tensors: tensors["pool.0.weight"].fill_(torch.nan), "got NaN or infinity in"),
        (
            lambda _, tensors: tensors.update({"pool.0.mean": torch.ones(4, dtype=torch.bool)}),
            r"got the tensor pool\.0\.mean of torch\.bool",
        ),
    ],
)
def test_other_contents_are_refused_before_the_network_is_touched(tmp_path, change, message):
    saved(tmp_path)
    rewritten(tmp_path, change)
    assert_refused(toy(), tmp_path, ValueError, message)


def test_a_mixing_far_beyond_its_tensors_is_refused_before_it_is_made(tmp_path):
    saved(tmp_path, "mix", layers=[MAIN])
    rewritten(
        tmp_path, lambda layer, _: layer["original"].update(in_channels=10**6, out_channels=10**6)
    )
    assert_refused(toy(), tmp_path, ValueError, "got a mixing of .* it is damaged")


def test_a_projection_that_is_missing_or_another_is_named_before_the_network_is_touched(tmp_path):
    saved(tmp_path, components=1, layers=[POOL, MAIN])
    name = next(n for n in load_tensors(tmp_path / WEIGHTS, "adapter")[0] if "project" in n)
    rewritten(tmp_path, lambda *_: None)
    fp.load(toy(), tmp_path)
    for change in (lambda t: t.update({name: t[name][1:]}), lambda t: t.pop(name)):
        tensors, header = load_tensors(tmp_path / WEIGHTS, "adapter")
        change(tensors)
        save_tensors(tmp_path / WEIGHTS, "adapter", tensors, {"layers": header["layers"]})
        assert_refused(toy(), tmp_path, ValueError, f"{WEIGHTS}: got .*{name}")


def test_another_kind_of_file_is_refused(tmp_path):
    saved(tmp_path)
    fit = ClosedFormPooling().fit(toy(), loader(), MAIN)
    fit.operator_.save(tmp_path / WEIGHTS)
    assert_refused(toy(), tmp_path, ValueError, "got operator, wanted a foveapool adapter file")


def test_there_has_to_be_something_to_save(tmp_path):
    with pytest.raises(ValueError, match="model: got no replaced layer"):
        fp.save(toy(), tmp_path / "adapter")
    model = toy()
    replace(model, {MAIN: fp.baseline_pooling("soft", 4, (8, 8), (4, 4), 2)})
    message = "block.main: got a SoftPool, wanted a linear pooling.*save the network's state_dict"
    with pytest.raises(ValueError, match=message):
        fp.save(model, tmp_path / "adapter")
    assert not (tmp_path / "adapter").exists()


def test_a_file_in_the_place_of_the_folder_is_named_and_stays(tmp_path):
    file = tmp_path / "mine.txt"
    file.write_text("mine")
    for path in (file, file / "adapter"):
        with pytest.raises(NotADirectoryError, match=r"mine\.txt.*: got a file .*wanted a folder"):
            saved(path)
    with pytest.raises(NotADirectoryError, match="wanted a folder for a fit; give another name"):
        ClosedFormPooling().fit(toy(), loader(), MAIN).save(file)
    assert file.read_text() == "mine"


class Same(nn.Conv2d):
    """A convolution that pads by its stride where it is told to."""

    by_stride = False

    def forward(self, input: Tensor) -> Tensor:
        after = 3 - self.stride[0] if self.by_stride else 1
        return super().forward(nn.functional.pad(input, (2 - after, after) * 2))


def test_an_adapter_behind_a_layer_that_cannot_work_at_stride_1_changes_nothing(tmp_path):
    def network(by_stride: bool) -> nn.Module:
        model = nn.Sequential(Same(3, 6, 3, 2), nn.ReLU(), Same(6, 6, 3, 2))
        model[2].by_stride = by_stride
        return model

    model = network(False)
    batches = [(torch.randn(40, 3, 16, 16), torch.arange(40) % 2)]
    ClosedFormPooling().fit(model, batches, ["0", "2"], "after").replace(model)
    fp.save(model, tmp_path)
    fresh = network(True)
    with pytest.raises(ValueError, match=r"2: got a Same which,? at stride 1"):
        fp.load(fresh, tmp_path)
    assert [type(layer) for layer in fresh] == [Same, nn.ReLU, Same]


@pytest.mark.parametrize("one_when_saved", [True, False])
def test_layers_that_are_one_only_here_or_only_there_are_refused(tmp_path, one_when_saved):
    def two_pools(one: bool) -> nn.Module:
        first = nn.MaxPool2d(2)
        return nn.Sequential(first, nn.ReLU(), first if one else nn.MaxPool2d(2))

    model = two_pools(one_when_saved)
    pool = LinearPool2d.average((8, 8), (4, 4))
    replace(model, {"0": pool} if one_when_saved else {"0": pool, "2": pool})
    fp.save(model, tmp_path)
    assert_refused(two_pools(not one_when_saved), tmp_path, ValueError, "one and the same")


def one_convolution(bias: bool) -> nn.Module:
    return nn.Sequential(nn.Conv2d(4, 8, 3, 2, 1, bias=bias))


@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_without_the_bias_that_the_adapter_has_numbers_for_is_refused(tmp_path, bias):
    model = one_convolution(bias)
    replace(model, {"0": LinearPool2d.average((8, 8), (4, 4))})
    fp.save(model, tmp_path)
    assert_refused(one_convolution(not bias), tmp_path, ValueError, "for another network")


@pytest.mark.parametrize(("mode", "components"), [("replace", 2), ("after", 1)])
def test_a_bias_that_no_number_of_the_adapter_stands_for_does_not_matter(
    tmp_path, mode, components
):
    model, pool = one_convolution(True), LinearPool2d.average((8, 8), (4, 4), components)
    assert replace(model, {"0": pool}, mode=mode).changes[0].new.project is None
    fp.save(model, tmp_path)
    assert len(fp.load(one_convolution(False), tmp_path).changes) == 1
