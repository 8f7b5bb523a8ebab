"""Sets on disk: the published layouts, what is not whole, and generation that was interrupted."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch

from foveapool.robustness.corruptions import block_length, corrupt
from foveapool.robustness.perturbations import perturb
from foveapool.robustness.sets import (
    generate_corruptions,
    generate_perturbations,
    new_array,
    open_corruption,
    open_perturbation,
    read_labels,
    set_folder,
)

from .toys import toy_images, toy_labels

COUNT = 6


def published(folder, name="fog", count=COUNT, severities=5, dtype=np.uint8):
    """A file as its authors' archive has it: every value says its block and image."""
    rows = np.arange(severities * count, dtype=dtype).reshape(-1, 1, 1, 1)
    array = np.broadcast_to(rows, (severities * count, 16, 16, 3))
    np.save(folder / f"{name}.npy", array)
    np.save(folder / "labels.npy", np.tile(np.arange(count, dtype=np.uint8), severities))
    return array


def test_a_published_corruption_is_read_block_by_block(tmp_path):
    array = published(tmp_path)
    for severity in (1, 5):
        found = open_corruption(tmp_path, "fog", severity, COUNT)
        assert isinstance(found, np.memmap) and not found.flags.writeable
        assert np.array_equal(found, array[COUNT * (severity - 1) : COUNT * severity])
    assert read_labels(tmp_path, COUNT).tolist() == list(range(COUNT))


def test_a_published_perturbation_is_read(tmp_path):
    array = np.random.default_rng(0).integers(0, 256, (COUNT, 16, 16, 16, 3), dtype=np.uint8)
    np.save(tmp_path / "translate.npy", array)
    found = open_perturbation(tmp_path, "translate", 16, COUNT)
    assert isinstance(found, np.memmap) and np.array_equal(found, array)


def test_one_folder_may_hold_both_archives(tmp_path):
    for name in ("CIFAR-10-C", "CIFAR-10-P"):
        (tmp_path / name).mkdir()
    assert set_folder(tmp_path, "-P").name == "CIFAR-10-P"
    assert set_folder(tmp_path / "CIFAR-10-C", "-C") == tmp_path / "CIFAR-10-C"
    (tmp_path / "CIFAR-100-C").mkdir()
    with pytest.raises(ValueError, match="holds CIFAR-10-C, CIFAR-100-C; name the one"):
        set_folder(tmp_path, "-C")
    with pytest.raises(FileNotFoundError, match="no such folder"):
        set_folder(tmp_path / "elsewhere", "-C")


def test_generated_corruptions_have_the_published_layout(tmp_path):
    images, labels = toy_images(COUNT), toy_labels(COUNT)
    made = generate_corruptions(tmp_path, images, labels, ["gaussian_noise", "contrast"], seed=3)
    assert [path.name for path in made] == ["gaussian_noise.npy", "contrast.npy"]
    array = np.load(tmp_path / "gaussian_noise.npy")
    assert array.dtype == np.uint8 and array.shape == (5 * COUNT, 16, 16, 3)
    for severity in range(1, 6):
        wanted = corrupt(images, "gaussian_noise", severity, seed=3).numpy()
        assert np.array_equal(open_corruption(tmp_path, "gaussian_noise", severity, COUNT), wanted)
    stored = np.load(tmp_path / "labels.npy")
    assert stored.dtype == np.uint8 and np.array_equal(stored, np.tile(labels, 5))


def test_generated_perturbations_have_the_published_layout(tmp_path):
    images = toy_images(COUNT)
    generate_perturbations(tmp_path, images, ["translate", "shot_noise_2"], seed=3)
    for name, frames in (("translate", 16), ("shot_noise_2", 31)):
        found = open_perturbation(tmp_path, name, frames, COUNT)
        assert np.array_equal(found, perturb(images, name, seed=3).numpy())
    assert not (tmp_path / "labels.npy").exists()


def test_a_set_larger_than_one_block_is_that_of_all_images_at_once(tmp_path):
    images = toy_images(12, side=512)
    assert block_length(images) == 3
    generate_corruptions(tmp_path, images, toy_labels(12), ["impulse_noise"], [2])
    found = open_corruption(tmp_path, "impulse_noise", 2, 12)
    assert np.array_equal(found, corrupt(images, "impulse_noise", 2).numpy())


