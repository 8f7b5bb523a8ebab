"""Robustness, measured one way: as the last step of a training, or of networks in folders.

A training measures in flight, so that no network is kept; a network in a folder is measured once,
and what it came to is kept beside it.
"""

from __future__ import annotations

import statistics
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from foveapool._io import read_sealed_json, write_sealed_json
from foveapool._stored_names import STORED
from foveapool.data.batches import make_normalizer
from foveapool.data.images import DataSet
from foveapool.records import Row
from foveapool.robustness.evaluate import Progress, evaluate
from foveapool.robustness.names import SEVERITIES, corruption_names, perturbation_names
from foveapool.robustness.result import RobustnessResult
from foveapool.study.loading import TrainedNetwork
from foveapool.study.rows import make_robustness_rows
from foveapool.training.checkpoint import describe_images
from foveapool.training.parallel import choose_device

CORRUPTIONS, PERTURBATIONS = "corruptions", "perturbations"


def check_robustness(asked: Sequence[str]) -> None:
    """Refuses what cannot be measured."""
    for name in asked:
        if name not in (CORRUPTIONS, PERTURBATIONS):
            raise ValueError(
                f"robustness: got {name!r}, wanted {CORRUPTIONS!r}, {PERTURBATIONS!r} or both"
            )


STUDY = "robustness"
RESULT = "robustness.json"


@dataclass(frozen=True)
class RobustnessRequest:
    """What networks are measured on, and where."""

    corruptions: tuple[str, ...]
    severities: tuple[int, ...]
    perturbations: tuple[str, ...]
    images: int | None = None  # the first so many test images
    seed: int = 0
    folder: Path | None = None
    frost_folder: Path | None = None
    device: str | None = None

    @classmethod
    def of_training(cls, asked: Sequence[str], device: str | None = None) -> RobustnessRequest:
        """What a training is asked to measure, see `check_robustness`."""
        return cls(
            corruption_names("standard" if CORRUPTIONS in asked else ()),
            SEVERITIES,
            perturbation_names("all" if PERTURBATIONS in asked else ()),
            device=device,
        )

    def facts(self, trained: TrainedNetwork) -> dict[str, Any]:
        """All that the result depends on, as JSON can hold it."""
        checksum = 0
        for tensor in trained.network.state_dict().values():
            checksum = zlib.crc32(tensor.cpu().contiguous().numpy().data, checksum)
        return {
            "corruptions": list(self.corruptions),
            "severities": list(self.severities),
            "perturbations": list(self.perturbations),
            "images": self.images,
            "seed": self.seed,
            "folder": None if self.folder is None else str(self.folder),
            "frost_folder": None if self.frost_folder is None else str(self.frost_folder),
            "device": choose_device(self.device).type,
            "weights": checksum,
            **describe_images(trained.data),
        }


def measure_robustness(
    network: nn.Module, data: DataSet, asked: RobustnessRequest, progress: Progress | None = None
) -> RobustnessResult:
    """How a network fares on the test images, corrupted."""
    return evaluate(
        network,
        data.test.images[: asked.images],
        data.test.labels[: asked.images],
        make_normalizer(data),
        corruptions=asked.corruptions,
        severities=asked.severities,
        perturbations=asked.perturbations,
        device=choose_device(asked.device),
        seed=asked.seed,
        folder=asked.folder,
        frost_folder=asked.frost_folder,
        progress=progress,
    )


@dataclass(frozen=True)
class MeasuredNetwork:
    """A trained network, what it came to, and in how many seconds."""

    trained: TrainedNetwork
    result: RobustnessResult
    seconds: float


def measure_network(
    trained: TrainedNetwork, asked: RobustnessRequest, progress: Progress | None = None
) -> MeasuredNetwork:
    """The network's robustness; from its folder if it was measured in the same way before."""
    path, facts = trained.folder / RESULT, asked.facts(trained)
    kept = _read_kept(path, facts)
    if kept is not None:
        return MeasuredNetwork(trained, *kept)
    begin = time.perf_counter()
    result = measure_robustness(trained.network, trained.data, asked, progress)
    seconds = round(time.perf_counter() - begin, 1)
    note = {"asked": facts, "seconds": seconds, "result": result.to_dict()}
    write_sealed_json(path, note)
    return MeasuredNetwork(trained, result, seconds)


def _read_kept(path: Path, facts: Mapping[str, Any]) -> tuple[RobustnessResult, float] | None:
    """What was measured in that way before, and its seconds; what cannot be read counts as none."""
    try:
        note = read_sealed_json(path)
        # Results of before flips between neighbors were counted would hide that they are missing.
        if (
            note["asked"] != facts
            or STORED["neighbor_flips"] not in note["result"]["perturbations"]
        ):
            return None
        return RobustnessResult.from_dict(note["result"]), float(note["seconds"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def check_alike(trials: Sequence[TrainedNetwork], baseline: Sequence[TrainedNetwork] = ()) -> None:
    """ValueError unless trials differ in their seeds alone, and all were made for the same data."""
    for group in (trials, baseline):
        for column in group[0].columns if group else ():
            values = {trained.columns[column] or "none" for trained in group}
            if len(values) > 1:
                raise ValueError(
                    f"runs: got {column} {' and '.join(sorted(values))} among trials that are "
                    "averaged, wanted trials of one setting; measure the others apart"
                )
    data = {trained.columns["data"] for trained in (*trials, *baseline)}
    if len(data) > 1:
        raise ValueError(
            f"runs: got networks for {' and '.join(sorted(data))}, wanted one data set for the "
            "trials and their baseline"
        )


def make_rows(
    trials: Sequence[MeasuredNetwork],
    baseline: RobustnessResult | None,
    provenance: Mapping[str, str],
) -> list[Row]:
    """A row for each figure over the trials, and for each ratio to a baseline."""
    columns = {
        **trials[0].trained.columns,
        **provenance,
        "study": STUDY,
        "seeds": ", ".join(str(each.trained.seed) for each in trials),
        "seconds": f"{statistics.mean(each.seconds for each in trials):.1f}",
    }
    return make_robustness_rows([each.result for each in trials], baseline, columns)
