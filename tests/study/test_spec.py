"""Trainings: one name for what must end alike, and which images each may see."""

import json
from dataclasses import replace

import pytest
import torch

from foveapool.data.registry import load_data
from foveapool.data.user_data import write_npz
from foveapool.pooling.baselines import BASELINES, baseline_pooling
from foveapool.pooling.module import LinearPool2d
from foveapool.study.presets import read_preset
from foveapool.study.setting import FITTED, Pool
from foveapool.study.spec import (
    TRAINS_MATRIX,
    ExecutionOptions,
    Source,
    TrainingSpec,
    load_training_data,
)

from .small_studies import CPU, SOURCE, training


def pictures(images):
    return {picture.numpy().tobytes() for picture in images.images}


def test_the_same_training_has_the_same_name_and_no_other_one_has_it():
    one = training(("closed-form", 3))
    assert one.name == training(("closed-form", 3)).name
    others = [
        training(),
        training(("closed-form-trained", 3)),
        training(Pool("closed-form", 3, sign="sum")),
        training(("closed-form", 3), seed=1),
        training(("closed-form", 3), part=0),
        training(("closed-form", 3), epochs=3),
        replace(one, source=Source("street-digits", 1, SOURCE.options)),
        replace(one, source=replace(SOURCE, share=0.5)),
        replace(one, part=0, held_out=0.3),
    ]
    assert len({each.name for each in [one, *others]}) == 10


def slowed(each, pooling_rate=0.1):
    return replace(each, recipe=replace(each.recipe, pooling_rate=pooling_rate))


def test_names_of_trainings_that_are_done_stay():
    # Those that a folder of runs had before recipes knew of a rate for poolings.
    assert [
        training().name,
        training(("sgd", 3)).name,
        training(("closed-form-trained", 3, 25), seed=1).name,
    ] == [
        "street-digits-cnn-baseline-seed0-1b11f013b0",
        "street-digits-cnn-sgd-3-seed0-5098ea33ad",
        "street-digits-cnn-closed-form-trained-3-a25-l2-seed1-31d896c57e",
    ]


OLDER = {
    "cnn-average-3-seed0-6fc8ee801f": training(Pool("average", 3, form="replace")),
    "cnn-closed-form-2-a25-l2-seed0-81599f3868": training(("closed-form", 2, 25.0)),
    "cnn-closed-form-3-a5-l1-seed0-e80e421e29": training(
        Pool("closed-form", 3, 5.0, "l1", 4, center="aligned", window=2)
    ),
    "resnet18-shortcut-closed-form-3-a15-l2-closed-form-1-a65-l1-seed0-5414fb492e": training(
        ("closed-form", 3, 15, "l2"),
        ("closed-form", 1, 65, "l1"),
        network="resnet18",
        placement="shortcut",
    ),
    "resnet18-before-closed-form-trained-2-aauto-l2-part1-seed0-df2e3afc6f": training(
        ("closed-form-trained", 2), network="resnet18", placement="before", part=1
    ),
    "cnn-sgd-3-sgd-2-seed2-ff5daf1121": training(("sgd", 3), ("sgd", 2), seed=2),
    "resnet18-both-max-1-seed0-49b85010ce": training(
        Pool("max", 1, form="replace"), network="resnet18"
    ),
}


@pytest.mark.parametrize("name", OLDER)
def test_trainings_from_before_there_were_forms_keep_their_names(name):
    # Those that commit 1607af9 gave.
    assert OLDER[name].name == f"street-digits-{name}"
    again = TrainingSpec.from_facts(json.loads(json.dumps(OLDER[name].facts)))
    assert again.name == OLDER[name].name


@pytest.mark.parametrize("pooling", [*FITTED, *BASELINES])
def test_a_rate_for_poolings_is_part_of_a_training_only_where_a_matrix_trains(pooling):
    network = "resnet18" if pooling == "resnet-d" else "cnn"  # it needs a shortcut
    plain = training((pooling, 3), network=network)
    if pooling in FITTED:
        trains = pooling == "closed-form-trained"
    else:
        inside = baseline_pooling(pooling, 4, (8, 8), (4, 4)).modules()
        trains = any(isinstance(each, LinearPool2d) and each.trainable for each in inside)
    assert trains == (pooling in TRAINS_MATRIX)
    assert (slowed(plain).name != plain.name) == trains
    assert slowed(plain).recipe.pooling_rate == (0.1 if trains else 1.0)
    assert slowed(plain, 1).name == plain.name
    again = TrainingSpec.from_facts(json.loads(json.dumps(slowed(plain).facts)))
    assert (again.name, again.recipe) == (slowed(plain).name, slowed(plain).recipe)


def test_trainings_that_differ_in_the_rate_for_poolings_are_fitted_on_the_same_network():
    one = slowed(training(("closed-form-trained", 3)))
    assert one.fitted_on == training()
    two = slowed(training(("closed-form-trained", 3), ("closed-form", 2)))
    assert two.fitted_on == one and two.fitted_on.recipe.pooling_rate == 0.1


