"""`foveapool figures`: from folders and files to pictures, and one line for what has none."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from typer.testing import CliRunner

from foveapool.cli.main import application
from foveapool.data.batches import iterate_batches, load_resident
from foveapool.networks import build_network
from foveapool.pooling.operator import PoolingOperator
from foveapool.records import Row, append_rows
from foveapool.report import figures
from foveapool.runs import Runs
from foveapool.study.loading import load_trained_network
from foveapool.study.setting import Setting
from foveapool.study.spec import Source
from foveapool.study.study import Arm, Study
from foveapool.training.loop import train
from foveapool.training.recipe import Recipe

from ..study.small_studies import conduct_study, engine
from ..training.toys import toy_data

RECIPE = Recipe("adam", 1e-2, 2, batch_size=16)


def drawn(*words, code=0):
    """What the command says."""
    done = CliRunner().invoke(application(), ["figures", *map(str, words)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code == code, done.output
    return " ".join(done.output.split())


@pytest.fixture
def handed(monkeypatch):
    """What each function of figures was given last, by its name."""
    given = {}

    def watched(name, draw):
        def watching(*arguments, **options):
            given[name] = (arguments, options)
            return draw(*arguments, **options)

        return watching

    for name in figures.__all__:
        if name.endswith("_figure"):
            monkeypatch.setattr(figures, name, watched(name, getattr(figures, name)))
    return given


@pytest.fixture(scope="module")
def runs(tmp_path_factory, data):
    """A study of a baseline and two alphas, one seed."""
    found = Runs(tmp_path_factory.mktemp("runs"))
    arms = [Arm("closed-form", {"layer": 3, "alpha": alpha}) for alpha in (5.0, 25.0)]
    study = Study(
        "small", Source(data), RECIPE, Setting(width=4), (), (Arm("baseline"), *arms), seeds=1
    )
    conduct_study(study, engine(found.root))
    return found.root


@pytest.fixture(scope="module")
def closed_form(runs):
    return next(runs.glob("trainings/*closed-form-3-a25*"))


@pytest.fixture(scope="module")
def baseline(runs):
    return next(runs.glob("trainings/*baseline*"))


def test_an_operator_is_drawn_in_all_formats(closed_form, tmp_path, handed):
    out = tmp_path / "new" / "operator.png"
    said = drawn("operator", closed_form, "--out", out, "--formats", "png,pdf,svg")
    assert all(f"operator.{form}" in said for form in ("png", "pdf", "svg"))
    assert {path.suffix for path in out.parent.iterdir()} == {".png", ".pdf", ".svg"}
    (operator, positions, width), _ = handed["operator_figure"]
    file = closed_form / "operator-3.safetensors"
    assert torch.equal(operator.weight, PoolingOperator.load(file).weight)
    assert positions is None and width == 3.3
    drawn("operator", file, "--out", tmp_path / "a.svg", "--positions", "1x2", "--width", 6)
    assert handed["operator_figure"][0][1:] == ((1, 2), 6.0)


def test_eigenvalues_are_drawn_from_a_folder(closed_form, tmp_path):
    drawn("eigenvalues", closed_form, "--out", tmp_path / "values.pdf")
    assert (tmp_path / "values.pdf").read_bytes().startswith(b"%PDF")


def test_maps_are_pooled_by_the_network_of_the_fit_and_by_the_operator(
    closed_form, baseline, data, tmp_path, handed
):
    words = ("--channel", 1, "--learned-channel", 6, "--device", "cpu", "--images", 20)
    drawn("maps", closed_form, "--out", tmp_path / "maps.png", *words)
    (default, learned, labels, names), options = handed["feature_map_figure"]
    assert options["channels"] == (1, 6) and options["count"] == 5
    # The whole network, with an eye on what its third pooling is given and gives.
    trained = load_trained_network(baseline)
    seen = []
    trained.network.eval().down3.register_forward_hook(lambda module, x, y: seen.append((x[0], y)))
    inputs, truth = next(iterate_batches(load_resident(trained.data, "cpu")[1], 20))
    with torch.no_grad():
        trained.network(inputs)
    ((maps, its_own),) = seen
    torch.testing.assert_close(default, its_own)
    operator = PoolingOperator.load(closed_form / "operator-3.safetensors")
    flat, mean = maps.double().flatten(2), operator.mean.double()[None, :, None]
    by_hand = torch.cat([mean + (flat - mean) @ each.T for each in operator.weight.double()], 1)
    torch.testing.assert_close(learned.double().flatten(2), by_hand, rtol=1e-4, atol=1e-4)
    assert names == toy_data().test.classes and torch.equal(labels, truth)


def test_a_folder_of_train_serves_as_well(data, closed_form, tmp_path, handed):
    run = tmp_path / "run"
    images = toy_data()
    network = build_network("cnn", seed=0, classes=len(images.train.classes), width=4)
    train(network, images, RECIPE, 0, device="cpu", folder=run)
    note = {"network": "cnn", "data": data, "width": 4, "seed": 0, "data_seed": 0}
    (run / "run.json").write_text(json.dumps(note), "utf-8")
    said = drawn("maps", run, "--out", tmp_path / "maps.png", code=2)
    assert "no operator*.safetensors in it" in said
    shutil.copy(closed_form / "operator-3.safetensors", run)
    drawn("maps", run, "--out", tmp_path / "maps.png", "--device", "cpu", "--images", 12)
    assert len(handed["feature_map_figure"][0][0]) == 12
    (run / "operator-3.safetensors").unlink()
    again = shutil.copytree(run, tmp_path / "again")
    said = drawn("curves", run, again, "--out", tmp_path / "curves.png")
    assert said.startswith("written to")  # and nothing of an operator that no curve needs
    curves = handed["curves_figure"][0][0]
    assert [(each.label, each.epochs) for each in curves] == [
        (str(run), (1, 2)),
        (str(again), (1, 2)),
    ]
    said = drawn("alpha", run, "--out", tmp_path / "alpha.png", code=2)
    assert f"{run}: got no row of results, wanted the folder of a study" in said


def test_scatters_and_operators_are_swept_over_alpha(runs, baseline, tmp_path, handed):
    drawn("radius", baseline, "--out", tmp_path / "radius.svg", "--alphas", "5,25")
    sweeps = handed["radius_figure"][0][0]
    assert [each.settings.alpha for each in sweeps["down3"]] == [5.0, 25.0]
    for each in sweeps["down3"]:
        file = next(runs.glob(f"trainings/*-a{each.settings.alpha:g}-*")) / "operator-3.safetensors"
        fitted = PoolingOperator.load(file)
        torch.testing.assert_close(each.weight.double(), fitted.weight.double())
    drawn("separability", runs / "studies" / "small", "--out", tmp_path / "s.svg")
    ((label, operators),) = handed["separability_figure"][0][0].items()
    assert label.startswith("layer 3, seed 0") and len(operators) == 2
    other = shutil.copy(next(baseline.glob("scatter-*.safetensors")), tmp_path / "mine.safetensors")
    drawn("radius", other, "--out", tmp_path / "radius.svg", "--alphas", "5,25")
    assert list(handed["radius_figure"][0][0]) == ["mine"]
    said = drawn("radius", baseline, "--out", tmp_path / "r.svg", "--alphas", "5,x", code=2)
    assert "alphas: got '5,x'" in said


def test_a_study_is_drawn_against_alpha_and_epoch(runs, tmp_path, handed):
    study = runs / "studies" / "small"
    drawn("alpha", study, "--out", tmp_path / "alpha.png")
    assert {row.alpha for row in handed["alpha_figure"][0][0]} == {"", "5", "25"}
    drawn("curves", study, "--out", tmp_path / "curves.png")
    labels = [curve.label for curve in handed["curves_figure"][0][0]]
    assert labels[0] == "strided convolution" and len(labels) == 3


def test_lines_of_two_studies_are_kept_apart_unless_they_are_the_same(runs, tmp_path, handed):
    both = shutil.copytree(runs, tmp_path / "runs") / "studies"
    for number, path in enumerate(both.parent.glob("trainings/*-a5-*/metrics.jsonl")):
        first, *rest = path.read_text().splitlines()
        told = {**json.loads(first), "loss": 0.5 + number}
        path.write_text("\n".join([json.dumps(told), *rest]) + "\n")
    drawn("curves", runs / "studies" / "small", both / "small", "--out", tmp_path / "curves.png")
    curves = handed["curves_figure"][0][0]
    labels = [curve.label for curve in curves]
    assert labels.count("strided convolution") == 1 and len(labels) == len(set(labels)) == 4
    assert sum(label.endswith("studies/small") for label in labels) == 2
    other = (both / "small").rename(both / "other")
    drawn("curves", runs / "studies" / "small", other, "--out", tmp_path / "curves.png")
    labels = [curve.label for curve in handed["curves_figure"][0][0]]
    ends = [label.split(", ")[-1] for label in labels]
    assert ends == ["strided convolution", "small", "l2", "other"]


def test_errors_are_drawn_against_the_number_of_images(tmp_path, handed):
    usual = Row("s", "test error %", 30.0, 1.0, 5, "cnn", "svhn, 10 %", "baseline")
    append_rows(tmp_path / "rows.csv", [usual, replace(usual, data="svhn", mean=10.0)])
    drawn("images", tmp_path / "rows.csv", "--out", tmp_path / "images.png")
    rows, totals, _ = handed["images_figure"][0]
    assert len(rows) == 2 and totals["svhn"] == 73257 and totals["svhn-reduced"] == 3663


def test_poolings_are_drawn_from_rows(runs, tmp_path, handed):
    drawn("poolings", runs / "studies" / "small", "--out", tmp_path / "poolings.png")
    rows, width = handed["poolings_figure"][0]
    assert {row.alpha for row in rows} == {"", "5", "25"} and width == 3.3
    assert (tmp_path / "poolings.png").read_bytes().startswith(b"\x89PNG")


def test_bars_are_drawn_beside_the_papers(tmp_path, handed):
    row = Row("robustness", "CE %, fog", 91.0, 0.0, 5, "cnn", "cifar10", "closed-form")
    path = tmp_path / "rows.csv"
    append_rows(path, [row, replace(row, metric="flip rate %, tilt", mean=80.0)])
    drawn("ce", path, "--out", tmp_path / "ce.png")
    ratios, groups, what, printed, _ = handed["ratio_figure"][0]
    assert ratios == {"closed form": {"fog": 91.0}} and what == "CE %"
    assert printed["fog"] == pytest.approx(91.0) and "zoom_blur" in groups["geometric"]
    drawn("flips", path, "--out", tmp_path / "flips.png")
    ratios, groups, _, printed, _ = handed["ratio_figure"][0]
    assert ratios == {"closed form": {"tilt": 80.0}} and "tilt" in groups["geometric"]
    assert printed["tilt"] == pytest.approx(91.6)


def test_bars_on_other_data_have_no_paper_beside_them(tmp_path, handed):
    row = Row("robustness", "CE %, fog", 91.0, 0.0, 5, "cnn", "street-digits", "closed-form")
    append_rows(tmp_path / "rows.csv", [row])
    drawn("ce", tmp_path / "rows.csv", "--out", tmp_path / "ce.png")
    assert handed["ratio_figure"][0][3] == {}


def test_a_study_that_is_not_finished_is_drawn_as_far_as_it_is(runs, tmp_path, handed):
    half = tmp_path / "half"
    shutil.copytree(runs, half)
    (half / "studies" / "small" / "rows.csv").unlink()
    said = drawn("alpha", half / "studies" / "small", "--out", tmp_path / "alpha.png")
    assert "not finished" in said and len(handed["alpha_figure"][0][0]) == 3
    for result in half.glob("trainings/*/result.json"):
        result.unlink()
    said = drawn("alpha", half / "studies" / "small", "--out", tmp_path / "a.png", code=2)
    assert "got no row of results" in said and not (tmp_path / "a.png").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("operator", "BASELINE"), "no operator*.safetensors in it, wanted the folder of a"),
        (("operator", "EMPTY"), "no operator*.safetensors in it"),
        (("operator", "nowhere"), "nowhere: no such file or folder"),
        (("operator", "CLOSED", "--layer", 1), "no operator-1.safetensors in it"),
        (("operator", "CLOSED", "--positions", "5"), "positions: got 5 along an axis of"),
        (("operator", "CLOSED", "--positions", "many"), "positions: got 'many'"),
        (("operator", "CLOSED", "--formats", "png,gif"), "got the format 'gif'"),
        (("operator", "NOTE"), "wanted a foveapool operator file"),
        (("eigenvalues", "BASELINE"), "no operator*.safetensors in it"),
        (("maps", "BASELINE"), "no operator*.safetensors in it"),
        (("maps", "CLOSED", "--channel", 99), "channel: got 99"),
        (("maps", "CLOSED", "--placement", "main"), "a training of a study, which knows its own"),
        (("curves", "EMPTY"), "not a run"),
        (("alpha", "EMPTY"), "not a run"),
        (("alpha", "CLOSED"), "no setting with two alphas"),
        (("radius", "NOTE"), "wanted"),
        (("radius", "nowhere"), "nowhere: no such file"),
        (("radius", "CLOSED"), "no operators of several alphas"),
        (("images", "STUDY"), "two shares or more"),
        (("poolings", "BASELINE"), "no pooling beside the baseline among 1"),
        (("poolings", "nowhere"), "nowhere: no such file or folder"),
        (
            ("ce", "STUDY"),
            "small: got no row of 'CE %', wanted some, such as `foveapool robustness",
        ),
        (("flips", "STUDY"), "got no row of 'flip rate %'"),
        (("ce", "NOTE"), "wanted ['study', 'metric'"),
    ],
)
def test_what_cannot_be_drawn_is_one_line(runs, baseline, closed_form, tmp_path, words, message):
    empty = tmp_path / "empty"
    empty.mkdir()
    names = {"BASELINE": baseline, "CLOSED": closed_form, "EMPTY": empty}
    names |= {"STUDY": runs / "studies" / "small", "NOTE": runs / "runs.json"}
    out = tmp_path / "figure.png"
    said = drawn(*(names.get(word, word) for word in words), "--out", out, code=2)
    assert message in said and said.count("error:") == 1 and not out.exists()
