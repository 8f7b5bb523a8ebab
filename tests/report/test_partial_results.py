"""Rows before there is a table: they say what the table will say, and have no line more."""

from dataclasses import fields, replace

import pytest

from foveapool.labels import label_columns
from foveapool.records import ERROR
from foveapool.report.sources import summarize_run
from foveapool.report.tables import choice_key
from foveapool.study.presets import read_preset
from foveapool.study.setting import Pool, Setting
from foveapool.study.spec import Source, TrainingSpec
from foveapool.training.recipe import Recipe

from ..study.small_studies import NARROW, conduct_study, engine
from .unusual_poolings import UNUSUAL

POOL, AFTER = Pool("closed-form", 2, 15), Pool("closed-form", 3, 65.5, "l1")
TRAINED = Pool("closed-form-trained", 3)
RECIPE = Recipe("sgd", 0.1, 2)
# Each differs from the pooling as it is in one choice; mixed, it cannot stand before a block.
CHOICES = [
    *UNUSUAL,
    {"pooling": "closed-form-trained"},
    {"layer": 1},
    {"alpha": 1234567.25},
    {"alpha": 1234567.5},
    {"alpha_unit": "trace"},
    {"norm": "l1"},
    {"components": 4},
    {"placement": "main"},
    {"placement": "main", "form": "mix", "components": 2},
]


def told(pools, recipe=RECIPE):
    """The columns that are made of a training's facts."""
    made = TrainingSpec(
        Setting(pools, network="resnet18", placement="before"), Source("svhn"), recipe
    )
    return label_columns(made.facts["setting"], made.facts["recipe"].get("pooling_rate"))


NO_CAP = {"class_cap": None}


def test_no_two_settings_have_the_same_columns():
    alone = [(), (POOL,), *((replace(POOL, **each),) for each in CHOICES)]
    # The same of the second layer, of the first of two, and of both.
    second = [
        (replace(POOL, **one), replace(AFTER, **two))
        for each in ({}, *CHOICES)
        if "layer" not in each and each != NO_CAP  # see below
        for one, two in (({}, each), (each, {}), (each, each))
    ]
    found = {}
    for pools in (*alone, *dict.fromkeys(second)):
        columns = tuple(told(pools).items())
        assert columns not in found, (pools, found[columns])
        found[columns] = pools


def test_no_cap_at_one_of_two_layers_is_told_with_its_layer():
    one, other = told((replace(POOL, **NO_CAP), AFTER)), told((POOL, replace(AFTER, **NO_CAP)))
    assert one["pooling"] == "closed-form, class_cap None at layer 2"
    assert other["pooling"] == "closed-form, class_cap None at layer 3"


def test_every_choice_of_a_pooling_is_among_those_that_are_told_apart():
    tried = {name for each in CHOICES for name in each}
    # What is fitted together is asked for in tests/study/test_forms.py.
    assert tried | {"together"} == {each.name for each in fields(Pool)}


@pytest.mark.parametrize(
    ("pool", "label"),
    [
        (TRAINED, "closed-form-trained, pooling rate 0.1"),
        (Pool("sgd", 3), "sgd, pooling rate 0.1"),
        (POOL, "closed-form"),
    ],
)
def test_a_rate_for_poolings_is_told_of_those_that_train_a_matrix(pool, label):
    assert told((pool,), replace(RECIPE, pooling_rate=0.1))["pooling"] == label


TWO_LAYERS = (
    NARROW.replace("[network]", "share = 0.5\n[network]")
    + """
epochs = 1
batch_size = 16
[trials]
seeds = 2
[[arm]]
pooling = "baseline"
[[arm]]
pooling = "closed-form"
layer = 3
alpha = 15
then = [{ layer = 2, alpha = 65 }]
[[arm]]
pooling = "closed-form"
layer = 3
alpha = 15
window = 2
[[arm]]
pooling = "closed-form"
layer = 3
alpha = 15
center = "aligned"
"""
)


def test_a_study_without_its_table_has_the_same_lines(tmp_path):
    (tmp_path / "two.toml").write_text(TWO_LAYERS)
    conduct_study(read_preset(str(tmp_path / "two.toml")), engine(tmp_path))
    folder = tmp_path / "studies" / "two"

    def lines():
        rows = [row for row in summarize_run(folder).rows if row.metric == ERROR]
        return sorted((choice_key(row), row.epochs, row.batch, row.values) for row in rows)

    finished = lines()
    assert len(finished) == 4 and finished[0][0][:2] == ("cnn, width 4", "street-digits, 50 %")
    (folder / "rows.csv").unlink()
    assert lines() == finished
