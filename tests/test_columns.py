"""What goes without saying in a row is what a study takes where nothing is said."""

from dataclasses import asdict

import pytest

from foveapool.labels import (
    DEFAULTS,
    default_center,
    default_components,
    format_number,
    label_columns,
)
from foveapool.networks.sites import FORMS
from foveapool.study.setting import POOLINGS, Pool, Setting

# In columns or words of their own.
TOLD = ("pooling", "layer", "alpha", "alpha_unit", "norm", "form", "placement", "together")


@pytest.mark.parametrize("form", FORMS)
def test_what_is_usual_is_what_a_pooling_has_by_itself(form):
    for pooling in POOLINGS[1:]:
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
