"""What goes wrong in a training says what and where, and loses nothing that was saved."""

import re
import resource
import sys
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from torch import nn

from foveapool._suggest import how_to_install
from foveapool.data.batches import load_resident
from foveapool.training import metrics
from foveapool.training.checkpoint import CHECKPOINT
from foveapool.training.loop import train
from foveapool.training.metrics import EpochRecord, Progress, open_progress_bar
from foveapool.training.parallel import choose_device
from foveapool.training.state import measure_error

from .toys import same, toy_data, toy_network, toy_recipe


class Explodes(nn.Module):
    """Gives NaN from the n-th training step on."""

    def __init__(self, step):
        super().__init__()
        self.network, self.left = toy_network(), step

    def forward(self, images):
        self.left -= self.training
        return self.network(images) * (float("nan") if self.left < 0 else 1.0)


def test_a_loss_that_is_no_number_stops_and_keeps_the_last_good_checkpoint(tmp_path):
    given = {"data": toy_data(), "recipe": toy_recipe(4), "device": "cpu", "folder": tmp_path}
    message = r"loss: got nan in epoch 2, step 3 of 4.*after 1 epochs and 2 steps, is kept in"
    with pytest.raises(FloatingPointError, match=message):
        train(Explodes(6), **given, checkpoint_steps=2)
    resumed, calm = Explodes(99), Explodes(99)
    train(resumed, **given)
    train(calm, **{**given, "folder": None})
    assert same(resumed, calm)


def test_a_loss_that_is_no_number_says_so_without_a_folder():
    message = r"loss: got nan in epoch 1, step 1 of 4, wanted finite numbers: .*No checkpoint"
    with pytest.raises(FloatingPointError, match=message):
        train(Explodes(0), toy_data(), toy_recipe(1), device="cpu")


def test_weights_that_are_not_finite_are_not_saved(tmp_path):
    # One step an epoch: its loss is still a number, what it leads to is not.
    recipe, network = toy_recipe(2, batch_size=64), toy_network()
    network.head.weight.register_hook(lambda gradient: gradient * float("inf"))
    with pytest.raises(FloatingPointError, match=r"weights that are not finite after 1 epochs"):
        train(network, toy_data(), recipe, device="cpu", folder=tmp_path)
    assert not (tmp_path / CHECKPOINT).exists()


@pytest.mark.parametrize("folder", [None, "run"])
def test_a_last_update_that_is_one_too_many_is_no_result(tmp_path, folder):
    recipe, network = toy_recipe(1, batch_size=64), toy_network()
    network.head.weight.register_hook(lambda gradient: gradient * float("nan"))
    message = r"weights that are not finite after .* steps, wanted .*\(0.05 there\).*No checkpoint"
    with pytest.raises(FloatingPointError, match=message):
        train(network, toy_data(), recipe, device="cpu", folder=folder and tmp_path / folder)


@pytest.mark.parametrize("wrong", ["nan", "inf"])
def test_outputs_that_are_not_finite_are_no_errors_to_count(wrong):
    class Overflows(nn.Sequential):
        """Well as long as it trains: its weights and losses are numbers, its answers are not."""

        def forward(self, images):
            outputs = super().forward(images)
            if not self.training and len(images) > 1:
                outputs[:3, 1] = float(wrong)
            return outputs

    message = r"outputs that are not finite for 3 of 40 images, wanted .*lower the learning rate"
    with pytest.raises(FloatingPointError, match=message):
        train(Overflows(toy_network()), toy_data(), toy_recipe(1), device="cpu")
    _, test = load_resident(toy_data(), "cpu")
    with pytest.raises(FloatingPointError, match=r"for 3 of 40 images, wanted finite numbers$"):
        measure_error(Overflows(toy_network()), test)


def test_a_full_disk_is_reported_and_the_old_checkpoint_kept(tmp_path):
    given = {"data": toy_data(), "device": "cpu", "folder": tmp_path}

    def fill(progress):
        if progress.done == 6:
            resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        with pytest.raises(OSError, match=r"checkpoint.safetensors: could not be written.*is kept"):
            train(toy_network(), recipe=toy_recipe(4), progress=fill, checkpoint_steps=4, **given)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert {path.name for path in tmp_path.iterdir()} == {CHECKPOINT, "lock", "metrics.jsonl"}
    resumed, calm = toy_network(), toy_network()
    train(resumed, recipe=toy_recipe(4), **given)
    train(calm, recipe=toy_recipe(4), **{**given, "folder": None})
    assert same(resumed, calm)


def test_too_little_gpu_memory_says_what_to_lower(monkeypatch):
    def too_much(network, feed):
        raise torch.OutOfMemoryError("tried to allocate 2 GiB")

    monkeypatch.setattr("foveapool.training.state.compute_batch_loss", too_much)
    message = r"too small for batch_size 16: lower it or the network's width.*2 GiB"
    with pytest.raises(torch.OutOfMemoryError, match=message):
        train(toy_network(), toy_data(), toy_recipe(1), device="cpu")


