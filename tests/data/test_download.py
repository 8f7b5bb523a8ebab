"""Whole sets: fetched, unpacked and read; by two processes at once; next to the user's files."""

from __future__ import annotations

import io
import tarfile
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread

import numpy as np
import pytest

from foveapool.data.download import download
from foveapool.data.official import Edition, OfficialSet, read_official

from .oracles import TINY_CIFAR10, TINY_SVHN, write_cifar10, write_svhn
from .server import Site

ARCHIVES = {"binary": "cifar-10-binary.tar.gz", "python": "cifar-10-python.tar.gz"}


def packed(folder: Path) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as tar:
        for path in sorted(folder.iterdir()):
            tar.add(path, path.name)
    return file.getvalue()


@pytest.fixture
def images(site, tmp_path) -> np.ndarray:
    """The images of a set that the site has in both editions."""
    for edition, name in ARCHIVES.items():
        images, _ = write_cifar10(tmp_path / "made" / edition, edition)
        site.files[name] = packed(tmp_path / "made" / edition)
    return images


def moved(official: OfficialSet, site: Site) -> OfficialSet:
    """The set as if the site had published it."""

    def edition(old: Edition) -> Edition:
        return replace(old, remotes=tuple(site.remote(remote.name) for remote in old.remotes))

    return replace(official, editions=tuple(map(edition, official.editions)))


def test_cifar_is_fetched_unpacked_and_read(site, images, tmp_path):
    official, root = moved(TINY_CIFAR10, site), tmp_path / "root"
    assert download(official, root) == root / "cifar10"
    assert np.array_equal(read_official(official, root).train.images, images[:20])
    assert sorted(path.name for path in (root / "cifar10").iterdir()) == [
        ".lock",
        "cifar-10-batches-bin",
    ]


def test_svhn_is_fetched_file_by_file(site, tmp_path):
    images, _ = write_svhn(tmp_path / "made")
    for path in (tmp_path / "made").iterdir():
        site.files[path.name] = path.read_bytes()
    official, root = moved(TINY_SVHN, site), tmp_path / "root"
    seen = []
    assert download(official, root, lambda what, *_: seen.append(what)) == root / "svhn"
    assert np.array_equal(read_official(official, root).test.images, images[60:])
    assert set(seen) == {"downloading train_32x32.mat", "downloading test_32x32.mat"}


def test_only_what_is_missing_is_fetched(site, tmp_path):
    write_svhn(tmp_path / "made")
    for path in (tmp_path / "made").iterdir():
        site.files[path.name] = path.read_bytes()
    official, root = moved(TINY_SVHN, site), tmp_path / "root"
    write_svhn(root)
    (root / "test_32x32.mat").write_bytes(b"rebuilt from other sources")
    (root / "train_32x32.mat").unlink()
    assert download(official, root) == root
    assert site.asked == [("train_32x32.mat", None)]
    assert (root / "test_32x32.mat").read_bytes() == b"rebuilt from other sources"


def test_a_set_that_is_there_needs_no_network(site, images, tmp_path):
    write_cifar10(tmp_path / "root", "python")
    assert download(moved(TINY_CIFAR10, site), tmp_path / "root") == tmp_path / "root"
    assert site.asked == []


@pytest.mark.parametrize("edition", ARCHIVES)
@pytest.mark.parametrize("below", [".", "cifar10"])
def test_an_archive_of_the_users_own_is_unpacked_and_kept(site, images, tmp_path, edition, below):
    archive = tmp_path / "root" / below / ARCHIVES[edition]
    archive.parent.mkdir(parents=True)
    archive.write_bytes(site.files[archive.name])
    official = moved(TINY_CIFAR10, site)
    download(official, tmp_path / "root")
    assert np.array_equal(read_official(official, tmp_path / "root").train.images, images[:20])
    assert archive.exists()
    assert site.asked == []


def test_a_damaged_file_comes_back_after_its_removal(site, images, tmp_path):
    official, root = moved(TINY_CIFAR10, site), tmp_path / "root"
    damaged = download(official, root) / "cifar-10-batches-bin" / "data_batch_3.bin"
    damaged.unlink()
    download(official, root)
    assert np.array_equal(read_official(official, root).train.images, images[:20])


def test_a_malicious_archive_is_refused_for_its_checksum(site, images, tmp_path):
    official, root = moved(TINY_CIFAR10, site), tmp_path / "root"
    content = site.files[ARCHIVES["binary"]]
    site.files[ARCHIVES["binary"]] = content[:-1] + bytes([content[-1] ^ 1])
    with pytest.raises(ValueError, match="got MD5"):
        download(official, root)
    assert [path.name for path in (root / "cifar10").iterdir()] == [".lock"]


def test_two_at_once_fetch_once(site, images, tmp_path):
    official, root = moved(TINY_CIFAR10, site), tmp_path / "root"
    site.gate, waits = Event(), Event()

    def second(what: str, done: int, total: int) -> None:
        assert what == "waiting for another download of cifar10"
        waits.set()

    found = []
    one = Thread(target=lambda: found.append(download(official, root)))
    two = Thread(target=lambda: found.append(download(official, root, second)))
    one.start()
    while not site.asked:
        one.join(0.01)
    two.start()
    assert waits.wait(10)
    site.gate.set()
    one.join()
    two.join()
    assert found == [root / "cifar10"] * 2
    assert len(site.asked) == 1
