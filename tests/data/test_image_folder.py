"""A folder of images a class."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from foveapool import _memory, _pictures
from foveapool.data.user_data import read_folder


def save(path: Path, pixels: np.ndarray) -> np.ndarray:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return pixels


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


@pytest.fixture
def root(tmp_path) -> Path:
    """Two classes, an image each in train and in test, 6 x 4 pixels."""
    for i, part in enumerate(["train/cat", "train/dog", "test/cat", "test/dog"]):
        save(tmp_path / part / "a.png", noise(6, 4, 3, seed=i))
    return tmp_path


def test_images_come_back_in_the_order_of_classes_and_names(root):
    extra = save(root / "train" / "cat" / "deeper" / "b.PNG", noise(6, 4, 3, seed=9))
    (root / "train" / "notes.txt").write_text("not a class")
    (root / "train" / "cat" / "notes.txt").write_text("not an image")
    (root / "train" / ".hidden").mkdir()
    data = read_folder(root)
    wanted = np.stack([noise(6, 4, 3, seed=0), extra, noise(6, 4, 3, seed=1)])
    assert np.array_equal(data.train.images, wanted.transpose(0, 3, 1, 2))
    assert data.train.labels.tolist() == [0, 0, 1]
    assert data.test.labels.tolist() == [0, 1]
    assert data.train.classes == ("cat", "dog")
    assert (data.normalization, data.augmentation) == ("channel", None)


def test_what_systems_and_editors_hide_beside_images_is_passed_over(root):
    (root / "train" / "cat" / "._a.png").write_bytes(b"a resource fork")
    save(root / "train" / "dog" / ".ipynb_checkpoints" / "a-checkpoint.png", noise(6, 4, 3))
    data = read_folder(root)
    assert data.train.labels.tolist() == [0, 1]


def test_a_folder_may_itself_be_hidden(root):
    hidden = root.parent / f".{root.name}"
    root.rename(hidden)
    assert len(read_folder(hidden).train) == 2


def test_grey_and_transparent_images_become_rgb(root):
    grey = save(root / "train" / "cat" / "a.png", noise(6, 4))
    clear = save(root / "train" / "dog" / "a.png", noise(6, 4, 4))
    images = read_folder(root).train.images.numpy()
    assert (images[0] == grey).all()
    assert np.array_equal(images[1], clear[:, :, :3].transpose(2, 0, 1))


@pytest.mark.parametrize("part", ["train", "test"])
def test_images_of_another_size_are_refused_or_resized(root, part):
    save(root / part / "dog" / "b.png", np.full((12, 12, 3), 77, np.uint8))
    with pytest.raises(ValueError, match=r"b\.png: got 12 x 12 pixels, wanted 6 x 4 .*--size of"):
        read_folder(root)
    for size, shape in ((8, (3, 8, 8)), ((5, 7), (3, 5, 7))):
        data = read_folder(root, size=size)
        assert data.train.images.shape[1:] == data.test.images.shape[1:] == shape
        images = data.train.images if part == "train" else data.test.images
        assert (images[2] == 77).all()


@pytest.mark.parametrize("size", [0, -3, (4, 0), (1, 2, 3)])
def test_a_size_that_is_none_is_refused(root, size):
    with pytest.raises(ValueError, match="size: got"):
        read_folder(root, size=size)


def test_a_damaged_image_is_named(root):
    path = root / "test" / "dog" / "a.png"
    path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(ValueError, match=r"test.dog.a\.png: not an image that can be read"):
        read_folder(root)


def test_sixteen_bits_are_refused(root):
    save(root / "train" / "cat" / "a.png", noise(6, 4).astype(np.uint16) * 256)
    with pytest.raises(ValueError, match=r"a\.png: .*wanted 8 bits a channel"):
        read_folder(root)


def test_an_image_that_would_fill_the_memory_is_measured_and_not_decoded(root, monkeypatch):
    monkeypatch.setattr(_pictures, "MOST_PIXELS", 23)
    monkeypatch.setattr(Image.Image, "convert", lambda *_: pytest.fail("was decoded"))
    with pytest.raises(ValueError, match=r"a\.png: .*\(4 x 6 pixels, wanted at most 23;"):
        read_folder(root)


def test_images_that_would_fill_the_memory_together_are_counted_and_not_read(root, monkeypatch):
    monkeypatch.setattr(_memory, "get_free_memory", lambda device: 1000)
    with pytest.raises(ValueError, match=r"got 4 images of 6 x 4 pixels, which needs .*size="):
        read_folder(root)
    assert len(read_folder(root, size=3).train) == 2


def test_what_is_called_a_picture_and_is_of_another_format_is_not_opened(root):
    Image.fromarray(noise(6, 4, 3)).save(root / "a.eps")
    (root / "a.eps").rename(root / "train" / "cat" / "a.png")
    with Image.open(root / "train" / "cat" / "a.png") as found:
        assert found.format == "EPS"  # Pillow goes by the content, and would start Ghostscript
    with pytest.raises(ValueError, match=r"cat.a\.png: not an image .*\(cannot ident"):
        read_folder(root)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_regular_file_is_not_opened(root, make):
    (root / "train" / "cat" / "a.png").unlink()
    make(root / "train" / "cat" / "a.png")
    with pytest.raises(ValueError, match=r"cat.a\.png: .*\(it is no regular file\)"):
        read_folder(root)


def test_a_missing_folder_a_missing_class_and_an_empty_class_are_named(root):
    with pytest.raises(FileNotFoundError, match=r"nothing.train: no such folder"):
        read_folder(root / "nothing")
    (root / "train" / "eel").mkdir()
    with pytest.raises(ValueError, match="only one of train and test has eel"):
        read_folder(root)
    (root / "test" / "eel").mkdir()
    with pytest.raises(ValueError, match=r"train.eel: no images in it"):
        read_folder(root)


def test_a_folder_without_classes_is_refused(tmp_path):
    (tmp_path / "train").mkdir()
    with pytest.raises(ValueError, match="train: no folders in it, wanted one a class"):
        read_folder(tmp_path)


def test_without_pillow_the_extra_is_named(root, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match=r"needs Pillow: pip install .*\[data\]'"):
        read_folder(root)
