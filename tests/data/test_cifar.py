"""CIFAR-10 and CIFAR-100 in both official editions, whole and broken."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from foveapool.data.images import Augmentation
from foveapool.data.official import read_official

from .oracles import (
    TINY_CIFAR10,
    TINY_CIFAR100,
    python2_pickle,
    python_batch,
    random_images,
    write_cifar10,
    write_cifar100,
)

EDITIONS = ["python", "binary"]
BATCH = {
    "python": "cifar-10-batches-py/data_batch_2",
    "binary": "cifar-10-batches-bin/data_batch_2.bin",
}


@pytest.mark.parametrize("edition", EDITIONS)
@pytest.mark.parametrize("below", [".", "cifar10"])
def test_cifar10_comes_back_to_the_last_bit(tmp_path, edition, below):
    images, labels = write_cifar10(tmp_path / below, edition)
    data = read_official(TINY_CIFAR10, tmp_path)
    assert np.array_equal(np.concatenate([data.train.images, data.test.images]), images)
    assert data.train.labels.tolist() + data.test.labels.tolist() == labels.tolist()
    assert (len(data.train), len(data.test)) == (20, 10)
    assert data.train.classes[3] == "cat"
    assert (data.normalization, data.augmentation) == ("channel", Augmentation(pad=4, flip=True))


@pytest.mark.parametrize("edition", EDITIONS)
def test_cifar100_has_its_fine_labels(tmp_path, edition):
    images, labels = write_cifar100(tmp_path / "cifar100", edition)
    data = read_official(TINY_CIFAR100, tmp_path)
    assert np.array_equal(np.concatenate([data.train.images, data.test.images]), images)
    assert data.train.labels.tolist() + data.test.labels.tolist() == labels.tolist()
    assert (len(data.train.classes), data.train.classes[47]) == (100, "maple_tree")


@pytest.mark.parametrize("edition", EDITIONS)
def test_images_may_be_written_to(tmp_path, edition):
    write_cifar10(tmp_path, edition)
    images = read_official(TINY_CIFAR10, tmp_path).test.images
    images.zero_()
    assert images.is_contiguous()


def test_a_batch_that_python_3_wrote_is_read(tmp_path):
    images, labels = write_cifar10(tmp_path, "python")
    batch = python_batch(images[4:8], labels[4:8])
    (tmp_path / BATCH["python"]).write_bytes(pickle.dumps(batch, protocol=2))
    data = read_official(TINY_CIFAR10, tmp_path)
    assert np.array_equal(data.train.images, images[:20])
    assert data.train.labels.tolist() == labels[:20].tolist()


def test_a_whole_edition_goes_before_one_in_pieces(tmp_path):
    write_cifar10(tmp_path, "binary", seed=1)
    (tmp_path / BATCH["binary"]).unlink()
    images, _ = write_cifar10(tmp_path, "python", seed=2)
    assert np.array_equal(read_official(TINY_CIFAR10, tmp_path).train.images, images[:20])


# --- files that are missing or broken


def test_a_missing_set_says_where_it_was_looked_for_and_how_to_get_it(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        read_official(TINY_CIFAR10, tmp_path)
    message = str(caught.value)
    assert f"not in {tmp_path}" in message
    assert "cifar-10-batches-bin/data_batch_1.bin or cifar-10-batches-py/data_batch_1" in message
    assert "`foveapool data download cifar10` fetches 170 MB (https://www.cs.toronto" in message


@pytest.mark.parametrize("edition", EDITIONS)
def test_a_missing_file_is_named(tmp_path, edition):
    write_cifar10(tmp_path, edition)
    (tmp_path / BATCH[edition]).unlink()
    with pytest.raises(FileNotFoundError, match=r"data_batch_2.*: no such file, though others"):
        read_official(TINY_CIFAR10, tmp_path)


@pytest.mark.parametrize(
    ("edition", "wanted"),
    [
        ("binary", r"wanted 12,292 \(4 images of 3,073 bytes\)"),
        ("python", "wanted 4 images, 12,288 bytes"),
    ],
)
@pytest.mark.parametrize("kept", [0, 1, 1000, 12_200])
def test_a_file_cut_short_is_named_with_the_size_it_should_have(tmp_path, edition, wanted, kept):
    write_cifar10(tmp_path, edition)
    path = tmp_path / BATCH[edition]
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match=wanted) as caught:
        read_official(TINY_CIFAR10, tmp_path)
    assert str(caught.value).startswith(str(path))
    assert f"{kept:,} bytes" in str(caught.value)
    assert "remove it, then `foveapool data download cifar10`" in str(caught.value)


@pytest.mark.parametrize("edition", EDITIONS)
def test_a_label_beyond_the_classes_is_refused(tmp_path, edition):
    write_cifar10(tmp_path, edition)
    path = tmp_path / BATCH[edition]
    images, labels = random_images(4, classes=10)
    labels[2] = 10
    batch = np.concatenate([labels[:, None].astype(np.uint8), images.reshape(4, -1)], 1).tobytes()
    path.write_bytes(batch if edition == "binary" else python2_pickle(python_batch(images, labels)))
    with pytest.raises(ValueError, match=r"data_batch_2.* labels: got . to 10, wanted 0 to 9"):
        read_official(TINY_CIFAR10, tmp_path)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({b"data": None}, "data: got None"),
        ({b"data": np.zeros((3, 3072), np.uint8)}, r"data: got an array of \(3, 3072\)"),
        ({b"data": np.zeros((4, 3072), np.float32)}, "got an array of f4, wanted bytes"),
        ({b"labels": None}, "labels: got object"),
        ({b"labels": [0, 1, 2]}, r"labels: got int64 \(3,\), wanted 4 whole numbers"),
        ({b"labels": [0, 1, 2, 0.5]}, "labels: got float64"),
        ({b"labels": [0, 1, [2], 3]}, "inhomogeneous"),
    ],
)
def test_a_batch_with_other_contents_is_refused(tmp_path, entries, message):
    write_cifar10(tmp_path, "python")
    batch = {**python_batch(*random_images(4, classes=10)), **entries}
    (tmp_path / BATCH["python"]).write_bytes(python2_pickle(batch))
    with pytest.raises(ValueError, match=message) as caught:
        read_official(TINY_CIFAR10, tmp_path)
    assert "data_batch_2: " in str(caught.value)
