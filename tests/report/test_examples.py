"""Examples: what is chosen among maps, and the file they are kept in."""

from pathlib import Path

import pytest
import torch

from foveapool.pooling.storage import save_tensors
from foveapool.report.examples import Examples, choose_examples, get_examples_path


def seen(count=40, classes=4, channels=6):
    """Images with their label for pixels, and maps that differ by class in channels 3 and 1."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(count).flip(0) % classes
    images = labels[:, None, None, None].expand(-1, 3, 6, 6).to(torch.uint8)
    maps = torch.randn(count, channels, 4, 5, generator=generator)
    maps[:, 3] += 5 * labels[:, None, None]
    maps[:, 1] += labels[:, None, None]
    return images, maps, labels


def test_one_image_a_class_and_the_channels_that_tell_most():
    images, maps, labels = seen()
    found = choose_examples(images, maps, labels, "abcd", count=3, channels=2)
    assert found.labels == ("a", "b", "c")
    assert found.images[:, 0, 0, 0].tolist() == [0, 1, 2]
    assert found.channels == (3, 1)
    first = (labels == 0).nonzero()[0, 0]
    torch.testing.assert_close(found.maps[0], maps[first][[3, 1]].half())


def test_a_channel_that_never_changes_is_chosen_last():
    images, maps, labels = seen()
    maps[:, 0] = 2.0
    assert choose_examples(images, maps, labels, "abcd", channels=6).channels[-1] == 0


def test_the_file_gives_back_what_was_saved(tmp_path):
    found = choose_examples(*seen(), "abcd")
    found.save(tmp_path / "examples-3.safetensors")
    again = Examples.load(tmp_path / "examples-3.safetensors")
    assert (again.labels, again.channels) == (found.labels, found.channels)
    assert (again.images == found.images).all() and (again.maps == found.maps).all()


def test_examples_lie_beside_their_operator():
    assert get_examples_path(Path("a/operator-2.safetensors")) == Path("a/examples-2.safetensors")
    assert get_examples_path(Path("pool.safetensors")) == Path("examples-pool.safetensors")


def test_another_file_is_refused(tmp_path):
    save_tensors(tmp_path / "x.safetensors", "operator", {"weight": torch.ones(1)}, {})
    with pytest.raises(ValueError, match="got operator, wanted a foveapool examples file"):
        Examples.load(tmp_path / "x.safetensors")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"images": torch.zeros(2, 2, 4, 4, dtype=torch.uint8)}, "images: got torch.uint8"),
        ({"images": torch.zeros(2, 3, 4, 4)}, "images: got torch.float32"),
        ({"images": torch.zeros(3, 3, 4, 4, dtype=torch.uint8)}, "images: got 3, wanted 2"),
        ({"maps": torch.zeros(2, 4, 4)}, "maps: got shape"),
        ({"channels": (1,)}, "c 1, the number of channels"),
        ({"labels": ()}, "n 0, the number of labels"),
    ],
)
def test_what_does_not_fit_together_is_refused(changes, message):
    whole = {
        "images": torch.zeros(2, 3, 4, 4, dtype=torch.uint8),
        "maps": torch.zeros(2, 2, 4, 4),
        "labels": ("a", "b"),
        "channels": (0, 1),
    }
    Examples(**whole)
    with pytest.raises(ValueError, match=message):
        Examples(**{**whole, **changes})


def test_no_images_are_refused():
    images, maps, labels = seen()
    with pytest.raises(ValueError, match="at least one"):
        choose_examples(images[:0], maps[:0], labels[:0], "abcd")
    with pytest.raises(ValueError, match="got 40, 39 and 40"):
        choose_examples(images, maps[1:], labels, "abcd")


@pytest.mark.parametrize(
    ("facts", "maps", "message"),
    [
        ({"labels": 3, "channels": [0]}, torch.ones(1, 1, 2, 2), "labels: got 3"),
        ({"labels": ["a"]}, torch.ones(1, 1, 2, 2), "got no 'channels'"),
        (
            {"labels": ["a"], "channels": [0]},
            torch.ones(1, 1, 2, 2).long(),
            "got the tensor maps of torch.int64",
        ),
        ({"labels": ["a"], "channels": [0]}, torch.full((1, 1, 2, 2), torch.nan), "got NaN"),
        ({"labels": ["a"], "channels": [0, 1]}, torch.ones(1, 1, 2, 2), "maps: got shape"),
    ],
)
def test_damaged_examples_are_refused_by_name(tmp_path, facts, maps, message):
    path = tmp_path / "examples-3.safetensors"
    images = torch.zeros(1, 3, 4, 4, dtype=torch.uint8)
    save_tensors(path, "examples", {"images": images, "maps": maps}, facts)
    with pytest.raises(ValueError, match=rf"examples-3\.safetensors: {message}.*; remove it"):
        Examples.load(path)
