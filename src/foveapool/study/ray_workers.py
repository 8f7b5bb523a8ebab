"""Workers of a Ray cluster: the same trainings on a laptop or on many machines.

The folder of runs must be one that all machines see. A worker that dies is replaced by Ray, and
its training goes on from its last checkpoint.
"""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path

from foveapool.study.engine import Outcome, work
from foveapool.study.training import Means, Training

RETRIES = 3


class RayWorkers:
    """Tasks of Ray with `cpus` cores and `gpus` GPUs each; a share such as 0.25 of a GPU is fine.

    Joins the cluster at `address`, or the one that RAY_ADDRESS names, or starts one here.
    """

    def __init__(self, cpus: float = 1, gpus: float = 0, address: str | None = None) -> None:
        try:
            import ray
        except ImportError as error:
            raise ImportError(
                "ray: not installed; pip install 'foveapool[ray]', or use --engine local"
            ) from error
        self._joined = not ray.is_initialized()
        if self._joined:
            ray.init(address=address, log_to_driver=False, include_dashboard=False)
        if gpus and not ray.cluster_resources().get("GPU"):
            raise ValueError(f"gpus: got {gpus:g} for each training, but Ray's cluster has none")
        # Ray gives torch as many threads as the task has cores.
        self._task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=RETRIES)(work)
        self._shutdown = ray.shutdown
        self.at_once = 1_000_000  # Ray knows better what it can hold

    def submit(self, training: Training, runs: Path, means: Means) -> Future[Outcome]:
        """Gives the training to the cluster."""
        answer: Future[Outcome] = Future()
        answer.set_running_or_notify_cancel()

        def pass_on(asked: Future[Outcome]) -> None:
            error = asked.exception()
            if error is None:
                answer.set_result(asked.result())
            else:
                answer.set_exception(_as_it_was(error, training))

        # A machine of the cluster may stand in another folder.
        asked = self._task.remote(training, runs.absolute(), means).future()
        asked.add_done_callback(pass_on)
        return answer

    def mend(self) -> None:
        """Ray mends itself."""

    def close(self) -> None:
        """Leaves the cluster, unless it was joined by whoever called."""
        if self._joined:
            self._shutdown()


def _as_it_was(error: BaseException, training: Training) -> BaseException:
    """The worker's own error, out of Ray's account of where it happened."""
    from ray.exceptions import RayError, RayTaskError

    if isinstance(error, RayTaskError) and isinstance(error.cause, Exception):
        return error.cause
    if isinstance(error, RayError):
        return ChildProcessError(
            f"{training.name}: its workers died {RETRIES + 1} times ({error}); is there memory "
            "enough? Start again with more cores for each: what is finished stays"
        )
    return error
