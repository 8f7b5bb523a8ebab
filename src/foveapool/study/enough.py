"""Whether the images of a study are enough for it, known before the hours and not after them.

What a file says of itself is checked as it is read; here is what only the images can tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from foveapool.data.check import class_counts
from foveapool.data.images import Images
from foveapool.networks.sites import site_at
from foveapool.pooling.grid import windows
from foveapool.pooling.moments import ChannelMoments
from foveapool.robustness.levels import SMALLEST
from foveapool.study.setting import FITTED, Pool
from foveapool.study.study import Study
from foveapool.study.training import Means, data_of


def check_images(study: Study, means: Means) -> None:
    """Loads the study's images; refuses those that one of its trainings could not do with."""
    training, source = study.training(study.network, 0), study.source
    if source.share is not None:
        whole = data_of(replace(training, source=replace(source, share=None)), means)
        _check_share("[data]: share", source.share, len(whole.train))
    data = data_of(training, means)
    images = data.train
    if study.robustness:
        _check_colour(data.test.images.shape[1:])
    pools = [pool for each in study.settings() for pool in each.pools if pool.is_fitted]
    for pool in dict.fromkeys(pools):
        _check_places(pool, images.images.shape[2:])
    what = f"the {len(images)} training images"
    if any(arm.pooling in FITTED for arm in study.arms):
        _check_classes(images, what)
    _check_batch(study.recipe.batch_size, images, what)
    for search in study.searches:
        _check_share("search: held_out", search.held_out, len(images))
        for part in range(search.parts if search.pooling in FITTED else 1):
            rest = data_of(study.held_out_training(search, study.network, part, 1.0), means).train
            what = f"the {len(rest)} training images that held-out part {part} leaves"
            if search.pooling in FITTED:
                _check_classes(rest, what)
            _check_batch(study.recipe.batch_size, rest, what)
    for cap in dict.fromkeys(pool.class_cap for pool in pools):
        _check_cap(images, cap)


def _check_share(name: str, share: float, count: int) -> None:
    if not 0 < round(share * count) < count:
        raise ValueError(
            f"{name}: got {share}, which is {round(share * count)} of {count} training images; "
            "wanted a share of one image or more, and not of all"
        )


def _check_colour(shape: Sequence[int]) -> None:
    """What corrupts images does so to colours, and needs some room."""
    if shape[0] != 3 or min(shape[1:]) < SMALLEST:
        raise ValueError(
            f"[trials]: robustness: got test images of {' x '.join(map(str, shape))}, wanted three "
            f"channels and {SMALLEST} pixels or more a side; leave it out, or take such images"
        )


def _check_batch(size: int, images: Images, what: str) -> None:
    if size > len(images):
        raise ValueError(
            f"[recipe]: batch_size: got {size} for {what}, wanted that many at most; take a "
            "smaller one, or more images"
        )


def _check_places(pool: Pool, image_shape: Sequence[int]) -> None:
    """An operator cannot have more rows at a place than the place has weights."""
    site = site_at(pool.layer, "", 1, image_shape)
    places = site.in_shape[0] * site.in_shape[1]
    if pool.window is not None:
        places = windows(site.in_shape, site.out_shape, pool.window, pool.centre).shape[1]
    if pool.components > places:
        raise ValueError(
            f"components: got {pool.components} for {pool.pooling} at layer {pool.layer}, wanted "
            f"at most {places}, the places of a map that it sees there"
        )


def _check_classes(images: Images, what: str) -> None:
    """A closed form is fitted on how the images of a class differ."""
    for name, count in zip(images.classes, class_counts(images), strict=True):
        if count < 2:
            raise ValueError(
                f"data: got {count} of class {name!r} among {what}, wanted two or more of every "
                "class, to fit a closed form on; take more images, hold out fewer, or leave the "
                "class out"
            )


def _check_cap(images: Images, cap: int | None) -> None:
    """Counts the images as a fit counts them: a cap can leave too few of a class to it."""
    moments = ChannelMoments(len(images.classes), cap, dead_channels="ignore")
    moments.update(torch.zeros(len(images), 1, 1), images.labels)
    moments.compute()
