"""Images, and parts of them that are drawn by a seed."""

from __future__ import annotations

import pytest
import torch

from foveapool.data.images import DataSet, Images, draw_subset, hold_out


def numbered(count: int) -> Images:
    """Images whose one pixel and label say which they are, up to 250 of them."""
    number = torch.arange(count)
    pixels = number.to(torch.uint8).reshape(-1, 1, 1, 1)
    return Images(pixels, number, tuple(str(i) for i in range(count)))


def chosen(images: Images) -> list[int]:
    assert images.images.flatten().tolist() == images.labels.tolist()
    return images.labels.tolist()


# --- held-out parts and subsets


@pytest.mark.parametrize(("size", "count"), [(0.2, 40), (7, 7), (0.024, 5), (199, 199)])
def test_the_rest_and_the_held_out_part_are_the_whole(size, count):
    rest, out = hold_out(numbered(200), size, data_seed=3)
    assert len(out) == count
    assert sorted(chosen(rest) + chosen(out)) == list(range(200))


def test_the_old_order_is_kept():
    rest, out = hold_out(numbered(100), 0.5, data_seed=0)
    for part in (rest, out, draw_subset(numbered(100), 0.5, 0)):
        assert chosen(part) == sorted(chosen(part))


def test_one_seed_gives_one_part_and_another_seed_another():
    keys = [(0, 0), (0, 1), (1, 0), (1, 1)]
    parts = [chosen(hold_out(numbered(200), 0.2, seed, part)[1]) for seed, part in keys]
    parts.append(chosen(draw_subset(numbered(200), 0.2, 0)))
    assert len({tuple(part) for part in parts}) == 5
    assert parts[1] == chosen(hold_out(numbered(200), 0.2, 0, 1)[1])


def test_a_seed_means_the_same_images_in_every_version():
    assert chosen(draw_subset(numbered(200), 6, data_seed=0)) == [0, 72, 124, 136, 151, 167]
    out = hold_out(numbered(200), 6, data_seed=1, part=2)[1]
    assert chosen(out) == [6, 35, 70, 79, 153, 168]


def test_every_image_is_as_likely_as_any_other():
    counts = torch.zeros(20)
    for seed in range(2000):
        counts[hold_out(numbered(20), 0.25, seed)[1].labels] += 1
    # 2000 draws at a quarter each: deviation 19.4; the largest of 20 stays below 4 of them.
    assert (counts - 500).abs().max() < 78


def test_five_percent_of_svhn_are_3663_images():
    images = Images(torch.zeros(73257, 1, 1, 1, dtype=torch.uint8), torch.zeros(73257).long(), "0")
    assert len(draw_subset(images, 0.05, data_seed=0)) == 3663


@pytest.mark.parametrize("size", [0, -1, 10, 11, 0.0, 1.0, 1.5, -0.5, 0.01, 0.99])
def test_a_size_that_leaves_a_part_empty_is_refused(size):
    with pytest.raises(ValueError, match=r"size: got .* of the 10 images neither part is empty"):
        hold_out(numbered(10), size, data_seed=0)


@pytest.mark.parametrize(("seed", "part"), [(-1, 0), (0, -1)])
def test_a_negative_seed_is_refused(seed, part):
    with pytest.raises(ValueError, match="wanted none below 0"):
        hold_out(numbered(10), 0.5, seed, part)


# --- what images must be


def test_a_part_keeps_images_with_their_labels():
    part = numbered(10).part(torch.tensor([7, 2]))
    assert (len(part), chosen(part)) == (2, [7, 2])
    assert chosen(numbered(4).part(torch.tensor([True, False, False, True]))) == [0, 3]


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (torch.zeros(2, 3, 4, 4), torch.zeros(2).long(), r"wanted uint8 \(n, C, H, W\)"),
        (torch.zeros(2, 4, 4).byte(), torch.zeros(2).long(), r"wanted uint8 \(n, C, H, W\)"),
        (torch.zeros(2, 3, 4, 4).byte(), torch.zeros(3).long(), r"wanted int64 \(2,\)"),
        (torch.zeros(2, 3, 4, 4).byte(), torch.zeros(2), r"wanted int64 \(2,\)"),
        (torch.zeros(2, 3, 4, 4).byte(), torch.tensor([0, 2]), "got 0 to 2, wanted 0 to 1"),
        (torch.zeros(2, 3, 4, 4).byte(), torch.tensor([-1, 1]), "got -1 to 1, wanted 0 to 1"),
    ],
)
def test_images_that_are_none_are_refused(images, labels, message):
    with pytest.raises(ValueError, match=message):
        Images(images, labels, ("a", "b"))


def test_train_and_test_must_fit():
    small, large = (
        Images(torch.zeros(1, 3, side, side).byte(), torch.zeros(1).long(), ("a",))
        for side in (4, 8)
    )
    other = Images(small.images, small.labels, ("b",))
    with pytest.raises(ValueError, match=r"mine: train has images of \(3, 4, 4\), test of"):
        DataSet("mine", small, large, "channel", None)
    with pytest.raises(ValueError, match="mine: train has the classes"):
        DataSet("mine", small, other, "channel", None)
