"""Operators for trainings: fitted on the network they name, once, and kept beside it.

The scatter at a layer depends on the trained network and on how it is summed up, not on alpha,
norm or components; so it is kept with the network, and all settings that read it share it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor, nn

from foveapool._io import clear_leftovers, hold_lock, read_sealed_json, write_sealed_json
from foveapool._stored_names import STORED
from foveapool.data.batches import OrderedBatches, load_resident
from foveapool.data.images import DataSet
from foveapool.networks.sites import AFTER, PoolingSite, make_site
from foveapool.pooling.operator import PoolingOperator
from foveapool.pooling.scatter import Scatter
from foveapool.pooling.storage import (
    check_numbers,
    explain_damage,
    load_tensors,
    save_tensors,
)
from foveapool.runs import Runs
from foveapool.study.setting import AUTO, Pool
from foveapool.study.spec import ExecutionOptions, TrainingSpec, build_job, load_training_data
from foveapool.surgery.estimator import ClosedFormPooling
from foveapool.surgery.find import DescribedLayer
from foveapool.training.parallel import choose_device

WEIGHTS = "weights.safetensors"
AGAIN, FIT_LOCK = "again", "fit.lock"

_Kept = TypeVar("_Kept", PoolingOperator, Scatter)


@dataclass(frozen=True)
class FittedOperators:
    """The operators of a training's closed forms, by name, and what fitting them took.

    The seconds are those of the passes and of the solving, whoever did them and when; where a
    folder does not tell, as older ones do not, those that it takes now.
    """

    operators: dict[str, PoolingOperator]
    seconds: float


def fit_operators(training: TrainingSpec, runs: Runs, means: ExecutionOptions) -> FittedOperators:
    """The operators of a training's closed forms, from its folder or fitted, and their time."""
    operators, seconds = {}, 0.0
    setting = training.setting
    for pool in setting.pools:
        if not pool.is_fitted:
            continue
        until = replace(training, setting=setting.until(pool))
        for path, name in setting.operator_names(pool).items():
            file = runs.folder(until.name) / name_operator_file(name)
            begin = time.perf_counter()
            operators[name] = _get_operator(until, pool, path, file, runs, means)
            took = _read_time(file)
            seconds += sum(took.values()) if took else time.perf_counter() - begin
    return FittedOperators(operators, seconds)


def get_operators(
    training: TrainingSpec, runs: Runs, means: ExecutionOptions
) -> dict[str, PoolingOperator]:
    """The operators alone, for who wants the network and not what it cost."""
    return fit_operators(training, runs, means).operators


def name_operator_file(name: str) -> str:
    """The file of an operator in its training's folder."""
    return f"operator-{name}.safetensors"


def _get_operator(
    training: TrainingSpec, pool: Pool, path: str, file: Path, runs: Runs, means: ExecutionOptions
) -> PoolingOperator:
    """An operator of one of the training's last pools, from its file or fitted."""
    shape = load_training_data(training, means).train.images.shape[2:]
    components = training.setting.components_in(pool, path)
    own = replace(pool, components=components) if components != pool.components else pool
    kept = _read(PoolingOperator, file, runs, lambda found: _matches_pool(found, own, shape))
    if kept is not None:
        return kept
    before = training.fitted_on
    assert before is not None, "only a fitted pool has an operator"
    check_fitted_on(training, runs)
    there = get_operators(before, runs, means)
    network, site = build_job(before, means).network_to_read(pool, path, there)
    scatter, passes = _get_scatter(before, network, site, pool, runs, means)
    begin = time.perf_counter()
    operator = solve_scatter(scatter.to(choose_device(means.device)), site, own)
    solving = time.perf_counter() - begin
    file.parent.mkdir(parents=True, exist_ok=True)
    _note_time(file, {**passes, "solving": solving} if passes else {})
    operator.save(file)
    return operator


