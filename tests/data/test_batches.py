"""Batches: every image once an epoch, moved and mirrored as planned, normalized as in the paper."""

import weakref

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from foveapool.data.batches import (
    Feed,
    assemble_batch,
    draw_epoch_plan,
    iterate_batches,
    load_resident,
)
from foveapool.data.images import Augmentation, DataSet, Images

CLASSES = ("a", "b", "c")


def images(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(0, 256, (count, 3, 8, 6), generator=generator).to(torch.uint8)
    return Images(pixels, torch.arange(count) % 3, CLASSES)


def toy(normalization="channel", augmentation=None, train=20):
    return DataSet("toy", images(train), images(7, seed=1), normalization, augmentation)


def whole(part):
    batches = list(iterate_batches(part, 3))
    return torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])


def test_channels_are_normalized_by_the_training_images_alone():
    data = toy("channel")
    train, test = (whole(part)[0] for part in load_resident(data, "cpu"))
    torch.testing.assert_close(train.mean((0, 2, 3)), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(train.std((0, 2, 3), correction=0), torch.ones(3))
    pixels = data.train.images.float()
    mean, deviation = pixels.mean((0, 2, 3)), pixels.std((0, 2, 3), correction=0)
    wanted = (data.test.images.float() - mean[:, None, None]) / deviation[:, None, None]
    torch.testing.assert_close(test, wanted, atol=1e-5, rtol=1e-5)


def test_images_are_normalized_each_by_itself():
    data = toy("image")
    for part, source in zip(load_resident(data, "cpu"), (data.train, data.test), strict=True):
        x, y = whole(part)
        pixels = source.images.float()
        mean = pixels.mean((1, 2, 3), keepdim=True)
        deviation = pixels.std((1, 2, 3), correction=0, keepdim=True)
        torch.testing.assert_close(x, (pixels - mean) / deviation, atol=1e-5, rtol=1e-5)
        assert torch.equal(y, source.labels)


def test_statistics_of_many_images_are_exact_and_take_little_memory(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (5000, 3, 2, 2), generator=generator).to(torch.uint8)
    part = Images(pixels, torch.zeros(5000, dtype=torch.int64), ("only",))
    widened, most, long = [], 0, torch.Tensor.long

    def counted(tensor):
        nonlocal most
        wide = long(tensor)
        widened.append(weakref.ref(wide))
        most = max(most, sum(each() is not None for each in widened))
        return wide

    monkeypatch.setattr(torch.Tensor, "long", counted)
    train, _ = load_resident(DataSet("many", part, part, "image", None), "cpu")
    # Eight times the bytes: a part at a time, and the one before it.
    assert len(widened) > 4 and most <= 2
    values = pixels.numpy().reshape(5000, -1).astype(np.float64)
    deviation = np.sqrt((values**2).sum(1) / 12 - (values.sum(1) / 12) ** 2)
    assert torch.equal(train.scale.flatten(), torch.from_numpy(1 / deviation).float())


@pytest.mark.parametrize("normalization", ["channel", "image"])
def test_an_image_that_does_not_vary_becomes_zero(normalization):
    flat = Images(torch.full((4, 3, 8, 6), 90, dtype=torch.uint8), torch.zeros(4).long(), CLASSES)
    train, _ = load_resident(DataSet("flat", flat, flat, normalization, None), "cpu")
    assert whole(train)[0].abs().max() < 1e-5


def test_a_plan_holds_every_image_once_and_hangs_on_seed_and_epoch_alone():
    augmentation = Augmentation(pad=4, flip=True)
    plan = draw_epoch_plan(500, seed=1, epoch=2, augmentation=augmentation)
    assert sorted(plan[:, 0].tolist()) == list(range(500))
    assert (plan[:, 1:3].amin(), plan[:, 1:3].amax()) == (-4, 4)
    assert 200 < plan[:, 3].sum() < 300
    torch.manual_seed(7)
    assert torch.equal(plan, draw_epoch_plan(500, 1, 2, augmentation))
    for seed, epoch in ((1, 3), (2, 2), (12, 2)):
        assert not torch.equal(plan[:, 0], draw_epoch_plan(500, seed, epoch, augmentation)[:, 0])


def test_without_augmentation_a_plan_moves_nothing():
    assert draw_epoch_plan(50, 0, 0)[:, 1:].abs().sum() == 0
    unmirrored = draw_epoch_plan(50, 0, 0, Augmentation(pad=1, flip=False))
    assert unmirrored[:, 3].sum() == 0 and unmirrored[:, 1:3].abs().sum() > 0


@pytest.mark.parametrize("normalization", ["channel", "image"])
def test_a_batch_is_padded_with_zeros_cropped_and_mirrored(normalization):
    train, _ = load_resident(toy(normalization), "cpu")
    plain = whole(train)[0]
    plan = draw_epoch_plan(20, 3, 0, Augmentation(pad=2))
    got, labels = assemble_batch(train, plan, augmented=True)
    padded = F.pad(plain, (2, 2, 2, 2))
    for one, label, (index, down, right, mirrored) in zip(got, labels, plan.tolist(), strict=True):
        wanted = padded[index, :, 2 + down : 10 + down, 2 + right : 8 + right]
        torch.testing.assert_close(one, wanted.flip(-1) if mirrored else wanted)
        assert label == index % 3


def test_a_feed_gives_all_but_the_last_few_and_starts_anywhere():
    train, _ = load_resident(toy(), "cpu")
    feed = Feed(train, batch_size=6, seed=0)
    assert feed.steps == 3

    def rest(epoch, step):
        feed.start(epoch, step)
        found = []
        for _ in range(step, feed.steps):
            found.append(feed.batch()[0])
            feed.step.add_(1)
        return torch.cat(found)

    full = rest(4, 0)
    assert full.shape[0] == 18
    assert torch.equal(rest(4, 2), full[12:])
    assert not torch.equal(rest(5, 0), full)


def test_workers_share_a_batch_without_overlap():
    train, _ = load_resident(toy(augmentation=Augmentation(1)), "cpu")
    feeds = [Feed(train, 6, 0, Augmentation(1), rank, ranks=2) for rank in (0, 1)]
    alone = Feed(train, 6, 0, Augmentation(1))
    for feed in (alone, *feeds):
        feed.start(1, 1)
    assert torch.equal(torch.cat([feed.batch()[0] for feed in feeds]), alone.batch()[0])


@pytest.mark.parametrize(
    ("batch_size", "ranks", "message"),
    [
        (21, 1, r"batch_size: got 21, wanted 1 to 20"),
        (0, 1, r"batch_size: got 0"),
        (9, 2, r"batch_size: got 9, wanted a multiple of the 2 processes"),
    ],
)
def test_a_batch_that_cannot_be_is_refused(batch_size, ranks, message):
    train, _ = load_resident(toy(), "cpu")
    with pytest.raises(ValueError, match=message):
        Feed(train, batch_size, 0, ranks=ranks)


def test_an_unknown_normalization_is_refused():
    with pytest.raises(ValueError, match=r"toy: got the normalization 'pixel', wanted channel"):
        load_resident(toy("pixel"), "cpu")
