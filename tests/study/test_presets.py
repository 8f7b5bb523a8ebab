"""Presets: the paper's studies are there as it made them, and a mistake in a file is named."""

import re

import pytest

from foveapool.pooling.baselines import published_form
from foveapool.report.tables import load_paper_figures
from foveapool.study.presets import preset_names, read_preset
from foveapool.study.rows import setting_columns
from foveapool.study.search import Halving
from foveapool.study.setting import BASELINES, Pool
from foveapool.study.study import Arm
from foveapool.training.recipe import Recipe, get_paper_recipe

LEAST = """
[data]
name = "street-digits"
[[arm]]
pooling = "baseline"
"""
# The paper's held-out parts: a tenth of CIFAR, a twentieth of SVHN, a fifth of the reduced set.
HELD_OUT = {"cifar10": 0.1, "cifar100": 0.1, "svhn": 0.05, "svhn-reduced": 0.2}
PARTS = {"sgd-resnet18-svhn-reduced": 2}  # as many as its closed form had in the first round


def read(folder, text, changes=None):
    path = folder / "mine.toml"
    path.write_text(text)
    return read_preset(str(path), changes)


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_can_be_read_and_says_what_it_is(name):
    study = read_preset(name)
    assert study.name == name and study.title
    assert study.arms[0].pooling == "baseline"


@pytest.mark.parametrize(("table", "pooling"), [("table1", "closed-form"), ("sgd", "sgd")])
def test_every_row_of_the_papers_tables_has_a_preset(table, pooling):
    rows = load_paper_figures()[table]
    assert len(rows) == 8
    for row in rows:
        study = read_preset(f"{table}-{row['network']}-{row['data']}")
        assert (study.network.network, study.source.name) == (row["network"], row["data"])
        assert study.network.width == 64 and study.seeds == 5
        assert study.recipe == get_paper_recipe(row["network"], row["data"])
        (search,) = study.searches
        assert search.pooling == pooling
        # The layers that the paper chose from, or at least the one it chose.
        assert {int(layer) for layer in row["layer"].split(",")} <= set(search.layers) <= {1, 2, 3}
        assert (search.parts, search.held_out) == (PARTS.get(study.name, 5), HELD_OUT[row["data"]])
        assert (search.placements != (None,)) == (row["network"] == "resnet18")
        assert {arm.pooling for arm in study.arms} >= {"baseline", pooling}
        # A second layer was tried on CIFAR.
        assert search.second_layer == (table == "table1" and row["data"].startswith("cifar"))


def figures(table):
    """A row of the paper's table for each network and data set."""
    return {(row["network"], row["data"]): row for row in load_paper_figures()[table]}


@pytest.mark.parametrize(("network", "data"), figures("table1"))
def test_every_row_of_table_1_is_a_study_with_the_papers_setting_and_ours(network, data):
    study = read_preset(f"row-{network}-{data}")
    assert (study.network.network, study.network.width) == (network, 64)
    assert study.source.name == data and study.recipe == get_paper_recipe(network, data)
    assert study.seeds == (5 if network == "cnn" else 3)
    asked = ("corruptions", "perturbations") if (network, data) == ("resnet18", "cifar10") else ()
    assert study.robustness == asked
    lines = [arm.setting(study.network) for arm in study.arms if not arm.is_searched]
    placement = None if network == "cnn" else "shortcut"
    told, learned = figures("table1")[network, data], figures("sgd")[network, data]
    (paper,) = [each for each in lines if each.pooling == "closed-form"]
    columns = setting_columns(paper, study.recipe)
    assert {key: columns[key] for key in ("layer", "alpha", "norm", "form", "placement")} == {
        **{key: told[key] for key in ("layer", "alpha", "norm")},
        "form": "replace",
        "placement": placement or "",
    }
    (sgd,) = [each for each in lines if each.pooling == "sgd"]
    assert (str(sgd.pools[0].layer), sgd.placement) == (learned["layer"], placement)
    (blur,) = [each for each in lines if each.pooling == "blur"]
    assert blur.pools == tuple(Pool("blur", layer) for layer in (1, 2, 3))
    # Ours stand where one short search says, on training images only.
    searched = [(arm.pooling, arm.like) for arm in study.arms if arm.is_searched]
    assert searched == [
        ("closed-form", None),
        ("closed-form-trained", None),
        ("sgd", "closed-form"),
    ]
    (search,) = study.searches
    assert (search.parts, search.held_out, search.halving) == (1, 0.1, None)
    assert search.epochs == (0.1 if network == "cnn" else 0.07)
    forms = {pool.form for each in search.settings(study.network) for pool in each.pools}
    assert forms == {"replace", "mix", "after-activation"}