def check_fitted_on(training: TrainingSpec, runs: Runs) -> None:
    """Refuses a training that has no network to be fitted on.

    Args:
        training: The training; one whose last pooling is not fitted passes.
        runs: Where it is known what became of the one that it is fitted on.

    Raises:
        FloatingPointError: If that one diverged.
    """
    before = training.fitted_on
    if before is not None and "diverged" in (runs.result(before.name, before.facts) or {}):
        raise FloatingPointError(
            f"{before.name}: diverged, so that this training has no network to be fitted on"
        )


def _get_scatter(
    training: TrainingSpec,
    network: Any,
    site: PoolingSite,
    pool: Pool,
    runs: Runs,
    means: ExecutionOptions,
) -> tuple[Scatter, dict[str, float]]:
    """The scatter at a module of a finished training's network, summed up once, and its time."""
    choices: dict[str, Any] = {
        "module": site.module,
        STORED["normalize"]: pool.normalize,
        "weighting": pool.weighting,
        "class_cap": pool.class_cap,
    }
    # Forms that keep the convolution read a module of one name before and behind its activation.
    choices |= {"form": pool.form} if pool.form in AFTER else {}
    digest = hashlib.blake2b(json.dumps(choices).encode(), digest_size=4).hexdigest()
    folder = runs.folder(training.name)
    path = folder / f"scatter-{site.module}-{digest}.safetensors"
    # Others that need it too wait here and then find it.
    with hold_lock(folder / FIT_LOCK, wait=True):
        kept = _read(Scatter, path, runs, lambda found: found.in_shape == site.in_shape)
        if kept is not None:
            return kept, _read_time(path)
        for leftover in (path, _time_path(path)):
            clear_leftovers(leftover)
        network.load_state_dict(get_weights(training, runs, means))
        data = build_job(training, means).data
        begin = time.perf_counter()
        # On the CPU, where a file would have it: a GPU has finished by then.
        scatter = sum_scatter(network, data, site, pool, means.device).to("cpu")
        passes = {"passes": time.perf_counter() - begin}
        _note_time(path, passes)
        scatter.save(path)
        return scatter, passes


def make_fit(pool: Pool, components: int | None = None) -> ClosedFormPooling:
    """How a pool is fitted, as everyone says it; `components` may be fewer than it has."""
    return ClosedFormPooling(
        pool.alpha,
        pool.norm,
        components or pool.components,
        alpha_unit=pool.alpha_unit,
        center=pool.center,
        sign=pool.sign,
        window=pool.window,
        weighting=pool.weighting,
        normalize=pool.normalize,
        class_cap=pool.class_cap,
    )


def sum_scatter(
    network: nn.Module,
    data: DataSet,
    site: PoolingSite,
    pool: Pool,
    device: str | None = None,
    batch: int = 500,
) -> Scatter:
    """The scatter of what reaches a site's module, over the training images as they are.

    Not augmented, in evaluation mode, at most the pool's `class_cap` images a class. It is that of
    whole maps, which serves every window.
    """
    chosen = choose_device(device)
    images, _ = load_resident(data, chosen)
    fit = make_fit(pool).set_params(window=None, num_classes=len(data.train.classes))
    loader = OrderedBatches(images, batch)
    return fit.sum_scatter(network.to(chosen), loader, _describe_site(site)).scatter_


def solve_scatter(
    scatter: Scatter, site: PoolingSite, pool: Pool, components: int | None = None
) -> PoolingOperator:
    """The operator that a pool's choices give on its scatter."""
    fit = make_fit(pool, components)
    return fit.use_scatter({site.module: scatter}, [_describe_site(site)]).solve().operator_


def _describe_site(site: PoolingSite) -> DescribedLayer:
    """A site as a fit takes it: what shrinks the maps there may be a block, or a pooling."""
    return DescribedLayer(
        name=site.module,
        kind="PoolingSite",
        in_channels=site.channels,
        out_channels=site.components * site.channels,
        in_shape=site.in_shape,
        out_shape=site.out_shape,
        components=site.components,
        exact=True,
        siblings=(),
        calls=1,
    )


def _time_path(path: Path) -> Path:
    """Where the time is noted that the file of an operator or a scatter took to make."""
    return path.with_suffix(".json")


