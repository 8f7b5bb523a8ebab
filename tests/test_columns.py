"""What goes without saying in a row is what a study takes where nothing is said."""

from dataclasses import asdict

import pytest

from foveapool.labels import USUAL, number, place, usual_centre, usual_components
from foveapool.networks.sites import FORMS
from foveapool.study.setting import POOLINGS, Pool, Setting

# In columns or words of their own.
TOLD = ("pooling", "layer", "alpha", "alpha_unit", "norm", "form", "placement", "together")


@pytest.mark.parametrize("form", FORMS)
def test_what_is_usual_is_what_a_pooling_has_by_itself(form):
    for pooling in POOLINGS[1:]:
        facts = asdict(Pool(pooling, 3, form=form))
        usual = {
            **USUAL,
            "centre": usual_centre(facts),
            "components": usual_components(facts),
            # How local it is stands in a table of several forms: it is told where it is not all.
            "window": 2 if form.startswith("after") else USUAL["window"],
        }
        own = {name: value for name, value in facts.items() if name not in TOLD}
        assert own == usual, pooling


def test_a_network_of_the_usual_width_is_called_by_its_name():
    assert place(Setting().facts())["network"] == "cnn"
    wide = Setting(network="resnet18", width=16, options={"final_norm": False})
    assert place(wide.facts())["network"] == "resnet18, width 16, final_norm False"


def test_numbers_keep_the_digits_that_tell_them_apart():
    assert number(25.0) == "25"
    assert number(1234567.25) != number(1234567.5)
