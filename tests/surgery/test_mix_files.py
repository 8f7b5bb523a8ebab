"""Mode `mix` on disk: adapters, saved fits, and fits that were stopped in their third pass."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

import foveapool as fp
from foveapool import ClosedFormPooling, LinearPool2d, replace, restore
from foveapool._io import read_sealed_json
from foveapool.pooling.storage import load_tensors, save_tensors
from foveapool.surgery import passes

from .adapters import CONFIG, WEIGHTS
from .test_adapter_refusals import assert_refused
from .test_resume import Breaking, contents, counted
from .toys import MAIN, SHORTCUT, anatomy, loader, pictures, toy

BOTH = [MAIN, SHORTCUT]


def fitted(**more) -> ClosedFormPooling:
    return ClosedFormPooling().fit(toy(), loader(), BOTH, "mix", **more)


# Adapters


@pytest.mark.parametrize("trainable", [True, False])
def test_a_fresh_network_with_the_adapter_gives_the_same_output(tmp_path, trainable):
    model, fresh = toy(), toy()
    fitted().replace(model, trainable=trainable)
    with torch.no_grad():
        model.block.main.mixing.bias += 1
    fp.save(model, tmp_path)
    before = anatomy(fresh)
    done = fp.load(fresh, tmp_path)
    assert torch.equal(fresh(pictures()), model(pictures()))
    assert list(fresh.state_dict()) == list(model.state_dict())
    assert "and a 1x1 convolution (as it was saved)" in str(done)
    assert fresh.block.main.pool.trainable == trainable
    restore(fresh)
    assert anatomy(fresh) == before


def test_the_config_names_the_form_and_what_is_mixed(tmp_path):
    model = toy()
    fitted().replace(model)
    fp.save(model, tmp_path)
    main, shortcut = json.loads((tmp_path / CONFIG).read_text())["layers"]
    assert (main["mode"], main["mixing"]) == ("mix", {"components": 8, "groups": 1, "bias": True})
    assert shortcut["mixing"]["components"] == 1


def test_numbers_of_a_double_network_travel(tmp_path):
    model, fresh = toy().double(), toy().double()
    replace(model, {MAIN: LinearPool2d.random((8, 8), (4, 4), 3)}, mode="mix")
    fp.save(model, tmp_path)
    fp.load(fresh, tmp_path)
    assert torch.equal(fresh(pictures().double()), model(pictures().double()))


def with_main(layer: nn.Module) -> nn.Module:
    model = toy()
    model.block.main = layer
    return model


OTHERS = {
    "another number of groups": lambda: with_main(nn.Conv2d(4, 8, 3, 2, 1, groups=2)),
    "no bias": lambda: with_main(nn.Conv2d(4, 8, 3, 2, 1, bias=False)),
    "other channels": lambda: with_main(nn.Conv2d(4, 6, 3, 2, 1)),
    "no convolution": lambda: with_main(nn.MaxPool2d(2)),
}


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS)
def test_an_adapter_for_another_network_is_refused(tmp_path, make):
    model = toy()
    fitted().replace(model)
    fp.save(model, tmp_path)
    assert_refused(make(), tmp_path, ValueError, "an adapter for another network")


def drop(name: str):
    return lambda layers, tensors: tensors.pop(name)


def cut(layers, tensors):
    tensors[f"mixing.{SHORTCUT}.weight"] = tensors[f"mixing.{SHORTCUT}.weight"][:, :, :2].clone()


def renamed(layers, tensors):
    layers[1]["mode"] = "blend"


def of_another_form(layers, tensors):
    layers[1]["mode"] = "replace"


def fewer(layers, tensors):
    layers[0]["mixing"]["components"] = 3


DAMAGES = {
    "no mixing": (drop(f"mixing.{SHORTCUT}.weight"), f"got no mixing.{SHORTCUT}.weight"),
    "no bias": (drop(f"mixing.{SHORTCUT}.bias"), f"got no mixing.{SHORTCUT}.bias"),
    "no pooling": (drop("pool.1.weight"), "got no pool.1.weight, wanted it; save"),
    "half a mixing": (cut, r"got a mixing of .*\(8, 1, 2\).* wanted .*\(8, 1, 4\).* damaged: save"),
    "fewer components": (fewer, r"behind 8 components for block.main, wanted .*\(8, 3, 4\)"),
    "an unknown form": (renamed, r"mode: got 'blend', wanted one of .*version of foveapool that"),
    "another form": (of_another_form, "got mode 'replace' for block.shortcut and a mixing"),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_adapter_is_refused_before_anything_changes(tmp_path, damage, message):
    model = toy()
    fitted().replace(model)
    fp.save(model, tmp_path)
    tensors, header = load_tensors(tmp_path / WEIGHTS, "adapter")
    damage(header["layers"], tensors)
    facts = {"layers": header["layers"]}
    save_tensors(tmp_path / WEIGHTS, "adapter", tensors, facts)
    (tmp_path / CONFIG).write_text(json.dumps({"kind": "foveapool adapter", **facts}))
    assert_refused(toy(), tmp_path, ValueError, message)


# Saved fits


@pytest.mark.parametrize("mixing", ["least-squares", "random"])
def test_a_saved_fit_has_its_mixings(tmp_path, mixing):
    fit = fitted(mixing=mixing)
    fit.save(tmp_path)
    again = ClosedFormPooling.load(tmp_path)
    assert (again.mode_, again.mixing_start_, again.layers_) == ("mix", mixing, fit.layers_)
    assert list(again.mixings_) == ([] if mixing == "random" else BOTH)
    assert [str(each) for each in again.mixings_.values()] == [
        str(each) for each in fit.mixings_.values()
    ]
    if mixing == "random":
        assert again.modules()[MAIN].mixing.weight.shape == (8, 8, 4)
        return
    model, twin = toy(), toy()
    fit.replace(model)
    again.replace(twin)
    assert torch.equal(model(pictures()), twin(pictures()))


def test_a_saved_fit_of_fewer_layers_leaves_no_mixing_behind(tmp_path):
    fitted().save(tmp_path)
    assert (tmp_path / "mixing-1.safetensors").is_file()
    ClosedFormPooling().fit(toy(), loader(), MAIN).save(tmp_path)
    assert not list(tmp_path.glob("mixing-*"))
    assert ClosedFormPooling.load(tmp_path).mixings_ == {}


def test_a_fit_that_was_saved_before_there_were_mixings_can_be_loaded(tmp_path):
    ClosedFormPooling().fit(toy(), loader(), MAIN).save(tmp_path)
    note = tmp_path / "estimator.json"
    facts = read_sealed_json(note)
    for key in ("kernel_size", "groups", "bias"):
        del facts["layers"][0][key]
    note.write_text(json.dumps(facts))
    assert "mixings" not in facts
    ClosedFormPooling.load(tmp_path).replace(toy())


# Fits that were stopped


@pytest.fixture
def eager(monkeypatch) -> None:
    """Sums are kept after each batch, not now and then."""
    monkeypatch.setattr(passes, "SAVE_SECONDS", -1.0)


def stopped(folder, reading: int, batch: int, **settings) -> None:
    with pytest.raises(OSError, match="the disk is gone"):
        ClosedFormPooling(**settings).fit(
            toy(), Breaking(reading, batch), BOTH, "mix", resume=folder
        )


@pytest.mark.parametrize(
    ("reading", "batch", "remaining"),
    [(3, 4, [1, 5, 10, 10, 10, 10, 5]), (4, 0, [1, 10, 10, 10, 10, 5]), (4, 3, [1, 10, 5])],
    ids=["in pass 2", "between passes 2 and 3", "in pass 3"],
)
def test_a_stopped_fit_reads_what_is_left_and_gives_the_very_mixing(
    tmp_path, eager, reading, batch, remaining
):
    stopped(tmp_path / "sums", reading, batch)
    model = toy()
    sizes = counted(model)
    fit = ClosedFormPooling().fit(model, loader(), BOTH, "mix", resume=tmp_path / "sums")
    assert sizes == remaining
    wanted = fitted()
    for name in BOTH:
        assert torch.equal(fit.operators_[name].weight, wanted.operators_[name].weight)
        assert torch.equal(fit.mixings_[name].weight, wanted.mixings_[name].weight)
    assert not (tmp_path / "sums").exists()


def test_a_third_pass_may_be_stopped_twice(tmp_path, eager):
    for reading, batch in ((4, 2), (2, 4), (2, 4)):
        stopped(tmp_path / "sums", reading, batch)
    note = json.loads((tmp_path / "sums" / "process-0" / "position.json").read_text())
    assert (note["number"], note["batches"], note["total"]) == (3, 4, 5)
    kept = [name for name in contents(tmp_path / "sums") if name.endswith(".safetensors")]
    assert sorted(kept) == ["2-5-0.safetensors", "3-4-0.safetensors", "3-4-1.safetensors"]


def test_other_poolings_have_the_third_pass_begin_anew(tmp_path, eager):
    stopped(tmp_path / "sums", 4, 3)
    model = toy()
    sizes = counted(model)
    fit = ClosedFormPooling(alpha=30.0).fit(model, loader(), BOTH, "mix", resume=tmp_path / "sums")
    assert sizes == [1, 10, 10, 10, 10, 5]
    wanted = ClosedFormPooling(alpha=30.0).fit(toy(), loader(), BOTH, "mix")
    assert torch.equal(fit.mixings_[MAIN].weight, wanted.mixings_[MAIN].weight)


def test_the_third_pass_does_not_go_on_with_other_data(tmp_path, eager):
    stopped(tmp_path / "sums", 4, 3)
    with pytest.raises(ValueError, match="sums that were begun with another first batch"):
        ClosedFormPooling().fit(toy(), loader(50)[::-1], BOTH, "mix", resume=tmp_path / "sums")


def test_a_fit_stopped_in_its_third_pass_can_be_ended_without(tmp_path, eager):
    stopped(tmp_path / "sums", 4, 3)
    model = toy()
    sizes = counted(model)
    ClosedFormPooling().fit(model, loader(), BOTH, "mix", mixing="random", resume=tmp_path / "sums")
    assert sizes == [1] and not (tmp_path / "sums").exists()


def test_a_third_pass_whose_sums_are_gone_says_so(tmp_path, eager):
    stopped(tmp_path / "sums", 4, 3)
    (tmp_path / "sums" / "process-0" / "3-3-1.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"3-3-1\.safetensors: no such file.*to begin anew"):
        ClosedFormPooling().fit(toy(), loader(), BOTH, "mix", resume=tmp_path / "sums")
