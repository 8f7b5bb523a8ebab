"""The content of one's own data: other images in the same place are other data."""

import os

import pytest

from foveapool.data.registry import digest_content


@pytest.fixture
def folder(tmp_path):
    for name in ("train/cat/1.png", "train/dog/2.png", "test/cat/3.png", "test/dog/4.png"):
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"pixels")
    return tmp_path / "images"


def test_a_file_counts_with_every_byte(tmp_path):
    path = tmp_path / "d.npz"
    path.write_bytes(b"0" * 3_000_000)
    before = digest_content(f"npz:{path}")
    path.write_bytes(b"0" * 2_999_999 + b"1")
    assert before and digest_content(f"npz:{path}") != before


def test_a_copy_elsewhere_has_the_same_content(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"the same")
    assert digest_content(f"npz:{tmp_path / 'a'}") == digest_content(f"npz:{tmp_path / 'b'}")


@pytest.mark.parametrize(
    "change", ["added", "removed", "moved", "longer", "other pixels", "a border"]
)
def test_a_folder_counts_with_the_names_and_bytes_of_its_images(folder, change):
    first, second = folder / "train/cat/1.png", folder / "train/cat/5.png"
    second.write_bytes(b"more pixels")
    before = digest_content(f"folder:{folder}")
    assert before == digest_content(f"folder:{folder}")
    if change == "added":
        (folder / "train/cat/6.png").write_bytes(b"pixels")
    elif change == "removed":
        first.unlink()
    elif change == "moved":
        first.rename(folder / "train/dog/1.png")
    elif change == "longer":
        first.write_bytes(b"more pixels")
    elif change == "other pixels":
        first.write_bytes(b"pixelz")
    else:
        # The same bytes in all, divided otherwise among the two.
        first.write_bytes(b"pixelsm")
        second.write_bytes(b"ore pixels")
    assert digest_content(f"folder:{folder}") != before


@pytest.mark.parametrize("linked", [".", "train", "train/cat", "train/cat/1.png"])
def test_links_count_with_what_is_read_through_them(folder, tmp_path, linked):
    plain = digest_content(f"folder:{folder}")
    away = tmp_path / "away"
    (folder / linked).rename(away)
    (folder / linked).symlink_to(away)
    assert digest_content(f"folder:{folder}") == plain
    (folder / "train/cat/1.png").write_bytes(b"pixelz")
    assert digest_content(f"folder:{folder}") not in ("", plain)


def test_files_that_are_not_read_do_not_count(folder):
    before = digest_content(f"folder:{folder}")
    for name in (".DS_Store", "train/Thumbs.db", "train/cat/.DS_Store", "train/.cache/7.png"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"junk")
    assert digest_content(f"folder:{folder}") == before


def test_a_link_that_leads_nowhere_is_named(folder):
    (folder / "train/cat/1.png").unlink()
    (folder / "train/cat/1.png").symlink_to("nothing.png")
    with pytest.raises(OSError, match=r"cat.1\.png: could not be read .*remove it or put it back"):
        digest_content(f"folder:{folder}")


def test_a_folder_that_cannot_be_data_says_so_as_reading_it_would(folder):
    (folder / "train/eel").mkdir()
    with pytest.raises(ValueError, match="only one of train and test has eel"):
        digest_content(f"folder:{folder}")


@pytest.mark.parametrize("name", ["svhn", "street-digits", "npz:nowhere.npz", "folder:nowhere"])
def test_other_data_and_what_is_not_there_have_none(name):
    assert digest_content(name) == ""


def test_a_pipe_is_not_waited_for(folder):
    os.mkfifo(folder / "train/cat/2.png")
    with pytest.raises(ValueError, match=r"2\.png: got what is no regular file"):
        digest_content(f"folder:{folder}")
