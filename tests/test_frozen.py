"""Files that an earlier version wrote are still read, and its finished trainings still count."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from typer.testing import CliRunner

import foveapool as fp
from foveapool.cli.main import application
from foveapool.data.batches import draw_epoch_plan
from foveapool.data.images import Augmentation, draw_subset, hold_out
from foveapool.data.registry import load_data
from foveapool.networks import build_network

FROZEN = Path(__file__).parent / "frozen"
MODES = ("replace", "mix", "after")


def frozen_network():
    torch.manual_seed(0)
    first = nn.Conv2d(3, 4, 3, padding=1)
    return nn.Sequential(first, nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 8, 3, 2, 1)).eval()


def answer(network):
    with torch.no_grad():
        return network(load_file(FROZEN / "answers.safetensors")["images"])


def run_study(tmp_path, *options):
    command = ["study", str(FROZEN / "frozen.toml"), "--device", "cpu", *options]
    done = CliRunner().invoke(application(), command)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("mode", MODES)
def test_fits_are_read(mode):
    fit = fp.ClosedFormPooling.load(FROZEN / f"fit-{mode}")
    network = frozen_network()
    fit.replace(network)
    wanted = load_file(FROZEN / "answers.safetensors")[f"answer.{mode}"]
    torch.testing.assert_close(answer(network), wanted, rtol=1e-4, atol=1e-5)
    again = fit.solve().operator_
    assert again.settings.alpha == 25 and again.residuals.max() < 1e-7


@pytest.mark.parametrize("mode", MODES)
def test_adapters_are_read(mode):
    network = frozen_network()
    fp.load(network, FROZEN / f"adapter-{mode}")
    wanted = load_file(FROZEN / "answers.safetensors")[f"answer.{mode}"]
    torch.testing.assert_close(answer(network), wanted, rtol=1e-4, atol=1e-5)


def test_files_of_the_method_are_read():
    operator = fp.PoolingOperator.load(FROZEN / "operator.safetensors")
    scatter = fp.Scatter.load(FROZEN / "scatter.safetensors")
    moments = fp.ChannelMoments.load(FROZEN / "moments.safetensors")
    sums = fp.ScatterAccumulator.load(FROZEN / "sums.safetensors")
    assert operator.components == 1 and moments.seen == sums.seen == 40
    torch.testing.assert_close(sums.compute().within, scatter.within)


def test_finished_trainings_count_from_their_folder(tmp_path):
    shutil.copytree(FROZEN / "runs", tmp_path / "runs")
    said = run_study(tmp_path, "--runs", str(tmp_path / "runs"), "--dry-run")
    assert "9 trainings, 9 of them done; nothing is left to do" in said


def test_finished_trainings_count_from_the_file_alone(tmp_path):
    known = tmp_path / "trainings.jsonl.gz"
    shutil.copy(FROZEN / "trainings.jsonl.gz", known)
    options = ("--runs", str(tmp_path / "runs"), "--known", str(known))
    assert "nothing is left to do" in run_study(tmp_path, *options, "--dry-run")
    run_study(tmp_path, *options)
    assert (tmp_path / "runs" / "studies" / "frozen" / "rows.csv").is_file()


def test_a_scatter_of_before_is_found_by_its_name(tmp_path):
    runs = tmp_path / "runs"
    shutil.copytree(FROZEN / "runs", runs)
    for training in runs.glob("trainings/*-closed-form-3-a100-l2-seed0-*"):
        shutil.rmtree(training)
    for training in runs.glob("trainings/*-closed-form-trained-3-after-activation-*"):
        shutil.rmtree(training)
    before = {path: path.stat().st_mtime_ns for path in runs.rglob("scatter-*")}
    run_study(tmp_path, "--runs", str(runs))
    assert {path: path.stat().st_mtime_ns for path in runs.rglob("scatter-*")} == before
    assert len(list(runs.glob("trainings/*/result.json"))) == 9


def test_seeds_draw_what_they_drew():
    network = build_network("cnn", seed=3, width=4)
    begin = network.state_dict()["down2.weight"].flatten()[:3].tolist()
    assert begin == pytest.approx([-0.052966, -0.021389, 0.044601], abs=1e-6)
    plan = [[3, 1, 4, 0], [1, -1, 0, 0], [0, 4, 0, 1], [2, -4, -1, 1], [4, 1, 1, 0], [5, 2, 3, 0]]
    assert draw_epoch_plan(6, 3, 2, Augmentation()).tolist() == plan
    train = load_data("street-digits", None, 2, train_size=20, test_size=5).train
    assert train.labels.tolist() == [3, 5, 4, 9, 4, 5, 2, 0, 1, 4, 7, 1, 7, 1, 2, 9, 9, 8, 2, 3]
    assert hold_out(train, 0.2, 1, 0)[1].labels.tolist() == [5, 2, 0, 7]
    assert draw_subset(train, 5, 1).labels.tolist() == [3, 5, 4, 1, 3]
