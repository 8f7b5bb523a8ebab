"""Things to study in seconds: 160 street digits, networks of four channels, few epochs."""

from dataclasses import replace

from foveapool.runs import Runs
from foveapool.study.engine import Engine, SerialWorkers
from foveapool.study.fits import solve_scatter, sum_scatter
from foveapool.study.setting import Pool, Setting
from foveapool.study.spec import ExecutionOptions, Source, TrainingSpec
from foveapool.study.study import StudyRun, StudyStages
from foveapool.training.recipe import Recipe

SOURCE = Source("street-digits", options={"train_size": 160, "test_size": 64})
RECIPE = Recipe("adam", 1e-2, 2, batch_size=32)
CPU = ExecutionOptions("cpu")

NARROW = """
[data]
name = "street-digits"
options = { train_size = 160, test_size = 64 }
[network]
width = 4
[recipe]
"""

# Two layers, three alphas, two norms, three parts, three trials.
WHOLE = f"""
title = "small"
{NARROW}
epochs = 1
lr = 0.01
batch_size = 16
[trials]
seeds = 3
[[search]]
layers = [2, 3]
alphas = [5, 25, 400]
norms = ["l1", "l2"]
parts = 3
held_out = 0.2
[[arm]]
pooling = "baseline"
[[arm]]
pooling = ["closed-form", "closed-form-trained"]
[[arm]]
pooling = "average"
layer = 3
"""

# One part, two alphas, two trials.
TINY = f"""
title = "A tiny one"
{NARROW}
epochs = 1
batch_size = 32
[trials]
seeds = 2
[[search]]
layers = [3]
alphas = [5, 25]
norms = ["l2"]
parts = 1
held_out = 0.2
[[arm]]
pooling = "baseline"
[[arm]]
pooling = "closed-form"
"""


def training(*pools, seed=0, part=None, epochs=2, **more):
    """A training of a narrow CNN with poolings given as (name, layer) or as `Pool`."""
    made = tuple(pool if isinstance(pool, Pool) else Pool(*pool) for pool in pools)
    setting = Setting(made, width=4, **more)
    return TrainingSpec(setting, SOURCE, replace(RECIPE, epochs=epochs), seed, part, 0.2)


def fit_in_memory(trial, network, pool=None):
    """The operator of a trial's last pool on a network trained without it; nothing is kept.

    For forms that read what the convolution reads.
    """
    pool = pool or trial.setting.pools[-1]
    site = network.site(pool.layer, trial.setting.placement_of(pool), pool.form)
    return solve_scatter(sum_scatter(network, trial.data, site, pool, "cpu"), site, pool)


def engine(folder, said=None):
    """This process as the only worker, on a CPU."""
    runs = Runs(folder, (lambda text: None) if said is None else said.append)
    return Engine(runs, CPU, SerialWorkers())


def results_of(engine, trainings):
    """What each training came to, by its name."""
    return {done.training.name: done.result for done in engine.run(trainings)}


def conduct_study(study, engine, watch=lambda done: None):
    """The tables of a study that is done; `watch` is told of each training."""
    run = StudyRun(study, engine)
    for done in run:
        watch(done)
    return run.tables


def go_through(stages, run):
    """What stages return in the end, where `run(name, trainings)` gives the results of each."""
    left = iter(stages)
    while True:
        try:
            stage = next(left)
        except StopIteration as end:
            return end.value
        stage.results = run(stage.name, stage.trainings)


def tables_of(study, run):
    """The tables of a study, where `run(name, trainings)` gives the results of a stage."""
    stages = StudyStages(study)
    go_through(stages, run)
    return stages.tables
