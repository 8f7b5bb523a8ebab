"""The training loop: epochs, records and checkpoints around one step.

What a step is and what it changes stands in `state.py`, what is saved in `checkpoint.py`. The error
it reports is that of the last epoch, never of the best.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from os import PathLike

import torch
from torch import nn

from foveapool.data.images import DataSet
from foveapool.training.checkpoint import (
    Position,
    RunFolder,
    describe_configuration,
    explain_disk_errors,
)
from foveapool.training.metrics import EpochRecord, Metrics, Progress
from foveapool.training.parallel import Workers, choose_device
from foveapool.training.recipe import Recipe
from foveapool.training.state import TrainingState, measure_error, set_rate


@dataclass(frozen=True)
class TrainResult:
    """What a training came to: error in percent and loss of its last epoch, and all the epochs.

    `seconds` is the time of its steps alone, over all the processes that did a part of it.
    """

    test_error: float
    train_loss: float
    history: tuple[EpochRecord, ...]
    seconds: float


def train(
    network: nn.Module,
    data: DataSet,
    recipe: Recipe,
    seed: int = 0,
    *,
    device: torch.device | str | None = None,
    folder: str | PathLike[str] | None = None,
    resume: bool = True,
    evaluate_every: int | None = None,
    checkpoint_steps: int | None = None,
    checkpoint_seconds: float = 0.0,
    compile: bool = False,
    tensorboard: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> TrainResult:
    """Trains `network` in place and leaves it on `device`; by default a GPU, where there is one.

    `seed` drives order and augmentation; the network comes with its own numbers. Images that do
    not fill an epoch's last batch are left out, other ones each time. On a CPU all is
    float32 and repeats bit for bit; on a GPU a step is bfloat16 autocast in one CUDA graph, and
    `compile` makes it faster still once it is compiled. With a `folder`, training goes on where
    its last checkpoint stood, unless `resume` is false.

    A checkpoint is written after each epoch, with `checkpoint_steps` also after every so many
    steps of it: who is killed loses no more than that. Where an epoch takes less time than its
    checkpoint, `checkpoint_seconds` lets that many seconds pass between two. The test error is
    taken after the last epoch, with `evaluate_every` also after every so many.
    """
    target = choose_device(device)
    if compile and target.type != "cuda":
        raise ValueError(f"compile: got the device {target}, wanted cuda; a CPU's path is plain")
    if tensorboard and folder is None:
        raise ValueError("tensorboard: got no folder to write to, wanted one")
    _check_counts(evaluate_every=evaluate_every, checkpoint_steps=checkpoint_steps)
    workers = Workers.current()
    with ExitStack() as stack:
        stack.enter_context(_explain_memory_errors(recipe))
        stack.enter_context(torch.random.fork_rng([target] if target.type == "cuda" else []))
        if target.type == "cuda":
            stack.enter_context(torch.cuda.device(target))
        _set_seed(seed, target)
        state = TrainingState(network, data, recipe, seed, target, workers)
        stack.callback(state.release)
        run = None
        if folder is not None:
            run = RunFolder(folder, describe_configuration(network, data, recipe, seed))
            if workers.leads:
                stack.enter_context(run.locked())
        saved = run.restore(state.tensors()) if run is not None and resume else None
        if saved is not None:
            state.use_noise()
        position, metrics = saved or Position(), None
        if run is not None and workers.leads:
            with explain_disk_errors(run.folder):
                metrics = Metrics(run.folder, position.history, tensorboard)
            stack.callback(metrics.close)
            if saved is None:
                # After what may refuse its arguments, and before anyone is told that it has begun.
                run.clear()
        pace = _Pace(evaluate_every, checkpoint_steps, checkpoint_seconds)
        loop = _Loop(state, recipe, run, metrics, pace, progress, saved, position)
        return loop.run(compile)


def _check_counts(**counts: int | None) -> None:
    for name, count in counts.items():
        if count is not None and count < 1:
            raise ValueError(f"{name}: got {count}, wanted 1 or more, or none")


class Divergence(FloatingPointError):
    """A training that came to numbers that are none: why, and what is left of it."""

    def __init__(self, why: str, left: str) -> None:
        super().__init__(why, left)
        self.why, self.left = why, left

    def __str__(self) -> str:
        return f"{self.why}. {self.left}"


@dataclass(frozen=True)
class _Pace:
    """How often to look up from training, as `train` was told."""

    evaluate_every: int | None
    checkpoint_steps: int | None
    checkpoint_seconds: float


@dataclass
class _Loop:
    state: TrainingState
    recipe: Recipe
    folder: RunFolder | None
    metrics: Metrics | None
    pace: _Pace
    progress: Callable[[Progress], None] | None
    saved: Position | None
    position: Position
    saved_at: float = field(default_factory=time.monotonic)

    def run(self, compile: bool) -> TrainResult:
        """From the position to the end."""
        self._report()
        if self.position.epoch < self.recipe.epochs:
            step = self.state.step(compile)
            while self.position.epoch < self.recipe.epochs:
                self._finish_epoch(step)
        history = self.position.history
        error = history[-1].test_error
        assert error is not None, "the last epoch is always evaluated"
        return TrainResult(error, history[-1].loss, history, sum(r.seconds for r in history))

    def _finish_epoch(self, step: Callable[[], None]) -> None:
        """Runs what is left of the epoch, records it and moves the position to the next."""
        state, steps = self.state, self.state.feed.steps
        epoch, done, history = self.position.epoch, self.position.step, self.position.history
        begin = time.perf_counter() - self.position.elapsed
        rate = self.recipe.rate(epoch)
        set_rate(state.optimizer, rate)
        state.anneal(epoch / self.recipe.epochs)
        state.feed.start(epoch, done)
        while done < steps:
            stop = self._find_next_stop(done)
            for _ in range(done, stop):
                step()
            if stop == steps and epoch + 1 < self.recipe.epochs:
                state.feed.prepare(epoch + 1)
            self._check_losses(epoch, done, stop)
            done = stop
            self.position = Position(epoch, done, time.perf_counter() - begin, history)
            if done < steps:
                self._report()
                if self.pace.checkpoint_steps and done % self.pace.checkpoint_steps == 0:
                    self._save(epoch)
        last = epoch + 1 == self.recipe.epochs
        loss, elapsed = float(state.losses.double().mean()), self.position.elapsed
        record = EpochRecord(epoch + 1, loss, rate, elapsed, self._measure_error(epoch, last))
        self.position = Position(epoch + 1, 0, 0.0, (*history, record))
        self._report()
        if self.metrics is not None:
            with explain_disk_errors(self.metrics.path):
                self.metrics.add(record)
        if last or time.monotonic() - self.saved_at >= self.pace.checkpoint_seconds:
            self._save(epoch)

    def _find_next_stop(self, done: int) -> int:
        """Where to look up next: a CPU after each step, a GPU only where a checkpoint is due."""
        steps = self.state.feed.steps
        every = 1 if self.state.device.type == "cpu" else self.pace.checkpoint_steps or steps
        return min(steps, (done // every + 1) * every)

    def _check_losses(self, epoch: int, first: int, stop: int) -> None:
        """Makes the losses of these steps those of all workers; ends where one is no number."""
        losses = self.state.losses[first:stop]
        self.state.workers.average([losses])
        for number, loss in enumerate(losses.tolist(), first + 1):
            if not math.isfinite(loss):
                when = f"in epoch {epoch + 1}, step {number} of {self.state.feed.steps}"
                raise self._make_divergence(
                    f"loss: got {loss} {when}, wanted finite numbers", epoch
                )

    def _measure_error(self, epoch: int, last: bool) -> float | None:
        due = self.pace.evaluate_every is not None and (epoch + 1) % self.pace.evaluate_every == 0
        if not (last or due):
            return None
        # Until here batch-norm's running statistics are each worker's own.
        self.state.workers.follow(list(self.state.network.buffers()))
        self._check_weights(epoch)
        try:
            return measure_error(self.state.network, self.state.test, self.state.workers)
        except FloatingPointError as error:
            raise self._make_divergence(str(error), epoch) from error

    def _check_weights(self, epoch: int) -> None:
        """Ends where one is no number: the update after a good loss can be one too many."""
        if not self.state.is_finite():
            when = f"after {self.position.epoch} epochs and {self.position.step} steps"
            raise self._make_divergence(
                f"network: got weights that are not finite {when}, wanted finite numbers", epoch
            )

    def _save(self, epoch: int) -> None:
        if self.folder is None or not self.state.workers.leads:
            return
        self._check_weights(epoch)
        self.folder.save(self.state.tensors(), self.position)
        self.saved, self.saved_at = self.position, time.monotonic()

    def _make_divergence(self, what: str, epoch: int) -> Divergence:
        rate = self.recipe.rate(epoch)
        why = f"{what}: lower the learning rate ({rate:g} there) or look at the images"
        if self.folder is None or self.saved is None:
            return Divergence(why, "No checkpoint was saved before it")
        at = f"{self.saved.epoch} epochs and {self.saved.step} steps"
        left = f"The last good checkpoint, after {at}, is kept in {self.folder.folder}"
        return Divergence(why, left)

    def _report(self) -> None:
        if self.progress is not None and self.state.workers.leads:
            steps, history = self.state.feed.steps, self.position.history
            done = self.position.epoch * steps + self.position.step
            last = history[-1] if history else None
            epochs = self.recipe.epochs
            self.progress(Progress(done, epochs * steps, epochs, last))


def _set_seed(seed: int, device: torch.device) -> None:
    """As `torch.manual_seed`, without a hand on the generators of devices that are not in use."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)


@contextmanager
def _explain_memory_errors(recipe: Recipe) -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise torch.OutOfMemoryError(
            f"the GPU's memory is too small for batch_size {recipe.batch_size}: lower it or the "
            "network's width, or train on fewer images, which stay on the GPU with their test "
            f"images. torch says: {error}"
        ) from error
