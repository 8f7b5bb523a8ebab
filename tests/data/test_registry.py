"""Data sets by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from foveapool.data import registry
from foveapool.data.registry import (
    NAMES,
    get_official_set,
    get_packed_path,
    load_data,
    resolve_root,
)
from foveapool.data.user_data import write_npz

from .oracles import (
    TINY_CIFAR10,
    TINY_CIFAR100,
    TINY_SVHN,
    write_cifar10,
    write_cifar100,
    write_svhn,
)


@pytest.fixture
def root(tmp_path, monkeypatch) -> Path:
    """A data root with tiny versions of all published sets."""
    tiny = {"cifar10": TINY_CIFAR10, "cifar100": TINY_CIFAR100}
    tiny |= {"svhn": TINY_SVHN, "svhn-reduced": TINY_SVHN}
    monkeypatch.setattr(registry, "OFFICIAL", tiny)
    write_cifar10(tmp_path, "binary")
    write_cifar100(tmp_path, "python")
    write_svhn(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "train", "test", "normalization", "augmented"),
    [
        ("cifar10", 20, 10, "channel", True),
        ("cifar100", 100, 100, "channel", True),
        ("svhn", 60, 10, "image", False),
        ("svhn-reduced", 3, 10, "image", False),
    ],
)
def test_published_sets_load_with_the_treatment_of_the_paper(
    root, name, train, test, normalization, augmented
):
    data = load_data(name, root)
    assert (data.name, len(data.train), len(data.test)) == (name, train, test)
    assert (data.normalization, data.augmentation is not None) == (normalization, augmented)


def test_the_reduced_set_is_drawn_by_seed_and_tested_on_everything(root):
    whole = load_data("svhn", root)
    draws = [load_data("svhn-reduced", root, data_seed=seed) for seed in (0, 0, 1)]
    first, again, other = (data.train.images for data in draws)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert all((whole.train.images == image).all((1, 2, 3)).any() for image in first)
    assert torch.equal(draws[2].test.images, whole.test.images)


def test_street_digits_share_one_test_set_and_no_image():
    options = {"train_size": 30, "test_size": 20}
    zero, one = (load_data("street-digits", data_seed=seed, **options) for seed in (0, 1))
    assert (len(zero.train), len(zero.test), zero.normalization) == (30, 20, "image")
    assert torch.equal(zero.test.images, one.test.images)
    assert not torch.equal(zero.train.images, one.train.images)
    assert not torch.equal(zero.train.images[:20], zero.test.images)


def test_sets_of_the_users_own_load_by_path(tmp_path):
    pixels = np.zeros((2, 4, 4, 3), np.uint8)
    names = ("train_images", "train_labels", "test_images", "test_labels")
    np.savez(tmp_path / "mine.npz", **dict(zip(names, [pixels, [0, 1]] * 2, strict=True)))
    for part in ("train", "test"):
        (tmp_path / "mine" / part / "cat").mkdir(parents=True)
        Image.fromarray(pixels[0]).save(tmp_path / "mine" / part / "cat" / "a.png")
    for name in (f"npz:{tmp_path}/mine.npz", f"folder:{tmp_path}/mine"):
        assert load_data(name).name == name
    assert load_data(f"folder:{tmp_path}/mine", size=8).train.images.shape == (1, 3, 8, 8)


@pytest.mark.parametrize("name", ["cifar-10", "", "folder", "SVHN"])
def test_an_unknown_name_is_answered_with_the_names(name):
    with pytest.raises(ValueError, match="wanted") as caught:
        load_data(name)
    if name != "folder":
        assert all(known in str(caught.value) for known in NAMES)


def test_an_unknown_option_is_answered_with_the_options():
    with pytest.raises(ValueError, match="street-digits: no option size; it has test_size, train_"):
        load_data("street-digits", size=3)
    with pytest.raises(ValueError, match="cifar10: no option size; it has none"):
        load_data("cifar10", size=3)


@pytest.mark.parametrize("name", ["street-digits", "npz:x", "folder:PATH"])
def test_what_was_never_published_has_no_files(name):
    with pytest.raises(ValueError, match="has no published files; cifar10, cifar100, svhn"):
        get_official_set(name)


def test_negative_seeds_are_refused():
    with pytest.raises(ValueError, match="data_seed: got -1"):
        load_data("street-digits", data_seed=-1, train_size=1, test_size=1)


def test_the_default_root_is_below_the_home_folder(monkeypatch):
    monkeypatch.setenv("HOME", "/somewhere")
    assert resolve_root(None) == Path("/somewhere/.cache/foveapool")
    assert resolve_root(Path("~/data")) == Path("/somewhere/data")


def test_a_packed_copy_is_read_instead_of_the_published_files(tmp_path):
    small = load_data("street-digits", train_size=20, test_size=10)
    write_npz(small, get_packed_path("svhn-reduced", tmp_path, 3))
    data = load_data("svhn-reduced", tmp_path, 3)
    assert data.name == "svhn-reduced" and torch.equal(data.train.images, small.train.images)
    with pytest.raises(FileNotFoundError):
        load_data("svhn-reduced", tmp_path, 4)


def test_a_packed_copy_of_a_whole_set_serves_every_seed(tmp_path):
    small = load_data("street-digits", train_size=20, test_size=10)
    write_npz(small, get_packed_path("svhn", tmp_path, 0))
    assert torch.equal(load_data("svhn", tmp_path, 4).train.images, small.train.images)
