"""Summaries of what `ClosedFormPooling.save` wrote: layers by name, and what the folder knows."""

import re

import pytest
import torch
from torch import nn

import foveapool as fp
from foveapool._io import read_sealed_json, write_sealed_json
from foveapool.report.sources import summarize_run

from .pages import operator


class Branches(nn.Module):
    """Two layers that read one tensor and shrink it alike, and one after them."""

    def __init__(self):
        super().__init__()
        self.main, self.short = nn.Conv2d(3, 3, 3, 2, 1), nn.Conv2d(3, 3, 1, 2)
        self.last = nn.AvgPool2d(2)

    def forward(self, maps):
        return self.last(self.main(maps) + self.short(maps))


@pytest.fixture
def fit(tmp_path):
    torch.manual_seed(0)
    loader = [(torch.randn(40, 3, 8, 8), torch.arange(40) % 2)]
    fit = fp.ClosedFormPooling(alpha=5.0).fit(Branches(), loader, ["main", "short", "last"])
    fit.save(tmp_path / "fit")
    return tmp_path / "fit"


def names(summary):
    return [each.label.partition(", 8")[0].partition(", 4")[0] for each in summary.families]


def test_families_have_the_names_of_their_layers(fit):
    summary = summarize_run(fit)
    assert names(summary) == ["layers main, short", "layer last"]
    assert [each.operators[0].in_shape for each in summary.families] == [(8, 8), (4, 4)]
    assert summary.missing == () and summary.title == "fit"
    facts = dict(summary.facts)
    assert (facts["mode"], facts["alpha"], facts["class cap"]) == ("replace", "5.0", "10000")


def test_a_file_of_a_fit_has_the_name_of_its_layer(fit):
    assert names(summarize_run(fit / "operator-1.safetensors")) == ["layer last"]


def test_a_file_that_is_not_of_the_fit_keeps_its_own_name(fit):
    operator().save(fit / "operator-2.safetensors")
    assert names(summarize_run(fit)) == ["layers main, short", "layer last", "operator-2"]


def test_a_missing_file_is_named_and_the_rest_is_shown(fit):
    (fit / "operator-0.safetensors").unlink()
    summary = summarize_run(fit)
    assert names(summary) == ["layer last"]
    assert "operator-0.safetensors: no such file" in summary.missing[0]


def test_a_run_folder_with_a_fit_in_it_stays_a_run(fit):
    (fit / "run.json").write_text('{"network": "cnn", "seed": 3}')
    (fit / "metrics.jsonl").write_text('{"epoch": 1, "loss": 0.5}\n')
    summary = summarize_run(fit)
    assert names(summary) == ["layers main, short", "layer last"]
    assert dict(summary.facts)["seed"] == "3" and len(summary.curves) == 1


@pytest.mark.parametrize("text", ["{", "[]", '{"operators": {}}', '{"operators": 3}'])
def test_a_damaged_note_of_a_fit_is_named(fit, text):
    (fit / "estimator.json").write_text(text)
    with pytest.raises(ValueError, match=re.escape(f"{fit / 'estimator.json'}: ")) as error:
        summarize_run(fit)
    assert "wanted what ClosedFormPooling.save wrote" in str(error.value)


def test_layers_come_as_the_network_has_them(fit):
    note = read_sealed_json(fit / "estimator.json")
    note["operators"] = dict(reversed(note["operators"].items()))
    write_sealed_json(fit / "estimator.json", note)
    assert names(summarize_run(fit)) == ["layer last", "layers short, main"]


def test_an_adapter_is_told_what_can_be_done_with_it(tmp_path):
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.AvgPool2d(2))
    fp.replace(model, {"1": fp.LinearPool2d.average((8, 8), (4, 4), trainable=True)})
    fp.save(model, tmp_path)
    for path in (tmp_path, tmp_path / "adapter_model.safetensors"):
        with pytest.raises(ValueError, match=re.escape(f"foveapool figures operator {path}")):
            summarize_run(path)
