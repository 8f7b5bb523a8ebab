"""What is checked before the hours of a study: its images, the disk, and how long it will take."""

from __future__ import annotations

import datetime
import math
import shutil
import statistics
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import torch

from foveapool._io import find_existing_parent
from foveapool.data.download import count_labels
from foveapool.data.images import Images, draw_subset
from foveapool.networks import build_network
from foveapool.networks.sites import make_site
from foveapool.pooling.grid import windows
from foveapool.pooling.moments import ChannelMoments
from foveapool.records import name_hardware
from foveapool.robustness.images import SMALLEST
from foveapool.runs import Runs
from foveapool.study.engine import order_by_dependency
from foveapool.study.fits import WEIGHTS
from foveapool.study.rows import make_diverged_result
from foveapool.study.setting import FITTED, Pool
from foveapool.study.spec import ExecutionOptions, TrainingSpec, build_job, load_training_data
from foveapool.study.study import Study, StudyStages
from foveapool.study.worker import count_parameters
from foveapool.training.loop import train


def check_images(study: Study, means: ExecutionOptions) -> None:
    """Loads the study's images; refuses those that one of its trainings could not do with."""
    training, source = study.training(study.network, 0), study.source
    if source.share is not None:
        whole = load_training_data(replace(training, source=replace(source, share=None)), means)
        _check_share("[data]: share", source.share, len(whole.train))
    data = load_training_data(training, means)
    images = data.train
    if study.robustness:
        _check_color(data.test.images.shape[1:])
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
            without = search.training(study.network, study.source, study.recipe, part)
            rest = load_training_data(without, means).train
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


def _check_color(shape: Sequence[int]) -> None:
    """What corrupts images does so to colors, and needs some room."""
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
    site = make_site(pool.layer, "", 1, image_shape)
    places = site.in_shape[0] * site.in_shape[1]
    if pool.window is not None:
        places = windows(site.in_shape, site.out_shape, pool.window, pool.center).shape[1]
    if pool.components > places:
        raise ValueError(
            f"components: got {pool.components} for {pool.pooling} at layer {pool.layer}, wanted "
            f"at most {places}, the places of a map that it sees there"
        )


def _check_classes(images: Images, what: str) -> None:
    """A closed form is fitted on how the images of a class differ."""
    for name, count in zip(images.classes, count_labels(images), strict=True):
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


TIMED_STEPS = 6


SPARE_BYTES = 200_000_000


# The largest of images of 32 x 32: all layers of a network, and the first layer.
SCATTER_BYTES, OPERATOR_BYTES = 20_000_000, 4_200_000


@dataclass(frozen=True)
class StudyPlan:
    """How many trainings a study takes, those that are done already, and the time for the rest.

    The time is that of training alone: fits and robustness come on top. A second layer that the
    search may add is counted as if it were not kept. `again` are those that are done, but whose
    network others are fitted on and is not here: it is trained again, and that time is counted.
    """

    trainings: tuple[TrainingSpec, ...]
    done: int
    seconds: float  # one training after the other; not a number where that is not known
    unknown: str = ""  # why it is not: no data to try it with, or steps that diverge
    again: int = 0

    @property
    def left(self) -> int:
        """The trainings that are still to be done."""
        return len(self.trainings) - self.done

    def describe_time(self, jobs: int) -> str:
        """How long what is left takes, so many at once, in words."""
        if not self.left:
            return "nothing is left to do"
        if self.unknown:
            return f"the time for the other {self.left} is unknown: {self.unknown}"
        seconds = self.seconds / jobs
        time = "less than a second"
        if seconds >= 1:
            time = f"about {datetime.timedelta(seconds=round(seconds))}"
        again = f" and for {self.again} networks that fits need again" if self.again else ""
        return (
            f"{time} of training for the other {self.left}{again}, {jobs} at once; fits and "
            "robustness not counted"
        )


