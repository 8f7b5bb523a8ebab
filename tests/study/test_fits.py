"""Operators for trainings: fitted once on the right network, made again where the file is bad."""

import math
import shutil
from dataclasses import replace

import pytest
import torch

from foveapool.pooling.operator import PoolingOperator
from foveapool.pooling.storage import load_tensors, save_tensors
from foveapool.runs import Runs
from foveapool.study import fits
from foveapool.study.fits import get_operators, sum_scatter
from foveapool.study.rows import make_diverged_result
from foveapool.study.setting import Pool
from foveapool.study.spec import build_job, load_training_data
from foveapool.study.worker import run_training

from .oracles import scatter_at, solved
from .small_studies import CPU, fit_in_memory, training


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with the baseline of seed 0 and of seed 1."""
    runs = Runs(tmp_path_factory.mktemp("trained"))
    for seed in (0, 1):
        run_training(training(seed=seed), runs, CPU)
    return runs.root


@pytest.fixture
def runs(trained, tmp_path):
    """A copy of it, with all that it says."""
    shutil.copytree(trained, tmp_path / "runs")
    said = []
    runs = Runs(tmp_path / "runs", said.append)
    runs.said = said
    return runs


@pytest.fixture
def summed(monkeypatch):
    """The modules whose scatter was summed up, in order."""
    seen = []

    def counting(network, data, site, *more):
        seen.append(site.module)
        return sum_scatter(network, data, site, *more)

    monkeypatch.setattr(fits, "sum_scatter", counting)
    return seen


def weight(training, runs, layer=3):
    return get_operators(training, runs, CPU)[str(layer)].weight


def test_alphas_norms_and_components_share_one_scatter(runs, summed):
    for layer in (2, 3):
        for alpha, norm in ((5, "l1"), (5, "l2"), (400, "l2")):
            get_operators(training(("closed-form", layer, alpha, norm)), runs, CPU)
        get_operators(training(("closed-form-trained", layer, 25, "l2", 1)), runs, CPU)
    assert summed == ["down2", "down3"]
    for choice in ({"normalize": False}, {"weighting": "frequency"}, {"class_cap": 4}):
        get_operators(training(Pool("closed-form", 3, **choice)), runs, CPU)
    assert summed == ["down2"] + 4 * ["down3"]
    get_operators(training(("closed-form", 3), seed=1), runs, CPU)
    assert len(summed) == 6


def test_forms_that_read_other_maps_have_scatters_of_their_own(runs, summed):
    network = build_job(training(), CPU).run()[0]
    data = load_training_data(training(), CPU)
    behind = {"after": network.down3, "after-activation": network.norm3}
    for form in ("replace", "mix", *behind, "mix"):
        get_operators(training(Pool("closed-form", 3, form=form)), runs, CPU)
    # The first two read what the convolution reads.
    assert summed == ["down3", "pool3", "pool3"]
    network.down3.stride = (1, 1)
    found = {}
    for form in behind:
        pool = Pool("closed-form", 3, form=form)
        # The pooling there reads what the norm reads, or what the ReLU gives.
        reader = torch.nn.Sequential(network.norm3, torch.nn.ReLU(), torch.nn.Identity())
        rest = [network.stem, torch.nn.ReLU()]
        for down, norm in ((network.down1, network.norm1), (network.down2, network.norm2)):
            rest += [down, norm, torch.nn.ReLU()]
        whole = torch.nn.Sequential(*rest, network.down3, reader).eval()
        name = f"{len(rest) + 1}" if form == "after" else f"{len(rest) + 1}.2"
        wanted = solved(scatter_at(whole, data, name, pool=pool), (4, 4), pool)
        found[form] = get_operators(training(pool), runs, CPU)["3"].weight
        torch.testing.assert_close(found[form], wanted.weight, rtol=1e-4, atol=1e-6)
    assert not torch.allclose(*found.values(), rtol=1e-3)


def test_what_a_killed_process_left_of_a_scatter_is_removed(runs, monkeypatch):
    one, folder = training(("closed-form", 3)), runs.folder(training().name)

    class Killed(BaseException):
        """As if by SIGKILL: nobody tidies up."""

    def write_and_die(scatter, path):
        begun = folder / f".{path.name}.half"
        begun.mkdir()
        (begun / path.name).write_text("half")
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(fits.Scatter, "save", write_and_die)
        with pytest.raises(Killed):
            get_operators(one, runs, CPU)
    assert list(folder.glob(".*"))
    get_operators(one, runs, CPU)
    assert not list(folder.glob(".*"))


def test_each_pool_gets_what_its_choices_ask_for(runs):
    pools = [Pool("closed-form", 3, alpha, norm) for alpha in (5.0, 400.0) for norm in ("l1", "l2")]
    found = [get_operators(training(pool), runs, CPU)["3"] for pool in pools]
    assert [(f.settings.alpha, f.settings.norm) for f in found] == [
        (p.alpha, p.norm) for p in pools
    ]
    network = build_job(training(), CPU).run()[0]
    for pool, operator in zip(pools, found, strict=True):
        wanted = fit_in_memory(build_job(training(pool), CPU), network)
        assert torch.equal(operator.weight, wanted.weight)


def test_in_a_window_a_place_sees_its_neighborhood_alone(runs, summed):
    operator = get_operators(training(Pool("closed-form", 3, window=1)), runs, CPU)["3"]
    assert operator.settings.window == 1 and summed == ["down3"]
    seen = (operator.weight != 0).sum(-1)
    assert int(seen.max()) <= 9 < operator.weight.shape[-1]
    assert int((weight(training(("closed-form", 3)), runs) != 0).sum(-1).max()) > 9
    assert summed == ["down3"]  # with and without one from the same scatter


def test_the_kept_operator_is_used_again(runs, summed, monkeypatch):
    first = weight(training(("closed-form", 3)), runs)
    monkeypatch.setattr(fits, "solve_scatter", None)
    assert torch.equal(weight(training(("closed-form", 3)), runs), first)
    assert summed == ["down3"]


def test_an_alpha_that_the_fit_chose_is_told(runs):
    each = training(Pool("closed-form", 3, "auto"))
    result = run_training(each, runs, CPU)
    (chosen,) = result["alphas"].values()
    operator = get_operators(each, runs, CPU)["3"]
    assert chosen == operator.settings.alpha > 0
    # The same operator that this alpha gives where it is asked for.
    assert torch.equal(operator.weight, weight(training(("closed-form", 3, chosen)), runs))


def test_a_second_layer_is_fitted_on_the_network_trained_with_the_first(runs, summed):
    first, second = Pool("closed-form", 3), Pool("closed-form", 2, 100.0)
    before = training(first)
    run_training(before, runs, replace(CPU, keep=True))
    both = training(first, second)
    found = get_operators(both, runs, CPU)
    own = build_job(before, CPU)
    network = own.run({"3": fit_in_memory(own, build_job(training(), CPU).run()[0])})[0]
    wanted = fit_in_memory(build_job(both, CPU), network, second)
    assert torch.equal(found["2"].weight, wanted.weight)
    assert torch.equal(found["3"].weight, weight(before, runs))
    assert runs.said == []
    run_training(both, runs, CPU)


def test_weights_that_are_gone_are_trained_again(runs):
    wanted = weight(training(("closed-form", 3)), runs)
    folder = runs.folder(training().name)
    for path in (folder / "weights.safetensors", *folder.glob("scatter-*")):
        path.unlink()
    runs.folder(training(("closed-form", 3)).name).joinpath("operator-3.safetensors").unlink()
    assert torch.equal(weight(training(("closed-form", 3)), runs), wanted)
    (said,) = runs.said
    assert "its weights are not there; trained again for its maps" in said
    assert (folder / "weights.safetensors").exists() and not (folder / "again").exists()
    assert runs.result(training().name, training().facts) is not None


def other_weights(runs, path):
    """The weights of the other seed's network."""
    path.write_bytes((runs.folder(training(seed=1).name) / path.name).read_bytes())


