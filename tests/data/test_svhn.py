"""SVHN in its official MATLAB format, whole and broken."""

from __future__ import annotations

import resource
import sys

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
        ({"y": np.zeros((10, 1))}, "y: got 0 to 0, wanted 1 to 10, 10 for digit 0"),
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


def test_without_scipy_the_extra_is_named(tmp_path, monkeypatch):
    write_svhn(tmp_path)
    monkeypatch.setitem(sys.modules, "scipy.io", None)
    with pytest.raises(ImportError, match=r"needs scipy: pip install .*\[data\]'"):
        read_official(TINY_SVHN, tmp_path)
