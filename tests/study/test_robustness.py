"""Robustness as the last step of a training: what is measured, and the rows it becomes."""

import json
import statistics

import pytest

from foveapool.robustness.metrics import CorruptionTable
from foveapool.robustness.result import RobustnessResult, average_results
from foveapool.runs import Runs
from foveapool.study import robustness
from foveapool.study.robustness import check_robustness
from foveapool.study.rows import make_robustness_rows, read_robustness
from foveapool.study.spec import TrainingSpec
from foveapool.study.study import Arm, Study
from foveapool.study.worker import run_training

from .small_studies import CPU, RECIPE, SOURCE, training

COLUMNS = {"study": "s", "pooling": "closed-form"}


def result(*errors):
    """What a training found that errs so at the two severities of fog."""
    table = CorruptionTable({"fog": dict(enumerate(errors, 1))}, clean=0.1)
    return {"robustness": json.loads(json.dumps(RobustnessResult(table).to_dict()))}


def study(*asked):
    return Study("s", SOURCE, RECIPE, training().setting, arms=(Arm("baseline"),), robustness=asked)


def test_every_figure_is_a_row_with_its_spread_over_the_seeds():
    rows = make_robustness_rows(
        read_robustness([result(0.2, 0.4), result(0.3, 0.6)]), None, COLUMNS
    )
    found = {row.metric: (row.mean, row.std, row.n) for row in rows}
    assert found["error %, clean"] == (pytest.approx(10.0), pytest.approx(0.0), 2)
    spread = pytest.approx(statistics.stdev([40, 60]))
    assert found["error %, fog, severity 2"] == (pytest.approx(50.0), spread, 2)
    assert len(found) == 3


def test_ratios_are_those_of_sums_of_means():
    ours, theirs = [result(0.2, 0.4), result(0.3, 0.5)], [result(0.4, 0.6), result(0.4, 0.8)]
    against = average_results(read_robustness(theirs))
    rows = {
        row.metric: row for row in make_robustness_rows(read_robustness(ours), against, COLUMNS)
    }
    # The paper's CE: errors summed over severities, divided by the baseline's.
    assert rows["CE %, fog"].mean == pytest.approx(100 * (0.25 + 0.45) / (0.4 + 0.7))


def test_what_was_not_measured_is_no_row():
    assert read_robustness([{}]) == read_robustness([result(0.2), {}]) == read_robustness([]) == []
    rows = make_robustness_rows(read_robustness([result(0.2)]), None, COLUMNS)
    assert [row.metric for row in rows] == ["error %, clean", "error %, fog, severity 1"]


def test_a_training_is_measured_on_its_test_images_once_it_is_trained(tmp_path, monkeypatch):
    asked = []

    def evaluate(network, images, labels, normalize, **how):
        asked.append((len(images), len(how["corruptions"]), how["perturbations"]))
        return RobustnessResult(CorruptionTable({"fog": {1: 0.5}}, clean=0.25))

    monkeypatch.setattr(robustness, "evaluate", evaluate)
    runs = Runs(tmp_path)
    each = study("corruptions").training(training().setting, 0)
    found = run_training(each, runs, CPU)
    assert asked == [(64, 15, ())]
    assert found["robustness"]["corruptions"] == {"errors": {"fog": {"1": 0.5}}, "clean": 0.25}
    plain = run_training(training(), runs, CPU)
    assert "robustness" not in plain and len(asked) == 1
    assert (plain["error"], plain["loss"]) == (found["error"], found["loss"])


def test_what_else_is_measured_makes_another_training():
    names = {study(*asked).training(training().setting, 0).name for asked in ((), ("corruptions",))}
    assert names > {training().name} and len(names) == 2
    each = study("corruptions", "perturbations").training(training().setting, 3)
    assert TrainingSpec.from_facts(json.loads(json.dumps(each.facts))).name == each.name
    assert "robustness" not in training().facts


def test_what_cannot_be_measured_is_refused():
    check_robustness(())
    with pytest.raises(ValueError, match=r"robustness: got 'corruption', wanted 'corruptions'"):
        study("corruption")
