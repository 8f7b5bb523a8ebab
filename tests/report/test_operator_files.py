"""Operators of trainings: what is no family of one slider has a name of its own."""

import json
from dataclasses import replace

import pytest

from foveapool.report.describe import TrainingFolder
from foveapool.report.operator_files import read_families, read_training_families
from foveapool.report.sources import summarize_run
from foveapool.study.setting import Pool

from ..study.small_studies import training
from .pages import operator
from .unusual_poolings import UNUSUAL

FIRST = Pool("closed-form", 3, 15.0)
LAST = Pool("closed-form", 2, 65.0)


def kept(folder, *pools, **more):
    """The folder of a training with the operator of its last pooling, as a study leaves it."""
    made, last = training(*pools, **more), pools[-1]
    path = folder / made.name
    path.mkdir()
    (path / "training.json").write_text(json.dumps(made.facts))
    shapes = {"in_shape": (8, 8), "out_shape": (4, 4)}
    chosen = {name: getattr(last, name) for name in ("center", "sign", "window")}
    found = operator(last.alpha, last.norm, **shapes, **chosen)
    found = replace(found, settings=replace(found.settings, weighting=last.weighting))
    found.save(path / f"operator-{last.layer}.safetensors")
    return TrainingFolder(path)


def labels(*trainings):
    missing = []
    found = read_training_families(trainings, missing)
    assert not missing
    return {each.label.replace(", 8\xd78 \u2192 4\xd74", ""): each.operators for each in found}


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"alpha": 25.0}, "alpha 25, l2"),
        ({"norm": "l1"}, "alpha 15, l1"),
        ({"window": 2}, "alpha 15, l2, window 2"),
    ],
)
def test_what_came_before_is_in_the_name(tmp_path, other, told):
    after = [(FIRST, LAST), (replace(FIRST, **other), LAST)]
    found = labels(*(kept(tmp_path, *pools) for pools in after))
    assert list(found) == [
        "layer 2, after closed form, layer 3, alpha 15, l2, seed 0, l2",
        f"layer 2, after closed form, layer 3, {told}, seed 0, l2",
    ]


@pytest.mark.parametrize("choice", UNUSUAL)
def test_an_unusual_choice_is_in_the_name(tmp_path, choice):
    found = labels(*(kept(tmp_path, pool) for pool in (FIRST, replace(FIRST, **choice))))
    ((name, value),) = choice.items()
    assert len(found) == 2 and f"{name.replace('_', ' ')} {value}" in list(found)[1]


def test_forms_and_a_placement_of_its_own_are_in_the_name(tmp_path):
    pools = [replace(FIRST, form=form) for form in ("replace", "mix")]
    pools.append(replace(FIRST, form="mix", placement="main"))
    found = labels(*(kept(tmp_path, each, network="resnet18") for each in pools))
    assert list(found) == [
        "layer 3, both, seed 0, l2",
        "layer 3, mix, both, seed 0, l2",
        "layer 3, mix, main, seed 0, l2",
    ]


def test_a_shortcut_has_an_operator_of_its_own(tmp_path):
    folder = kept(tmp_path, replace(FIRST, form="mix"), network="resnet18")
    main = folder.path / "operator-3.safetensors"
    main.with_name("operator-3-shortcut.safetensors").write_bytes(main.read_bytes())
    assert list(labels(folder)) == [
        "layer 3, mix, both, seed 0, l2",
        "layer 3, mix, both, seed 0, shortcut's own, l2",
    ]


def test_placements_and_brief_trainings_are_families_of_their_own(tmp_path):
    placements = [
        kept(tmp_path, FIRST, network="resnet18", placement=each) for each in ("both", "before")
    ]
    assert list(labels(*placements)) == ["layer 3, both, seed 0, l2", "layer 3, before, seed 0, l2"]
    looks = [kept(tmp_path, FIRST, part=0, epochs=epochs) for epochs in (1, 2)]
    assert list(labels(*looks)) == [
        "layer 3, held-out part 0, 1 epochs, l2",
        "layer 3, held-out part 0, l2",
    ]


def test_operators_that_differ_in_alpha_alone_stay_together(tmp_path):
    pools = [replace(LAST, alpha=alpha) for alpha in (5.0, 25.0)]
    (operators,) = labels(*(kept(tmp_path, FIRST, pool) for pool in pools)).values()
    assert [each.settings.alpha for each in operators] == [5.0, 25.0]


@pytest.mark.parametrize("choice", [{"center": "aligned"}, {"weighting": "frequency"}])
def test_files_that_differ_in_a_setting_have_names_of_their_own(tmp_path, choice):
    usual = operator()
    other = replace(usual, settings=replace(usual.settings, alpha=25.0, **choice))
    paths = [tmp_path / f"operator-3-alpha{alpha}.safetensors" for alpha in (5, 25)]
    for each, path in zip((usual, other), paths, strict=True):
        each.save(path)
    first, second = read_families(paths, [])
    ((name, value),) = choice.items()
    assert second.label == f"{first.label}, {name} {value}"
    assert len({each.label for each in summarize_run(tmp_path).families}) == 2
