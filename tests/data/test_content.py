"""The content of one's own data: other images in the same place are other data."""

import pytest

from foveapool.data.content import content_of


@pytest.fixture
def folder(tmp_path):
    for name in ("train/cat/1.png", "train/dog/2.png", "test/cat/3.png"):
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"pixels")
    return tmp_path / "images"


def test_a_file_counts_with_every_byte(tmp_path):
    path = tmp_path / "d.npz"
    path.write_bytes(b"0" * 3_000_000)
    before = content_of(f"npz:{path}")
    path.write_bytes(b"0" * 2_999_999 + b"1")
    assert before and content_of(f"npz:{path}") != before


def test_a_copy_elsewhere_has_the_same_content(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"the same")
    assert content_of(f"npz:{tmp_path / 'a'}") == content_of(f"npz:{tmp_path / 'b'}")


@pytest.mark.parametrize("change", ["added", "removed", "moved", "longer"])
def test_a_folder_counts_with_the_names_and_sizes_of_its_files(folder, change):
    before, first = content_of(f"folder:{folder}"), folder / "train/cat/1.png"
    assert before == content_of(f"folder:{folder}")
    if change == "added":
        (folder / "train/cat/4.png").write_bytes(b"pixels")
    elif change == "removed":
        first.unlink()
    elif change == "moved":
        first.rename(folder / "train/dog/1.png")
    else:
        first.write_bytes(b"more pixels")
    assert content_of(f"folder:{folder}") != before


@pytest.mark.parametrize("name", ["svhn", "street-digits", "npz:nowhere.npz", "folder:nowhere"])
def test_other_data_and_what_is_not_there_have_none(name):
    assert content_of(name) == ""
