"""What figures are drawn from: of several sources nothing takes another's place."""

import shutil

import pytest
import torch

import foveapool as fp
from foveapool.report.sources import read_sweeps

from .pages import operator


def folder_of(path, seed, alphas=(5.0, 25.0)):
    path.mkdir(parents=True)
    for alpha in alphas:
        operator(alpha, seed=seed).save(path / f"operator-3-alpha{alpha:g}.safetensors")
    return path


def test_sweeps_of_one_name_are_told_with_their_folder(tmp_path):
    one, two = (folder_of(tmp_path / name, seed) for seed, name in enumerate(("one", "two")))
    (usual,) = read_sweeps([one, one], "5")
    assert usual.startswith("layer 3, 8")
    found = read_sweeps([one, two], "5")
    assert list(found) == [f"{usual}, one", f"{usual}, two"]
    first, second = found.values()
    assert not torch.equal(first[0].weight, second[0].weight)
    three = shutil.copytree(two, tmp_path / "other" / "one")
    assert list(read_sweeps([one, three], "5")) == [f"{usual}, {one}", f"{usual}, {three}"]


@pytest.fixture
def scatter():
    torch.manual_seed(0)
    labels = torch.arange(60) % 3
    return fp.compute_scatter(torch.randn(60, 4, 8, 8) + torch.randn(3, 4, 8, 8)[labels], labels)


def test_scatter_that_was_summed_up_in_two_ways_is_two_sweeps(tmp_path, scatter):
    names = [f"scatter-down3-{digit * 8}" for digit in "ab"]
    scatter.save(tmp_path / f"{names[0]}.safetensors")
    assert list(read_sweeps([tmp_path], "5,25")) == ["down3"]
    scatter.save(tmp_path / f"{names[1]}.safetensors")
    assert list(read_sweeps([tmp_path], "5,25")) == names