def test_a_set_of_fewer_severities_says_which(tmp_path):
    images = toy_images(COUNT)
    generate_corruptions(tmp_path, images, toy_labels(COUNT), ["brightness"], [5, 2])
    assert np.load(tmp_path / "brightness.npy").shape[0] == 2 * COUNT
    found = open_corruption(tmp_path, "brightness", 5, COUNT)
    assert np.array_equal(found, corrupt(images, "brightness", 5).numpy())
    with pytest.raises(ValueError, match=r"severity: got 1, wanted one of \(2, 5\)"):
        open_corruption(tmp_path, "brightness", 1, COUNT)


def test_a_second_start_makes_only_what_is_missing(tmp_path):
    images, labels = toy_images(COUNT), toy_labels(COUNT)
    generate_corruptions(tmp_path, images, labels, ["contrast"])
    before = (tmp_path / "contrast.npy").stat().st_mtime_ns
    told = []
    made = generate_corruptions(
        tmp_path, images, labels, ["contrast", "saturate"], progress=lambda *now: told.append(now)
    )
    assert [path.name for path in made] == ["saturate.npy"]
    assert (tmp_path / "contrast.npy").stat().st_mtime_ns == before
    assert told == [(COUNT * s, 5 * COUNT, "saturate") for s in range(1, 6)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 1}, "holds another set: seed 0, not 1"),
        ({"severities": [1, 2]}, "severities"),
        ({"images": toy_images(COUNT, seed=9)}, "checksum"),
    ],
)
def test_one_folder_holds_one_set(tmp_path, change, message):
    given = {"images": toy_images(COUNT), "labels": toy_labels(COUNT), "names": ["contrast"]}
    generate_corruptions(tmp_path, **given)
    with pytest.raises(ValueError, match=message):
        generate_corruptions(tmp_path, **{**given, "names": ["fog"], **change})
    with pytest.raises(ValueError, match="kind corruptions, not perturbations"):
        generate_perturbations(tmp_path, toy_images(COUNT), ["translate"])
    assert not (tmp_path / "fog.npy").exists()


def test_files_of_others_are_not_mixed_with_ours(tmp_path):
    published(tmp_path)
    with pytest.raises(ValueError, match=r"holds fog.npy, which was not generated here"):
        generate_corruptions(tmp_path, toy_images(COUNT), toy_labels(COUNT), ["contrast"])


def test_what_cannot_be_generated_is_said_before_a_file_is_made(tmp_path):
    images, labels = toy_images(COUNT), toy_labels(COUNT)
    for names, given, message in (
        (["contrst"], labels, "did you mean 'contrast'"),
        (["contrast"], labels[:-1], r"labels: got torch.int64 \(5,\)"),
        (["contrast"], labels + 300, "wanted 0 to 255"),
        (["contrast"], labels.float(), "wanted whole numbers"),
    ):
        with pytest.raises(ValueError, match=message):
            generate_corruptions(tmp_path / "new", images, given, names)
    with pytest.raises(ValueError, match="wanted uint8 levels"):
        generate_corruptions(tmp_path / "new", images / 255, labels, ["contrast"])
    assert not (tmp_path / "new").exists()


def _truncated(folder):
    size = (folder / "fog.npy").stat().st_size
    os.truncate(folder / "fog.npy", size - 1)


def _headless(folder):
    os.truncate(folder / "fog.npy", 30)


def _pickled(folder):
    np.save(folder / "fog.npy", np.array([{}], dtype=object), allow_pickle=True)


def _floats(folder):
    np.save(folder / "fog.npy", np.zeros((5 * COUNT, 16, 16, 3), np.float32))


def _too_few(folder):
    np.save(folder / "fog.npy", np.zeros((4 * COUNT, 16, 16, 3), np.uint8))


def _sequences(folder):
    np.save(folder / "fog.npy", np.zeros((COUNT, 31, 16, 16, 3), np.uint8))


