"""What a fit will cost is told before data is read, and what cannot be is refused then."""

from __future__ import annotations

import math
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

from foveapool import ClosedFormPooling, downsampling_layers
from foveapool.pooling.grid import count_window
from foveapool.surgery import cost
from foveapool.surgery.cost import FitCost, check_cost, choose_window

from .toys import MAIN, SHORTCUT, loader, toy

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
    told = [line[at:].strip() for line in lines[1:]]
    window = choose_window((96, 96), (48, 48), 1)
    narrow = FitCost.estimate((96, 96), (48, 48), 1, window)
    assert told == [f"{narrow}, window {window}", "0.3 GB, 8 s"]


def test_what_is_much_is_warned_of_before_the_passes_with_advice():
    told = r"layer: stem has 9,216 places; .* 4.8 GB.*window='auto' or window=r"
    with pytest.warns(UserWarning, match=told):
        check_cost("stem", ((96, 96), (48, 48)), 2, None, CPU)
    with pytest.warns(UserWarning, match="Pass a smaller window"):
        check_cost("stem", ((96, 96), (48, 48)), 2, 40, CPU)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_cost("stem", ((96, 96), (48, 48)), 2, 3, CPU)
        check_cost("deep", ((28, 28), (14, 14)), 2, None, CPU)


SIZES = [((96, 96), 2), ((224, 224), 9), ((112, 112), 1), ((384, 384), 9), ((16_000,), 2)]


@pytest.mark.parametrize(("in_shape", "components"), SIZES, ids=str)
def test_an_automatic_window_is_the_widest_that_nobody_has_to_be_told_of(in_shape, components):
    out_shape = tuple(size // 2 for size in in_shape)

    def is_cheap(window: int) -> bool:
        weights = components * math.prod(out_shape) * count_window(in_shape, window)
        much = FitCost.estimate(in_shape, out_shape, components, window).is_much
        return not much and 4 * weights <= cost.MUCH_WEIGHT

    window = choose_window(in_shape, out_shape, components)
    assert window is not None and is_cheap(window) and not is_cheap(window + 1)


def test_an_automatic_window_is_the_whole_map_where_that_is_cheap_and_never_below_the_stride():
    assert choose_window((56, 56), (28, 28), 9) is None
    assert choose_window((64, 64), (32, 32), 2) is None
    # Even these are much, but less would leave places out.
    assert choose_window((4096, 4096), (1024, 1024), 9) == 4


def test_a_fit_narrows_its_windows_where_maps_are_large_and_says_so(monkeypatch, tmp_path):
    pairs = loader(size=16)
    monkeypatch.setattr(cost, "MUCH_TIME", FitCost.estimate((16, 16), (8, 8), 2, 2).seconds)
    told = rf"layer: {MAIN} has 256 places, .*sees 5 places along each axis \(window=2: .*=None"
    with pytest.warns(UserWarning, match=told) as caught:
        fit = ClosedFormPooling(alpha=9.0).fit(toy(), pairs, MAIN)
    assert [Path(each.filename).name for each in caught] == [Path(__file__).name]
    assert fit.scatter_.window == fit.operator_.settings.window == 2
    fit.save(tmp_path)
    again = ClosedFormPooling.load(tmp_path).solve()
    assert torch.equal(again.operator_.rows, fit.operator_.rows)
    narrow = ClosedFormPooling(alpha=9.0, window=2).fit(toy(), pairs, MAIN)
    assert torch.equal(narrow.operator_.rows, fit.operator_.rows)
    assert "a position sees 5 wide" in fit.module().fitted_on
    with pytest.warns(UserWarning, match="relating them takes"):
        whole = ClosedFormPooling(window=None).fit(toy(), pairs, MAIN)
    assert whole.operator_.settings.window is None
    with pytest.warns(UserWarning, match=told) as caught:
        given = ClosedFormPooling(alpha=9.0).use_scatter(whole.scatters_, whole.layers_.values())
        assert given.solve().operator_.settings.window == 2
    assert [Path(each.filename).name for each in caught] == [Path(__file__).name]
    # With one component a wider one would do, for which the sums are not there.
    monkeypatch.setattr(cost, "MUCH_TIME", 1e9)
    assert fit.set_params(components=1).solve().operator_.settings.window == 2


def test_layers_that_read_the_same_share_what_was_summed_for_the_costlier(monkeypatch):
    cheap = FitCost.estimate((16, 16), (8, 8), 1)
    monkeypatch.setattr(cost, "MUCH_TIME", cheap.seconds)
    with pytest.warns(UserWarning, match=f"layer: {MAIN} .*window=2"):
        fit = ClosedFormPooling().fit(toy(), loader(size=16), [MAIN, SHORTCUT], "mix")
    assert choose_window((16, 16), (8, 8), 1) is None
    found = {name: (each.components, each.settings.window) for name, each in fit.operators_.items()}
    assert found == {MAIN: (8, 2), SHORTCUT: (1, 2)}


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
