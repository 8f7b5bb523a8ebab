"""ClosedFormPooling: fits what could be fitted by hand, behaves as scikit-learn's estimators do."""

from __future__ import annotations

import copy
import inspect
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from foveapool import (
    ChannelMoments,
    ClosedFormPooling,
    ScatterAccumulator,
    capture,
    compute_scatter,
    downsampling_layers,
    solve_pooling,
)
from foveapool._io import read_sealed_json, write_sealed_json
from foveapool.surgery import settings as settings_file
from foveapool.surgery.find import DescribedLayer

from .toys import MAIN, POOL, SHORTCUT, anatomy, loader, pictures, toy

modes = pytest.mark.parametrize("mode", ["replace", "after"])


def by_hand(model: nn.Module, layer: str, mode: str, out_shape: tuple[int, int], components: int):
    """The same from the parts."""
    batches = [
        (maps[layer], batch.labels) for maps, batch in capture(model, loader(), layer, mode=mode)
    ]
    moments = ChannelMoments(3, dead_channels="ignore")
    for maps, labels in batches:
        moments.update(maps, labels)
    window = 2 if mode == "after" else None
    accumulator = ScatterAccumulator(moments.compute(), window=window)
    for maps, labels in batches:
        accumulator.update(maps, labels)
    center = "first" if mode == "after" else "paper"
    scatter = accumulator.compute()
    more = {"alpha": 10 * float(scatter.within_diagonal().mean())} if mode == "after" else {}
    chosen = {"components": components, "center": center, "window": window}
    return solve_pooling(scatter, out_shape, **chosen, **more)


# Settings


def test_settings_go_in_and_come_out():
    given = {"alpha": 7.0, "norm": "l1", "components": 3, "window": 2, "num_classes": 4}
    estimator = ClosedFormPooling(**given)
    settings = estimator.get_params()
    assert list(settings) == list(inspect.signature(ClosedFormPooling).parameters)
    assert given.items() <= settings.items()
    twin = type(estimator)(**estimator.get_params(deep=False))
    assert twin.get_params() == settings
    assert twin.set_params(alpha=8.0, seed=3) is twin
    assert (twin.alpha, twin.seed, estimator.alpha) == (8.0, 3, 7.0)


def test_an_unknown_setting_is_refused_and_nothing_is_set():
    estimator = ClosedFormPooling()
    with pytest.raises(ValueError, match=r"beta: no such setting, wanted one of .*'alpha'"):
        estimator.set_params(beta=1, alpha=3.0)
    with pytest.raises(ValueError, match="beta: no such setting"):
        estimator.set_params(alpha=3.0, beta=1)
    assert estimator.alpha == "auto"


def test_only_settings_that_were_changed_are_printed():
    assert repr(ClosedFormPooling()) == "ClosedFormPooling()"
    estimator = ClosedFormPooling(5.0, class_cap=None)
    assert repr(estimator) == "ClosedFormPooling(alpha=5.0, class_cap=None)"
    assert eval(repr(estimator)).get_params() == estimator.get_params()


def test_scikit_learn_can_clone_it():
    # The steps of sklearn.base.clone, which is not installed for this alone: it wants a constructor
    # that keeps the very objects it is given.
    estimator = ClosedFormPooling(3.0, norm="l1").fit(toy(), loader(), MAIN)
    given = copy.deepcopy(estimator.get_params(deep=False))
    twin = type(estimator)(**given)
    kept = twin.get_params(deep=False)
    assert kept.keys() == given.keys() and all(kept[name] is given[name] for name in given)
    assert kept == estimator.get_params() and not hasattr(twin, "operators_")


# Fitting


@modes
def test_fitting_gives_what_the_parts_give(mode):
    model = toy()
    before = anatomy(model)
    fit = ClosedFormPooling().fit(model, loader(), MAIN, mode)
    components = 2 if mode == "replace" else 1
    wanted = by_hand(model, MAIN, mode, (4, 4), components)
    assert fit.operator_.weight.shape == wanted.weight.shape
    assert torch.equal(fit.operator_.weight, wanted.weight)
    assert torch.equal(fit.operator_.mean, wanted.mean)
    assert set(fit.seconds_) == {"passes", "solve"}
    assert anatomy(model) == before


