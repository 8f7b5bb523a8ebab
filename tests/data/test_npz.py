"""A data set in one .npz file."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from foveapool.data import user_data
from foveapool.data.images import Augmentation, DataSet, Images
from foveapool.data.user_data import read_npz, write_npz

RANDOM = np.random.default_rng(0)


def arrays(*shape: int) -> dict[str, np.ndarray]:
    return {
        "train_images": RANDOM.integers(0, 256, (5, *shape), dtype=np.uint8),
        "train_labels": np.array([0, 1, 2, 1, 0]),
        "test_images": RANDOM.integers(0, 256, (2, *shape), dtype=np.uint8),
        "test_labels": np.array([3, 0], np.uint8),
    }


def save(folder: Path, **contents: np.ndarray) -> Path:
    np.savez_compressed(folder / "mine.npz", **contents)
    return folder / "mine.npz"


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((3, 6, 4), (0, 1, 2, 3)),
        ((6, 4, 3), (0, 3, 1, 2)),
        ((1, 6, 4), (0, 1, 2, 3)),
        ((6, 4, 1), (0, 3, 1, 2)),
        ((3, 3, 5), (0, 1, 2, 3)),
    ],
)
def test_channels_may_come_first_or_last(tmp_path, shape, axes):
    contents = arrays(*shape)
    data = read_npz(save(tmp_path, **contents))
    assert np.array_equal(data.train.images, contents["train_images"].transpose(axes))
    assert np.array_equal(data.test.images, contents["test_images"].transpose(axes))
    assert data.train.images.is_contiguous()
    assert data.train.labels.tolist() == [0, 1, 2, 1, 0]
    assert data.test.labels.tolist() == [3, 0]
    assert data.train.classes == ("0", "1", "2", "3")


def test_grey_images_need_no_channel(tmp_path):
    contents = arrays(6, 4)
    assert np.array_equal(
        read_npz(save(tmp_path, **contents)).train.images, contents["train_images"][:, None]
    )


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"train_images": np.zeros((5, 6, 4, 3))}, "train_images: got float64"),
        ({"test_images": np.zeros((2, 3), np.uint8)}, r"test_images: got uint8 \(2, 3\)"),
        ({"train_images": np.zeros((5, 3, 6, 3), np.uint8)}, "both the second and the last"),
        ({"train_images": np.zeros((5, 2, 6, 4), np.uint8)}, "neither the second and the last"),
        ({"test_images": np.zeros((2, 8, 8, 3), np.uint8)}, r"test of \(3, 8, 8\)"),
        ({"train_images": np.zeros((4, 6, 4, 3), np.uint8)}, r"wanted int64 \(4,\)"),
        ({"train_labels": np.zeros(5)}, "train_labels: got float64"),
        ({"train_labels": np.array([0, 1, 2, 1, 10**12])}, "labels: got 1000000000000, wanted the"),
        ({"train_labels": np.zeros((5, 1), int)}, r"train_labels: got int64 \(5, 1\)"),
        ({"train_labels": np.array([0, 1, -1, 0, 0])}, "labels: got -1 to 1"),
        ({"test_labels": np.array(["a", "b"])}, "test_labels: got <U1"),
        ({"augmentation": np.array(4)}, r"augmentation: got 4, wanted two numbers such as \[4, 1"),
        ({"augmentation": np.array([3])}, r"augmentation: got \[3\], wanted two numbers"),
        ({"augmentation": np.array([3, 1, 1])}, r"augmentation: got \[3, 1, 1\], wanted two"),
        ({"augmentation": np.array([[3, 1]])}, r"augmentation: got \[\[3, 1\]\], wanted two"),
        ({"augmentation": np.array([np.inf, 1])}, r"augmentation: got \[inf, 1.0\], wanted two"),
        ({"augmentation": np.array([np.nan, 1])}, r"augmentation: got \[nan, 1.0\], wanted two"),
        ({"augmentation": np.array([1.5, 1])}, r"augmentation: got \[1.5, 1.0\], wanted two"),
        ({"augmentation": np.array([-3, 1])}, r"augmentation: got \[-3, 1\].*by, 0 to 3"),
        ({"augmentation": np.array([4, 1])}, r"augmentation: got \[4, 1\].*less than the images'"),
        ({"augmentation": np.array([3, 2])}, r"augmentation: got \[3, 2\].*1 to mirror"),
        ({"augmentation": np.array(["3", "1"])}, r"augmentation: got \['3', '1'\], wanted two"),
        ({"classes": np.array("abcd")}, r"classes: got shape \(\), wanted a list of names"),
        ({"classes": np.array([["a", "b"], ["c", "d"]])}, r"classes: got shape \(2, 2\), wanted"),
        ({"classes": np.array(["a", "b", "a", "b"])}, "classes: got 'a', 'b' more than once"),
        ({"train_labels": np.zeros(0, int)}, "train_labels: got none, wanted one or more images"),
    ],
)
def test_other_contents_are_refused(tmp_path, changed, message):
    path = save(tmp_path, **{**arrays(6, 4, 3), **changed})
    with pytest.raises(ValueError, match=message) as caught:
        read_npz(path)
    assert str(caught.value).startswith(f"{path}: ")


@pytest.mark.parametrize("pair", [[3, 0], [3.0, 1.0], [0, 1]])
def test_augmentation_is_pixels_to_pad_by_and_whether_to_mirror(tmp_path, pair):
    path = save(tmp_path, **arrays(6, 4, 3), augmentation=np.array(pair))
    assert read_npz(path).augmentation == Augmentation(int(pair[0]), pair[1] == 1)


def test_classes_may_be_named_in_bytes(tmp_path):
    path = save(tmp_path, **arrays(6, 4, 3), classes=np.array([b"cat", b"dog", b"eel", b"fly"]))
    assert read_npz(path).train.classes == ("cat", "dog", "eel", "fly")


def test_missing_arrays_are_named(tmp_path):
    contents = arrays(6, 4, 3)
    del contents["test_images"], contents["test_labels"]
    with pytest.raises(ValueError, match="no test_images, test_labels; wanted the arrays"):
        read_npz(save(tmp_path, **contents))


def test_a_missing_file_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"mine\.npz: no such file, wanted an \.npz with"):
        read_npz(tmp_path / "mine.npz")


class Mark:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return Path.touch, (self.path,)


def test_pickled_objects_are_refused_and_not_run(tmp_path):
    labels = np.array([Mark(tmp_path / "mark")] * 5, dtype=object)
    path = save(tmp_path, **{**arrays(6, 4, 3), "train_labels": labels})
    with pytest.raises(ValueError, match=r"not a whole \.npz file of plain arrays"):
        read_npz(path)
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize("kept", [0, 10, 200, -10])
def test_a_file_cut_short_is_refused(tmp_path, kept):
    path = save(tmp_path, **arrays(6, 4, 3))
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match=r"not a whole \.npz file"):
        read_npz(path)


def of_members(folder: Path, kind: int = zipfile.ZIP_DEFLATED, **members: bytes) -> Path:
    """An archive with these bytes for arrays, all four unless one is given."""
    whole = save(folder, **arrays(6, 4, 3))
    with zipfile.ZipFile(whole) as archive:
        found = {name: archive.read(name) for name in archive.namelist()}
    found |= {f"{name}.npy": content for name, content in members.items()}
    with zipfile.ZipFile(folder / "other.npz", "w", kind) as archive:
        for name, content in found.items():
            archive.writestr(name, content)
    return folder / "other.npz"


def npy_header(shape: tuple[int, ...]) -> bytes:
    file = io.BytesIO()
    facts = {"descr": "|u1", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, facts)
    return file.getvalue()


@pytest.mark.parametrize("shape", [(5, 60_000, 60_000, 3), (2**62, 8), (10**30, 1)])
def test_an_array_that_is_far_larger_than_its_bytes_is_refused(tmp_path, shape):
    path = of_members(tmp_path, train_images=npy_header(shape) + b"abc")
    with pytest.raises(ValueError, match=r"other\.npz: not a whole \.npz file .*train_images\.npy"):
        read_npz(path)


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(user_data, "_SMALL", 100_000)
    path = of_members(tmp_path, train_images=npy_header((10**6, 3, 2, 2)) + bytes(12 * 10**6))
    monkeypatch.setattr(np, "load", lambda *_, **__: pytest.fail("was unpacked"))
    with pytest.raises(ValueError, match=r"other\.npz: .* unpacks to 12,\d+,\d+ bytes, more than"):
        read_npz(path)


@pytest.mark.parametrize("kind", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_other_compressions_are_not_opened(tmp_path, kind):
    with pytest.raises(ValueError, match=r"other\.npz: .*compressed in another way"):
        read_npz(of_members(tmp_path, kind))


def test_encrypted_arrays_are_not_opened(tmp_path):
    path = of_members(tmp_path)
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x01\x02") + 8] |= 1  # the flag in the archive's directory
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"other\.npz: .*is encrypted"):
        read_npz(path)


def test_a_single_array_is_refused(tmp_path):
    np.save(tmp_path / "mine.npy", np.zeros(3))
    with pytest.raises(ValueError, match=r"not a whole \.npz file"):
        read_npz(tmp_path / "mine.npy")


def test_a_packed_set_comes_back_with_its_treatment(tmp_path):
    images = torch.randint(0, 256, (6, 3, 8, 8), dtype=torch.uint8)
    part = Images(images, torch.tensor([0, 1, 2, 0, 1, 1]), ("one", "two", "three"))
    data = DataSet("some", part, part.part(torch.arange(2)), "image", Augmentation(3, flip=False))
    write_npz(data, tmp_path / "new" / "some.npz")
    again = read_npz(tmp_path / "new" / "some.npz")
    assert torch.equal(again.train.images, images) and len(again.test) == 2
    assert torch.equal(again.train.labels, part.labels) and again.train.classes == part.classes
    assert again.normalization == "image" and again.augmentation == Augmentation(3, False)
