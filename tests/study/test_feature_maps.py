"""Maps before a pooling: those of the network that its operator was fitted on."""

import json
import re

import pytest
import torch
from safetensors.torch import load_file

from foveapool.runs import Runs
from foveapool.study.engine import order_by_dependency
from foveapool.study.loading import find_operator_file, load_fit_maps, parse_layer, read_sample_maps
from foveapool.study.spec import ExecutionOptions, build_job
from foveapool.study.worker import run_training
from foveapool.surgery.capture import read_inputs

from ..report.pages import operator
from .small_studies import CPU, training

CLOSED = training(("closed-form", 3), epochs=1)
SECOND = training(("closed-form", 3), ("closed-form", 2), epochs=1, part=1)


def done(training, root, means=CPU):
    runs = Runs(root)
    for level in order_by_dependency([training]):
        for each in level:
            run_training(each, runs, means)
    return runs


def test_the_maps_are_those_of_the_network_that_was_fitted_on(tmp_path):
    runs = done(CLOSED, tmp_path)
    found = load_fit_maps(runs.folder(CLOSED.name) / "operator-3.safetensors")
    trial = build_job(CLOSED.fitted_on, CPU)
    network = trial.network()
    network.load_state_dict(load_file(runs.folder(CLOSED.fitted_on.name) / "weights.safetensors"))
    image = trial.data.test.images[:1].float()
    # Street digits are normalized each by its own mean and deviation.
    x = (image - image.mean()) / image.std(unbiased=False)
    wanted = read_inputs(network, x, ["down3"])["down3"]
    torch.testing.assert_close(found.maps[:1], wanted, atol=1e-4, rtol=1e-3)
    assert (found.images == trial.data.test.images).all()
    assert (found.labels == trial.data.test.labels).all()


def test_a_second_layer_is_given_maps_of_the_network_with_the_first(tmp_path):
    runs = done(SECOND, tmp_path, ExecutionOptions("cpu", keep=True))
    folder = runs.folder(SECOND.name)
    second = load_fit_maps(folder / "operator-2.safetensors")
    first = load_fit_maps(folder / "operator-3.safetensors")
    assert second.maps.shape[1:] == (8, 16, 16) and first.maps.shape[1:] == (16, 8, 8)
    its = load_file(runs.folder(SECOND.fitted_on.name) / "weights.safetensors")
    trial = build_job(SECOND.fitted_on.fitted_on, CPU)
    without = trial.network()
    # Up to the second layer the two networks have the same modules, trained differently.
    shared = ("stem", "down1", "norm1")
    without.load_state_dict({k: v for k, v in its.items() if k.startswith(shared)}, strict=False)
    torch.testing.assert_close(
        second.maps, read_sample_maps(without, trial.data, "down2", "cpu").maps
    )


def test_as_many_maps_as_asked_for():
    trial = build_job(CLOSED.fitted_on, CPU)
    found = read_sample_maps(trial.network(), trial.data, "down1", "cpu", count=10)
    assert len(found.images) == len(found.maps) == len(found.labels) == 10


def test_a_pooling_that_was_not_fitted_has_no_maps(tmp_path):
    runs = Runs(tmp_path)
    average = training(("average", 3))
    runs.begin(average.name, average.facts)
    with pytest.raises(ValueError, match="no pooling at layer 3 was fitted"):
        load_fit_maps(runs.folder(average.name) / "operator-3.safetensors")


def test_a_name_without_a_layer_is_refused(tmp_path):
    with pytest.raises(ValueError, match="of an unknown layer"):
        parse_layer(tmp_path / "operator.safetensors")


def test_the_operator_of_an_earlier_layer_is_told_to_lie_where_that_was_the_last(tmp_path):
    pools = [("closed-form", layer) for layer in (3, 2, 1)]
    made = [training(*pools[:count]) for count in (1, 2, 3)]
    folders = [tmp_path / each.name for each in made]
    for each, folder in zip(made, folders, strict=True):
        folder.mkdir()
        (folder / "training.json").write_text(json.dumps(each.facts))
        operator().save(folder / f"operator-{each.setting.pools[-1].layer}.safetensors")
    assert find_operator_file(folders[2], 1).parent == folders[2]
    for layer, folder in zip((3, 2), folders, strict=False):
        words = (
            f"no operator-{layer}.safetensors in it, since .* fitted on: {re.escape(str(folder))}$"
        )
        with pytest.raises(FileNotFoundError, match=words):
            find_operator_file(folders[2], layer)
    (folders[0] / "operator-3.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="which is not there any more"):
        find_operator_file(folders[2], 3)
    with pytest.raises(FileNotFoundError, match="wanted the folder of a training with a closed"):
        find_operator_file(folders[1], 1)
