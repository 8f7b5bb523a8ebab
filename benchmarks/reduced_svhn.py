"""Reduced SVHN, the CNN, one setting of the paper: does its figure come out?

Five seeds, each with its own baseline, fit and retraining from random weights; closed form, closed
form then trained, the baseline and P by SGD in pairs. Adds rows to results/reduced-svhn.csv.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import replace
from pathlib import Path

import foveapool as fp
from foveapool.data.images import DataSet
from foveapool.data.registry import load_data
from foveapool.records import Row, append_rows, provenance
from foveapool.study.protocol import BASELINE, CLOSED_FORM, TRAINED, Setting, Trial
from foveapool.training.recipe import Recipe

STUDY = "reduced SVHN, one setting"


def trials(options: argparse.Namespace, data: DataSet, seed: int) -> dict[str, tuple[float, float]]:
    """Error and seconds of each pooling for one seed."""
    recipe = Recipe("adam", 1e-3, options.epochs, batch_size=options.batch)
    setting = Setting(BASELINE, options.layer, options.alpha, options.norm)
    base = Trial(setting, data, recipe, seed, options.device)
    network, result = base.run()
    found = {BASELINE: (result.test_error, result.seconds)}
    operator: fp.PoolingOperator | None = None
    for pooling in (CLOSED_FORM, TRAINED, "sgd"):
        trial = replace(base, setting=replace(setting, pooling=pooling))
        if operator is None:
            operator = trial.fit(network)
        result = trial.run(operator)[1]
        found[pooling] = (result.test_error, result.seconds)
    print(seed, {name: round(error, 2) for name, (error, _) in found.items()}, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="svhn-reduced", help="svhn-reduced, or npz:PATH of it")
    parser.add_argument("--data-root", type=Path, default=None)
    parser.add_argument("--layer", type=int, default=3)
    parser.add_argument("--alpha", type=float, default=5.0)
    parser.add_argument("--norm", default="l1")
    parser.add_argument("--epochs", type=int, default=150)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--device", default=None)
    parser.add_argument("--out", default="results/reduced-svhn.csv")
    options = parser.parse_args()
    data = load_data(options.data, options.data_root)
    found = [trials(options, data, seed) for seed in range(options.seeds)]

    def row(pooling: str, metric: str, values: list[float], seconds: float) -> Row:
        return Row(
            study=STUDY,
            network="CNN",
            data="reduced SVHN",
            pooling=pooling,
            layer=str(options.layer),
            alpha=f"{options.alpha:g}" if pooling in (CLOSED_FORM, TRAINED) else "",
            norm=options.norm if pooling in (CLOSED_FORM, TRAINED) else "",
            components="" if pooling == BASELINE else "2",
            trainable=str(pooling != CLOSED_FORM),
            metric=metric,
            mean=statistics.mean(values),
            deviation=statistics.stdev(values),
            n=len(values),
            seeds=f"0-{options.seeds - 1}",
            epochs=str(options.epochs),
            batch=str(options.batch),
            seconds=f"{seconds:.2f}",
            **provenance(),
        )

    rows = []
    for pooling in found[0]:
        errors = [each[pooling][0] for each in found]
        seconds = statistics.mean(each[pooling][1] for each in found)
        rows.append(row(pooling, "test error %", errors, seconds))
        if pooling != CLOSED_FORM:
            gains = [each[pooling][0] - each[CLOSED_FORM][0] for each in found]
            rows.append(row(pooling, "less closed form, paired, points", gains, seconds))
    append_rows(options.out, rows)
    for each in rows:
        print(f"{each.pooling:<22} {each.metric:<34} {each.mean:6.2f} +- {each.deviation:.2f}")


if __name__ == "__main__":
    main()
