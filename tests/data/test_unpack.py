"""Unpacking: honest archives whole, malicious ones not at all."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import tracemalloc
from pathlib import Path

import pytest

from foveapool.data import download as archive_module
from foveapool.data.download import unpack

FILES = {"set/one": b"1" * 5000, "set/two": b"22"}


def pack(path: Path, files: dict[str, bytes], *odd: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        for member in odd:
            tar.addfile(member, io.BytesIO(b"x" * member.size))
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", size: int = 0):
    found = tarfile.TarInfo(name)
    found.type, found.linkname, found.size = kind, target, size
    return found


def tree(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_files_come_out_whole_and_nothing_else_stays(tmp_path):
    folder = tmp_path / "data"
    unpack(pack(tmp_path / "a.tar.gz", FILES, member("set", tarfile.DIRTYPE)), folder)
    assert tree(folder) == FILES
    assert [path.name for path in folder.iterdir()] == ["set"]


def test_what_is_there_stays_and_what_is_missing_is_added(tmp_path):
    folder = tmp_path / "data"
    (folder / "set").mkdir(parents=True)
    (folder / "set" / "one").write_bytes(b"mine")
    unpack(pack(tmp_path / "a.tar.gz", FILES), folder)
    assert tree(folder) == {**FILES, "set/one": b"mine"}


def test_what_a_killed_run_left_is_cleared_away(tmp_path):
    folder = tmp_path / "data"
    (folder / ".a.tar.gz.unpacking" / "set").mkdir(parents=True)
    (folder / ".a.tar.gz.unpacking" / "set" / "one").write_bytes(b"half")
    unpack(pack(tmp_path / "a.tar.gz", FILES), folder)
    assert tree(folder) == FILES


MALICIOUS = {
    "absolute": member("/tmp/foveapool-mark"),
    "above": member("../mark"),
    "above from within": member("set/../../mark"),
    "of another system": member("..\\mark"),
    "link": member("set/link", tarfile.SYMTYPE, "../../mark"),
    "link within": member("set/link", tarfile.SYMTYPE, "one"),
    "hard link": member("set/link", tarfile.LNKTYPE, "../mark"),
    "pipe": member("set/pipe", tarfile.FIFOTYPE),
    "device": member("set/device", tarfile.CHRTYPE),
    "folder that is a file": member("set/one", tarfile.DIRTYPE),
    "endless name": member(f"set/{'a' * 256}"),
}


@pytest.mark.parametrize("odd", MALICIOUS.values(), ids=MALICIOUS)
def test_one_malicious_member_spoils_the_archive(tmp_path, odd):
    folder = tmp_path / "a" / "data"
    folder.mkdir(parents=True)
    archive = pack(tmp_path / "a.tar.gz", FILES, odd)
    with pytest.raises(ValueError, match="refused, nothing was unpacked: the member") as caught:
        unpack(archive, folder)
    assert str(archive) in str(caught.value)
    assert repr(odd.name) in str(caught.value)
    assert tree(tmp_path / "a") == {}


def test_a_file_below_a_file_is_refused(tmp_path):
    archive = pack(tmp_path / "a.tar.gz", FILES, member("set/one/mark", size=1))
    with pytest.raises(ValueError, match=r"a\.tar\.gz: .*'set/one' is a file and a folder"):
        unpack(archive, tmp_path / "data")
    assert tree(tmp_path / "data") == {}


def test_a_file_through_a_link_is_refused(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    link = member("set/door", tarfile.SYMTYPE, str(outside))
    archive = pack(tmp_path / "a.tar.gz", FILES, link, member("set/door/mark", size=1))
    with pytest.raises(ValueError, match="set/door"):
        unpack(archive, tmp_path / "data")
    assert tree(outside) == {}


def test_files_are_for_whom_the_umask_leaves_them(tmp_path):
    before = os.umask(0o077)
    try:
        unpack(pack(tmp_path / "a.tar.gz", FILES), tmp_path / "data")
    finally:
        os.umask(before)
    assert (tmp_path / "data" / "set" / "one").stat().st_mode & 0o777 == 0o600


def test_an_archive_of_very_many_files_is_refused(tmp_path):
    many = pack(tmp_path / "a.tar.gz", {f"set/{i}": b"" for i in range(1001)})
    with pytest.raises(ValueError, match="nothing was unpacked: it holds more than 1,000 files"):
        unpack(many, tmp_path / "data")
    assert not tree(tmp_path / "data")


def test_an_archive_that_would_fill_the_disc_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(archive_module, "_MOST_BYTES", 5001)
    with pytest.raises(ValueError, match="it holds more than 5,001 bytes, which no"):
        unpack(pack(tmp_path / "a.tar.gz", FILES), tmp_path / "data")
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("kept", [0, 10, 60, 120, -1])
def test_an_archive_cut_short_is_refused(tmp_path, kept):
    archive = pack(tmp_path / "a.tar.gz", FILES)
    archive.write_bytes(archive.read_bytes()[:kept])
    with pytest.raises(ValueError, match=r"a\.tar\.gz: not a whole \.tar\.gz"):
        unpack(archive, tmp_path / "data")
    assert tree(tmp_path / "data") == {}


def test_a_flipped_bit_is_noticed(tmp_path):
    archive = pack(tmp_path / "a.tar.gz", FILES)
    content = bytearray(archive.read_bytes())
    content[-8] ^= 1  # in the checksum of the whole
    archive.write_bytes(content)
    with pytest.raises(ValueError, match="not a whole"):
        unpack(archive, tmp_path / "data")
    assert tree(tmp_path / "data") == {}


def test_a_header_that_claims_very_much_takes_no_memory(tmp_path):
    head = bytearray(member("././@LongLink", tarfile.GNUTYPE_LONGNAME).tobuf())
    head[124:136] = b"77777777777\0"  # the size of what follows, 8 GB
    head[148:156] = b" " * 8
    head[148:156] = f"{sum(head):06o}\0 ".encode()
    archive = tmp_path / "a.tar.gz"
    archive.write_bytes(gzip.compress(bytes(head) + bytes(1024)))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"a\.tar\.gz: not a whole"):
            unpack(archive, tmp_path / "data")
        assert tracemalloc.get_traced_memory()[1] < 50_000_000
    finally:
        tracemalloc.stop()
