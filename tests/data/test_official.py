"""What is published about a set, and files compared with it."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import urlparse

import pytest

from foveapool.data.cifar import CIFAR10, CIFAR100
from foveapool.data.download import check_counts, check_files, compute_md5, count_labels
from foveapool.data.official import read_official
from foveapool.data.svhn import SVHN

from .oracles import TINY_CIFAR10, write_cifar10

PATHS = ("cifar-10-batches-bin/data_batch_1.bin", "cifar-10-batches-bin/test_batch.bin")


@pytest.mark.parametrize("official", [CIFAR10, CIFAR100, SVHN])
def test_what_is_published_hangs_together(official):
    assert len(official.classes) == len(official.train_counts) == len(official.test_counts)
    assert len(set(official.classes)) == len(official.classes)
    checksums = []
    for edition in official.editions:
        assert sum(official.train_counts) % len(edition.train) == 0
        checksums += [remote.md5 for remote in edition.remotes]
        checksums += [md5 for md5 in edition.files.values() if md5 not in checksums]
        for remote in edition.remotes:
            assert urlparse(remote.url).scheme in ("http", "https")
            assert 60e6 < remote.size < 200e6
    assert all(len(md5) == 32 and int(md5, 16) for md5 in checksums)
    assert len(set(checksums)) == len(checksums)


def test_the_published_sizes_are_those_of_the_papers():
    assert (sum(CIFAR10.train_counts), sum(CIFAR10.test_counts)) == (50_000, 10_000)
    assert (sum(CIFAR100.train_counts), sum(CIFAR100.test_counts)) == (50_000, 10_000)
    assert (sum(SVHN.train_counts), sum(SVHN.test_counts)) == (73_257, 26_032)


def test_published_files_are_told_from_others(tmp_path):
    write_cifar10(tmp_path, "binary")
    edition = TINY_CIFAR10.editions[0]
    train = {**edition.train, PATHS[0]: compute_md5(tmp_path / PATHS[0])}
    official = replace(TINY_CIFAR10, editions=(replace(edition, train=train),))
    found = check_files(official, tmp_path)
    assert [file.path for file in found if file.published] == [tmp_path / PATHS[0]]
    assert [file.size for file in found] == [4 * 3073] * 5 + [10 * 3073]


def test_labels_that_were_not_published_are_noticed(tmp_path):
    write_cifar10(tmp_path, "binary")
    path = tmp_path / PATHS[1]
    content = bytearray(path.read_bytes())
    content[0] = (content[0] + 1) % 10
    path.write_bytes(content)
    data = read_official(TINY_CIFAR10, tmp_path)
    assert sorted(count_labels(data.test)) == [0] + [1] * 8 + [2]
    with pytest.raises(ValueError, match=r"cifar10: got \d test images of class \w+, wanted 1 as"):
        check_counts(TINY_CIFAR10, data)


def test_counts_as_published_pass(tmp_path):
    write_cifar10(tmp_path, "python")
    check_counts(TINY_CIFAR10, read_official(TINY_CIFAR10, tmp_path))
