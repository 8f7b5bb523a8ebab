"""A small study of forms from its file to its table, its page and its figures; and once more."""

import json
from types import SimpleNamespace

import pytest
import torch

from foveapool.data.user_data import write_npz
from foveapool.pooling.operator import PoolingOperator
from foveapool.pooling.storage import load_tensors
from foveapool.records import ERROR, VALIDATION
from foveapool.report.figures import alpha_figure, poolings_figure
from foveapool.report.page import make_page
from foveapool.report.page_sections import draw_errors_chart
from foveapool.report.sources import summarize_run
from foveapool.report.tables import error_table, selection_table
from foveapool.runs import Runs, read_json
from foveapool.study.loading import load_fit_maps
from foveapool.study.preflight import make_plan
from foveapool.study.presets import preset_names, read_preset
from foveapool.study.spec import TrainingJob, TrainingSpec, build_job

from ..report.pages import Page
from ..report.read_figures import points
from ..training.toys import toy_data
from .oracles import scatter_at, solved
from .small_studies import CPU, conduct_study, engine

NARROW = """
[data]
name = "npz:IMAGES"
[network]
name = "NETWORK"
width = 4
[recipe]
optimizer = "adam"
epochs = 1
lr = 0.01
batch_size = 32
[trials]
seeds = 1
"""

CNN = (
    NARROW.replace("NETWORK", "cnn")
    + """
[[search]]
pooling = "closed-form"
forms = ["mix", "after"]
layers = [3]
alphas = [0.5, 2]
alpha_unit = "trace"
norms = ["l2"]
components = [1]
parts = 1
held_out = 0.2
[[arm]]
pooling = "baseline"
[[arm]]
pooling = "closed-form"
[[arm]]
pooling = "closed-form"
form = ["mix", "after-activation"]
layer = 3
beside = [{ pooling = "blur", layers = [1, 2] }]
[[arm]]
pooling = "closed-form"
form = "after-activation"
layers = [1, 2, 3]
[[arm]]
pooling = "closed-form-trained"
form = "mix"
layer = 3
"""
)

RESNET = (
    NARROW.replace("NETWORK", "resnet18")
    + """
[[arm]]
pooling = "baseline"
[[arm]]
pooling = "closed-form"
form = ["mix", "after"]
layer = 3
beside = [{ pooling = "aps", layers = [2] }]
"""
)


def conducted(folder, text):
    path = folder / "forms.toml"
    write_npz(toy_data(), folder / "toy.npz")
    path.write_text(text.replace("IMAGES", str(folder / "toy.npz")))
    study = read_preset(str(path))
    return SimpleNamespace(
        study=study, runs=folder / "runs", tables=conduct_study(study, engine(folder / "runs"))
    )


@pytest.fixture(scope="module")
def cnn(tmp_path_factory):
    return conducted(tmp_path_factory.mktemp("cnn"), CNN)


@pytest.fixture(scope="module")
def resnet(tmp_path_factory):
    return conducted(tmp_path_factory.mktemp("resnet"), RESNET)


def errors(done):
    return [row for row in done.tables.rows if row.metric == ERROR]


def test_every_line_of_the_file_is_one_of_the_table(cnn):
    blurred = "closed-form, beside blur, after-activation, at 1, 2"
    told = [(row.pooling.replace(", window 2", ""), row.form, row.layer) for row in errors(cnn)]
    assert told[0] == ("baseline", "", "")
    assert told[1] in [("closed-form", form, "3") for form in ("mix", "after")]
    assert told[2:] == [
        (blurred, "mix", "3"),
        (blurred, "after-activation", "3"),
        ("closed-form, fitted together", "after-activation", "1, 2, 3"),
        ("closed-form-trained", "mix", "3"),
    ]
    table = error_table(cnn.tables.rows)
    columns = table.header.index("error %")
    assert len({line[:columns] for line in table.lines}) == len(table.lines) == 6
    tried = selection_table(cnn.tables.selection)
    assert len({line[:-1] for line in tried.lines}) == len(tried.lines) == 4