@pytest.mark.parametrize("network", ["cnn", "resnet18"])
def test_the_rows_of_one_network_choose_from_the_same_settings(network):
    rows = [read_preset(f"row-{network}-{data}") for data in HELD_OUT]
    assert len({str(row.searches[0].facts()) for row in rows}) == 1


@pytest.mark.parametrize("network", ["cnn", "resnet18"])
def test_every_rival_stands_as_it_was_published_at_all_layers(network):
    study = read_preset("poolings" if network == "cnn" else "poolings-resnet18")
    # Those that are matrices are ours in every form; that of the shortcut needs one.
    wanted = set(BASELINES) - {"sgd", "sgd-local"} - ({"resnet-d"} if network == "cnn" else set())
    assert [arm.pooling for arm in study.arms[1:]] == [each for each in BASELINES if each in wanted]
    for arm in study.arms[1:]:
        setting, known = arm.setting(study.network), published_form(arm.pooling)
        assert [(pool.layer, pool.form) for pool in setting.pools] == [
            (layer, known.form) for layer in (1, 2, 3)
        ]
        placements = {setting.placement_of(pool) for pool in setting.pools}
        assert placements == {None if network == "cnn" else known.placement}


def test_poolings_are_compared_instead_of_the_convolution_at_every_layer():
    study = read_preset("replaced")
    wanted = {"average", "max", "blur", "mixed", "gated", "soft", "lip", "spectral", "diffstride"}
    wanted |= {"sgd", "sgd-local", "closed-form", "closed-form-trained"}
    for layer in (1, 2, 3):
        own = [each.setting(study.network) for each in study.arms if each.pooling != "baseline"]
        found = {each.pooling for each in own if each.pools[0].layer == layer}
        assert found == wanted
    assert {pool.form for each in own for pool in each.pools} == {"replace"}


def test_the_ablations_change_one_choice_at_a_time():
    study = read_preset("ablations")
    arms = [arm for arm in study.arms if arm.pooling == "closed-form"]

    def values(name):
        return {arm.choices[name] for arm in arms if name in arm.choices}

    assert values("components") == {1, 4, 8}
    assert {False} == values("normalize") and {"frequency"} == values("weighting")
    assert {"aligned"} == values("center") and {"sum"} == values("sign")
    assert values("window") == {1, 2, 3}
    assert len(values("class_cap")) > 1 and values("norm") == {"l1", "l2"}
    alphas = values("alpha") - {"auto"}
    assert (min(alphas), max(alphas)) == (1, 2000)
    around = [arm.choices for arm in arms if arm.choices["alpha"] == "auto"]
    assert all(len(choices) == 3 for choices in around)  # layer, alpha and the one choice


def test_a_list_makes_an_arm_for_each_combination(tmp_path):
    text = LEAST + '[[arm]]\npooling = ["sgd", "max"]\nlayer = [1, 2, 3]\n'
    found = [(arm.pooling, arm.choices) for arm in read(tmp_path, text).arms[1:]]
    assert found == [(name, {"layer": layer}) for name in ("sgd", "max") for layer in (1, 2, 3)]


def test_a_file_stands_over_the_papers_recipe_and_changes_over_the_file(tmp_path):
    text = LEAST + "[recipe]\nepochs = 7\n[trials]\nseeds = 2\n"
    study = read(tmp_path, text)
    assert study.name == "mine" and study.seeds == 2
    assert study.recipe == Recipe("adam", 1e-3, 7)
    changed = read(tmp_path, text, {"trials": {"seeds": 9}, "recipe": {"lr": 0.5}})
    assert (changed.seeds, changed.recipe.lr, changed.recipe.epochs) == (9, 0.5, 7)