def test_a_study_gives_a_rate_for_poolings_to_those_of_its_trainings_that_can_use_it():
    usual, slow = (
        read_preset("forms-cnn"),
        read_preset("forms-cnn", {"recipe": {"pooling_rate": 0.1}}),
    )
    differ = {
        arm.pooling
        for arm in usual.arms
        for setting in [arm.setting(usual.network)]
        if usual.training(setting, 0) != slow.training(setting, 0)
    }
    assert differ == {"closed-form-trained", "sgd"}
    assert {"baseline", "closed-form"} <= {arm.pooling for arm in usual.arms}


def test_a_name_says_what_it_is():
    name = training(("closed-form", 3, 5, "l1"), ("closed-form", 1, "auto"), seed=4, part=4).name
    start = "street-digits-cnn-closed-form-3-a5-l1-closed-form-1-aauto-l2-part4-seed4-"
    assert name.startswith(start)
    assert training().name.startswith("street-digits-cnn-baseline-seed0-")


@pytest.mark.parametrize(
    "each",
    [
        training(),
        training(("closed-form", 3, "auto"), ("sgd", 1), seed=2, part=4),
        replace(training(), source=replace(SOURCE, share=0.5)),
    ],
)
def test_facts_give_the_training_back(each):
    again = TrainingSpec.from_facts(json.loads(json.dumps(each.facts)))
    assert again.name == each.name and again.facts == each.facts


def test_the_name_of_a_path_is_one_of_a_folder():
    source = Source("npz:/some/where/My Data.npz")
    assert "/" not in replace(training(), source=source).name


def test_trainings_that_differ_in_the_pooling_alone_are_fitted_on_the_same_network():
    names = {training(("closed-form", 3, alpha)).fitted_on.name for alpha in (1, 25, "auto")}
    assert names == {training().name}
    places = [
        training(("closed-form", 3), network="resnet18", placement=place).fitted_on.name
        for place in ("before", "shortcut")
    ]
    assert len(set(places)) == 1


def test_without_a_part_all_images_are_trained_on_and_the_test_images_measure():
    data, wanted = load_training_data(training(), CPU), load_data("street-digits", **SOURCE.options)
    assert torch.equal(data.train.images, wanted.train.images)
    assert torch.equal(data.test.images, wanted.test.images)


@pytest.mark.parametrize("part", range(5))
def test_a_held_out_part_is_of_the_training_images_and_of_no_others(part):
    whole = load_data("street-digits", **SOURCE.options)
    data = load_training_data(training(part=part), CPU)
    learned, measured = pictures(data.train), pictures(data.test)
    assert (len(data.train), len(data.test)) == (128, 32)
    assert not learned & measured
    assert learned | measured == pictures(whole.train)
    assert not (learned | measured) & pictures(whole.test)


def test_parts_differ_and_every_pooling_sees_the_same_ones():
    parts = [pictures(load_training_data(training(part=part), CPU).test) for part in range(3)]
    assert parts[0] != parts[1] != parts[2] != parts[0]
    again = load_training_data(training(("closed-form", 3), part=1, seed=9), CPU).test
    assert pictures(again) == parts[1]


def test_a_share_takes_training_images_away_and_leaves_the_test_images():
    half = replace(training(), source=replace(SOURCE, share=0.5))
    data, whole = load_training_data(half, CPU), load_training_data(training(), CPU)
    assert len(data.train) == 80 and pictures(data.train) < pictures(whole.train)
    assert pictures(data.test) == pictures(whole.test)
    rest = load_training_data(replace(half, part=0, held_out=0.25), CPU)
    assert (len(rest.train), len(rest.test)) == (60, 20)


def test_the_device_and_what_is_kept_do_not_change_a_name():
    assert "device" not in str(training().facts) and "keep" not in str(training().facts)
    assert ExecutionOptions("cpu", keep=True) != CPU


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"share": 5}, r"share: got 5, wanted one between 0 and 1"),
        ({"share": 1.0}, r"share: got 1.0, wanted one between 0 and 1"),
        ({"seed": -1}, r"data seed: got -1, wanted a whole number, 0 or more"),
        ({"seed": "0"}, r"data seed: got '0', wanted a whole number, 0 or more"),
    ],
)
def test_a_source_that_cannot_be_drawn_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        Source("street-digits", **given)


def write_images(path, seed):
    data = load_data("street-digits", data_seed=seed, train_size=40, test_size=20)
    write_npz(data, path)


OWN = """
[data]
name = "npz:{}"
[recipe]
optimizer = "adam"
lr = 0.01
epochs = 1
[[arm]]
pooling = "baseline"
"""


def test_other_images_in_the_same_file_are_another_training(tmp_path):
    images, study = tmp_path / "mine.npz", tmp_path / "mine.toml"
    study.write_text(OWN.format(images))

    def asked():
        found = read_preset(str(study))
        return found.training(found.network, 0)

    write_images(images, 0)
    first, again = asked(), asked()
    assert first.name == again.name and first.source.content
    assert TrainingSpec.from_facts(first.facts) == first
    write_images(images, 1)
    assert asked().name != first.name
    with pytest.raises(ValueError, match=r"mine\.npz: not what the training was asked for"):
        load_training_data(first, CPU)
    write_images(images, 0)
    assert len(load_training_data(first, CPU).train) == 40
