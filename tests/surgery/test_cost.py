"""What a fit will cost is told before data is read, and what cannot be is refused then."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

from foveapool import ClosedFormPooling, downsampling_layers
from foveapool.surgery import cost
from foveapool.surgery.cost import FitCost, check_cost

from .toys import MAIN, loader, toy

CPU = torch.device("cpu")


class OnlyOneBatch:
    """A loader that is looked into, and must not be read."""

    def __iter__(self):
        yield loader()[0]
        raise AssertionError("the loader is read")


def refused(**settings) -> str:
    with pytest.raises(ValueError) as caught:
        ClosedFormPooling(**settings).fit(toy(), OnlyOneBatch(), MAIN)
    return str(caught.value)


def test_cost_grows_with_the_map_and_shrinks_with_the_window():
    small, large = (FitCost.estimate((n, n), (n // 2, n // 2), 2) for n in (56, 112))
    assert large.places == 4 * small.places
    assert large.bytes == 16 * small.bytes
    assert large.seconds == pytest.approx(64 * small.seconds)
    narrow = FitCost.estimate((112, 112), (56, 56), 2, window=3)
    assert narrow.bytes < large.bytes / 100 and narrow.seconds < large.seconds / 100


def test_costs_are_told_in_units_that_can_be_read():
    told = [str(FitCost(1, *each)) for each in ((10, 0.5), (5e8, 30), (3e9, 600), (9e10, 90_000))]
    assert told == ["1 MB, under 1 s", "0.5 GB, 30 s", "3.0 GB, 10 min", "90.0 GB, 25 h"]


def test_the_table_of_layers_has_a_column_for_it():
    model = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.Conv2d(4, 8, 3, 2, 1))
    lines = str(downsampling_layers(model, torch.zeros(1, 3, 96, 96))).splitlines()
    at = lines[0].index("cost to fit")
    assert [line[at:].strip() for line in lines[1:]] == ["4.8 GB, 6 min", "0.3 GB, 8 s"]


def test_what_is_much_is_warned_of_before_the_passes_with_advice():
    with pytest.warns(UserWarning, match=r"layer: stem has 9,216 places; .* 4.8 GB.*window=r"):
        check_cost("stem", ((96, 96), (48, 48)), 2, None, CPU)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_cost("stem", ((96, 96), (48, 48)), 2, 3, CPU)
        check_cost("deep", ((28, 28), (14, 14)), 2, None, CPU)


def test_a_fit_warns_of_its_own_layers(monkeypatch):
    monkeypatch.setattr(cost, "MUCH_MEMORY", 1.0)
    with pytest.warns(UserWarning, match=f"layer: {MAIN} has 64 places"):
        ClosedFormPooling().fit(toy(), loader(), MAIN)


def test_a_window_that_the_pooling_does_not_fit_into_is_refused_before_the_passes():
    told = refused(window=1, components=10)
    assert f"components: got 10 for {MAIN}, wanted 9 or fewer" in told
    assert told.endswith("so many weights in a window of 1, or a wider window")
    assert refused(components=65).endswith(
        "wanted 64 or fewer, since each position has so many weights on the map"
    )


def test_sums_that_no_memory_has_room_for_are_refused_before_the_passes():
    with pytest.raises(ValueError, match=r"layer: stem: .*places, whose scatter needs .*window=r"):
        check_cost("stem", ((1024, 1024), (512, 512)), 2, None, CPU)
