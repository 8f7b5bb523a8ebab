"""What the library saves, shown by `report` and `figures`: fits and adapters, by their layers."""

import shutil

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import foveapool as fp
from foveapool.cli.main import application
from foveapool.report import figures

from ..report.pages import Page


def told(*words, code=0):
    done = CliRunner().invoke(application(), [*map(str, words)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code == code, done.output
    return " ".join(done.output.split())


@pytest.fixture(scope="module")
def fitted():
    """Layers "1" and "3" of a network, whose maps differ in size."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.MaxPool2d(2), nn.ReLU(), nn.AvgPool2d(2))
    loader = [(torch.randn(40, 3, 8, 12), torch.arange(40) % 2)]
    return model, fp.ClosedFormPooling(alpha=25.0).fit(model, loader, layer=["1", "3"])


@pytest.fixture
def fit(fitted, tmp_path):
    fitted[1].save(tmp_path / "fit")
    return tmp_path / "fit"


@pytest.fixture
def adapter(fitted, tmp_path):
    """Both layers replaced and, as training would, changed."""
    model, fit = fitted
    fp.replace(model, fit.modules(trainable=True))
    try:
        with torch.no_grad():
            model[1].pool.weight.mul_(-2)
            model[3].pool.weight.zero_().add_(0.25)
        fp.save(model, tmp_path / "adapter")
    finally:
        fp.restore(model)
    return tmp_path / "adapter"


@pytest.fixture
def drawn(monkeypatch):
    """What the figures were given, the last one last."""
    given = []
    for name in ("operator_figure", "eigenvalue_figure", "radius_figure"):
        draw = getattr(figures, name)
        monkeypatch.setattr(
            figures, name, lambda first, *rest, draw=draw: given.append(first) or draw(first, *rest)
        )
    return given


def test_a_layer_of_a_fit_is_drawn_by_its_name(fitted, fit, drawn, tmp_path):
    for name, operator in fitted[1].operators_.items():
        for what in ("operator", "eigenvalues"):
            told("figures", what, fit, "--layer", name, "--out", tmp_path / "a.svg")
            assert torch.equal(drawn[-1].weight, operator.weight)


@pytest.mark.parametrize("folder", ["fit", "adapter"])
def test_a_layer_has_to_be_one_of_those_that_are_there(folder, fit, adapter, tmp_path):
    source, out = tmp_path / folder, tmp_path / "a.png"
    said = told("figures", "operator", source, "--out", out, code=2)
    assert said == f"error: {source}: got the layers 1, 3, wanted one; name it by --layer"
    said = told("figures", "operator", source, "--layer", "0", "--out", out, code=2)
    assert said == f"error: layer: got '0' for {source}, wanted one of 1, 3"
    assert not out.exists()


def test_a_file_of_one_layer_is_not_asked_for_another(fit, tmp_path):
    file, out = fit / "operator-0.safetensors", tmp_path / "a.png"
    said = told("figures", "operator", file, "--layer", "1", "--out", out, code=2)
    assert said.startswith(f"error: layer: got '1' and a file, {file}") and not out.exists()


def test_a_name_is_no_layer_of_a_run(fit, tmp_path):
    (fit / "estimator.json").unlink()
    said = told("figures", "operator", fit, "--layer", "down3", "--out", tmp_path / "a", code=2)
    assert said.startswith(f"error: layer: got 'down3' for {fit}, wanted a number")


def test_the_scatter_of_a_fit_is_swept_under_the_names_of_its_layers(fitted, fit, drawn, tmp_path):
    told("figures", "radius", fit, "--alphas", "5,25", "--out", tmp_path / "a.svg")
    (sweeps,) = drawn
    assert list(sweeps) == ["1", "3"]
    for name, operator in fitted[1].operators_.items():
        torch.testing.assert_close(sweeps[name][1].weight[:1], operator.weight)


def test_the_page_of_a_fit_names_its_layers_and_says_once_that_it_has_no_network(fit):
    said = told("report", fit)
    assert said.count("note:") == 1 and "note: No example maps: the network is not known" in said
    page = Page((fit / "report.html").read_text("utf-8"))
    labels = [family["label"] for family in page.data["summaries"][0]["families"]]
    assert [label.split(", ")[0] for label in labels] == ["layer 1", "layer 3"]


def test_the_number_of_a_fits_file_is_not_taken_for_a_layer_of_the_network_beside_it(fit, tmp_path):
    (fit / "run.json").write_text('{"network": "cnn"}')
    assert "the network is not known" in told("report", fit)
    words = ("figures", "maps", fit, "--layer", "3", "--out", tmp_path / "a.png")
    said = told(*words, code=2)
    assert f"{fit / 'operator-1.safetensors'}: got an operator without its network" in said


@pytest.mark.parametrize("name", ["pooling.safetensors", "pooling"])
def test_an_operators_file_may_have_any_name(fitted, tmp_path, name):
    fitted[1].operators_["1"].save(tmp_path / name)
    said = told("report", tmp_path / name)
    assert "operator-LAYER" not in said and "unknown layer" not in said
    (family,) = Page((tmp_path / "pooling.html").read_text("utf-8")).data["summaries"][0][
        "families"
    ]
    assert family["label"].startswith("pooling, 8")


def test_a_scatter_is_named_once(fitted, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fitted[1].scatters_["1"].save("sc2.safetensors")
    said = told("report", "sc2.safetensors", code=2)
    assert said.startswith("error: sc2.safetensors: got scatter, wanted")


def test_a_trained_pooling_is_drawn_from_its_adapter(fitted, adapter, drawn, tmp_path):
    told("figures", "operator", adapter, "--layer", "1", "--out", tmp_path / "a.png")
    trained = -2 * fitted[1].operators_["1"].weight.float()
    torch.testing.assert_close(drawn[-1].weight, trained)
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    weights = adapter / "adapter_model.safetensors"
    told("figures", "operator", weights, "--layer", "3", "--out", tmp_path / "a.png")
    assert (drawn[-1].weight == 0.25).all() and drawn[-1].in_shape == (4, 6)
    assert not hasattr(drawn[-1], "eigenvalues") and not hasattr(drawn[-1], "separability")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_the_only_pooling_of_an_adapter_needs_no_name(dtype, drawn, tmp_path):
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.AvgPool2d(2)).to(dtype)
    fp.replace(model, {"1": fp.LinearPool2d.average((8, 8), (4, 4), trainable=True).to(dtype)})
    fp.save(model, tmp_path / "adapter")
    told("figures", "operator", tmp_path / "adapter", "--out", tmp_path / "a.png")
    assert drawn[-1].weight.sum(-1).eq(1).all()


@pytest.mark.parametrize(
    "words", [("report",), ("figures", "eigenvalues"), ("figures", "separability")]
)
def test_what_an_adapter_does_not_hold_is_not_made_up(adapter, tmp_path, words):
    out = tmp_path / "a.png"
    said = told(*words, adapter, "--out", out, code=2)
    assert "got an adapter" in said and "foveapool figures operator" in said and not out.exists()


def test_a_fit_and_an_adapter_in_one_folder_are_kept_apart(fit, adapter, drawn, tmp_path):
    for file in adapter.iterdir():
        shutil.copy(file, fit)
    words = ("--layer", "3", "--out", tmp_path / "a.svg")
    assert "got a fit and an adapter" in told("figures", "operator", fit, *words, code=2)
    told("figures", "operator", fit / "adapter_model.safetensors", *words)
    assert (drawn[-1].weight == 0.25).all()
