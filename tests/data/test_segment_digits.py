"""Generated scenes: determined by the seed, standardised, and telling of their label."""

import torch

from foveapool.data.segment_digits import segment_digits


def test_a_seed_determines_the_scenes():
    first, again, other = (segment_digits(20, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(first[0], again[0]) and torch.equal(first[1], again[1])
    assert not torch.equal(first[0], other[0])


def test_every_image_has_mean_zero_and_deviation_one():
    images, labels = segment_digits(300, seed=0, size=24)
    assert images.shape == (300, 3, 24, 24)
    flat = images.flatten(2)
    assert flat.mean((1, 2)).abs().max() < 1e-4
    assert (flat.std((1, 2)) - 1).abs().max() < 0.05
    assert labels.unique().tolist() == list(range(10))


def test_no_images_are_no_error():
    images, labels = segment_digits(0)
    assert images.shape == (0, 3, 32, 32) and len(labels) == 0


def test_the_middle_tells_the_class_better_than_the_rim():
    images, labels = segment_digits(1500, seed=1)
    # Colours say nothing of the class, strokes do: look at the edges.
    edges = images.mean(1).diff(dim=1).abs()[:, :, :-1] + images.mean(1).diff(dim=2).abs()[:, :-1]
    means = torch.stack([edges[labels == q].mean(0) for q in range(10)])
    between = means.var(0)
    assert between[8:24, 8:24].mean() > 2 * between[:, :4].mean()
