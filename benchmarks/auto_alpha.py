"""Can alpha be chosen without training? Cheap criteria against the errors of full training.

Needs a finished study over alphas (presets `alphas`, `alphas-street-digits`) in a folder of runs.
For each layer every criterion ranks the alphas as seen from the baseline networks alone; that is
held against the mean test error: Spearman's rank correlation (1 is perfect), and what the choice
costs against the best alpha, in points of error. Adds rows to results/auto-alpha.csv.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from foveapool.data.batches import iterate_batches, load_resident
from foveapool.pooling.accumulate import compute_scatter
from foveapool.pooling.operator import PoolingOperator
from foveapool.pooling.scatter import Scatter
from foveapool.pooling.solve import AUTO_ALPHA, sweep_pooling
from foveapool.records import BenchmarkRow, append_rows, collect_provenance
from foveapool.runs import Runs
from foveapool.study.engine import Engine, SerialWorkers
from foveapool.study.fits import get_weights
from foveapool.study.presets import read_preset
from foveapool.study.search import Search
from foveapool.study.spec import ExecutionOptions, TrainingSpec, build_job
from foveapool.study.study import Study
from foveapool.surgery.capture import read_inputs
from foveapool.training.parallel import choose_device


@dataclass(frozen=True)
class Seen:
    """What a criterion may look at: maps of one baseline network, in two halves."""

    fit: Scatter
    other: Scatter
    maps: Tensor
    labels: Tensor
    is_fit: Tensor


def seen_by(
    training: TrainingSpec, layer: int, runs: Runs, means: ExecutionOptions
) -> tuple[Seen, Any]:
    """The maps that reach a layer of a finished baseline, and the site there."""
    trial = build_job(training, means)
    network = trial.network()
    network.load_state_dict(get_weights(training, runs, means))
    device = choose_device(means.device)
    network.to(device)
    site = network.site(layer)
    images, _ = load_resident(trial.data, device)
    batches = [
        (read_inputs(network, inputs, [site.module])[site.module], labels)
        for inputs, labels in iterate_batches(images)
    ]
    maps, labels = (torch.cat(each) for each in zip(*batches, strict=True))
    chosen = torch.zeros(len(labels), dtype=torch.bool)
    index = torch.randperm(len(labels), generator=torch.Generator().manual_seed(training.seed))
    chosen[index[: len(labels) // 2]] = True
    is_fit = chosen.to(device)
    classes = len(trial.data.train.classes)

    def scatter(which: Tensor) -> Scatter:
        return compute_scatter(maps[which], labels[which], classes, dead_channels="ignore")

    return Seen(scatter(is_fit), scatter(~is_fit), maps, labels, is_fit), site


def separability(scatter: Scatter, operator: PoolingOperator) -> float:
    """S_b / S_w of each pooled value on some scatter, their mean."""
    rows = operator.weight.flatten(0, 1).to(scatter.within)
    between = ((rows @ scatter.between) * rows).sum(1)
    within = ((rows @ scatter.within) * rows).sum(1)
    return float((between / within).mean())


def joint_separability(scatter: Scatter, operator: PoolingOperator, ridge: float) -> float:
    """tr((P B P')^-1 P A P'): how well all pooled values together separate the classes."""
    rows = operator.weight.flatten(0, 1).to(scatter.within)
    between, within = (rows @ each @ rows.T for each in (scatter.between, scatter.within))
    within = within + ridge * within.diagonal().mean() * torch.eye(len(within)).to(within)
    return float(torch.linalg.solve(within, between).diagonal().sum())


def nearness(scatter: Scatter, operator: PoolingOperator) -> float:
    """How near alpha is to half of trace(B)/N, as a ratio."""
    return -abs(
        math.log(operator.settings.alpha / (AUTO_ALPHA * float(scatter.within_diagonal().mean())))
    )


def probe(seen: Seen, operator: PoolingOperator, ridge: float = 1e-2) -> float:
    """The share of the other half that ridge regression on pooled, rectified maps gets right."""
    with torch.no_grad():
        pooled = operator.module().to(seen.maps.device)(seen.maps)
    mean, deviation = pooled.mean((0, 2, 3), keepdim=True), pooled.std((0, 2, 3), keepdim=True)
    features = ((pooled - mean) / (deviation + 1e-5)).relu().flatten(1)
    features = features - features[seen.is_fit].mean(0)
    kernel = features @ features[seen.is_fit].T
    own = kernel[seen.is_fit].double()
    targets = torch.nn.functional.one_hot(seen.labels[seen.is_fit]).double()
    eye = torch.eye(len(own), dtype=own.dtype, device=own.device)
    size = own.diagonal().mean()
    weights = torch.linalg.solve(own + ridge * size * eye, targets - targets.mean(0))
    guess = (kernel[~seen.is_fit].double() @ weights).argmax(1)
    return float((guess == seen.labels[~seen.is_fit]).double().mean())


# The larger, the better.
CRITERIA: dict[str, Callable[[Seen, PoolingOperator], float]] = {
    "separability, seen": lambda seen, each: separability(seen.fit, each),
    "separability, held out": lambda seen, each: separability(seen.other, each),
    "joint separability, ridge 0.001": lambda seen, each: joint_separability(seen.fit, each, 1e-3),
    "joint separability, ridge 0.01": lambda seen, each: joint_separability(seen.fit, each, 1e-2),
    "joint separability, ridge 0.1": lambda seen, each: joint_separability(seen.fit, each, 1e-1),
    "half of trace(B)/N": lambda seen, each: nearness(seen.fit, each),
    "linear probe, ridge 0.01": lambda seen, each: probe(seen, each, 1e-2),
    "linear probe, ridge 0.1": lambda seen, each: probe(seen, each, 1e-1),
}


def short_schedules(
    study: Study, engine: Engine, shares: list[float], parts: int
) -> dict[str, dict[tuple[int, float], float]]:
    """Minus the error on a held-out part after a share of the epochs, by layer and alpha."""
    found: dict[str, dict[tuple[int, float], float]] = {}
    for share in shares:
        search = Search(parts=parts, held_out=0.2)
        settings = [arm.setting(study.network) for arm in study.arms if arm.choices]
        trainings = {
            (s.pools[0].layer, float(s.pools[0].alpha)): [
                search.training(s, study.source, study.recipe, part, share) for part in range(parts)
            ]
            for s in settings
        }
        asked = [each for own in trainings.values() for each in own]
        results = {done.training.name: done.result for done in engine.run(asked)}
        found[f"short schedule, {100 * share:g} % of the epochs"] = {
            key: -statistics.mean(results[each.name]["error"] for each in own)
            for key, own in trainings.items()
        }
    return found


def ranks(values: list[float]) -> Tensor:
    order = torch.tensor(values, dtype=torch.float64)
    # Ties share their mean rank.
    return ((order[:, None] > order).double() + 0.5 * (order[:, None] == order)).sum(1)


def spearman(one: list[float], other: list[float]) -> float:
    """The correlation of ranks."""
    found = torch.corrcoef(torch.stack([ranks(one), ranks(other)]))[0, 1]
    return float(found) if torch.isfinite(found) else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("preset")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--data-root", type=Path, default=None)
    parser.add_argument("--device", default=None)
    parser.add_argument("--shares", type=float, nargs="*", default=[0.05, 0.2])
    parser.add_argument("--parts", type=int, default=1)
    parser.add_argument("--seen", type=int, default=None, help="seeds whose maps are looked at")
    parser.add_argument("--criteria", nargs="*", default=list(CRITERIA), choices=CRITERIA)
    parser.add_argument("--out", default="results/auto-alpha.csv")
    options = parser.parse_args()
    study = read_preset(options.preset)
    runs, means = (
        Runs(options.runs, print),
        ExecutionOptions(options.device, data_root=options.data_root),
    )
    engine = Engine(runs, means, SerialWorkers())
    settings = [arm.setting(study.network) for arm in study.arms if arm.choices]
    errors: dict[int, dict[float, float]] = {}
    for setting in settings:
        pool = setting.pools[0]
        own = [study.training(setting, seed) for seed in range(study.seeds)]
        done = {each.training.name: each.result for each in engine.run(own)}
        fitted = [done[each.name]["error"] for each in own]
        errors.setdefault(pool.layer, {})[float(pool.alpha)] = statistics.mean(fitted)
    criteria = {name: CRITERIA[name] for name in options.criteria}
    scores: dict[str, dict[tuple[int, float], list[float]]] = {name: {} for name in criteria}
    for layer, alphas in errors.items():
        for seed in range(options.seen or study.seeds):
            seen, site = seen_by(study.training(study.network, seed), layer, runs, means)
            for each in sweep_pooling(seen.fit, site.out_shape, list(alphas)):
                for name, criterion in criteria.items():
                    key = (layer, each.settings.alpha)
                    scores[name].setdefault(key, []).append(criterion(seen, each))
    means_of = {n: {k: statistics.mean(v) for k, v in own.items()} for n, own in scores.items()}
    means_of |= short_schedules(study, engine, options.shares, options.parts)
    rows = []
    for name, score in means_of.items():
        for layer, own in errors.items():
            alphas = list(own)
            wrong = [own[alpha] for alpha in alphas]
            values = [score[layer, alpha] for alpha in alphas]
            chosen = max(alphas, key=lambda alpha: score[layer, alpha])
            found = {
                "rank correlation with full training": spearman(values, [-w for w in wrong]),
                "points above the best alpha": own[chosen] - min(wrong),
            }
            same = {
                "benchmark": "auto-alpha",
                "network": study.network.network,
                "data": study.source.name,
                "case": name,
                "layer": str(layer),
                "alpha": f"{chosen:g}",
                "options": "norm l2",
                "components": "2",
                "seeds": f"0-{study.seeds - 1}",
                "epochs": str(study.recipe.epochs),
                "batch": str(study.recipe.batch_size),
                **collect_provenance(),
            }
            for metric, value in found.items():
                rows.append(BenchmarkRow(metric=metric, mean=value, std=0.0, n=len(alphas), **same))
            print(f"{name:<36} layer {layer}: chose {chosen:6g}", end="")
            print("".join(f", {m} {v:.2f}" for m, v in found.items()), flush=True)
    append_rows(options.out, rows)


if __name__ == "__main__":
    main()
