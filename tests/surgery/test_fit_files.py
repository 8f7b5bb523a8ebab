"""A fit in its folder: the one that was saved last, and nothing of one before it."""

from __future__ import annotations

import re

import pytest

from foveapool import ClosedFormPooling
from foveapool._io import read_sealed_json, write_sealed_json
from foveapool.report.sources import summarize_run

from .toys import MAIN, POOL, loader, toy


def test_a_fit_takes_the_place_of_one_with_more_layers(tmp_path):
    ClosedFormPooling().fit(toy(), loader(), [MAIN, POOL]).save(tmp_path)
    (tmp_path / "operator-3.json").write_text("{}")  # of another command, in the same folder
    assert (tmp_path / "operator-1.safetensors").is_file()
    ClosedFormPooling().fit(toy(), loader(), POOL).save(tmp_path)
    names = [re.sub(r"\d+\.safe", "N.safe", path.name) for path in tmp_path.iterdir()]
    assert sorted(names) == [
        "estimator.json",
        "operator-3.json",
        "operator-N.safetensors",
        "scatter-N.safetensors",
    ]
    assert list(ClosedFormPooling.load(tmp_path).operators_) == [POOL]
    (family,) = summarize_run(tmp_path).families
    assert family.label.startswith(f"layer {POOL}, ")


def test_a_note_that_names_files_elsewhere_has_none_of_them_removed(tmp_path):
    other = tmp_path / "other.safetensors"
    other.write_text("mine")
    folder = tmp_path / "fit"
    fit = ClosedFormPooling().fit(toy(), loader(), POOL)
    fit.save(folder)
    note = folder / "estimator.json"
    facts = read_sealed_json(note)
    facts["operators"] = {POOL: "../other.safetensors"}
    write_sealed_json(note, facts)
    fit.save(folder)
    assert other.read_text() == "mine"


def test_a_note_that_cannot_be_read_is_written_over(tmp_path):
    (tmp_path / "estimator.json").write_text('{"format_version": 1, "scatters": [')
    fit = ClosedFormPooling().fit(toy(), loader(), POOL)
    fit.save(tmp_path)
    assert list(ClosedFormPooling.load(tmp_path).operators_) == [POOL]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda facts: facts.pop("layers"), "estimator.json: got no 'layers'; read it with"),
        (
            lambda facts: facts["layers"][0].update(color=1),
            "estimator.json: TypeError: .*'color'; read it with",
        ),
        (lambda facts: facts["settings"].update(color=1), "estimator.json: color: no such setting"),
        (lambda facts: facts["settings"].update(alpha=[1]), "estimator.json: alpha: got"),
        (lambda facts: facts["settings"].pop("alpha"), "estimator.json: got no 'alpha'"),
        (lambda facts: facts.update(mode="sideways"), "estimator.json: mode: got 'sideways'"),
        (lambda facts: facts.update(seconds=7), "estimator.json: seconds: got 7"),
        (lambda facts: facts.update(layers=7), "estimator.json: layers: got 7"),
        (lambda facts: facts["layers"][0].update(calls="x"), "estimator.json: calls: got 'x'"),
        (lambda facts: facts["operators"].update(pool="../x"), "estimator.json: operators: got"),
        (lambda facts: facts["operators"].update(other="operator-0.safetensors"), "layer 'other'"),
    ],
)
def test_a_note_of_another_version_is_refused_in_words(tmp_path, change, message):
    ClosedFormPooling().fit(toy(), loader(), POOL).save(tmp_path)
    note = tmp_path / "estimator.json"
    facts = read_sealed_json(note)
    change(facts)
    write_sealed_json(note, facts)
    with pytest.raises(ValueError, match=message):
        ClosedFormPooling.load(tmp_path)
