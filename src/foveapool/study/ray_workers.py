"""Ray's workers: trainings on the machines of a cluster, with a disk that all see or without one.

Without one, what a training needs travels to the machine that does it (the files of the networks
that it is fitted on, and its own checkpoint), and what comes of it travels back. The driver alone
writes the folder of runs, and holds a training's folder while another machine is at it.
"""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from foveapool._suggest import how_to_install
from foveapool.runs import Runs
from foveapool.study.parcels import (
    Changes,
    Files,
    list_files,
    list_needed,
    make_own_folder,
    write_files,
)
from foveapool.study.spec import ExecutionOptions, TrainingSpec
from foveapool.study.worker import Outcome, find_finished, work_on

SEND_SECONDS = 60.0
# Deaths in a row of the workers of one training, none of which sent anything.
MOST_DEATHS = 5
# Trainings beyond what the cluster holds now, so that one that grows by demand is asked to.
AHEAD = 8
# Each training in hand holds a lock, an open file.
MOST_IN_HAND = 256
LOOK_SECONDS = 0.2
# How long a disk that machines share may take until all of them see a new file.
SEEN_SECONDS = 10.0


def join_cluster(address: str | None, gpus: float) -> bool:
    """Joins the cluster at `address`, or that of RAY_ADDRESS, or starts one on this machine.

    Args:
        address: As `ray.init` takes it.
        gpus: What each training wants of a GPU.

    Returns:
        Whether it was joined here, and so has to be left.

    Raises:
        ImportError: If Ray is not installed.
        ValueError: If GPUs are wanted and the cluster has none.
    """
    try:
        import ray
    except ImportError as error:
        raise ImportError(
            f"ray: not installed; {how_to_install('ray')}, or use --engine local"
        ) from error
    joined = not ray.is_initialized()
    if joined:
        ray.init(address=address, log_to_driver=False, include_dashboard=False)
    if gpus and not ray.cluster_resources().get("GPU"):
        raise ValueError(f"gpus: got {gpus:g} for each training, but Ray's cluster has none")
    return joined


class Mailbox:
    """An actor of the cluster: takes what workers have so far, until the driver fetches it."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, int], Files] = {}

    def put(self, name: str, attempt: int, files: Files) -> None:
        """Adds files of a training to those that wait; a newer one takes an older one's place."""
        self._held.setdefault((name, attempt), {}).update(files)

    def take(self) -> dict[tuple[str, int], Files]:
        """Gives what waits, by the training's name and the attempt, and forgets it."""
        held, self._held = self._held, {}
        return held


@dataclass
class _Job:
    """A training in hand."""

    training: TrainingSpec
    runs: Runs
    means: ExecutionOptions
    answer: Future[Outcome]
    claim: ExitStack
    attempt: int = 0
    deaths: int = 0
    said: list[str] = field(default_factory=list)


