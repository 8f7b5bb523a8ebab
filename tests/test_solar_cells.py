"""examples/solar_cells.py on photographs and weights of chance, in the formats of the packages."""

import math
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

import foveapool as fp
from foveapool.records import read_rows

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import efficientnet_lite as lite
import solar_cells
import solar_data
import solar_probe
import solar_training

STRIDED = [f"blocks.{number}.depthwise_conv" for number in (1, 3, 5, 11)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Both packages as pip would put them there, with 16 photographs."""
    folder = tmp_path_factory.mktemp("packages")
    table = folder / solar_data.PHOTOGRAPHS / solar_data.TABLE
    (table.parent / "images").mkdir(parents=True)
    noise = np.random.default_rng(0).integers(0, 256, (16, 300, 300), dtype=np.uint8)
    lines = []
    for number, pixels in enumerate(noise):
        name = f"images/cell{number:04}.png"
        Image.fromarray(pixels).save(table.parent / name, compress_level=1)
        lines.append(f"{name}  {number % 4 / 3}  {'mono' if number < 8 else 'poly'}")
    table.write_text("\n".join(lines) + "\n", "utf-8")
    weights = folder / solar_data.WEIGHTS / solar_data.WEIGHTS_FILE
    weights.parent.mkdir(parents=True)
    torch.manual_seed(0)
    torch.save(in_the_package(lite.EfficientNetLite0().state_dict()), weights)
    return folder


def in_the_package(state):
    """The tensors under the package's names: those of modules begin with an underscore."""
    return {
        re.sub(r"(^|\.)(?=(blocks|conv|bn|fc|expand|depthwise|project))", r"\1_", name): tensor
        for name, tensor in state.items()
    }


@pytest.mark.parametrize("kernel", [3, 5])
@pytest.mark.parametrize("stride", [1, 2])
def test_a_convolution_pads_as_tensorflow_does(kernel, stride):
    maps = torch.randn(2, 4, 12, 8)
    convolution = lite.SamePadConv2d(4, 6, kernel, stride)
    padding = []
    for size in (8, 12):  # F.pad wants the last axis first
        total = (math.ceil(size / stride) - 1) * stride + kernel - size
        padding += [total // 2, total - total // 2]
    wanted = F.conv2d(F.pad(maps, padding), convolution.weight, stride=stride)
    torch.testing.assert_close(convolution(maps), wanted)


def test_the_network_has_the_published_size():
    network = lite.EfficientNetLite0()
    assert sum(p.numel() for p in network.parameters()) == 4_652_008
    found = fp.downsampling_layers(network.eval(), torch.zeros(1, 3, 64, 64))
    assert [each.name for each in found] == ["conv_stem", *STRIDED]


def test_one_channel_gives_what_three_equal_ones_do(folder):
    weights = solar_data.load(folder).weights
    color, grey = (lite.build_pretrained(weights, 4, grey).eval() for grey in (False, True))
    grey.fc.load_state_dict(color.fc.state_dict())
    image = torch.rand(1, 1, 64, 64)
    torch.testing.assert_close(grey(image), color(image.expand(1, 3, 64, 64)))


def test_strides_move_behind_the_activation():
    network, image = lite.EfficientNetLite0().eval(), torch.rand(2, 3, 64, 64)
    before = network(image)
    for name in STRIDED:
        fp.move_stride(network, image, name, behind=name.replace("depthwise_conv", "act1"))
    torch.testing.assert_close(network(image), before)


def test_photographs_and_degrees_are_read(folder):
    cells = solar_data.load(folder)
    assert cells.photographs.images.shape == (16, 1, 224, 224)
    assert cells.photographs.labels.tolist() == [0, 1, 2, 3] * 4
    assert cells.is_poly.tolist() == [False] * 8 + [True] * 8
    # Scaling keeps the mean.
    assert abs(cells.photographs.images.float().mean() - 127.5) < 1


def test_a_split_holds_out_a_share_of_each_group_by_seed():
    groups = torch.arange(400) % 8
    first, second = (solar_data.draw_split(groups, seed) for seed in (0, 1))
    assert groups[first].bincount().tolist() == [12] * 8
    assert torch.equal(first, solar_data.draw_split(groups, 0))
    assert not torch.equal(first, second)


def test_what_is_packed_is_what_was_read(folder, tmp_path):
    for package in (solar_data.PHOTOGRAPHS, solar_data.WEIGHTS):
        (tmp_path / package).symlink_to(folder / package)
    read = solar_data.load(tmp_path)
    path = solar_data.pack(tmp_path)
    for package in (solar_data.PHOTOGRAPHS, solar_data.WEIGHTS):
        (tmp_path / package).unlink()
    packed = solar_data.load(tmp_path)
    assert path.parent == tmp_path
    assert torch.equal(packed.photographs.images, read.photographs.images)
    assert torch.equal(packed.photographs.labels, read.photographs.labels)
    assert torch.equal(packed.is_poly, read.is_poly)
    assert packed.weights.keys() == {n for n in read.weights if not n.startswith("fc.")}
    lite.build_pretrained(packed.weights, 4, grey=True)


def test_a_photograph_of_another_size_is_named(folder, tmp_path):
    table = write_table(tmp_path, "images/odd.png 0.0 mono")
    Image.new("L", (300, 200)).save(tmp_path / "images" / "odd.png")
    with pytest.raises(ValueError, match=r"odd.png: got 300 x 200 pixels .*, wanted 300 x 300"):
        solar_data.read_photographs(table)


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("images/odd.png 0.5 mono", "line 1: got the degree 0.5, wanted 0, 1/3"),
        ("images/odd.png mono", "line 1: got 'images/odd.png mono', wanted a file"),
        ("images/none.png 0.0 mono", "not a picture that can be read"),
    ],
)
def test_a_table_that_is_no_such_table_is_refused(tmp_path, line, wanted):
    table = write_table(tmp_path, line)
    with pytest.raises(ValueError, match=wanted):
        solar_data.read_photographs(table)