@pytest.mark.parametrize("which", ["cnn", "resnet"])
def test_a_finished_study_gives_its_table_again_without_training(which, request, monkeypatch):
    done = request.getfixturevalue(which)
    monkeypatch.setattr(TrainingJob, "run", None)
    assert make_plan(done.study, Runs(done.runs), CPU).left == 0
    again = conduct_study(done.study, engine(done.runs))
    assert [row.values for row in again.rows] == [row.values for row in done.tables.rows]


def test_page_and_figures_tell_the_lines_apart(cnn):
    account = summarize_run(cnn.runs / "studies" / "forms")
    for labels in (
        [each.label for each in account.curves],
        [each.label for each in account.families],
        [line["name"] for line in draw_errors_chart([("", account)])["lines"]],
    ):
        assert len(labels) == len(set(labels)) >= 6, labels
    text = Page(make_page([account])).words
    assert "after-activation" in text and "beside BlurPool" in text
    rows = [*cnn.tables.rows, *cnn.tables.selection]
    panels = alpha_figure(rows, VALIDATION).axes
    assert sorted(axes.get_title() for axes in panels) == [
        "closed form, mix",
        "closed form, window 2, after",
    ]
    assert all(len(own) == 2 for axes in panels for own in points(axes).values())
    (axes,) = poolings_figure(cnn.tables.rows).axes
    named = [label.get_text() for label in axes.get_yticklabels()]
    assert len(named) == len(set(named)) == 5  # without the baseline


def training_with(done, pooling, form):
    """The finished training of that last pooling and form, and its folder."""
    for path in done.runs.glob("trainings/*/training.json"):
        facts = read_json(path)
        pools = facts["setting"]["pools"]
        if facts["held_out"] is None and len(pools) > 1:
            last = pools[-1]
            if (last["pooling"], last.get("form")) == (pooling, form):
                return TrainingSpec.from_facts(facts), path.parent
    raise AssertionError(f"no training of {pooling} in form {form}")


@pytest.mark.parametrize("form", ["mix", "after"])
def test_both_paths_of_a_block_are_fitted_on_what_they_read(resnet, form):
    """Each operator is what the scatter of its own path's maps gives, summed up anew."""
    each, folder = training_with(resnet, "closed-form", form)
    pool = each.setting.pools[-1]
    before = each.fitted_on
    weights, _ = load_tensors(folder.parent / before.name / "weights.safetensors", "weights")
    for path, name in each.setting.operator_names(pool).items():
        network, site = build_job(before, CPU).network_to_read(pool, path)
        network.load_state_dict(weights)
        data = build_job(before, CPU).data
        scatter = scatter_at(network, data, site.module, pool=pool)
        components = each.setting.components_in(pool, path)
        wanted = solved(scatter, site.out_shape, pool, components)
        found = PoolingOperator.load(folder / f"operator-{name}.safetensors")
        torch.testing.assert_close(found.weight, wanted.weight)
        maps = load_fit_maps(folder / f"operator-{name}.safetensors")
        assert maps.maps.shape[1:] == (site.channels, *site.in_shape)


@pytest.mark.parametrize("form", ["after", "after-activation"])
def test_behind_a_convolution_a_closed_form_reads_its_maps_at_full_size(cnn, form):
    """The maps are those of the trained convolution at stride 1, before or behind its ReLU."""
    found = [
        path
        for path in cnn.runs.glob("trainings/*/operator-3.safetensors")
        if read_json(path.parent / "training.json")["setting"]["pools"][-1].get("form") == form
    ]
    maps = load_fit_maps(found[0]).maps
    assert maps.shape[1:] == (32, 4, 4)
    assert (maps.min() < 0) == (form == "after")


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_makes_networks(name):
    """All settings of a preset can be built, but for the operators that nobody has fitted yet."""
    study = read_preset(name)
    assert len(study.settings()) >= len(study.arms) - 1
    for setting in study.settings():
        training = study.training(setting, 0)
        assert TrainingSpec.from_facts(json.loads(json.dumps(training.facts))).name == training.name