@modes
def test_several_layers_at_once_give_what_each_gives_alone(mode):
    model = toy()
    together = ClosedFormPooling().fit(model, loader(), [POOL, MAIN, SHORTCUT], mode)
    assert list(together.operators_) == [MAIN, SHORTCUT, POOL]
    for name in (MAIN, SHORTCUT, POOL):
        alone = ClosedFormPooling().fit(model, loader(), name, mode)
        assert torch.equal(together.operators_[name].weight, alone.operator_.weight), name


def test_several_layers_take_one_pair_of_passes():
    model, seen = toy(), []
    model.stem.register_forward_hook(lambda module, given, _: seen.append(len(given[0])))
    ClosedFormPooling().fit(model, loader(), [MAIN, SHORTCUT, POOL])
    assert seen == [1, 10, 10, 10, 10, 5, 10, 10, 10, 10, 5]


def test_branches_that_read_one_tensor_share_scatter_and_operator_but_no_module(monkeypatch):
    solved = []
    monkeypatch.setattr(
        settings_file,
        "solve_pooling",
        lambda *given, **more: solved.append(given) or solve_pooling(*given, **more),
    )
    fit = ClosedFormPooling().fit(toy(), loader(), [MAIN, SHORTCUT, POOL])
    assert fit.scatters_[MAIN] is fit.scatters_[SHORTCUT] is not fit.scatters_[POOL]
    assert fit.operators_[MAIN] is fit.operators_[SHORTCUT]
    one, other = (fit.modules()[name] for name in (MAIN, SHORTCUT))
    assert torch.equal(one.weight, other.weight) and one.weight is not other.weight
    assert len(solved) == 2
    after = ClosedFormPooling().fit(toy(), loader(), [MAIN, SHORTCUT], "after")
    assert after.scatters_[MAIN] is not after.scatters_[SHORTCUT]