def _endless(folder):
    with open(folder / "fog.npy", "wb") as file:
        header = {"descr": "|u1", "fortran_order": False, "shape": (10**400,)}
        np.lib.format.write_array_header_1_0(file, header)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_truncated, "not a whole .npy file"),
        (_endless, "not a whole .npy file"),
        (_headless, "not a whole .npy file"),
        (_pickled, "not a whole .npy file of numbers"),
        (_floats, "got float32"),
        (_too_few, r"got uint8 \(24, 16, 16, 3\), wanted uint8 \(30, H, W, 3\)"),
        (_sequences, "sequences in that in -P"),
    ],
)
def test_a_file_that_is_not_whole_is_refused(tmp_path, damage, message):
    published(tmp_path)
    damage(tmp_path)
    with pytest.raises(ValueError, match=message):
        open_corruption(tmp_path, "fog", 1, COUNT)


def test_labels_of_another_set_are_refused(tmp_path):
    published(tmp_path)
    np.save(tmp_path / "labels.npy", np.zeros(29, np.uint8))
    with pytest.raises(ValueError, match=r"got uint8 \(29,\), wanted whole numbers \(30,\)"):
        read_labels(tmp_path, COUNT)
    np.save(tmp_path / "labels.npy", np.arange(30))
    with pytest.raises(ValueError, match="the labels differ between severities"):
        read_labels(tmp_path, COUNT)
    for severities in (7, [7], [[1]], "1"):
        (tmp_path / "generated.json").write_text(json.dumps({"severities": severities}))
        with pytest.raises(ValueError, match=r"generated.json: got the severities"):
            read_labels(tmp_path, COUNT)
    (tmp_path / "generated.json").write_text("{")
    with pytest.raises(ValueError, match="not written by foveapool"):
        read_labels(tmp_path, COUNT)


def test_an_array_that_was_not_filled_is_not_there(tmp_path):
    path = tmp_path / "fog.npy"
    with pytest.raises(ValueError, match="got 2 rows, wanted 3"), new_array(path, (3, 2)) as append:
        append(np.zeros((2, 2), np.uint8))
    with pytest.raises(ValueError, match="got rows of float64"), new_array(path, (3, 2)) as append:
        append(np.zeros((2, 2)))
    assert list(tmp_path.iterdir()) == []


SLOW = """
import sys, time
from pathlib import Path
import torch
import foveapool.robustness.sets as room
corrupt, parts = room.corrupt, []
def slow(*given):
    parts.append(given)
    if len(parts) == 9:
        print("in the middle of the second file", flush=True)
        time.sleep(60)
    return corrupt(*given)
room.corrupt = slow
images = torch.load(sys.argv[2], weights_only=True)
labels = torch.arange(len(images)) % 4
room.generate_corruptions(sys.argv[1], images, labels, ["contrast", "brightness", "fog"])
"""


def test_a_killed_generation_leaves_no_file_that_reads_as_whole(tmp_path):
    # More bytes a part than a file's buffer holds, so that half a file is on disk.
    images, labels, folder = toy_images(60), toy_labels(60), tmp_path / "set"
    torch.save(images, tmp_path / "images.pt")
    command = [sys.executable, "-c", SLOW, str(folder), str(tmp_path / "images.pt")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline().startswith("in the middle")
        with pytest.raises(BlockingIOError, match=f"process {process.pid} works in this folder"):
            generate_corruptions(folder, images, labels, ["saturate"])
        process.send_signal(signal.SIGKILL)
    (half,) = folder.glob(".brightness.npy.*/brightness.npy")
    assert half.stat().st_size > 100_000
    assert sorted(path.name for path in folder.glob("*.npy")) == ["contrast.npy", "labels.npy"]
    with pytest.raises(FileNotFoundError):
        open_corruption(folder, "brightness", 1, len(images))
    made = generate_corruptions(folder, images, labels, ["contrast", "brightness", "fog"])
    assert [path.name for path in made] == ["brightness.npy", "fog.npy"]
    assert not half.parent.exists()
    found = open_corruption(folder, "brightness", 5, len(images))
    assert np.array_equal(found, corrupt(images, "brightness", 5).numpy())
    assert json.loads((folder / "generated.json").read_text())["kind"] == "corruptions"
