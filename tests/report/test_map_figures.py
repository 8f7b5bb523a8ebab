"""Feature maps by class: means, nearest samples and scatter against plain numpy."""

import numpy as np
import pytest
import torch

from foveapool.report.figures import class_maps, feature_map_figure

from .read_figures import assert_legible, images, texts

CLASSES = ("cat", "<b>dog</b>", "$owl_$")


@pytest.fixture(scope="module")
def pooled():
    """Maps of two poolings, the second with the classes further apart; classes 0, 1 and 2."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.tensor([0, 1, 2, 1, 0, 1, 2, 2, 0, 1, 1, 1, 0, 0, 2, 0])
    noise = torch.randn(2, 16, 4, 3, 5, generator=generator)
    means = torch.randn(3, 4, 3, 5, generator=generator)
    return noise[0] + 0.1 * means[labels], noise[1] + 2 * means[labels], labels


def by_hand(maps, labels, channel, count):
    maps, labels = maps.double().numpy()[:, channel], labels.numpy()
    means = np.stack([maps[labels == q].mean(0) for q in range(3)])
    nearest = []
    for q in range(3):
        own = [i for i in range(len(labels)) if labels[i] == q]
        nearest.append(sorted(own, key=lambda i: np.linalg.norm(maps[i] - means[q]))[:count])
    within = np.mean(
        [
            np.mean([((maps[i] - means[q]) ** 2).sum() for i in np.nonzero(labels == q)[0]])
            for q in range(3)
        ]
    )
    between = np.mean([((mean - means.mean(0)) ** 2).sum() for mean in means])
    return means, nearest, within, between


@pytest.mark.parametrize("which", [0, 1])
def test_means_nearest_maps_and_scatter_are_those_of_the_channel(pooled, which):
    maps, labels = pooled[which], pooled[2]
    found = class_maps(maps, labels, channel=2, count=3)
    means, nearest, within, between = by_hand(maps, labels, 2, 3)
    np.testing.assert_allclose(found.means, means, rtol=1e-12)
    assert [each.tolist() for each in found.nearest] == nearest
    assert found.within == pytest.approx(within) and found.between == pytest.approx(between)


def test_the_ratio_over_all_channels_does_not_depend_on_their_scale(pooled):
    maps, _, labels = pooled
    shares = [by_hand(maps, labels, c, 1)[2:] for c in range(4)]
    share = np.mean([between / (within + between) for within, between in shares])
    found = class_maps(maps, labels)
    assert found.all_channels == pytest.approx(share / (1 - share))
    scaled = maps * torch.tensor([1.0, 100.0, 0.01, 3.0])[:, None, None]
    assert class_maps(scaled, labels).all_channels == pytest.approx(found.all_channels)
    dead = torch.cat([maps, torch.full_like(maps[:, :1], 7.0)], 1)
    assert class_maps(dead, labels).all_channels == pytest.approx(found.all_channels)


def test_each_row_shows_the_mean_and_then_the_nearest(pooled):
    default, learned, labels = pooled
    figure = feature_map_figure(default, learned, labels, CLASSES, (1, 3), count=2)
    shown = [np.asarray(image.get_array()) for image in images(figure)]
    wanted = []
    for maps, channel in ((default, 1), (learned, 3)):
        means, nearest, _, _ = by_hand(maps, labels, channel, 2)
        for q in range(3):
            wanted += [means[q], *maps[nearest[q], channel].double().numpy()]
    assert len(shown) == len(wanted) == 2 * 3 * 3
    for image, maps in zip(shown, wanted, strict=True):
        np.testing.assert_allclose(image, maps, rtol=1e-12)


def test_within_and_between_are_written_under_it(pooled):
    default, learned, labels = pooled
    figure = feature_map_figure(default, learned, labels, CLASSES)
    written = [text.get_text() for text in texts(figure)]
    for maps in (default, learned):
        _, _, within, between = by_hand(maps, labels, 0, 1)
        total = within + between
        assert f"within {within / total:.2f}" in written
        assert f"between {between / total:.2f}" in written
        assert f"between / within {between / within:.2g}" in written
    assert set(CLASSES) <= set(written)
    assert_legible(figure)


def test_both_blocks_have_a_scale_of_their_own(pooled):
    default, learned, labels = pooled
    shown = images(feature_map_figure(default, learned, labels, CLASSES, count=2))
    first, second = ({image.get_clim() for image in part} for part in (shown[:9], shown[9:]))
    assert len(first) == len(second) == 1 and first != second


def test_at_most_ten_classes_are_shown_and_classes_without_maps_are_left_out():
    labels = torch.arange(48) % 12 * 2
    maps = torch.randn(48, 1, 2, 2, generator=torch.Generator().manual_seed(0))
    names = [f"class {i}" for i in range(24)]
    figure = feature_map_figure(maps, maps, labels, names, count=1)
    rows = [text.get_text() for text in texts(figure) if text.get_text().startswith("class")]
    assert rows == names[:20:2]
    assert len(images(figure)) == 2 * 10 * 2
    assert_legible(figure)


def test_a_class_with_few_samples_shows_all_of_them():
    maps, labels = torch.arange(8.0).reshape(4, 1, 1, 2), torch.tensor([0, 1, 1, 1])
    shown = images(feature_map_figure(maps, maps, labels, CLASSES))
    assert len(shown) == 2 * ((1 + 1) + (1 + 3))


def test_a_long_name_is_cut_and_the_maps_keep_their_room(pooled):
    default, learned, labels = pooled
    names = ("cat", "dog", "an owl that is known by a long name and by many more words")
    figure = feature_map_figure(default, learned, labels, names, count=2)
    (cut,) = [text.get_text() for text in texts(figure) if text.get_text().startswith("an owl")]
    assert cut.endswith("...") and names[2].startswith(cut.removesuffix("..."))
    assert min(axes.get_position().width for axes in figure.axes if axes.images) > 0.03
    assert_legible(figure)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"channels": (4, 0)}, "channel: got 4, wanted 0 to 3"),
        ({"names": ("cat", "dog")}, "names: got 2, wanted one for each class up to 2"),
        ({"labels": torch.zeros(16)}, "got 1 classes, wanted two or more"),
        ({"labels": torch.zeros(3)}, "wanted \\(n, C, h, w\\) and \\(n,\\)"),
    ],
)
def test_what_cannot_be_drawn_is_refused(pooled, change, message):
    default, learned, labels = pooled
    given = {"labels": labels, "names": CLASSES, **change}
    with pytest.raises(ValueError, match=message):
        feature_map_figure(default, learned, **given)
