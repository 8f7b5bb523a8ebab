"""Downloads of one file: whole, broken, resumed, wrong."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from foveapool.data import download as fetch_module
from foveapool.data.download import compute_md5, fetch
from foveapool.data.official import Remote

from .server import Site

CONTENT = bytes(os.urandom(100_000))


@pytest.fixture
def site(site) -> Site:
    site.files["thing.bin"] = CONTENT
    return site


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_fetched_whole(site, tmp_path):
    path = fetch(site.remote("thing.bin"), tmp_path / "new" / "folder")
    assert path == tmp_path / "new" / "folder" / "thing.bin"
    assert path.read_bytes() == CONTENT
    assert names(path.parent) == ["thing.bin"]


def test_progress_begins_at_nothing_and_ends_with_all(site, tmp_path, monkeypatch):
    monkeypatch.setattr(fetch_module, "_CHUNK", 30_000)
    seen = []
    fetch(site.remote("thing.bin"), tmp_path, lambda *step: seen.append(step))
    assert {(what, total) for what, _, total in seen} == {("downloading thing.bin", 100_000)}
    assert [done for _, done, _ in seen] == [0, 30_000, 60_000, 90_000, 100_000]


def test_a_file_that_is_there_is_not_fetched_again(site, tmp_path):
    (tmp_path / "thing.bin").write_bytes(CONTENT)
    fetch(site.remote("thing.bin"), tmp_path)
    assert site.asked == []


def test_a_broken_connection_is_taken_up_again(site, tmp_path):
    site.breaks = [30_000, 50_000]
    path = fetch(site.remote("thing.bin"), tmp_path)
    assert path.read_bytes() == CONTENT
    assert [span for _, span in site.asked] == [None, "bytes=30000-", "bytes=80000-"]


def test_a_later_run_goes_on_where_an_earlier_one_gave_up(site, tmp_path):
    site.breaks = [30_000, 0]
    with pytest.raises(ConnectionError, match=r"30,000 of 100,000 bytes have come\. Try again"):
        fetch(site.remote("thing.bin"), tmp_path)
    assert names(tmp_path) == ["thing.bin.part"]
    site.asked.clear()
    assert fetch(site.remote("thing.bin"), tmp_path).read_bytes() == CONTENT
    assert site.asked == [("thing.bin", "bytes=30000-")]
    assert names(tmp_path) == ["thing.bin"]


def test_a_part_that_is_whole_needs_no_connection(site, tmp_path):
    (tmp_path / "thing.bin.part").write_bytes(CONTENT)
    assert fetch(site.remote("thing.bin"), tmp_path).read_bytes() == CONTENT
    assert site.asked == []


def test_a_part_longer_than_the_file_is_begun_anew(site, tmp_path):
    (tmp_path / "thing.bin.part").write_bytes(CONTENT + b"x")
    assert fetch(site.remote("thing.bin"), tmp_path).read_bytes() == CONTENT


def test_a_server_without_ranges_is_asked_for_the_whole(site, tmp_path):
    site.knows_ranges = False
    (tmp_path / "thing.bin.part").write_bytes(CONTENT[:500])
    assert fetch(site.remote("thing.bin"), tmp_path).read_bytes() == CONTENT


def test_another_range_than_the_one_asked_for_is_refused(site, tmp_path):
    site.shift = 100
    (tmp_path / "thing.bin.part").write_bytes(CONTENT[:500])
    with pytest.raises(ValueError, match="got the range 'bytes 600-99999/"):
        fetch(site.remote("thing.bin"), tmp_path)
    assert (tmp_path / "thing.bin.part").read_bytes() == CONTENT[:500]


def test_a_wrong_checksum_is_refused_and_the_next_try_begins_anew(site, tmp_path):
    remote = site.remote("thing.bin")
    (tmp_path / "thing.bin.part").write_bytes(b"from somewhere else")
    with pytest.raises(ValueError, match=rf"got MD5 \w+, wanted {remote.md5}; it was removed"):
        fetch(remote, tmp_path)
    assert names(tmp_path) == []
    assert fetch(remote, tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize("size", [99_999, 100_001])
def test_a_file_of_another_size_is_not_even_fetched(site, tmp_path, size):
    remote = replace(site.remote("thing.bin"), size=size)
    with pytest.raises(ValueError, match=f"the server offers 100,000 bytes, wanted {size:,}"):
        fetch(remote, tmp_path)
    assert names(tmp_path) == []


@pytest.mark.parametrize("content", [b"mine", CONTENT[::-1]])
def test_a_file_of_the_users_own_is_left_alone(site, tmp_path, content):
    (tmp_path / "thing.bin").write_bytes(content)
    with pytest.raises(ValueError, match="move it away to fetch the official one from http"):
        fetch(site.remote("thing.bin"), tmp_path)
    assert (tmp_path / "thing.bin").read_bytes() == content
    assert site.asked == []


def test_a_missing_address_is_said(site, tmp_path):
    remote = replace(site.remote("thing.bin"), url=f"{site.address}/other.bin")
    with pytest.raises(ConnectionError, match=r"other\.bin: HTTP Error 404: .*by other means"):
        fetch(remote, tmp_path)


def test_without_a_network_the_way_around_is_said(site, tmp_path):
    remote = replace(site.remote("thing.bin"), url="http://127.0.0.1:9/thing.bin")
    with pytest.raises(ConnectionError, match=r"thing\.bin: .*refused.* put it in ") as caught:
        fetch(remote, tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_a_host_without_https_is_asked_without_it(site, tmp_path):
    plain = site.remote("thing.bin")
    remote = replace(plain, url=plain.url.replace("http:", "https:"), plain=plain.url)
    assert fetch(remote, tmp_path).read_bytes() == CONTENT
    assert site.asked == [("thing.bin", None)]


def test_a_host_that_speaks_https_is_not_asked_without_it(site, tmp_path):
    there = site.remote("thing.bin")
    missing = replace(there, url=f"{site.address}/gone.bin", plain=there.url)
    with pytest.raises(ConnectionError, match="404"):
        fetch(missing, tmp_path)
    assert [name for name, _ in site.asked] == ["gone.bin"]


def test_neither_address_answering_is_told_of_both(tmp_path):
    remote = Remote("https://127.0.0.1:9/x.bin", 3, "0" * 32, "http://127.0.0.1:9/x.bin")
    with pytest.raises(ConnectionError, match=r"https:.* refused; http:.* refused; 0 of 3 bytes"):
        fetch(remote, tmp_path)


def test_the_checksum_is_md5(tmp_path):
    (tmp_path / "abc").write_bytes(b"abc")
    assert compute_md5(tmp_path / "abc") == "900150983cd24fb0d6963f7d28e17f72"  # RFC 1321
