"""SVHN in its official MATLAB format, whole and broken."""

from __future__ import annotations

import resource

import numpy as np
import pytest
from scipy.io import savemat

from foveapool.data.official import read_official

from .oracles import TINY_SVHN, write_svhn


@pytest.mark.parametrize("below", [".", "svhn"])
def test_svhn_comes_back_to_the_last_bit(tmp_path, below):
    images, labels = write_svhn(tmp_path / below)
    data = read_official(TINY_SVHN, tmp_path)
    assert np.array_equal(data.train.images, images[:60])
    assert np.array_equal(data.test.images, images[60:])
    assert data.train.labels.tolist() + data.test.labels.tolist() == labels.tolist()
    assert data.train.classes[0] == "0"
    assert (data.normalization, data.augmentation) == ("image", None)


@pytest.mark.parametrize("kept", [0, 100, 5000, -7])
def test_a_file_cut_short_is_named_with_the_size_it_should_have(tmp_path, kept):
    write_svhn(tmp_path)
    path = tmp_path / "train_32x32.mat"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match=r"not a whole MATLAB file") as caught:
        read_official(TINY_SVHN, tmp_path)
    assert str(caught.value).startswith(str(path))
    assert f"{path.stat().st_size:,} bytes, the official file 182,040,794" in str(caught.value)
    assert "foveapool data download svhn" in str(caught.value)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"X": np.zeros((32, 32, 3, 7), np.uint8)}, r"X: got uint8 \(32, 32, 3, 7\), wanted"),
        ({"X": np.zeros((32, 32, 3, 10))}, "X: got float64"),
        ({"y": np.ones((7, 1))}, r"y: got .* \(7, 1\), wanted \(10, 1\) numbers"),
        ({"y": np.zeros((10, 1))}, "y: got 0.* to 0.*, wanted whole numbers from 1 to 10"),
        ({"y": np.full((10, 1), 11)}, "y: got 11 to 11"),
    ],
)
def test_other_contents_are_refused(tmp_path, variables, message):
    write_svhn(tmp_path)
    whole = {"X": np.zeros((32, 32, 3, 10), np.uint8), "y": np.ones((10, 1), np.uint8)}
    savemat(tmp_path / "test_32x32.mat", {**whole, **variables})
    with pytest.raises(ValueError, match=message):
        read_official(TINY_SVHN, tmp_path)


def test_what_unpacks_to_far_more_than_the_images_is_refused(tmp_path):
    write_svhn(tmp_path)
    path = tmp_path / "test_32x32.mat"
    savemat(path, {"Z": np.zeros(20_000_000, np.uint8)}, do_compression=True)
    assert path.stat().st_size < 100_000
    with pytest.raises(ValueError, match=r"not a whole MATLAB .*unpacks to more than the images"):
        read_official(TINY_SVHN, tmp_path)


def test_sizes_that_are_not_there_take_no_memory(tmp_path):
    write_svhn(tmp_path)
    path = tmp_path / "test_32x32.mat"
    content = bytearray(path.read_bytes())
    content[132:136] = b"\xff\xff\xff\xff"  # how long the first variable is
    path.write_bytes(content)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match=r"not a whole MATLAB file with X and y .*it ends early"):
        read_official(TINY_SVHN, tmp_path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # kilobytes


def test_a_file_without_labels_is_refused(tmp_path):
    write_svhn(tmp_path)
    savemat(tmp_path / "test_32x32.mat", {"X": np.zeros((32, 32, 3, 10), np.uint8)})
    with pytest.raises(ValueError, match=r"not a whole MATLAB file with X and y"):
        read_official(TINY_SVHN, tmp_path)


@pytest.mark.parametrize("kind", [np.uint8, np.int32, np.float32, np.float64])
@pytest.mark.parametrize("compressed", [True, False])
def test_labels_of_any_type_are_read_and_what_lies_beside_them_is_not(tmp_path, kind, compressed):
    _, labels = write_svhn(tmp_path)
    marks = np.where(labels[60:] == 0, 10, labels[60:]).astype(kind)[:, None]
    images = np.arange(32 * 32 * 3 * 10).astype(np.uint8).reshape(32, 32, 3, 10)
    others = {"note": "text", "cell": np.array([1, "a"], object), "more": {"deep": np.eye(3)}}
    path = tmp_path / "test_32x32.mat"
    savemat(path, {**others, "X": images, "y": marks}, do_compression=compressed)
    test = read_official(TINY_SVHN, tmp_path).test
    assert test.labels.tolist() == labels[60:].tolist()
    assert np.array_equal(test.images, images.transpose(3, 2, 0, 1))


@pytest.mark.parametrize("wrong", [1.5, np.nan])
def test_labels_that_are_no_whole_numbers_are_refused(tmp_path, wrong):
    write_svhn(tmp_path)
    variables = {"X": np.zeros((32, 32, 3, 10), np.uint8), "y": np.full((10, 1), wrong)}
    savemat(tmp_path / "test_32x32.mat", variables)
    with pytest.raises(ValueError, match="wanted whole numbers from 1 to 10"):
        read_official(TINY_SVHN, tmp_path)


def test_a_type_that_there_is_not_is_refused(tmp_path):
    write_svhn(tmp_path)
    path = tmp_path / "test_32x32.mat"
    variables = {"X": np.zeros((32, 32, 3, 10), np.uint8), "y": np.ones((10, 1), np.uint8)}
    savemat(path, variables)
    content = path.read_bytes()
    # scipy looks the type up in a table without looking how long it is.
    path.write_bytes(content.replace(b"\x02\x00\x00\x00\x00\x78", b"\x02\x10\x00\x00\x00\x78"))
    assert path.read_bytes() != content
    with pytest.raises(ValueError, match=r"not a whole MATLAB file .*no X"):
        read_official(TINY_SVHN, tmp_path)