def _note_time(path: Path, took: Mapping[str, float]) -> None:
    """Notes the seconds that a file took, before it is there; nothing where they are not known."""
    if took:
        write_sealed_json(_time_path(path), took)
    else:
        _time_path(path).unlink(missing_ok=True)


def _read_time(path: Path) -> dict[str, float]:
    """The seconds that a file took to make, by what was done; none where nobody noted them."""
    try:
        took = read_sealed_json(_time_path(path))
    except (OSError, ValueError):
        return {}
    return took if all(isinstance(each, float) for each in took.values()) else {}


def get_weights(training: TrainingSpec, runs: Runs, means: ExecutionOptions) -> Mapping[str, Any]:
    """The weights that a finished training kept; trained again where they are gone."""
    path = runs.folder(training.name) / WEIGHTS
    why = "its weights are not there"
    if path.exists():
        try:
            return read_weights(training.name, path)
        except ValueError as error:
            why = str(error)
    runs.say(f"{training.name}: {why}; trained again for its maps")
    # Finished elsewhere, it may have no folder; without a result it is not finished in this one.
    runs.begin(training.name, training.facts)
    again = path.parent / AGAIN
    network = build_job(training, means, again).run(get_operators(training, runs, means))[0]
    clear_leftovers(path)
    save_weights(training, network, runs)
    shutil.rmtree(again)
    return network.state_dict()


def load_kept_weights(network: nn.Module, training: TrainingSpec, folder: Path) -> None:
    """Fills a network with the weights that the folder of its training keeps, and no others."""
    path = folder / WEIGHTS
    weights = read_weights(training.name, path)
    try:
        network.load_state_dict(weights)
    except RuntimeError as error:
        raise ValueError(f"{path}: not the weights of this network: {error}") from error


def read_weights(name: str, path: Path) -> dict[str, Tensor]:
    """The weights in a file; ValueError where they are not those of the training of that name."""
    weights, facts = load_tensors(path, "weights")
    if facts.get("training") != name:
        raise ValueError(
            f"{path}: holds the weights of {facts.get('training')}, wanted those of {name}"
        )
    with explain_damage(path, "they are made again where a study needs them"):
        check_numbers(weights)
    return weights


def forget_retraining(folder: Path) -> None:
    """Removes what is left of a network that was trained again, unless one is at it now."""
    if (folder / AGAIN).exists():
        with suppress(BlockingIOError), hold_lock(folder / FIT_LOCK):
            shutil.rmtree(folder / AGAIN, ignore_errors=True)


def save_weights(training: TrainingSpec, network: nn.Module, runs: Runs) -> None:
    """Saves the weights of a training's network, for those that are fitted on it."""
    path = runs.folder(training.name) / WEIGHTS
    save_tensors(path, "weights", network.state_dict(), {"training": training.name})


def _read(
    kind: type[_Kept], path: Path, runs: Runs, is_own: Callable[[_Kept], bool]
) -> _Kept | None:
    """What the file holds; None where it is not there, or not its own and so to be made again."""
    if not path.exists():
        return None
    try:
        kept = kind.load(path)
        if is_own(kept):
            return kept
        why = f"{path}: is of another training"
    except ValueError as error:
        why = str(error)
    runs.say(f"{why}; made again")
    path.unlink()
    return None


def _matches_pool(operator: PoolingOperator, pool: Pool, image_shape: Sequence[int]) -> bool:
    """Whether the operator can be the pool's own, by its shapes and by how it was solved."""
    how, site = operator.settings, make_site(pool.layer, "", 1, image_shape)
    return (operator.in_shape, operator.out_shape) == (site.in_shape, site.out_shape) and (
        (operator.components, how.norm, how.center, how.sign, how.weighting, how.window)
        == (pool.components, pool.norm, pool.center, pool.sign, pool.weighting, pool.window)
        and (pool.alpha == AUTO or (pool.alpha, pool.alpha_unit) == (how.alpha, how.alpha_unit))
    )