class Twice(nn.Module):
    """As networks with an answer on the side are."""

    def forward(self, images):
        return images, images


class Remembering(nn.Flatten):
    """With a state that is no tensor."""

    def get_extra_state(self):
        return {"seen": 3}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"compile": True}, r"compile: got the device cpu, wanted cuda"),
        ({"tensorboard": True}, r"tensorboard: got no folder"),
        ({"evaluate_every": 0}, r"evaluate_every: got 0, wanted 1 or more"),
        ({"checkpoint_steps": -1}, r"checkpoint_steps: got -1"),
        ({"recipe": toy_recipe(1, batch_size=65)}, r"batch_size: got 65, wanted 1 to 64"),
        ({"network": nn.Flatten()}, r"network: got outputs of shape \(1, 768\).*\(1, 4\)"),
        ({"network": Twice()}, r"network: got a tuple for one image, wanted \(1, 4\).*wrap it"),
        ({"network": Remembering()}, r"network: got _extra_state in its state, a dict, wanted ten"),
        ({"device": "gpu"}, r"device: got 'gpu', wanted cpu, cuda or cuda:1"),
        ({"device": "meta"}, r"device: got 'meta', wanted cpu"),
    ],
)
def test_what_cannot_be_trained_is_refused_by_name(change, message):
    given = {"network": toy_network(), "data": toy_data(), "recipe": toy_recipe(1)}
    with pytest.raises(ValueError, match=message):
        train(**{**given, "device": "cpu", **change})


def test_a_network_with_nothing_to_train_is_refused():
    network = toy_network().requires_grad_(False)
    with pytest.raises(ValueError, match=r"network: got no trainable parameter"):
        train(network, toy_data(), toy_recipe(1), device="cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_gpu_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match=r"device: got 'cuda', wanted cpu"):
        choose_device("cuda")
    assert choose_device() == torch.device("cpu")


@pytest.mark.parametrize(("module", "extra"), [("tensorboard", "tensorboard"), ("rich", "cli")])
def test_a_missing_extra_is_named(tmp_path, monkeypatch, module, extra):
    for name in [name for name in sys.modules if name.split(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    monkeypatch.setitem(sys.modules, module, None)
    given = {"data": toy_data(), "recipe": toy_recipe(1), "device": "cpu", "folder": tmp_path}
    with pytest.raises(
        ImportError, match=rf"{module}: not installed.*{re.escape(how_to_install(extra))}"
    ):
        if module == "rich":
            with open_progress_bar("toy"):
                pass
        train(toy_network(), tensorboard=True, **given)


class Masked(nn.Module):
    """A network that rules classes out by -inf, from a buffer that holds it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = toy_network()
        mask = torch.zeros(len(toy_data().train.classes))
        mask[-1] = -torch.inf
        self.register_buffer("mask", mask)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.inner(images) + self.mask


def test_infinities_that_are_meant_are_no_divergence(tmp_path):
    data = toy_data()
    kept = data.train.labels != len(data.train.classes) - 1
    data = replace(data, train=data.train.part(kept))
    for folder in (None, tmp_path):
        result = train(Masked(), data, toy_recipe(1), seed=0, device="cpu", folder=folder)
        assert 0 <= result.test_error <= 100


def test_a_bar_shows_names_of_folders_as_they_are(capsys):
    with open_progress_bar("cnn on folder:/data/[v2]/a[/b]"):
        pass
    assert "[v2]/a[/b]" in "".join(capsys.readouterr().err.split())


def test_a_bar_tells_the_epoch_its_loss_and_its_error_as_they_come(monkeypatch):
    told = []

    @contextmanager
    def bar(title):
        yield lambda *given: told.append(given)

    monkeypatch.setattr(metrics, "open_bar", bar)
    unmeasured = EpochRecord(1, 0.5, 0.1, 2.0)
    with open_progress_bar("cnn") as show:
        show(Progress(3, 40, 4, None))
        show(Progress(10, 40, 4, unmeasured))
        show(Progress(20, 40, 4, replace(unmeasured, epoch=2, test_error=12.5)))
    assert told == [
        (3, 40, "cnn"),
        (10, 40, "cnn, epoch 1 of 4, loss 0.500"),
        (20, 40, "cnn, epoch 2 of 4, loss 0.500, error 12.50 %"),
    ]


def test_a_file_in_the_place_of_the_folder_is_named(tmp_path):
    (tmp_path / "run").write_text("notes")
    with pytest.raises(NotADirectoryError, match=r"run: got a file .*wanted a folder for a train"):
        train(toy_network(), toy_data(), toy_recipe(1), device="cpu", folder=tmp_path / "run")
