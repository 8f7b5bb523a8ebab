"""Settings are told to be wrong before data is read, and are plain numbers from then on."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import nn

from foveapool import ClosedFormPooling
from foveapool.surgery.settings import resolve_window

from .toys import MAIN, loader, toy

WRONG = [
    {"norm": "l3"},
    {"alpha": -1.0},
    {"alpha": None},
    {"alpha": [1.0, 2.0]},
    {"alpha": True},
    {"alpha": np.ones(2)},
    {"alpha": torch.ones(1)},
    {"alpha": "25"},
    {"sign": "up"},
    {"solver": "magic"},
    {"weighting": "heavy"},
    {"precision": "x"},
    {"precision": "bf16"},  # on a CPU
    {"normalize": "no"},
    {"normalize": 1},
    {"components": "2"},
    {"components": True},
    {"components": 0},
    {"components": 2.0},
    {"seed": "x"},
    {"seed": None},
    {"window": 1.5},
    {"window": -2},
    {"window": "wide"},
    {"class_cap": "all"},
    {"class_cap": 1},
    {"num_classes": "ten"},
    {"num_classes": 0},
    {"num_classes": 1},
]


@pytest.mark.parametrize("settings", WRONG, ids=str)
def test_a_wrong_setting_is_told_before_a_batch_is_read(settings):
    class Unread:
        def __iter__(self):
            raise AssertionError("the loader was read")

    (name,) = settings
    with pytest.raises(ValueError, match=f"{name}: got .*wanted"):
        ClosedFormPooling(**settings).fit(toy(), Unread(), MAIN)


# Each with the plain number that it stands for.
NUMBERS = [
    ("alpha", np.arange(1, 4)[1], 2),
    ("alpha", np.float32(2.5), 2.5),
    ("alpha", np.array(2.5), 2.5),
    ("alpha", np.longdouble(2.5), 2.5),
    ("alpha", torch.tensor(2.5), 2.5),
    ("alpha", Fraction(5, 2), 2.5),
    ("components", np.int64(2), 2),
    ("components", torch.tensor(2), 2),
    ("window", np.uint8(3), 3),
    ("class_cap", np.int32(12), 12),
    ("num_classes", np.int64(3), 3),
    ("seed", np.uint64(2), 2),
    ("normalize", np.bool_(False), False),
    ("normalize", torch.tensor(False), False),
]


@pytest.mark.parametrize(("name", "given", "plain"), NUMBERS, ids=repr)
def test_numbers_of_other_libraries_are_taken_and_kept_as_plain_ones(name, given, plain, tmp_path):
    fit = ClosedFormPooling(**{name: given})
    fit.fit(toy(), loader(), MAIN, resume=tmp_path / "sums").save(tmp_path / "fit")
    wanted = ClosedFormPooling(**{name: plain}).fit(toy(), loader(), MAIN)
    again = ClosedFormPooling.load(tmp_path / "fit")
    assert type(getattr(fit, name)) is type(plain) and getattr(again, name) == plain
    assert torch.equal(again.operator_.weight, wanted.operator_.weight)


def test_a_fit_that_cannot_be_saved_leaves_the_one_that_was(tmp_path):
    fit = ClosedFormPooling(9.0).fit(toy(), loader(), MAIN)
    fit.save(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ValueError, match="alpha: got None"):
        fit.set_params(alpha=None).save(tmp_path)
    fit.set_params(alpha=9.0).seconds_["solve"] = object()
    with pytest.raises(TypeError, match="JSON"):
        fit.save(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_settings_that_were_changed_are_plain_where_they_are_saved(tmp_path):
    fit = ClosedFormPooling().fit(toy(), loader(), MAIN)
    fit.set_params(alpha=np.float64(3.0), seed=np.int64(4)).save(tmp_path)
    settings = json.loads((tmp_path / "estimator.json").read_text())["settings"]
    assert (settings["alpha"], settings["seed"]) == (3.0, 4)


def test_settings_that_were_changed_are_checked_before_solving_again():
    fit = ClosedFormPooling().fit(toy(), loader(), MAIN)
    with pytest.raises(ValueError, match="components: got '2', wanted a whole number or None"):
        fit.set_params(components="2").solve()


@pytest.mark.parametrize(
    ("mode", "in_shape", "out_shape", "wanted"),
    [
        ("replace", (32, 32), (16, 16), None),
        ("mix", (32, 32), (16, 16), None),
        ("after", (32, 32), (16, 16), 2),
        ("after", (9, 7), (5, 4), 2),
        ("after", (32, 16), (8, 8), 4),
    ],
)
def test_a_window_that_is_left_out_follows_mode_and_stride(mode, in_shape, out_shape, wanted):
    assert resolve_window("auto", mode, in_shape, out_shape, 2) == wanted
    assert resolve_window(None, mode, in_shape, out_shape, 2) is None
    assert resolve_window(7, mode, in_shape, out_shape, 2) == 7


def test_behind_a_convolution_a_position_sees_five_by_five_pixels_unless_told():
    model = toy()
    local = ClosedFormPooling().fit(model, loader(), MAIN, "after").operator_
    whole = ClosedFormPooling(window=None).fit(model, loader(), MAIN, "after").operator_
    assert (local.settings.window, whole.settings.window) == (2, None)
    assert int((local.weight[0, 5] != 0).sum()) == 25 < int((whole.weight[0, 5] != 0).sum())


@pytest.mark.parametrize(("mode", "wanted"), [("replace", 0.5), ("mix", 3.0), ("after", 10.0)])
@pytest.mark.parametrize("unit", ["absolute", "trace"])
def test_an_alpha_that_is_left_out_follows_the_mode(mode, wanted, unit):
    fit = ClosedFormPooling(alpha_unit=unit).fit(toy(), loader(), MAIN, mode)
    mean = float(fit.scatter_.within_diagonal().mean()) if unit == "absolute" else 1.0
    assert fit.operator_.settings.alpha_unit == unit
    assert fit.operator_.alpha == pytest.approx(wanted * mean)


def test_a_window_narrower_than_a_step_is_fitted_and_a_wider_one_asked_for_again():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 5, 4, 1))
    fit = ClosedFormPooling(window=1).fit(model, loader(size=14), "0")
    assert (fit.scatter_.window, fit.operator_.rows.shape[2]) == (3, 9)
    message = r"window: got 4 for 0, whose scatter was summed up for 3, wanted 3 or less; .* fit wi"
    with pytest.raises(ValueError, match=message):
        fit.set_params(window=4).solve()
    assert fit.set_params(window=2).solve().operator_.settings.window == 2