def write_table(folder, line):
    (folder / "images").mkdir()
    table = folder / "labels.csv"
    table.write_text(line + "\n", "utf-8")
    return table


def test_a_package_that_is_not_there_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(FileNotFoundError, match=r"elpv-dataset==1.0.0.post1: pip could not fetch"):
        solar_data.load(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_package_without_its_file_is_named(tmp_path):
    (tmp_path / solar_data.PHOTOGRAPHS).mkdir()
    with pytest.raises(FileNotFoundError, match=r"a package without elpv_dataset/data/labels.csv"):
        solar_data.load(tmp_path)


def test_other_weights_are_refused(tmp_path):
    path = tmp_path / "weights.pth"
    torch.save({"_fc.weight": torch.zeros(3)}, path)
    with pytest.raises(ValueError, match=r"got other tensors than EfficientNet-Lite0 has"):
        lite.read_weights(path)
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(ValueError, match=r"not a file of weights that torch wrote"):
        lite.read_weights(path)


def train_on_chance(folder, arm):
    """The errors of a fine-tuning of one epoch on 64 x 64 pixels, and the network's layers."""
    cells = solar_data.load(folder)
    images = solar_training.prepare_images(cells, 64, torch.device("cpu"))
    setting = solar_training.list_settings(arm)[0]
    parts = (torch.arange(12), torch.arange(12, 16))
    return solar_training.fine_tune(cells, images, setting, parts, epochs=1, seed=0)


@pytest.mark.parametrize("frozen", [False, True])
def test_every_arm_searches_among_as_many_settings(frozen):
    counts = {arm: len(solar_training.list_settings(arm, frozen)) for arm in solar_training.ARMS}
    assert set(counts.values()) == {6}
    assert {each.form for each in solar_training.ARMS.values()} == {
        "",
        "replace",
        "mix",
        "after",
        "after-activation",
    }


@pytest.mark.soak
@pytest.mark.parametrize("arm", list(solar_training.ARMS))
def test_an_arm_is_put_in_and_trained(folder, arm):
    first, second = (train_on_chance(folder, arm) for _ in range(2))
    assert first == second
    assert 0 <= first["error"] <= 100 and 0 <= first["balanced"] <= 100


def test_poolings_stand_at_the_last_two_layers_that_shrink(folder):
    cells = solar_data.load(folder)
    images = solar_training.prepare_images(cells, 64, torch.device("cpu"))
    for arm, kind in {
        "BlurPool": "BlurPool",
        "closed form, after-activation": "LinearPool2d",
    }.items():
        network = lite.build_pretrained(cells.weights, 4, grey=True)
        setting = solar_training.list_settings(arm)[0]
        inputs, labels = solar_training.to_inputs(images), cells.photographs.labels
        solar_training.put_in(network, setting, inputs, labels, 64)
        found = [name for name, each in network.named_modules() if type(each).__name__ == kind]
        assert [".".join(name.split(".")[:2]) for name in found] == list(solar_training.BLOCKS)
        assert network.eval()(torch.rand(1, 1, 64, 64)).shape == (1, 4)


@pytest.fixture
def fine_tuned(monkeypatch):
    """What was fine-tuned: nothing in truth, and the closed form errs a point less."""
    calls = []

    def pretend(cells, images, setting, parts, epochs, seed, say):
        train, test = parts
        assert not set(train.tolist()) & set(test.tolist())
        calls.append((setting, seed))
        error = 20 + seed**2 + 10 * (setting.rate != 3e-4) - (setting.arm != "strided")
        error -= 0.1 * seed * (setting.arm != "strided")
        return {"error": error, "balanced": error + 5}

    monkeypatch.setattr(solar_cells, "fine_tune", pretend)
    return calls


def options(folder, out, *more):
    arms = ["--arms", "strided", "closed form, mix"]
    places = [
        "--data",
        str(folder),
        "--out",
        str(out / "finished"),
        "--rows",
        str(out / "rows.csv"),
    ]
    return [*arms, *places, "--size", "64", *more]


def test_the_best_setting_is_tested_on_every_split_and_compared_in_pairs(
    folder, tmp_path, fine_tuned
):
    rows = solar_cells.main(options(folder, tmp_path, "--splits", "3"))
    assert len(fine_tuned) == 2 * 6 + 2 * 3
    assert {setting.rate for setting, _ in fine_tuned[12:]} == {3e-4}
    errors = {row.form: row for row in rows if row.metric == "test error %"}
    assert errors[""].values == "20 21 24"
    assert errors["mix"].values == "19 19.9 22.8"
    (less,) = (row for row in rows if row.metric.startswith("less") and "bal" not in row.metric)
    assert less.mean == pytest.approx(1.1)
    (p,) = (row for row in rows if row.metric.startswith("p ag") and "bal" not in row.metric)
    assert 0 < p.mean < 0.05
    assert len(read_rows(tmp_path / "rows.csv")) == len(rows)


def test_what_is_finished_is_not_done_again(folder, tmp_path, fine_tuned, capsys):
    assert solar_cells.main(options(folder, tmp_path, "--splits", "1", "--minutes", "0")) == []
    assert fine_tuned == []
    assert "the search goes on when you start this again" in capsys.readouterr().out
    solar_cells.main(options(folder, tmp_path, "--splits", "1"))
    del fine_tuned[:]
    rows = solar_cells.main(options(folder, tmp_path, "--splits", "2"))
    assert [seed for _, seed in fine_tuned] == [1, 1]
    assert rows[0].n == 2
    solar_cells.main(options(folder, tmp_path, "--splits", "2", "--epochs", "3"))
    assert len(fine_tuned) > 2  # other epochs are other trainings


def test_a_size_that_the_network_cannot_have_is_refused(folder, tmp_path, capsys):
    with pytest.raises(SystemExit):
        solar_cells.main(options(folder, tmp_path, "--size", "100"))
    assert "--size: got 100, wanted 64, 96, 128" in capsys.readouterr().err


def test_a_probe_reads_the_means_of_the_network_with_the_pooling_in_it(folder):
    cells = solar_data.load(folder)
    images = solar_training.prepare_images(cells, 64, torch.device("cpu"))
    probe = solar_probe.Probe(cells, images)
    train = torch.arange(12)
    for arm in ("strided", "closed form, replace"):
        setting = solar_training.list_settings(arm, frozen=True)[0]
        network = lite.build_pretrained(cells.weights, 4, grey=True)
        inputs = solar_training.to_inputs(images)
        labels = cells.photographs.labels[train]
        solar_training.put_in(network, setting, inputs[train], labels, 64)
        network.eval().fc = torch.nn.Identity()
        found = probe(setting, (train, torch.arange(12, 16)))
        assert 0 <= found["error"] <= 100
        with torch.no_grad():
            wanted = network(inputs)
        # Fitted on maps that are equal to rounding alone.
        torch.testing.assert_close(list(probe._means.values())[-1], wanted, rtol=1e-3, atol=1e-3)


def test_a_linear_layer_tells_apart_what_can_be():
    torch.manual_seed(0)
    labels = torch.arange(80) % 4
    features = 3 * torch.eye(4).double()[labels] + 0.1 * torch.randn(80, 4).double() + 7
    loose, tight = (solar_probe.fit_linear(features, labels, each) for each in (1e-3, 10.0))
    assert (loose(features).argmax(1) == labels).all()
    assert tight.weight.norm() < 0.1 * loose.weight.norm()


def test_frozen_results_are_others_than_fine_tuned_ones(folder, tmp_path, fine_tuned, monkeypatch):
    errors = {"error": 7.0, "balanced": 8.0}
    monkeypatch.setattr(solar_cells, "Probe", lambda *_: lambda *_: errors)
    first = solar_cells.main(options(folder, tmp_path, "--splits", "1"))
    rows = solar_cells.main([*options(folder, tmp_path, "--splits", "1"), "--frozen"])
    assert {row.mean for row in rows} == {7.0, 8.0}
    assert {row.network for row in first} == {"EfficientNet-Lite0, pretrained"}
    assert {row.network for row in rows} == {"EfficientNet-Lite0, pretrained, frozen"}
    assert {row.epochs for row in rows} == {""}
