"""Seconds to fit: those of the passes and of the solving, whoever did them and when."""

from types import SimpleNamespace

import pytest

from foveapool._io import read_sealed_json
from foveapool.runs import Runs
from foveapool.study import fits
from foveapool.study.fits import fit_operators, solve_scatter, sum_scatter
from foveapool.study.setting import Pool
from foveapool.study.worker import run_training

from .small_studies import CPU, training

PASSES, SOLVING, READING, AGAIN = 32.0, 8.0, 0.5, 1000.0


@pytest.fixture
def runs(tmp_path):
    runs = Runs(tmp_path / "runs")
    run_training(training(), runs, CPU)
    return runs


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """A clock that only what is done here moves on."""
    now = SimpleNamespace(seconds=0.0)

    def lasting(seconds, what):
        def done(*given, **choices):
            now.seconds += seconds
            return what(*given, **choices)

        return done

    monkeypatch.setattr(fits, "time", SimpleNamespace(perf_counter=lambda: now.seconds))
    for name, seconds, what in (
        ("sum_scatter", PASSES, sum_scatter),
        ("solve_scatter", SOLVING, solve_scatter),
        ("get_weights", AGAIN, fits.get_weights),
        ("_read", READING, fits._read),
    ):
        monkeypatch.setattr(fits, name, lasting(seconds, what))


def seconds(runs, *pools):
    return fit_operators(training(*pools), runs, CPU).seconds


def test_who_finds_a_scatter_has_its_passes_in_the_time_too(runs):
    both = [training((pooling, 3, 25)) for pooling in ("closed-form", "closed-form-trained")]
    found = [run_training(each, runs, CPU)["fit_seconds"] for each in both]
    # Neither reading files nor training a network whose weights are lost is a part of it.
    assert found == [PASSES + SOLVING] * 2


def test_after_a_kill_the_time_is_that_of_the_fit_and_not_of_reading_a_file(runs):
    one = training(("closed-form", 3))
    fit_operators(one, runs, CPU)
    (note,) = runs.folder(one.name).glob("operator-3.json")
    assert read_sealed_json(note) == {"passes": PASSES, "solving": SOLVING}
    assert run_training(one, runs, CPU)["fit_seconds"] == PASSES + SOLVING


def test_the_time_of_two_layers_is_that_of_both(runs):
    first, second = Pool("closed-form", 3), Pool("closed-form", 2)
    run_training(training(first), runs, CPU)
    assert seconds(runs, first, second) == seconds(runs, first, second) == 2 * (PASSES + SOLVING)


def test_a_training_without_a_closed_form_has_nothing_to_fit(runs):
    assert seconds(runs) == seconds(runs, ("sgd", 3)) == 0


@pytest.mark.parametrize("content", [None, "{", "[]", '{"passes": "long"}'])
def test_where_nobody_noted_the_time_it_is_that_of_now(runs, content):
    seconds(runs, ("closed-form", 3, 25))
    for path in runs.root.glob("trainings/*/*-*.json"):
        path.unlink() if content is None else path.write_text(content)
    # The operator is there, and so is the scatter for another one.
    assert seconds(runs, ("closed-form", 3, 25)) == READING
    assert seconds(runs, ("closed-form", 3, 5)) == READING + READING + SOLVING
