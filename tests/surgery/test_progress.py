"""Long work says how far it is: to a function, to a bar, or in lines."""

from __future__ import annotations

import itertools
import sys

import pytest

from foveapool import ClosedFormPooling, Progress
from foveapool.pooling import eigenproblem
from foveapool.surgery import progress

from .toys import MAIN, loader, toy

PLACES = 16


class Unmeasured:
    """A loader that does not say how long it is."""

    def __iter__(self):
        return iter(loader())


def fitted(batches, **more) -> None:
    ClosedFormPooling().fit(toy(), batches, MAIN, **more)


@pytest.fixture
def clock(monkeypatch):
    """Every look at the clock takes one second."""
    ticks = itertools.count()
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(ticks)))


def told_of_passes(batches) -> list[Progress]:
    told: list[Progress] = []
    fitted(batches, progress=told.append)
    return [now for now in told if now.layer is None]


def test_a_function_is_told_after_each_batch_of_both_passes():
    told = told_of_passes(loader())
    assert [(now.number, now.batches) for now in told] == [
        (number, batches) for number in (1, 2) for batches in range(1, 6)
    ]
    assert {now.total for now in told} == {5}
    assert all(now.seconds >= 0 for now in told)
    assert told[4].seconds_left == told[9].seconds_left == 0


def test_the_time_that_is_left_falls_with_an_even_pace(clock):
    told = told_of_passes(loader())
    for one in (told[:5], told[5:]):
        left = [now.seconds_left for now in one]
        assert left == sorted(left, reverse=True) and len(set(left)) == 5


def test_where_a_loader_does_not_say_its_length_the_second_pass_knows_it():
    told = told_of_passes(Unmeasured())
    assert [now.total for now in told] == [None] * 5 + [5] * 5
    assert told[0].seconds_left is None
    assert str(told[0]) == "pass 1 of 2: 1 batches"
    assert str(told[9]) == "pass 2 of 2: 5 of 5 batches, 0 s left"


def test_solving_is_told_of_place_by_place_and_also_when_it_is_done_again(monkeypatch):
    monkeypatch.setattr(eigenproblem, "MOST_ON_CPU", 1)
    monkeypatch.setattr(eigenproblem, "ENTRIES_ON_CPU", 1)
    told: list[Progress] = []
    fit = ClosedFormPooling().fit(toy(), loader(), MAIN, progress=told.append)
    solved = [now for now in told if now.layer is not None]
    assert [now.batches for now in solved] == list(range(1, PLACES + 1))
    assert {(now.total, now.layer) for now in solved} == {(PLACES, MAIN)}
    assert solved[-1].seconds_left == 0
    fit.solve(progress=told.append)
    assert [now.batches for now in told[-PLACES:]] == list(range(1, PLACES + 1))


def test_after_going_on_the_pace_is_that_of_the_batches_since(clock):
    clock = progress.Clock(2, 10, done=6)
    now = clock.after(8)
    # A second for the two batches since, and two more to go.
    assert (now.seconds, now.seconds_left) == (1.0, 1.0)


def test_a_bar_is_drawn_where_rich_is_installed(capsys):
    pytest.importorskip("rich")
    fitted(loader(), progress=True)
    drawn = capsys.readouterr()
    assert "pass 1 of 2" in drawn.err and "pass 2 of 2" in drawn.err and "5/5" in drawn.err
    assert drawn.out == ""
    fitted(Unmeasured(), progress=True)
    assert "pass 2 of 2" in capsys.readouterr().err


def test_lines_are_printed_where_it_is_not(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    fitted(loader(), progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == [f"pass {n} of 2: 5 of 5 batches, 0 s left" for n in (1, 2)]
    assert lines[2:] == [f"solving {MAIN}: {PLACES} of {PLACES} places, 0 s left"]


def test_lines_come_now_and_then_in_long_passes(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    monkeypatch.setattr(progress, "EVERY_SECONDS", 0.0)
    fitted(Unmeasured(), progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 11 and lines[0] == "pass 1 of 2: 1 batches"


def test_by_default_nothing_is_said(capsys):
    fitted(loader())
    assert capsys.readouterr() == ("", "")


def test_an_error_in_the_function_ends_the_fit_and_leaves_the_network_alone():
    def stop(now: Progress) -> None:
        raise KeyboardInterrupt

    model = toy().train()
    with pytest.raises(KeyboardInterrupt):
        ClosedFormPooling().fit(model, loader(), MAIN, progress=stop)
    assert model.training
    assert not any(module._forward_pre_hooks for module in model.modules())
