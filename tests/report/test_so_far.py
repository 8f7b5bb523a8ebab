"""Rows before there is a table: they say what the table will say, and have no line more."""

from dataclasses import replace

import pytest

from foveapool.columns import place
from foveapool.records import ERROR
from foveapool.report.collect import account_of
from foveapool.report.tables import place as place_of
from foveapool.study import trials
from foveapool.study.conduct import conduct
from foveapool.study.presets import read_preset
from foveapool.study.setting import Pool, Setting
from foveapool.study.training import Source, Training
from foveapool.training.recipe import Recipe

from ..study.small import engine
from .choices import UNUSUAL

POOL, AFTER = Pool("closed-form", 2, 15), Pool("closed-form", 3, 65.5, "l1")
TRAINED = Pool("closed-form-trained", 3)
RECIPE = Recipe("sgd", 0.1, 2)
CHOICES = [
    *UNUSUAL,
    {"components": 4},
    {"alpha": 1234567.25},
]
POOLS = [
    (),
    (POOL,),
    (POOL, AFTER),
    (TRAINED,),
    (Pool("average", 2),),
    *((replace(POOL, **each),) for each in CHOICES),
    *((POOL, replace(AFTER, **each)) for each in CHOICES),
    *((replace(POOL, **each), AFTER) for each in CHOICES),
    *((replace(POOL, **each), replace(AFTER, **each)) for each in CHOICES[:-1]),
]


def told(facts):
    return place(facts["setting"], facts["recipe"].get("pooling_rate"))


@pytest.mark.parametrize("pools", POOLS)
@pytest.mark.parametrize("recipe", [RECIPE, replace(RECIPE, pooling_rate=0.1)])
def test_columns_are_those_of_the_table(pools, recipe):
    made = Training(Setting(pools, width=4), Source("svhn"), recipe)
    assert told(made.facts) == trials.place(made.setting, recipe)


@pytest.mark.parametrize(
    "setting",
    [
        Setting((POOL,)),
        Setting((POOL,), network="resnet18"),
        Setting((POOL,), network="resnet18", placement="shortcut", width=16),
        Setting((), network="resnet18", options={"final_norm": False}),
    ],
)
def test_so_are_those_of_the_network(setting):
    made = Training(setting, Source("svhn"), RECIPE)
    assert told(made.facts) == trials.place(setting, RECIPE)


TWO_LAYERS = """
[data]
name = "street-digits"
share = 0.5
options = { train_size = 160, test_size = 64 }
[network]
width = 4
[recipe]
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
centre = "aligned"
"""


def test_a_study_without_its_table_has_the_same_lines(tmp_path):
    (tmp_path / "two.toml").write_text(TWO_LAYERS)
    conduct(read_preset(str(tmp_path / "two.toml")), engine(tmp_path))
    folder = tmp_path / "studies" / "two"

    def lines():
        rows = [row for row in account_of(folder).rows if row.metric == ERROR]
        return sorted((place_of(row), row.epochs, row.batch, row.values) for row in rows)

    finished = lines()
    assert len(finished) == 4 and finished[0][0][:2] == ("cnn, width 4", "street-digits, 50 %")
    (folder / "rows.csv").unlink()
    assert lines() == finished
