"""One trial: what is trained, where it starts from, what the operator is fitted on."""

from dataclasses import replace

import pytest
import torch

from foveapool.data.batches import plain_batches, resident
from foveapool.data.registry import load_data
from foveapool.pooling.accumulate import compute_scatter
from foveapool.study.protocol import POOLINGS, Setting, Trial, scatter_at
from foveapool.surgery.capture import inputs_of
from foveapool.training.recipe import Recipe

DATA = load_data("street-digits", train_size=80, test_size=40)
RECIPE = Recipe("adam", 1e-3, 1, batch_size=40)


def trial(pooling="baseline", **options):
    setting = Setting(pooling, width=4, **options)
    return Trial(setting, DATA, RECIPE, seed=0, device="cpu")


@pytest.fixture(scope="module")
def trained():
    return trial().run()[0]


@pytest.mark.parametrize("pooling", POOLINGS)
def test_every_pooling_can_be_trained_in_the_same_place(pooling, trained):
    each = trial(pooling)
    operator = each.fit(trained) if each.setting.is_fitted else None
    network, result = each.run(operator)
    assert 0 <= result.test_error <= 100
    assert network.site(3).module == "down3"
    frozen = pooling == "closed-form"
    if each.setting.is_fitted:
        weight = network.down3.weight
        assert torch.equal(weight.detach(), operator.weight.float()) == frozen


def test_layers_that_two_settings_share_start_from_the_same_numbers(trained):
    baseline, fitted = trial(), trial("closed-form")
    other = fitted.network({3: fitted.fit(trained).module()})
    mine = baseline.network().state_dict()
    for name, tensor in other.state_dict().items():
        if not name.startswith("down3"):
            assert torch.equal(tensor, mine[name])


def test_the_scatter_is_that_of_the_maps_which_reach_the_layer(trained):
    images, _ = resident(DATA, "cpu")
    (batch, labels), *rest = plain_batches(images, 80)
    assert not rest
    maps = inputs_of(trained, batch, ["down3"])["down3"]
    wanted = compute_scatter(maps, labels, 10, dead_channels="ignore")
    found = scatter_at(trained, DATA, "down3", "cpu", batch=33)
    scale = wanted.within.abs().max()
    assert (found.within - wanted.within).abs().max() <= 1e-6 * scale
    assert (found.between - wanted.between).abs().max() <= 1e-6 * scale


def test_a_fitted_operator_is_kept_and_not_fitted_again(tmp_path, trained):
    path = tmp_path / "folder" / "operator.safetensors"
    each = trial("closed-form", alpha=5.0, norm="l1")
    first = each.fit(trained, path)
    # A network without weights could not be fitted on: only the file can give the answer.
    again = each.fit(torch.nn.Identity(), path)
    assert torch.equal(first.weight, again.weight)
    assert (first.settings.alpha, first.settings.norm) == (5.0, "l1")


def test_a_trial_goes_on_in_its_folder(tmp_path):
    each = replace(trial(), folder=tmp_path / "run")
    _, first = each.run()
    _, again = each.run()
    assert first.test_error == again.test_error
    assert first.history == again.history


def test_a_resnet_is_fitted_before_its_block():
    setting = Setting("closed-form", 2, network="resnet18", width=4, placement="before")
    each = Trial(setting, DATA, RECIPE, device="cpu")
    operator = each.fit(each.network())
    network, _ = each.run(operator)
    assert network.layer3[0].before is not None
    assert operator.out_shape == (8, 8)


def test_unknown_poolings_and_missing_operators_are_named():
    with pytest.raises(ValueError, match="pooling: got 'sdg', wanted one of baseline"):
        Setting("sdg")
    with pytest.raises(ValueError, match="operator: got none, wanted one for closed-form"):
        trial("closed-form").run()
