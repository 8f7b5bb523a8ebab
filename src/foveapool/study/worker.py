"""Doing one training in whatever process: train, fit, replace, train again, as the paper does.

A training is done in a folder of runs, unless it is done already; what it is fitted on must have
been done before. Killed at any moment, it loses the epoch it was in and at most five seconds before
that.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from foveapool._eval_mode import eval_mode
from foveapool._io import to_canonical_json
from foveapool.records import collect_provenance
from foveapool.robustness.result import RobustnessResult
from foveapool.runs import RESULT, Finished, Runs
from foveapool.study.fits import (
    WEIGHTS,
    check_fitted_on,
    fit_operators,
    forget_retraining,
    save_weights,
)
from foveapool.study.robustness import RobustnessRequest, measure_robustness
from foveapool.study.rows import make_diverged_result
from foveapool.study.spec import ExecutionOptions, TrainingSpec, build_job
from foveapool.training.checkpoint import CHECKPOINT, UnusableCheckpoint
from foveapool.training.loop import Divergence
from foveapool.training.metrics import Progress


def run_training(
    training: TrainingSpec,
    runs: Runs,
    means: ExecutionOptions,
    progress: Callable[[Progress], None] | None = None,
) -> dict[str, Any]:
    """What the training came to, as `result.json` holds it; from there if it is finished.

    One that diverges is finished too, with an error of 100 % and the reason under `diverged`.
    BlockingIOError where another process is at it.
    """
    done = find_finished(training, runs)
    if done is not None:
        return done
    with runs.claimed(training.name, training.facts) as folder:
        done = find_finished(training, runs)
        if done is not None:
            return done
        try:
            found = _train(training, runs, means, folder, progress)
        except FloatingPointError as error:
            # A search, or a night's trials, must not end with one that diverges. What the loop
            # says of a checkpoint is left out: it does not stay.
            found = make_diverged_result(error.why if isinstance(error, Divergence) else str(error))
        # Not the command: a worker's own says nothing of the study it worked for.
        where = collect_provenance(means.device)
        found |= {key: value for key, value in where.items() if key != "command"}
        runs.finish(training.name, found)
        (folder / CHECKPOINT).unlink(missing_ok=True)
    done = runs.result(training.name, training.facts)
    assert done is not None, "it was just written"
    return done


def find_finished(training: TrainingSpec, runs: Runs) -> dict[str, Any] | None:
    """What the training came to, or None where it is not finished.

    One that was killed as it finished had no time to tidy up; that is done here.
    """
    done = runs.result(training.name, training.facts)
    if done is not None:
        folder = runs.folder(training.name)
        # Of one that was finished elsewhere it may be the checkpoint of who is at it now.
        if (folder / RESULT).exists():
            (folder / CHECKPOINT).unlink(missing_ok=True)
        # Without its weights, what was trained again is half done and can be gone on with.
        if "diverged" in done or (folder / WEIGHTS).exists():
            forget_retraining(folder)
    return done


def find_fault(name: str, facts: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    """Says why a study could make no use of a training that was finished elsewhere.

    Args:
        name: The name of the training.
        facts: What was trained.
        result: What it came to, with all the numbers of a result.

    Returns:
        The reason in words; nothing if a study could use it.
    """
    try:
        training = TrainingSpec.from_facts(facts)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        return f"{name}: facts of no training that this version of foveapool knows ({error!r})"
    if to_canonical_json(training.facts) != to_canonical_json(facts):
        return f"{name}: facts as another version of foveapool has them"
    if training.name != name:
        return f"got the name {name[:200]!r}, wanted {training.name}"
    if "diverged" in result:
        return "" if isinstance(result["diverged"], str) else f"{name}: diverged is no text"
    setting, alphas = training.setting, result["alphas"]
    fitted = [pool for pool in setting.pools if pool.is_fitted]
    for operator in (each for pool in fitted for each in setting.operator_names(pool).values()):
        alpha = alphas.get(operator)
        if not (isinstance(alpha, (int, float)) and 0 < alpha <= sys.float_info.max):
            return f"{name}: got {alpha!r} for the alpha at layer {operator}"
    if training.robustness:
        try:
            RobustnessResult.from_dict(result.get("robustness", {})).figures()
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            return f"{name}: robustness: {error}"
    return ""


def _train(
    training: TrainingSpec,
    runs: Runs,
    means: ExecutionOptions,
    folder: Path,
    progress: Callable[[Progress], None] | None,
) -> dict[str, Any]:
    check_fitted_on(training, runs)
    trial = build_job(training, means, folder)
    fits = fit_operators(training, runs, means)
    try:
        network, result = trial.run(fits.operators, progress)
    except UnusableCheckpoint as error:
        runs.set_aside(training.name, str(error))
        runs.begin(training.name, training.facts)
        fits = fit_operators(training, runs, means)
        network, result = trial.run(fits.operators, progress)
    if means.keep or not training.setting.pools:
        save_weights(training, network, runs)
    found = {
        "error": result.test_error,
        "loss": result.train_loss,
        "seconds": result.seconds,
        "fit_seconds": fits.seconds,
        "parameters": count_parameters(network),
        "multiply_adds": count_multiply_adds(network, trial.data.train.images.shape[1:]),
        "alphas": {name: each.settings.alpha for name, each in fits.operators.items()},
    }
    if training.robustness:
        asked = RobustnessRequest.of_training(training.robustness, means.device)
        found["robustness"] = measure_robustness(network, trial.data, asked).to_dict()
    return found


@dataclass(frozen=True)
class Outcome:
    """What a worker has to say: the result, or None where another process is at it."""

    result: dict[str, Any] | None
    said: tuple[str, ...] = ()


def work_on(
    training: TrainingSpec,
    runs: Path,
    means: ExecutionOptions,
    known: Mapping[str, Finished] | None = None,
) -> Outcome:
    """Does one training, in whatever process.

    Args:
        training: What to train.
        runs: The folder of runs.
        means: How to train it.
        known: Trainings that were finished elsewhere, if they matter.

    Returns:
        What it came to.
    """
    said: list[str] = []
    try:
        result = run_training(training, Runs(runs, said.append, known), means)
    except BlockingIOError:
        return Outcome(None, tuple(said))
    return Outcome(result, tuple(said))


def count_parameters(network: nn.Module) -> int:
    """The numbers that training changes."""
    return sum(p.numel() for p in network.parameters() if p.requires_grad)


def count_multiply_adds(network: nn.Module, image_shape: Sequence[int]) -> int:
    """Products of matrices and convolutions for one image (C, H, W).

    Additions alone cost none, and neither do maxima, exponentials and Fourier transforms.
    """
    device = next(network.parameters()).device
    counter = FlopCounterMode(display=False)
    with eval_mode(network), counter:
        network(torch.zeros(1, *image_shape, device=device))
    return counter.get_total_flops() // 2