def make_plan(study: Study, runs: Runs, means: ExecutionOptions) -> StudyPlan:
    """What the study would train, found by going through it with what is known by now.

    A training that is still to be done is taken for one that gets everything wrong. ValueError
    where the images, if they are here, would not do.
    """
    asked: dict[str, TrainingSpec] = {}

    for stage in StudyStages(study):
        asked.update(
            (each.name, each) for level in order_by_dependency(stage.trainings) for each in level
        )
        found = {each.name: runs.result(each.name, each.facts) for each in stage.trainings}
        stage.results = {
            name: result or make_diverged_result("not done yet") for name, result in found.items()
        }
    left = [each for each in asked.values() if runs.result(each.name, each.facts) is None]
    if left:
        # Images that are not here may be where it will run.
        with suppress(FileNotFoundError):
            check_images(study, means)
    again = _list_retrained(left, runs)
    try:
        seconds, unknown = (
            _estimate_seconds(study, [*left, *again], runs, means) if left else 0.0,
            "",
        )
    except (FileNotFoundError, FloatingPointError) as error:
        seconds, unknown = math.nan, str(error)
    return StudyPlan(tuple(asked.values()), len(asked) - len(left), seconds, unknown, len(again))


def _list_retrained(left: Sequence[TrainingSpec], runs: Runs) -> list[TrainingSpec]:
    """The finished trainings whose networks are not here, but are wanted for fits."""
    found: dict[str, TrainingSpec] = {}
    for training in left:
        before = training.fitted_on
        while before is not None and before.name not in found:
            folder, result = runs.folder(before.name), runs.result(before.name, before.facts)
            is_here = (folder / WEIGHTS).exists() or any(folder.glob("scatter-*.safetensors"))
            if result is None or "diverged" in result or is_here:
                break
            found[before.name] = before
            before = before.fitted_on
    return list(found.values())


def _estimate_seconds(
    study: Study, left: Sequence[TrainingSpec], runs: Runs, means: ExecutionOptions
) -> float:
    """The time that they train: as long a step as others like them took, or as a few take."""

    def is_like(training: Mapping[str, Any], result: Mapping[str, Any]) -> bool:
        return (
            "diverged" not in result
            and training["setting"]["network"] == study.network.network
            and training["setting"]["width"] == study.network.width
            and training["data"] == study.source.facts()
            and training["recipe"]["batch_size"] == study.recipe.batch_size
        )

    def epochs_like(finished: Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> list[float]:
        found = [each for each in finished if is_like(*each)]
        return [result["seconds"] / training["recipe"]["epochs"] for training, result in found]

    # Those of another machine say nothing of how long it takes on this one.
    here = name_hardware(means.device)
    known = [each for each in runs.known.values() if each.result["hardware"] == here]
    like = epochs_like(runs.finished()) or epochs_like(known)
    epoch = statistics.median(like) if like else _time_epoch(left[0], means)
    return sum(epoch * each.recipe.epochs for each in left)


def _time_epoch(training: TrainingSpec, means: ExecutionOptions) -> float:
    """How long an epoch of the network without poolings takes, from a few of its steps."""
    trial = build_job(replace(training, setting=replace(training.setting, pools=())), means)
    batch = trial.recipe.batch_size
    steps = max(1, min(TIMED_STEPS, len(trial.data.train) // batch))
    few = replace(trial.data, test=trial.data.test.part(slice(0, 1)))  # type: ignore[arg-type]
    if steps * batch < len(few.train):
        few = replace(few, train=draw_subset(few.train, steps * batch, 0))
    recipe = replace(trial.recipe, epochs=2, milestones=())
    # The first epoch warms up.
    result = train(trial.network(), few, recipe, device=means.device)
    return result.history[-1].seconds / steps * (len(trial.data.train) // batch)


def check_disk_space(study: Study, runs: Runs, at_once: int) -> None:
    """Refuses to begin where the disk cannot hold the checkpoints and what is kept."""
    network = study.network
    numbers = count_parameters(
        build_network(network.network, seed=0, width=network.width, **network.options)
    )
    kept = study.seeds + max((search.parts for search in study.searches), default=0)
    # A checkpoint has the weights and two numbers more for each, and a second one while it is
    # written; of finished networks without poolings the weights stay.
    weights = 4 * numbers * (6 * at_once + kept)
    fits = sum(len(s.settings(network)) * s.parts for s in study.searches)
    fits += len(study.arms) * study.seeds
    needed = weights + kept * SCATTER_BYTES + fits * OPERATOR_BYTES + SPARE_BYTES
    free = shutil.disk_usage(find_existing_parent(runs.root)).free
    if free < needed:
        raise OSError(
            f"{runs.root}: {free / 1e9:.1f} GB are free, wanted {needed / 1e9:.1f} GB for "
            f"{study.name}; free some, or choose another folder"
        )