@pytest.mark.parametrize(
    ("recipe", "milestones"),
    [
        ("", (50, 100)),
        ("lr = 0.2", (50, 100)),
        ("epochs = 150", (50, 100)),
        ("epochs = 30", (10, 20)),
        ("epochs = 1", (1,)),
        ("epochs = 30\nmilestones = [7]", (7,)),
    ],
)
def test_the_papers_milestones_go_with_the_epochs(tmp_path, recipe, milestones):
    text = LEAST.replace("[[arm]]", '[network]\nname = "resnet18"\n[[arm]]')
    assert read(tmp_path, f"{text}[recipe]\n{recipe}\n").recipe.milestones == milestones


def test_changes_go_as_deep_as_they_say(tmp_path):
    text = LEAST.replace("[[arm]]", "[data.options]\ntrain_size = 100\ntest_size = 20\n[[arm]]")
    study = read(tmp_path, text, {"data": {"seed": 4, "options": {"train_size": 50}}})
    assert study.source.options == {"train_size": 50, "test_size": 20}
    assert (study.source.seed, study.source.name) == (4, "street-digits")


def test_a_search_is_read_with_its_halving(tmp_path):
    text = LEAST + "[[search]]\nlayers = [3]\nparts = 4\nhalving = { keep = 2, epochs = 0.1 }\n"
    (search,) = read(tmp_path, text).searches
    assert (search.layers, search.parts) == ((3,), 4)
    assert search.halving == Halving(parts=4, keep=2, epochs=0.1)


def test_data_that_the_paper_does_not_have_bring_their_own_recipe(tmp_path):
    text = LEAST.replace("street-digits", "npz:mine.npz")
    with pytest.raises(ValueError, match=r"\[recipe\]: got no optimizer, no lr, no epochs, and"):
        read(tmp_path, text)
    with pytest.raises(ValueError, match=r"'optimiser', which is called 'optimizer' now"):
        read(tmp_path, text + '[recipe]\noptimiser = "sgd"\nlr = 0.1\nepochs = 3\n')
    with pytest.raises(ValueError, match=r"\[recipe\]: got the key 'optimzer'.*mean 'optimizer'"):
        read(tmp_path, text + '[recipe]\noptimzer = "sgd"\nlr = 0.1\nepochs = 3\n')
    study = read(tmp_path, text + '[recipe]\noptimizer = "sgd"\nlr = 0.1\nepochs = 3\n')
    assert study.recipe == Recipe("sgd", 0.1, 3)


def test_a_study_of_ones_own_may_stand_on_a_preset(tmp_path):
    text = 'base = "demo"\n[trials]\nseeds = 2\n[[arm]]\npooling = "max"\nlayer = 2\n'
    mine, demo = read(tmp_path, text), read_preset("demo")
    assert mine.arms == (*demo.arms, Arm("max", {"layer": 2}))
    assert (mine.name, mine.seeds, mine.recipe) == ("mine", 2, demo.recipe)
    assert (mine.searches, mine.source) == (demo.searches, demo.source)
    assert read(tmp_path, text, {"trials": {"seeds": 9}}).seeds == 9


@pytest.mark.parametrize("base", ['"dmeo"', '"../presets/demo"', "3"])
def test_a_base_that_is_no_preset_is_refused(tmp_path, base):
    with pytest.raises(ValueError, match=r"mine.toml: base: got .*, wanted the name of a preset"):
        read(tmp_path, f"base = {base}\n{LEAST}")


def test_what_only_others_stand_on_is_no_preset():
    assert not [name for name in preset_names() if name.startswith("_")]
    with pytest.raises(ValueError, match=r"preset: got '_row-cnn', wanted a TOML file or one of"):
        read_preset("_row-cnn")


ALSO = """[[search]]
layers = []
also = [
    { layer = 3, form = ["mix", "after"], beside = [{ pooling = "blur", layers = [1, 2] }] },
    { layers = [2, 3], form = "after", window = "whole" },
]
"""


def test_a_list_in_a_table_of_also_makes_a_setting_for_each_value(tmp_path):
    (search,) = read(tmp_path, LEAST + ALSO).searches
    beside = [{"pooling": "blur", "layers": [1, 2]}]
    assert search.also == (
        {"layer": 3, "form": "mix", "beside": beside},
        {"layer": 3, "form": "after", "beside": beside},
        {"layers": [2, 3], "form": "after", "window": None},
    )


