"""One trial: what is trained, where it starts from, what the operator is fitted on."""

from dataclasses import replace

import pytest
import torch

from foveapool.data.batches import iterate_batches, load_resident
from foveapool.data.registry import load_data
from foveapool.pooling.accumulate import compute_scatter
from foveapool.pooling.baselines import baseline_pooling
from foveapool.study.fits import solve_scatter, sum_scatter
from foveapool.study.setting import POOLINGS, Pool, Setting
from foveapool.study.spec import TrainingJob
from foveapool.surgery.capture import read_inputs
from foveapool.surgery.estimator import ClosedFormPooling
from foveapool.training.recipe import Recipe

from .oracles import scatter_at, solved
from .small_studies import fit_in_memory

DATA = load_data("street-digits", train_size=80, test_size=40)
RECIPE = Recipe("adam", 1e-3, 1, batch_size=40)


def trial(*pools, **options):
    setting = Setting(tuple(Pool(*each) for each in pools), width=4, **options)
    return TrainingJob(setting, DATA, RECIPE, seed=0, device="cpu")


@pytest.fixture(scope="module")
def trained():
    return trial().run()[0]


@pytest.mark.parametrize("pooling", [each for each in POOLINGS if each != "resnet-d"])
def test_every_pooling_can_be_trained_instead_of_the_convolution(pooling, trained):
    pools = [] if pooling == "baseline" else [Pool(pooling, 3, form="replace")]
    each = replace(trial(), setting=Setting(tuple(pools), width=4))
    fitted = each.setting.fitted_on is not None
    operators = {"3": fit_in_memory(each, trained)} if fitted else None
    network, result = each.run(operators)
    assert 0 <= result.test_error <= 100
    assert network.site(3).module == "down3"
    if fitted:
        unchanged = torch.equal(network.down3.weight.detach(), operators["3"].weight.float())
        assert unchanged == (pooling == "closed-form")


def test_layers_that_two_settings_share_start_from_the_same_numbers(trained):
    fitted = trial(("closed-form", 3))
    other = fitted.network({"3": fit_in_memory(fitted, trained)})
    mine = trial().network().state_dict()
    for name, tensor in other.state_dict().items():
        if not name.startswith("down3"):
            assert torch.equal(tensor, mine[name])


def test_a_pooling_that_starts_at_random_starts_from_its_seed():
    def weight(seed):
        return replace(trial(("sgd", 3)), seed=seed).network().down3.weight

    torch.manual_seed(1)
    first = weight(5)
    torch.manual_seed(2)
    assert torch.equal(first, weight(5))
    assert not torch.equal(first, weight(6))


def test_the_scatter_is_that_of_the_maps_which_reach_the_layer(trained):
    images, _ = load_resident(DATA, "cpu")
    (batch, labels), *rest = iterate_batches(images, 80)
    assert not rest
    maps = read_inputs(trained, batch, ["down3"])["down3"]
    wanted = compute_scatter(maps, labels, 10, dead_channels="ignore")
    found = sum_scatter(trained, DATA, trained.site(3), Pool("closed-form", 3), "cpu", 33)
    scale = wanted.within.abs().max()
    assert (found.within - wanted.within).abs().max() <= 1e-6 * scale
    assert (found.between - wanted.between).abs().max() <= 1e-6 * scale


def test_the_choices_of_a_pool_reach_the_fit(trained):
    each = trial(("closed-form", 2, 5.0, "l1", 3, False, "frequency", "aligned", "sum", 4))
    operator = fit_in_memory(each, trained)
    how = operator.settings
    assert (how.alpha, how.norm, how.center, how.sign) == (5.0, "l1", "aligned", "sum")
    assert (how.weighting, operator.components, operator.in_shape) == ("frequency", 3, (16, 16))
    pool = each.setting.pools[0]
    scatter = sum_scatter(trained, DATA, trained.site(2), pool, "cpu")
    assert int(scatter.counts.max()) == 4
    other = sum_scatter(trained, DATA, trained.site(2), replace(pool, normalize=True), "cpu")
    assert not torch.allclose(scatter.within, other.within)


def test_a_trial_goes_on_in_its_folder(tmp_path):
    each = replace(trial(), folder=tmp_path / "run")
    _, first = each.run()
    _, again = each.run()
    assert first.test_error == again.test_error
    assert first.history == again.history