class RayWorkers:
    """Tasks of Ray with `cpus` cores and `gpus` GPUs each; a share such as 0.25 of a GPU is fine.

    The machines need no disk in common. A worker that dies costs what its training did since it
    last sent its checkpoint.

    Args:
        cpus: Cores for each training.
        gpus: GPUs for each.
        address: The cluster's, as for `join_cluster`.
        send_seconds: How often a worker sends what it has.
    """

    def __init__(
        self,
        cpus: float = 1,
        gpus: float = 0,
        address: str | None = None,
        send_seconds: float = SEND_SECONDS,
    ) -> None:
        if not send_seconds > 0:
            raise ValueError(f"send_seconds: got {send_seconds:g}, wanted a time above 0")
        self._joined = join_cluster(address, gpus)
        import ray

        self._ray, self._cpus, self._send_seconds = ray, cpus, send_seconds
        # Ray gives torch as many threads as the task has cores. Retries are this class's own, since
        # Ray's would begin with the checkpoint of the first attempt.
        self._task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=0)(_work_apart)
        self._mailbox = _open_mailbox(ray)
        self._jobs: dict[Any, _Job] = {}
        self._sent: dict[tuple[Path, int, int], Any] = {}
        self._changing, self._closing = threading.Lock(), threading.Event()
        self._courier = threading.Thread(target=self._carry, daemon=True)
        self._courier.start()

    @property
    def at_once(self) -> int:
        """A few more than the cluster holds now."""
        held = self._ray.cluster_resources().get("CPU", 0) / max(self._cpus, 0.01)
        return min(MOST_IN_HAND, int(held) + AHEAD)

    def submit(
        self, training: TrainingSpec, runs: Path, means: ExecutionOptions
    ) -> Future[Outcome]:
        """Gives the training to the cluster, and holds its folder until it is done."""
        job = _Job(training, Runs(runs), means, Future(), ExitStack())
        job.runs.say = job.said.append
        job.answer.set_running_or_notify_cancel()
        try:
            job.claim.enter_context(job.runs.claimed(training.name, training.facts))
            self._begin(job)
        except BlockingIOError:
            job.answer.set_result(Outcome(None, tuple(job.said)))
        except Exception as error:
            job.claim.close()
            job.answer.set_exception(error)
        return job.answer

    def mend(self) -> None:
        """Nothing to mend: what a dead worker had in hand is given to another."""

    def close(self) -> None:
        """Leaves the cluster, unless it was joined by whoever called; what was sent stays."""
        self._closing.set()
        self._courier.join()
        with suppress(self._ray.exceptions.RayError):
            self._collect()
        for task, job in self._jobs.items():
            with suppress(self._ray.exceptions.RayError):
                self._ray.cancel(task, force=True)
            job.claim.close()
        self._jobs.clear()
        if self._joined:
            self._ray.shutdown()

    def _begin(self, job: _Job) -> None:
        """Sends a training with all that it needs."""
        own = job.training.name
        others = [
            (name, self._put(path))
            for folder in list_needed(job.training)
            if folder != own
            for name, path in list_files(job.runs.root, folder)
        ]
        files = {name: path.read_bytes() for name, path in list_files(job.runs.root, own)}
        means = replace(job.means, data_root=_absolute(job.means.data_root))
        task = self._task.remote(
            job.training, files, others, means, self._mailbox, job.attempt, self._send_seconds
        )
        with self._changing:
            self._jobs[task] = job

    def _put(self, path: Path) -> Any:
        """The file in Ray's store, where it is put once for all trainings that need it."""
        state = path.stat()
        key = (path, state.st_mtime_ns, state.st_size)
        if key not in self._sent:
            self._sent[key] = self._ray.put(path.read_bytes())
        return self._sent[key]

    def _carry(self) -> None:
        """What the courier does: fetches results and what workers have so far, and writes them."""
        looked = time.monotonic()
        while not self._closing.is_set():
            with self._changing:
                tasks = list(self._jobs)
            try:
                if tasks:
                    done, _ = self._ray.wait(tasks, timeout=LOOK_SECONDS)
                else:
                    done = []
                    self._closing.wait(LOOK_SECONDS)
                if time.monotonic() - looked > min(1.0, self._send_seconds):
                    self._collect()
                    looked = time.monotonic()
            except self._ray.exceptions.RayError:
                # The mailbox died with its machine; it comes back, empty.
                continue
            except Exception as error:
                # A disk that is full, or a cluster that is gone, ends all that is in hand.
                self._give_up(error)
                continue
            for task in done:
                self._finish(task)

    def _give_up(self, error: Exception) -> None:
        with self._changing:
            jobs, self._jobs = list(self._jobs.values()), {}
        for job in jobs:
            job.claim.close()
            job.answer.set_exception(error)

    def _finish(self, task: Any) -> None:
        """Gives the answer of a task that ended, or its training to another worker."""
        with self._changing:
            job = self._jobs.pop(task)
        exceptions = self._ray.exceptions
        try:
            outcome, files = self._ray.get(task)
            write_files(job.runs.root, job.training.name, files)
            if find_finished(job.training, job.runs) is None:
                raise OSError(f"{job.training.name}: its worker sent no result; start again")
            answer = Outcome(outcome.result, (*job.said, *outcome.said))
        except exceptions.RayTaskError as error:
            cause = error.cause if isinstance(error.cause, Exception) else error
            if isinstance(cause, exceptions.RayError):
                self._try_again(job, cause)  # what was sent with it is gone, say
            else:
                self._fail(job, cause)
        except exceptions.RayError as error:
            self._try_again(job, error)
        except Exception as error:
            self._fail(job, error)
        else:
            job.claim.close()
            job.answer.set_result(answer)

    def _fail(self, job: _Job, error: Exception) -> None:
        job.claim.close()
        job.answer.set_exception(error)

    def _try_again(self, job: _Job, error: Exception) -> None:
        job.attempt, job.deaths = job.attempt + 1, job.deaths + 1
        # Refused as lost, what lies in the store may have been lost with its machine.
        self._sent.clear()
        if job.deaths > MOST_DEATHS:
            self._fail(job, explain_deaths(job.training.name, job.deaths, error))
            return
        job.said.append(f"{job.training.name}: a worker died; it goes on from what was sent last")
        try:
            self._begin(job)
        except Exception as failure:
            self._fail(job, failure)

    def _collect(self) -> None:
        """Writes down what the workers have sent."""
        sent = self._ray.get(self._mailbox.take.remote(), timeout=self._send_seconds + 10)
        with self._changing:
            jobs = {(job.training.name, job.attempt): job for job in self._jobs.values()}
        for key, files in sent.items():
            # What an attempt that was given up had sent is older than what is there.
            if key in jobs:
                jobs[key].deaths = 0
                write_files(jobs[key].runs.root, key[0], files)


