"""What goes without saying in a row is what a study takes where nothing is said."""

from dataclasses import fields

from foveapool.columns import USUAL, number, place
from foveapool.study.setting import Pool, Setting

TOLD = ("pooling", "layer", "alpha", "norm")  # in columns or words of their own


def test_what_is_usual_is_what_a_pooling_has_by_itself():
    assert {each.name: each.default for each in fields(Pool) if each.name not in TOLD} == USUAL


def test_a_network_of_the_usual_width_is_called_by_its_name():
    assert place(Setting().facts())["network"] == "cnn"
    wide = Setting(network="resnet18", width=16, options={"final_norm": False})
    assert place(wide.facts())["network"] == "resnet18, width 16, final_norm False"


def test_numbers_keep_the_digits_that_tell_them_apart():
    assert number(25.0) == "25"
    assert number(1234567.25) != number(1234567.5)
