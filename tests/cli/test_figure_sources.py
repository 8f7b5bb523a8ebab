"""What figures are drawn from: of several sources nothing takes another's place."""

import json
import re
import shutil

import pytest
import torch

import foveapool as fp
from foveapool.cli.figure_sources import find_operator, read_sweeps

from ..report.pages import operator
from ..study.small import training


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


def test_the_operator_of_an_earlier_layer_is_told_to_lie_where_that_was_the_last(tmp_path):
    pools = [("closed-form", layer) for layer in (3, 2, 1)]
    made = [training(*pools[:count]) for count in (1, 2, 3)]
    folders = [tmp_path / each.name for each in made]
    for each, folder in zip(made, folders, strict=True):
        folder.mkdir()
        (folder / "training.json").write_text(json.dumps(each.facts))
        operator().save(folder / f"operator-{each.setting.pools[-1].layer}.safetensors")
    assert find_operator(folders[2], "1").parent == folders[2]
    for layer, folder in zip("32", folders, strict=False):
        words = (
            f"no operator-{layer}.safetensors in it, since .* fitted on: {re.escape(str(folder))}$"
        )
        with pytest.raises(FileNotFoundError, match=words):
            find_operator(folders[2], layer)
    (folders[0] / "operator-3.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="which is not there any more"):
        find_operator(folders[2], "3")
    with pytest.raises(FileNotFoundError, match="wanted the folder of a training with a closed"):
        find_operator(folders[1], "1")