class Overwriting(nn.Module):
    """Two branches that read one tensor object, but not the same numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.MaxPool2d(2), nn.MaxPool2d(2)

    def forward(self, x: Tensor) -> Tensor:
        x = x + 0
        return self.first(x) + self.second(x.relu_())


@pytest.mark.parametrize("inference", [False, True])
def test_branches_that_read_one_tensor_before_and_after_a_change_do_not_share(inference):
    with torch.inference_mode(inference):  # where torch counts no changes
        fit = ClosedFormPooling().fit(Overwriting(), loader(), ["first", "second"])
    assert fit.layers_["first"].siblings == fit.layers_["second"].siblings == ()
    assert fit.scatters_["first"].mean.sum() < fit.scatters_["second"].mean.sum()


@pytest.mark.parametrize(
    ("layer", "mode", "components"),
    [(MAIN, "replace", 2), (MAIN, "after", 1), (POOL, "replace", 1), (POOL, "after", 1)],
)
def test_as_many_components_are_taken_as_fit(layer, mode, components):
    fit = ClosedFormPooling().fit(toy(), loader(), layer, mode)
    assert fit.operator_.components == components


def test_another_number_of_components_can_be_asked_for_where_channels_may_change():
    fit = ClosedFormPooling(components=3).fit(toy(), loader(), MAIN)
    assert fit.module().components == 3
    fit.replace(model := toy())
    assert model.block.main.project is not None and model(pictures()).shape == (4, 3)


def test_settings_can_be_tried_on_scatter_that_is_there():
    fit = ClosedFormPooling().fit(toy(), loader(), MAIN)
    scatter = fit.scatter_
    fit.set_params(alpha=400.0, components=1).solve()
    wanted = ClosedFormPooling(400.0, components=1).fit(toy(), loader(), MAIN)
    assert fit.scatter_ is scatter
    assert torch.equal(fit.operator_.weight, wanted.operator_.weight)


def test_the_number_of_classes_shows_as_labels_come():
    fit = ClosedFormPooling().fit(toy(), loader(), MAIN)
    assert fit.scatter_.counts.tolist() == [15, 15, 15]
    told = ClosedFormPooling(num_classes=3).fit(toy(), loader(), MAIN)
    assert torch.equal(told.operator_.weight, fit.operator_.weight)


def test_the_number_of_classes_is_taken_from_a_data_set_that_knows():
    class Loader(list):
        class dataset:
            classes = ("cat", "dog", "bird")

    fit = ClosedFormPooling().fit(toy(), Loader(loader()), MAIN)
    assert len(fit.scatter_.counts) == 3
    Loader.dataset.classes = ("cat", "dog", "bird", "fish")
    whose = (
        "num_classes was not given: {} is the length of loader.dataset.classes; pass num_classes="
    )
    with pytest.raises(ValueError, match=r"fewer than two samples .* \{3: 0\}.*" + whose.format(4)):
        ClosedFormPooling().fit(toy(), Loader(loader()), MAIN)
    assert (
        len(ClosedFormPooling(num_classes=3).fit(toy(), Loader(loader()), MAIN).scatter_.counts)
        == 3
    )
    for few in (("cat", "dog"), ("cat",)):
        Loader.dataset.classes = few
        with pytest.raises(ValueError, match=whose.format(len(few))):
            ClosedFormPooling().fit(toy(), Loader(loader()), MAIN)


def test_networks_of_half_precision_are_fitted():
    fit = ClosedFormPooling().fit(toy(), loader(), MAIN, autocast=torch.bfloat16)
    wanted = ClosedFormPooling().fit(toy(), loader(), MAIN)
    assert not torch.equal(fit.operator_.weight, wanted.operator_.weight)
    torch.testing.assert_close(fit.operator_.weight, wanted.operator_.weight, rtol=0, atol=0.1)


def test_networks_that_run_in_half_precision_only_are_fitted():
    fit = ClosedFormPooling().fit(toy().bfloat16(), loader(), MAIN, autocast=torch.bfloat16)
    assert fit.module().components == 2


# What was fitted


def test_modules_are_trainable_if_they_should_be():
    fit = ClosedFormPooling().fit(toy(), loader(), [MAIN, POOL])
    assert fit.module(POOL, trainable=True).trainable and not fit.module(POOL).trainable
    assert all(module.trainable for module in fit.modules(trainable=True).values())
    model = toy()
    fit.replace(model, trainable=True, on_resize="interpolate")
    assert model(pictures(2, 12)).shape == (2, 3)


def test_one_answer_is_not_given_for_several_layers():
    fit = ClosedFormPooling().fit(toy(), loader(), [MAIN, POOL])
    for ask in (lambda: fit.operator_, lambda: fit.scatter_, fit.module):
        with pytest.raises(ValueError, match="got 2 layers"):
            ask()
    with pytest.raises(ValueError, match="layer: got 'stem', wanted one of"):
        fit.module("stem")


def test_nothing_is_given_before_it_was_fitted():
    fit = ClosedFormPooling()
    calls = (fit.module, fit.modules, fit.solve, lambda: fit.operator_, lambda: fit.scatter_)
    for call in (*calls, lambda: fit.replace(toy()), lambda: fit.save("nowhere")):
        with pytest.raises(ValueError, match="not fitted yet"):
            call()


def test_a_fit_that_could_not_be_solved_does_not_hand_out_the_one_before(monkeypatch):
    def refuse(*_, **__):
        raise ValueError("B: got no positive matrix")

    fit = ClosedFormPooling().fit(toy(), loader(), POOL)
    with monkeypatch.context() as patch, pytest.raises(ValueError, match="B: got no positive"):
        patch.setattr(settings_file, "solve_pooling", refuse)
        fit.fit(toy(), loader(), MAIN)
    with pytest.raises(ValueError, match="not fitted yet"):
        fit.modules()
    assert fit.solve().operator_.components == 2


# On disk


@modes
def test_a_fit_comes_back_from_its_folder(mode, tmp_path):
    fit = ClosedFormPooling(9.0, class_cap=None).fit(toy(), loader(), [MAIN, SHORTCUT, POOL], mode)
    fit.save(tmp_path / "a" / "fit")
    again = ClosedFormPooling.load(tmp_path / "a" / "fit")
    assert again.get_params() == fit.get_params() and again.mode_ == mode
    assert again.layers_ == fit.layers_ and again.seconds_ == fit.seconds_
    for name, operator in fit.operators_.items():
        assert torch.equal(again.operators_[name].weight, operator.weight)
        assert torch.equal(again.scatters_[name].within, fit.scatters_[name].within)
    if mode == "replace":
        assert again.operators_[MAIN] is again.operators_[SHORTCUT]
        assert again.scatters_[MAIN] is again.scatters_[SHORTCUT]
        assert len(list((tmp_path / "a" / "fit").glob("scatter-*"))) == 2
    ours, theirs = toy(), toy()
    fit.replace(ours)
    again.replace(theirs)
    assert torch.equal(ours(pictures()), theirs(pictures()))
    assert torch.equal(again.solve().operators_[MAIN].weight, fit.operators_[MAIN].weight)


def test_a_folder_that_is_not_whole_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"estimator\.json: no such file"):
        ClosedFormPooling.load(tmp_path)
    fit = ClosedFormPooling().fit(toy(), loader(), MAIN)
    fit.save(tmp_path)
    facts = read_sealed_json(tmp_path / "estimator.json")
    write_sealed_json(tmp_path / "estimator.json", {**facts, "format_version": 99})
    with pytest.raises(ValueError, match="format version 99, wanted 1"):
        ClosedFormPooling.load(tmp_path)
    for broken in ('{"format', "[]"):
        (tmp_path / "estimator.json").write_text(broken)
        with pytest.raises(ValueError, match=r"estimator.json: not what ClosedFormPooling\.save"):
            ClosedFormPooling.load(tmp_path)
    write_sealed_json(tmp_path / "estimator.json", facts)
    (tmp_path / "operator-0.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"operator-0\.safetensors: no such file"):
        ClosedFormPooling.load(tmp_path)


def test_scatter_that_was_kept_does_for_the_network_and_its_data():
    whole = ClosedFormPooling(25.0).fit(toy(), loader(), [MAIN, POOL])
    layers = downsampling_layers(toy(), loader()[0][0])
    kept = ClosedFormPooling(25.0).sum_scatter(toy(), loader(), [MAIN, POOL])
    named = [each for each in layers if each.name in kept.scatters_]
    found = ClosedFormPooling(25.0).use_scatter(kept.scatters_, named).solve()
    for name in (MAIN, POOL):
        assert torch.equal(found.operators_[name].weight, whole.operators_[name].weight)


def test_scatter_of_other_maps_is_refused():
    layers = downsampling_layers(toy(), loader()[0][0])
    fit = ClosedFormPooling().sum_scatter(toy(), loader(), [MAIN])
    with pytest.raises(ValueError, match=r"scatters: got .* wanted one of .* for"):
        fit.use_scatter(fit.scatters_, layers)
    assert list(fit.layers_) == [MAIN]


def test_what_is_only_summed_up_has_no_operator_yet():
    fit = ClosedFormPooling().sum_scatter(toy(), loader(), MAIN)
    with pytest.raises(ValueError, match="not fitted yet"):
        fit.module()


def test_a_block_is_fitted_as_its_owner_describes_it():
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3, 1, 1), nn.Sequential(nn.ReLU(), nn.Conv2d(4, 8, 3, 2, 1))
    )
    shapes = {"in_shape": (8, 8), "out_shape": (4, 4), "components": 2, "exact": True}
    block = DescribedLayer("1", "Sequential", 4, 8, **shapes, siblings=(), calls=1)
    batches = [(torch.randn(40, 3, 8, 8), torch.arange(40) % 2)]
    found = ClosedFormPooling(25.0).fit(model, batches, block).operator_
    wanted = compute_scatter(model[0](batches[0][0]).detach(), batches[0][1])
    wanted = solve_pooling(wanted, (4, 4), alpha=25.0)
    torch.testing.assert_close(found.weight, wanted.weight, rtol=1e-5, atol=1e-7)
    with pytest.raises(ValueError, match=r"got maps \(4, 8, 8\) at 1, wanted \(5, 8, 8\)"):
        ClosedFormPooling().fit(model, batches, replace(block, in_channels=5))
    with pytest.raises(ValueError, match="mode: got 'after' for 1, a described layer"):
        ClosedFormPooling().fit(model, batches, block, "after")