def test_the_only_search_can_be_changed_by_its_keys(tmp_path):
    changes = {"epochs": 0.2, "also": [{"layer": 3, "form": "mix"}]}
    (search,) = read(tmp_path, LEAST + ALSO, {"search": changes}).searches
    assert (search.epochs, search.also) == (0.2, ({"layer": 3, "form": "mix"},))
    assert search.layers == ()
    two = LEAST + ALSO + '[[search]]\npooling = "sgd"\n'
    with pytest.raises(ValueError, match=r"search: got \{'parts': 1\} for what is no table"):
        read(tmp_path, two, {"search": {"parts": 1}})


def test_an_unknown_preset_is_answered_with_near_names(tmp_path):
    with pytest.raises(
        ValueError, match=r"got 'tabel1-cnn-svhn'.*did you mean .*'table1-cnn-svhn'"
    ):
        read_preset("tabel1-cnn-svhn")
    with pytest.raises(FileNotFoundError, match=r"none.toml: no such file"):
        read_preset(str(tmp_path / "none.toml"))


ARM = '[[arm]]\npooling = "closed-form"\nlayer = 3\n'


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("[dta]\n", r"the file: got the key 'dta', wanted among .*did you mean 'data'"),
        ("[trials]\nseed = 3\n", r"\[trials\]: got the key 'seed'.*did you mean 'seeds'"),
        ("[recipe]\nepoch = 3\n", r"\[recipe\]: got the key 'epoch'.*did you mean 'epochs'"),
        ("[recipe]\nepochs = 0\n", r"epochs: got 0, wanted a whole number"),
        ('[recipe]\nepochs = "9"\n', r"epochs: got '9', wanted a whole number"),
        ("[[search]]\nlayer = [1]\n", r"\[\[search\]\]: got the key 'layer'.*mean 'layers'"),
        ("[[search]]\nlayers = 3\n", r"search: layers: got 3, wanted a list"),
        ("[[search]]\nhalving = { kep = 1 }\n", r"halving: got the key 'kep'.*did you mean 'keep'"),
        ("[[search]]\nhalving = { epochs = 0.5 }\n", r"halving: got no keep, wanted how many"),
        ("[[search]]\nlayers = []\n", r"search: layers: got \(\), wanted a list of one or more"),
        ("[[search]]\nalso = 3\n", r"search: also: got 3, wanted a list of tables such as"),
        ("[[search]]\nalso = [3]\n", r"\[\[search\]\]: also: got 3, wanted a table"),
        (
            '[[search]]\nalso = [{ layer = 3, from = "mix" }]\n',
            r"\[\[search\]\]: also: got the key 'from'.*did you mean 'form'",
        ),
        ("[[search]]\nalso = [{ layer = [] }]\n", r"also: layer: got \[\], wanted a value or"),
        (
            '[[arm]]\npooling = "sgd"\nlike = "closed-form"\n',
            r"arm sgd: got like 'closed-form', and no search of that pooling",
        ),
        ("[[search]]\nhalving = 3\n", r"halving: got 3, wanted a table"),
        (ARM + "alhpa = 3\n", r"\[\[arm\]\]: got the key 'alhpa'.*did you mean 'alpha'"),
        (ARM + 'placement = "before"\n', r"placement: got 'before' for a CNN, wanted none"),
        ('[network]\nname = ["cnn"]\n', r"\[network\]: name: got \['cnn'\], wanted the name"),
        ('[network]\nname = "cnm"\n', r"network: got 'cnm'.*did you mean 'cnn'"),
        ("[network]\nwidht = 3\n", r"cnn: got the option 'widht'.*did you mean 'width'"),
        ("[network]\nclasses = 3\n", r"cnn: got the option 'classes', wanted none"),
        (
            '[network]\nname = "resnet18"\nplacement = "both"\n',
            r"\[network\]: got placement; give it to a \[\[search\]\] or an \[\[arm\]\]",
        ),
        (
            f'[network]\nname = "resnet18"\n{ARM}components = 4\nplacement = "shortcut"\n',
            r"components: got 4 for a resnet18 with placement shortcut",
        ),
        ('[[arm]]\npooling = "closed-form"\n', r"arm closed-form: got no layer, and no search"),
        ("[[arm]]\nlayer = 3\n", r"\[\[arm\]\]: got no pooling"),
        ("[[arm]]\npooling = []\nlayer = 3\n", r"\[\[arm\]\]: pooling: got \[\], wanted a value"),
        ('[[arm]]\npooling = "max"\nlayer = []\n', r"\[\[arm\]\]: layer: got \[\], wanted a value"),
        ('[[arm]]\npooling = "baseline"\nalpha = [1, "x"]\n', r"arm baseline: got alpha, wanted"),
        ('[[arm]]\npooling = "max"\nlayer = 3\nalpha = 5\n', r"arm max: got alpha, wanted among"),
        ('[[arm]]\npooling = "max"\nlayer = true\n', r"layer: got True, wanted 1, 2 or 3"),
        ('[[arm]]\npooling = "max"\nlayer = 2.0\n', r"layer: got 2.0, wanted 1, 2 or 3"),
        ('[[search]]\nsecond_layer = "no"\n', r"second_layer: got 'no', wanted true or false"),
        (
            '[[search]]\npooling = "sgd"\nalphas = [5]\n',
            r"of sgd: got alphas, wanted none",
        ),
        ('[[search]]\nheld_out = "a"\n', r"held_out: got 'a', wanted a share"),
        ("[recipe]\nmilestones = 3\n", r"milestones: got 3, wanted a list of epochs"),
        (
            '[[arm]]\npooling = "closed-form-trainde"\n',
            r"arm: got the pooling 'closed-form-trainde', wanted one of baseline, closed-form, .*"
            r"did you mean 'closed-form-trained' or 'closed-form'\?",
        ),
        ("[trials]\nseeds = 2.5\n", r"seeds: got 2.5, wanted a whole number, 1 or more"),
        ("nonsense", r"mine.toml: "),
    ],
)
def test_a_mistake_in_a_file_is_named(tmp_path, more, message):
    with pytest.raises(ValueError, match=message) as caught:
        read(tmp_path, LEAST + more)
    assert str(caught.value).startswith(str(tmp_path / "mine.toml"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"\[data\]: got no name"),
        ('[data]\nname = "svhm"\n', r"\[data\]: got 'svhm', wanted one of cifar10"),
        ('[data]\nname = "svhn"\nshare = 3\n', r"\[\[arm\]\]: got none, wanted at least one"),
        ("trials = 3\n" + LEAST, r"\[trials\]: got 3, wanted a table"),
        (
            LEAST.replace("[[arm]]", "[arm]"),
            r"\[arm\]: got \{'pooling': .*\}, wanted tables in double brackets, \[\[arm\]\]",
        ),
        ('search = "sgd"\n' + LEAST, r"\[search\]: got 'sgd', wanted tables in double brackets"),
        ('data = "svhn"\n', r"\[data\]: got 'svhn', wanted a table"),
        (LEAST.replace("[[arm]]", "share = 3\n[[arm]]"), r"share: got 3, wanted one between"),
    ],
)
def test_a_file_without_the_necessary_is_refused(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        read(tmp_path, text)


@pytest.mark.parametrize("wrong", ["300", 1.5, True, [3], -300, 0])
@pytest.mark.parametrize("key", ["train_size", "test_size"])
def test_a_size_that_is_none_is_named_by_its_key(tmp_path, key, wrong):
    message = rf"mine.toml: \[data\]: options: {key}: got {re.escape(repr(wrong))}, wanted a whole"
    with pytest.raises(ValueError, match=message):
        read(tmp_path, LEAST, {"data": {"options": {key: wrong}}})


def test_images_may_be_resized_to_height_and_width(tmp_path):
    study = read(tmp_path, LEAST, {"data": {"options": {"size": [24, 32]}}})
    assert study.source.options == {"size": [24, 32]}
    with pytest.raises(ValueError, match=r"options: size: got \[24\], wanted a whole number"):
        read(tmp_path, LEAST, {"data": {"options": {"size": [24]}}})


def test_options_are_a_table(tmp_path):
    with pytest.raises(ValueError, match=r"\[data\]: options: got 3, wanted a table such as"):
        read(tmp_path, LEAST, {"data": {"options": 3}})


def test_a_file_that_is_no_text_is_named(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_bytes(('title = "\u00e9"' + LEAST).encode("latin-1"))
    with pytest.raises(ValueError, match=r"mine.toml: got what is no text in UTF-8 .*a study in"):
        read_preset(str(path))


def test_what_is_a_list_cannot_be_changed_by_a_key(tmp_path):
    with pytest.raises(ValueError, match=r"arm: got \{'layer': 3\} for what is no table"):
        read(tmp_path, LEAST, {"arm": {"layer": 3}})
