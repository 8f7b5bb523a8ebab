"""Where frost takes its pictures of ice from."""

import re
import sys
import warnings

import numpy as np
import pytest
import torch
from PIL import Image

from foveapool._suggest import how_to_install
from foveapool.robustness.corruptions import corrupt
from foveapool.robustness.weather import draw_frost, load_frost_pictures

from .perturbation_oracles import pictures

IMAGES = torch.from_numpy(pictures(30))


def save(folder, name, level, side=200):
    folder.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (side, side), (level, level, level)).save(folder / name)


def added(images, folder):
    """The levels that severity 1 adds where nothing is clipped: a fifth of the ice."""
    dark = images // 2
    return set((corrupt(dark, "frost", 1, frost_folder=folder) - dark).unique().tolist())


def test_all_pictures_of_a_folder_are_used_but_the_authors_sixth(tmp_path):
    for i, name in enumerate(["frost1.png", "a.PNG", "b.jpeg", "frost6.jpg"]):
        save(tmp_path, name, 50 * (i + 1))
    (tmp_path / "notes.txt").write_text("no picture")
    assert added(IMAGES, tmp_path) == {10, 20, 30}
    assert added(IMAGES, str(tmp_path)) == {10, 20, 30}


def test_a_changed_picture_is_read_again(tmp_path):
    save(tmp_path, "ice.png", 100)
    assert added(IMAGES, tmp_path) == {20}
    save(tmp_path, "ice.png", 200, side=210)
    assert added(IMAGES, tmp_path) == {40}


def test_transparent_pictures_lose_their_transparency(tmp_path):
    Image.new("RGBA", (200, 200), (150, 150, 150, 10)).save(tmp_path / "ice.png")
    assert added(IMAGES, tmp_path) == {30}


def test_pictures_of_an_installed_package_are_found_without_importing_it(tmp_path, monkeypatch):
    save(tmp_path / "imagecorruptions" / "frost", "frost1.png", 250)
    (tmp_path / "imagecorruptions" / "__init__.py").write_text("raise RuntimeError")
    monkeypatch.syspath_prepend(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert added(IMAGES, None) == {50}
    assert "imagecorruptions" not in sys.modules


def test_drawn_ice_is_announced(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.warns(UserWarning, match=r"frost: no pictures of ice.*frost_folder=") as said:
        corrupt(IMAGES, "frost", 1)
    assert len(said) == 1
    assert said[0].filename == __file__


def test_drawn_ice_has_the_colors_and_the_spread_of_the_authors():
    drawn = draw_frost(1.0)
    assert [tuple(picture.shape[:2]) for picture in drawn] == [
        (120, 180),
        (63, 112),
        (63, 112),
        (70, 105),
        (99, 132),
    ]
    assert torch.equal(drawn[1], drawn[2])
    means = [picture.double().mean((0, 1)).numpy() for picture in drawn]
    np.testing.assert_allclose(means[0], [77.5, 149.0, 165.7], atol=1)
    np.testing.assert_allclose(means[4], [112.3, 123.3, 134.7], atol=1)
    spreads = [float(picture.double().std()) for picture in drawn]
    np.testing.assert_allclose(spreads, [43.2, 22.8, 22.8, 31.5, 44.0], atol=1)


def test_a_folder_without_pictures_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"frost_folder: no \.png or \.jpg in"):
        load_frost_pictures(tmp_path, 1.0)
    with pytest.raises(FileNotFoundError, match=r"frost_folder: .*missing is no folder"):
        load_frost_pictures(tmp_path / "missing", 1.0)


def test_pictures_smaller_than_the_images_are_refused(tmp_path):
    save(tmp_path, "ice.png", 100, side=150)
    with pytest.raises(ValueError, match=r"30 x 30 after scaling, wanted pictures larger"):
        corrupt(IMAGES, "frost", 1, frost_folder=tmp_path)


@pytest.mark.parametrize("name", ["frost", "jpeg_compression"])
def test_without_pillow_the_extra_is_named(name, tmp_path, monkeypatch):
    save(tmp_path, "ice.png", 77)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match=rf"Pillow.*{re.escape(how_to_install('data'))}"):
        corrupt(IMAGES, name, 1, frost_folder=tmp_path)
