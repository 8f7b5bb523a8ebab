"""How fast a study goes on one device: a trial once it is warm, and several trials at once.

Trials are whole: a training from random weights to its test error, its files written. Those that
warm a process up are not counted. Adds rows to results/study.csv.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
from pathlib import Path

from foveapool.records import BenchmarkRow, append_rows, collect_provenance
from foveapool.runs import Runs
from foveapool.study.engine import Engine, ProcessWorkers, SerialWorkers
from foveapool.study.presets import read_preset
from foveapool.study.spec import ExecutionOptions
from foveapool.study.study import Study


def intervals(study: Study, at_once: int, count: int, means: ExecutionOptions) -> list[float]:
    """Seconds between the ends of trials, from when every process has done one."""
    workers = SerialWorkers() if at_once == 1 else ProcessWorkers(at_once)
    trainings = [study.training(study.network, seed) for seed in range(count + at_once)]
    with tempfile.TemporaryDirectory() as folder:
        engine = Engine(Runs(folder), means, workers)
        try:
            ends = [time.perf_counter() for _ in engine.run(trainings)]
        finally:
            workers.close()
    warm = ends[at_once - 1 :]
    return [after - before for before, after in itertools.pairwise(warm)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="table1-cnn-svhn-reduced")
    parser.add_argument("--data-root", type=Path, default=None)
    parser.add_argument("--at-once", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--count", type=int, default=8, help="trials for each process")
    parser.add_argument("--note", default="", help="what else distinguishes this run")
    parser.add_argument("--out", default="results/study.csv")
    options = parser.parse_args()
    study, means = read_preset(options.preset), ExecutionOptions(data_root=options.data_root)
    for at_once in options.at_once:
        found = intervals(study, at_once, options.count * at_once, means)
        hourly = 3600 * len(found) / sum(found)
        same = {
            "benchmark": "study",
            "network": study.network.network,
            "data": study.source.name,
            "case": "baseline",
            "options": f"{at_once} at once{options.note and ', ' + options.note}",
            "epochs": str(study.recipe.epochs),
            "batch": str(study.recipe.batch_size),
            **collect_provenance(),
        }
        rows = [BenchmarkRow(metric="trials an hour", mean=hourly, std=0.0, n=len(found), **same)]
        if at_once == 1:
            metric, spread = "seconds a trial", statistics.stdev(found)
            rows.append(
                BenchmarkRow(
                    metric=metric,
                    mean=statistics.median(found),
                    std=spread,
                    n=len(found),
                    **same,
                )
            )
        append_rows(options.out, rows)
        for row in rows:
            print(f"{row.options:<24} {row.metric:<18} {row.mean:8.2f} +- {row.std:.2f}")


if __name__ == "__main__":
    main()