def explain_deaths(name: str, deaths: int, error: Exception) -> ChildProcessError:
    """The error of a training whose workers always die."""
    return ChildProcessError(
        f"{name}: its workers died {deaths} times ({error}); is there memory enough? Start again "
        "with more cores for each: what is finished stays"
    )


def _open_mailbox(ray: Any) -> Any:
    """A mailbox on the driver's machine where it can be, so that it dies with none but it."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    actor = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(Mailbox)
    return actor.options(scheduling_strategy=here).remote()


def _work_apart(
    training: TrainingSpec,
    files: Mapping[str, bytes],
    others: list[tuple[str, Any]],
    means: ExecutionOptions,
    mailbox: Any,
    attempt: int,
    send_seconds: float,
) -> tuple[Outcome, Files]:
    """Does a training in a folder of this machine; gives what it came to and the files it made."""
    import ray

    fetched = ray.get([each for _, each in others])
    names = [name for name, _ in others]
    with make_own_folder() as root:
        Runs(root).make()
        for name, content in (*files.items(), *zip(names, fetched, strict=True)):
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        changes = Changes(root)

        def send() -> None:
            try:
                ray.get(mailbox.put.remote(training.name, attempt, changes.read_new()))
            except ray.exceptions.RayError:
                # No reason to end what goes on well: all goes again, when the mailbox is back.
                changes.forget()

        with _repeating(send, send_seconds):
            outcome = work_on(training, root, means)
        return outcome, changes.read_all()


@contextmanager
def _repeating(action: Callable[[], None], seconds: float) -> Iterator[None]:
    """Does something every so often, in a thread of its own; not once more at the end."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(seconds):
            action()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _absolute(path: Path | None) -> Path | None:
    # A machine of the cluster may stand in another folder.
    return None if path is None else path.absolute()


class SharedRayWorkers:
    """As `RayWorkers`, for machines that all see the folder of runs and write to it themselves.

    Each worker proves that it sees the driver's folder before it begins.
    """

    at_once = 1_000_000  # Ray knows better what it can hold

    def __init__(self, cpus: float = 1, gpus: float = 0, address: str | None = None) -> None:
        self._joined = join_cluster(address, gpus)
        import ray

        self._ray = ray
        self._task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=MOST_DEATHS)(_work_shared)
        self._proofs: dict[Path, str] = {}

    def submit(
        self, training: TrainingSpec, runs: Path, means: ExecutionOptions
    ) -> Future[Outcome]:
        """Gives the training to the cluster."""
        answer: Future[Outcome] = Future()
        answer.set_running_or_notify_cancel()
        root = runs.absolute()
        if root not in self._proofs:
            self._proofs[root] = secrets.token_hex(8)
            Runs(root).make()
            _proof_file(root, self._proofs[root]).write_text(self._proofs[root], "utf-8")

        def pass_on(asked: Future[Outcome]) -> None:
            error = asked.exception()
            if error is None:
                answer.set_result(asked.result())
            else:
                answer.set_exception(unwrap_ray_error(error, training))

        means = replace(means, data_root=_absolute(means.data_root))
        asked = self._task.remote(training, root, means, self._proofs[root]).future()
        asked.add_done_callback(pass_on)
        return answer

    def mend(self) -> None:
        """Ray mends itself."""

    def close(self) -> None:
        """Leaves the cluster, unless it was joined by whoever called."""
        for root, token in self._proofs.items():
            _proof_file(root, token).unlink(missing_ok=True)
        if self._joined:
            self._ray.shutdown()


def unwrap_ray_error(error: BaseException, training: TrainingSpec) -> BaseException:
    """The worker's own error, out of Ray's account of where it happened."""
    from ray.exceptions import RayError, RayTaskError

    if isinstance(error, RayTaskError) and isinstance(error.cause, Exception):
        return error.cause
    if isinstance(error, RayError):
        return explain_deaths(training.name, MOST_DEATHS + 1, error)
    return error


def _proof_file(root: Path, token: str) -> Path:
    return root / f".driver-{token}"


def _work_shared(
    training: TrainingSpec, runs: Path, means: ExecutionOptions, token: str
) -> Outcome:
    """Does a training in the driver's own folder, if this machine sees it."""
    begin, path = time.monotonic(), _proof_file(runs, token)
    while not path.is_file():
        if time.monotonic() - begin > SEEN_SECONDS:
            raise FileNotFoundError(
                f"{runs}: not the driver's folder of runs on {socket.gethostname()}, wanted one "
                "that all machines see; leave out --shared, and results travel through Ray"
            )
        time.sleep(LOOK_SECONDS)
    return work_on(training, runs, means)