def test_a_resnet_is_fitted_before_its_block():
    each = trial(("closed-form", 2), network="resnet18", placement="before")
    start = replace(each, setting=each.setting.fitted_on)
    operator = fit_in_memory(each, start.network())
    network, _ = each.run({"2": operator})
    assert network.layer3[0].before is not None
    assert operator.out_shape == (8, 8)


def test_a_missing_operator_is_named():
    with pytest.raises(ValueError, match="operators: got none of name '3' for closed-form"):
        trial(("closed-form", 3)).run()


def started(*pools, seed=3):
    return replace(trial(*pools), seed=seed).network()


def correlation(one, other):
    count = min(one.numel(), other.numel())
    pair = torch.stack([each.detach().flatten()[:count] for each in (one, other)])
    return float(torch.corrcoef(pair)[0, 1])


def test_two_poolings_that_start_at_random_do_not_start_alike():
    both = started(("sgd", 2), ("sgd", 3))
    assert abs(correlation(both.down2.weight, both.down3.weight)) < 0.2
    three = started(("sgd", 1), ("sgd", 2), ("sgd", 3))
    assert abs(correlation(three.down2.weight, three.down3.weight)) < 0.2
    again = started(("sgd", 2), ("sgd", 3))
    assert torch.equal(both.down3.weight, again.down3.weight)
    other = started(("sgd", 2), ("sgd", 3), seed=4)
    assert not torch.equal(both.down3.weight, other.down3.weight)


@pytest.mark.parametrize("layer", [1, 2, 3])
def test_the_first_pooling_starts_as_it_does_alone_from_the_seed_itself(layer):
    alone = getattr(started(("sgd", layer)), f"down{layer}")
    site = trial().network().site(layer)
    torch.manual_seed(3)
    wanted = baseline_pooling("sgd", site.channels, site.in_shape, site.out_shape, 2)
    assert torch.equal(alone.weight, wanted.weight)
    beside = started(("sgd", layer), ("sgd", layer % 3 + 1))
    assert torch.equal(getattr(beside, f"down{layer}").weight, wanted.weight)


def test_a_pooling_at_random_beside_a_closed_form_is_the_first_one(trained):
    both = trial(("closed-form", 3), ("sgd", 2))
    network = both.network({"3": fit_in_memory(trial(("closed-form", 3)), trained)})
    assert torch.equal(network.down2.weight, trial(("sgd", 2)).network().down2.weight)


CHOICES = (
    {},
    {"form": "mix"},
    {"form": "after"},
    {"form": "after-activation"},
    {"normalize": False, "weighting": "frequency", "class_cap": 4},
    {"norm": "l1", "alpha": 5, "center": "aligned", "sign": "sum", "window": 1},
    {"network": "resnet18", "placement": "before"},
    {"network": "resnet18", "placement": "both"},
    {"network": "resnet18", "form": "after"},
    {"network": "resnet18", "form": "mix", "placement": "shortcut"},
)


@pytest.mark.parametrize("choices", CHOICES, ids=str)
def test_a_study_fits_what_two_passes_by_hand_give_to_the_bit(choices):
    own = dict(choices)
    network = own.pop("network", "cnn")
    pool = Pool("closed-form", 2, **own)
    each = replace(trial(), setting=Setting(network=network, width=4))
    for path in Setting((pool,), network=network, width=4).operator_names(pool):
        reader, site = each.network_to_read(pool, path)
        found = sum_scatter(reader, DATA, site, pool, "cpu", 33)
        wanted = scatter_at(reader, DATA, site.module, 33, pool)
        assert torch.equal(found.within, wanted.within)
        assert torch.equal(found.between, wanted.between)
        operator = solve_scatter(found, site, pool)
        by_hand = solved(wanted, site.out_shape, pool)
        assert torch.equal(operator.weight, by_hand.weight)
        assert operator.settings == by_hand.settings


def test_a_study_and_a_user_fit_alike(trained):
    images, _ = load_resident(DATA, "cpu")
    fit = ClosedFormPooling(25.0, "l1").fit(trained, list(iterate_batches(images)), "down3")
    study = trial(("closed-form", 3, 25.0, "l1"))
    assert torch.equal(fit.operator_.weight, fit_in_memory(study, trained).weight)