def other_scatter(runs, path):
    """The scatter of another layer."""
    get_operators(training(("closed-form", 2)), runs, CPU)
    (other,) = path.parent.glob("scatter-down2-*.safetensors")
    path.write_bytes(other.read_bytes())


def other_operator(runs, path):
    """The operator for another alpha."""
    other = training(("closed-form", 3, 400))
    get_operators(other, runs, CPU)
    path.write_bytes((runs.folder(other.name) / path.name).read_bytes())


def other_kind(runs, path):
    save_tensors(path, "checkpoint", {"weight": torch.zeros(2)}, {})


def truncated(runs, path):
    path.write_bytes(path.read_bytes()[:-100])


def flipped(runs, path):
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)


def not_finite(runs, path):
    tensors, header = load_tensors(path, "weights")
    tensors["down3.weight"][0] = math.nan
    save_tensors(path, "weights", tensors, {"training": header["training"]})


def whole_numbers(runs, path):
    tensors, header = load_tensors(path, "weights")
    tensors["down3.weight"] = tensors["down3.weight"].long()
    save_tensors(path, "weights", tensors, {"training": header["training"]})


@pytest.mark.parametrize(
    ("file", "damage", "told"),
    [
        ("weights", truncated, "not a whole safetensors file"),
        ("weights", flipped, "got contents that are not those of its SHA-256"),
        ("weights", not_finite, "got NaN or infinity in the tensor down3.weight"),
        ("weights", whole_numbers, "got the tensor down3.weight of torch.int64, wanted floating"),
        ("scatter-down3-", flipped, "got contents that are not those of its SHA-256"),
        ("operator-3", flipped, "got contents that are not those of its SHA-256"),
        ("weights", other_kind, "got checkpoint, wanted a foveapool weights file"),
        ("weights", other_weights, "holds the weights of"),
        ("scatter-down3-", truncated, "not a whole safetensors file"),
        ("scatter-down3-", other_kind, "got checkpoint, wanted a foveapool scatter file"),
        ("scatter-down3-", other_scatter, "is of another training; made again"),
        ("operator-3", truncated, "not a whole safetensors file"),
        ("operator-3", other_kind, "got checkpoint, wanted a foveapool operator file"),
        ("operator-3", other_operator, "is of another training; made again"),
    ],
)
def test_a_bad_file_is_made_again_with_a_message(runs, file, damage, told):
    each = training(("closed-form", 3, 25))
    wanted = weight(each, runs)
    (path,) = runs.root.glob(f"trainings/*-seed0-*/{file}*.safetensors")
    files = ["operator-3", "scatter-down3-", "weights"]
    for later in files[: files.index(file)]:
        (derived,) = runs.root.glob(f"trainings/*-seed0-*/{later}*.safetensors")
        derived.unlink()
    damage(runs, path)
    assert torch.equal(weight(each, runs), wanted)
    (said,) = runs.said
    assert told in said
    # And it is whole again.
    if file == "weights":
        assert load_tensors(path, "weights")[1]["training"] == training().name
    elif file == "operator-3":
        assert torch.equal(PoolingOperator.load(path).weight, wanted)


def test_a_part_is_fitted_on_its_own_training_images_alone(runs, monkeypatch):
    seen = []

    def noting(network, data, *more):
        seen.append(data.train.images)
        return sum_scatter(network, data, *more)

    monkeypatch.setattr(fits, "sum_scatter", noting)
    each = training(("closed-form", 3), part=2)
    run_training(each.fitted_on, runs, CPU)
    get_operators(each, runs, CPU)
    assert torch.equal(seen[0], load_training_data(each, CPU).train.images) and len(seen[0]) == 128


def test_on_a_network_that_diverged_nothing_is_fitted(runs, summed):
    each = training(("closed-form", 3))
    runs.finish(each.fitted_on.name, make_diverged_result("loss: got nan in epoch 1"))
    (runs.folder(each.fitted_on.name) / "weights.safetensors").unlink()
    found = run_training(each, runs, CPU)
    assert found["error"] == 100
    assert found["diverged"].startswith(f"{each.fitted_on.name}: diverged, so that this training")
    assert summed == [] and runs.said == []
    assert not list(runs.root.glob("trainings/*/again"))
