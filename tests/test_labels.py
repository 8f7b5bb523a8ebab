"""Labels: what readers see for the names of settings and rows, and what goes without saying."""

from dataclasses import asdict

import pytest

from foveapool.data.registry import NAMES
from foveapool.labels import (
    DATA,
    DEFAULTS,
    NETWORKS,
    POOLINGS,
    default_center,
    default_components,
    format_number,
    label_cell,
    label_columns,
)
from foveapool.networks import NETWORKS as BUILT
from foveapool.networks.sites import FORMS
from foveapool.study import setting
from foveapool.study.setting import Pool, Setting


def test_every_pooling_network_and_data_set_has_a_label_of_its_own():
    data = [name for name in NAMES if ":" not in name]
    for labels, names in ((POOLINGS, setting.POOLINGS), (NETWORKS, BUILT), (DATA, data)):
        assert set(labels) == set(names)
        assert len(set(labels.values())) == len(labels)


@pytest.mark.parametrize(
    ("column", "text", "label"),
    [
        ("pooling", "closed-form-trained", "closed form, then trained"),
        (
            "pooling",
            "sgd, pooling rate 0.1, beside blur, after, at 1, 2, beside max at 3",
            "P by SGD, pooling rate 0.1, beside BlurPool, after, at 1, 2, beside max at 3",
        ),
        ("network", "resnet18, width 16", "ResNet-18, width 16"),
        ("data", "svhn, 5 %", "SVHN, 5 %"),
        ("data", "npz:toys.npz", "npz:toys.npz"),
        ("pooling", "", ""),
        ("form", "mix", "mix"),
    ],
)
def test_a_name_is_labelled_and_what_stands_behind_it_stays(column, text, label):
    assert label_cell(column, text) == label


# In columns or words of their own.
TOLD = ("pooling", "layer", "alpha", "alpha_unit", "norm", "form", "placement", "together")


@pytest.mark.parametrize("form", FORMS)
def test_what_is_usual_is_what_a_pooling_has_by_itself(form):
    for pooling in setting.POOLINGS[1:]:
        facts = asdict(Pool(pooling, 3, form=form))
        usual = {
            **DEFAULTS,
            "center": default_center(facts),
            "components": default_components(facts),
            # How local it is stands in a table of several forms: it is told where it is not all.
            "window": 2 if form.startswith("after") else DEFAULTS["window"],
        }
        own = {name: value for name, value in facts.items() if name not in TOLD}
        assert own == usual, pooling


def test_a_network_of_the_usual_width_is_called_by_its_name():
    assert label_columns(Setting().facts())["network"] == "cnn"
    wide = Setting(network="resnet18", width=16, options={"final_norm": False})
    assert label_columns(wide.facts())["network"] == "resnet18, width 16, final_norm False"


def test_numbers_keep_the_digits_that_tell_them_apart():
    assert format_number(25.0) == "25"
    assert format_number(1234567.25) != format_number(1234567.5)
