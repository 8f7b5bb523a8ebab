"""Summaries of runs: of finished ones all, of others what is there, of what is none an error."""

import dataclasses
import json
import math
import os
import re
import shutil
import statistics
import time

import pytest
import torch

from foveapool.pooling.operator import PoolingOperator
from foveapool.records import ERROR, VALIDATION
from foveapool.report import operator_files
from foveapool.report.examples import Examples, get_examples_path
from foveapool.report.operator_files import add_examples
from foveapool.report.page import make_page
from foveapool.report.sources import EXAMPLE, find_last_run, summarize_example, summarize_run
from foveapool.study.presets import read_preset

from ..study.small_studies import WHOLE, conduct_study, engine
from .pages import Page, operator

LESS_OF_IT = {"trials": {"seeds": 2}}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A study with a search, done."""
    root = tmp_path_factory.mktemp("runs")
    text = WHOLE.replace("alphas = [5, 25, 400]", "alphas = [5, 25]").replace(
        "parts = 3", "parts = 2"
    )
    (root / "whole.toml").write_text(text.replace("layers = [2, 3]", "layers = [3]"))
    study = read_preset(str(root / "whole.toml"), LESS_OF_IT)
    conduct_study(study, engine(root))
    return root


@pytest.fixture
def runs(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "runs")


def results(runs, pattern):
    return [json.loads(path.read_text()) for path in runs.glob(f"trainings/{pattern}/result.json")]


def test_a_finished_study_is_told_whole(runs):
    summary = summarize_run(runs / "studies" / "whole")
    assert summary.missing == () and summary.title == "small"
    errors = {row.pooling: row for row in summary.rows if row.metric == ERROR}
    own = [result["error"] for result in results(runs, "*baseline-seed*")]
    assert errors["baseline"].mean == pytest.approx(statistics.mean(own))
    assert {row.metric for row in summary.selection} == {VALIDATION}
    assert len(summary.selection) == 4
    assert len(summary.curves) == 8 and summary.curves[0].epochs == (1,)
    facts = dict(summary.facts)
    assert facts["network"] == "CNN, width 4" and facts["trainings"].endswith("of 18")
    assert "s in all" in facts["time training"] and "s in all" in facts["time fitting"]


def test_operators_of_one_fit_share_a_slider(runs):
    summary = summarize_run(runs / "studies" / "whole")
    labels = [family.label.partition(", 8")[0] for family in summary.families]
    assert labels[:2] == ["layer 3, seed 0", "layer 3, seed 1"]
    searched = [each for each in summary.families if "held-out part 0" in each.label]
    assert [[op.settings.alpha for op in each.operators] for each in searched] == [[5, 25]] * 2
    assert not any("part 1" in label for label in labels)
    kept = PoolingOperator.load(next(runs.glob("trainings/*-a5-l1-part0*/operator-3.safetensors")))
    (shown,) = [e.operators[0] for e in searched if e.operators[0].settings.norm == "l1"]
    assert (shown.weight == kept.weight).all()


def test_a_half_finished_study_tells_what_is_there(runs):
    folder = runs / "studies" / "whole"
    (folder / "rows.csv").unlink()
    (folder / "selection.csv").unlink()
    for path in runs.glob("trainings/*closed-form-trained*/result.json"):
        path.unlink()
    for path in runs.glob("trainings/*average*"):
        shutil.rmtree(path)
    summary = summarize_run(folder)
    assert "not finished: 14 of the 18 trainings" in summary.missing[0]
    errors = {row.pooling: row for row in summary.rows}
    assert set(errors) == {"baseline", "closed-form"}
    own = [result["error"] for result in results(runs, "*baseline-seed*")]
    assert errors["baseline"].mean == pytest.approx(statistics.mean(own))
    assert errors["baseline"].std == pytest.approx(statistics.stdev(own))
    assert [row.n for row in summary.selection if row.pooling == "closed-form"] == [2] * 4
    assert "The study is not finished" in Page(make_page([summary])).words


def test_a_study_that_has_just_begun_is_told(runs):
    folder = runs / "studies" / "whole"
    shutil.rmtree(runs / "trainings")
    (folder / "rows.csv").unlink()
    summary = summarize_run(folder)
    assert summary.rows == () and summary.families == ()
    assert any("No operator" in text for text in summary.missing)
    assert "0 finished of 18" in Page(make_page([summary])).words


def test_damaged_files_are_named_and_the_rest_is_shown(runs):
    bad = next(runs.glob("trainings/*closed-form-3*-seed0-*/operator-3.safetensors"))
    bad.write_bytes(b"half an oper")
    note = next(runs.glob("trainings/*baseline-seed1*/training.json"))
    note.write_text("{")
    other = next(runs.glob("trainings/*baseline-seed0*/training.json"))
    other.write_text('{"seed": 0, "setting": {}}')
    rows = runs / "studies" / "whole" / "rows.csv"
    rows.write_text("a,b\n1,2\n")
    summary = summarize_run(runs / "studies" / "whole")
    told = " ".join(summary.missing)
    assert "operator-3.safetensors" in told and "training.json is not whole" in told
    assert summary.missing[0].startswith("No row of rows.csv can be read")
    assert "not finished" not in told
    assert "rows.csv: got columns" in told and "KeyError('pools')" in told
    assert summary.families and summary.rows


def test_a_training_is_told(runs):
    (folder,) = runs.glob("trainings/*closed-form-3*-l?-seed0-*")
    summary = summarize_run(folder)
    (result,) = results(runs, folder.name)
    (row,) = summary.rows
    assert (row.mean, row.n, row.layer) == (result["error"], 1, "3") and math.isnan(row.std)
    (family,) = summary.families
    assert family.path == folder / "operator-3.safetensors"
    assert summary.missing == ()


def test_a_training_without_operator_or_result_says_so(runs):
    (folder,) = runs.glob("trainings/*baseline-seed0-*")
    (folder / "result.json").unlink()
    (folder / "metrics.jsonl").unlink()
    summary = summarize_run(folder)
    told = " ".join(summary.missing)
    assert all(words in told for words in ("not finished", "No epoch", "No operator"))
    assert "What is missing" in Page(make_page([summary])).words


@pytest.mark.parametrize("text", ["{", '{"seed": 0, "setting": {}}'])
def test_a_training_with_a_damaged_note_is_named_by_its_folder(runs, text):
    (folder,) = runs.glob("trainings/*baseline-seed0-*")
    (folder / "training.json").write_text(text)
    with pytest.raises(ValueError, match=re.escape(f"{folder}: training.json")):
        summarize_run(folder)


def test_a_training_of_any_held_out_part_shows_its_own_operator(runs):
    (folder,) = runs.glob("trainings/*closed-form-3-a5-l1-part1*")
    summary = summarize_run(folder)
    assert len(summary.families) == 1
    assert [row.metric for row in summary.selection] == [VALIDATION] and summary.rows == ()


def test_operator_files_are_told_with_or_without_a_note(tmp_path):
    for alpha in (5.0, 25.0):
        operator(alpha).save(tmp_path / f"operator-3-alpha{alpha:g}.safetensors")
    operator(5.0, norm="l1").save(tmp_path / "operator-2.safetensors")
    summary = summarize_run(tmp_path)
    assert [len(each.operators) for each in summary.families] == [1, 2]
    assert summary.families[1].label.startswith("layer 3, ")
    assert "No run.json" in summary.missing[0]
    (tmp_path / "run.json").write_text('{"network": "cnn", "data_seed": 0}')
    assert ("data seed", "0") in summarize_run(tmp_path).facts
    alone = summarize_run(tmp_path / "operator-2.safetensors")
    assert alone.title == "operator-2.safetensors" and alone.missing == ()


def test_operators_that_a_page_cannot_carry_are_counted(tmp_path, monkeypatch):
    for alpha in (1, 5, 25):
        operator(alpha).save(tmp_path / f"operator-3-alpha{alpha}.safetensors")
    monkeypatch.setattr(operator_files, "MOST_WEIGHTS", 2 * operator().weight.numel())
    summary = summarize_run(tmp_path)
    assert [len(each.operators) for each in summary.families] == [2]
    assert summary.missing[0].startswith("1 operators are not on this page")


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(ValueError, match="not a run: got no study"):
        summarize_run(tmp_path)
    with pytest.raises(FileNotFoundError, match="no such file or folder"):
        summarize_run(tmp_path / "nothing")
    (tmp_path / "x.safetensors").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="not a whole safetensors file"):
        summarize_run(tmp_path / "x.safetensors")
    for text in ('{"name": "x"}', '{"facts": {"data": 3}, "trainings": []}', "{", "[]"):
        (tmp_path / "study.json").write_text(text)
        with pytest.raises(ValueError, match="wanted the note of a study"):
            summarize_run(tmp_path)


def test_the_last_run_is_the_one_in_which_something_was_written_last(runs):
    assert find_last_run(runs) == runs / "studies" / "whole"
    # A training that a study asked for is the study's, however late it ends.
    late = next(runs.glob("trainings/*baseline-seed0-*/result.json"))
    os.utime(late, (time.time() + 50,) * 2)
    assert find_last_run(runs) == runs / "studies" / "whole"
    other = shutil.copytree(late.parent, runs / "trainings" / "of-nobody")
    os.utime(other / "result.json", (time.time() + 100,) * 2)
    assert find_last_run(runs) == other
    (runs / "studies" / "whole" / "report.html").write_text("a page makes no run newer")
    assert find_last_run(runs) == other
    with pytest.raises(FileNotFoundError, match="no run in it"):
        find_last_run(runs / "locks")


def test_examples_are_made_once_and_kept_beside_the_operator(tmp_path):
    operator().save(tmp_path / "operator-3.safetensors")
    asked = []

    def maps_before(path):
        asked.append(path)
        images = torch.zeros(8, 3, 4, 4, dtype=torch.uint8)
        return images, torch.rand(8, 6, 8, 10), torch.arange(8) % 2, ("even", "odd")

    first = add_examples(summarize_run(tmp_path), maps_before)
    again = add_examples(summarize_run(tmp_path), maps_before)
    assert asked == [tmp_path / "operator-3.safetensors"]
    assert first.families[0].examples.labels == again.families[0].examples.labels == ("even", "odd")
    kept = Examples.load(get_examples_path(asked[0]))
    assert (kept.maps == first.families[0].examples.maps).all()


def test_examples_of_the_operator_that_was_there_before_are_made_again(tmp_path):
    path = tmp_path / "operator-3.safetensors"
    operator().save(path)
    asked = []

    def maps_before(path):
        asked.append(path)
        images = torch.zeros(8, 3, 4, 4, dtype=torch.uint8)
        return images, torch.rand(8, 6, 8, 10), torch.arange(8) % 2, ("even", "odd")

    add_examples(summarize_run(tmp_path), maps_before)
    dataclasses.replace(operator(), mean=operator().mean + 1).save(path)
    assert summarize_run(tmp_path).families[0].examples is None
    add_examples(summarize_run(tmp_path), maps_before)
    assert len(asked) == 2 and summarize_run(tmp_path).families[0].examples is not None


def test_why_there_are_no_examples_is_said(tmp_path):
    operator().save(tmp_path / "operator-3.safetensors")

    def other_maps(path):
        return (
            torch.zeros(2, 3, 4, 4, dtype=torch.uint8),
            torch.rand(2, 6, 4, 4),
            torch.ones(2),
            "ab",
        )

    def none(path):
        raise FileNotFoundError("the weights are gone")

    def without_scipy(path):
        raise ImportError("reading SVHN needs scipy")

    for maps_before, words in (
        (other_maps, r"the network's maps are (4, 4)"),
        (none, "are gone"),
        (without_scipy, "needs scipy"),
    ):
        summary = add_examples(summarize_run(tmp_path), maps_before)
        assert words in summary.missing[-1] and summary.families[0].examples is None


def test_the_example_of_the_package_is_small_and_whole():
    summary = summarize_example()
    assert summary.missing == ()
    assert [len(family.operators) for family in summary.families] == [3, 5]
    assert all(family.examples is not None for family in summary.families)
    assert sum(path.stat().st_size for path in EXAMPLE.iterdir()) < 300_000
    assert "street digits" in dict(summary.facts)["data"]
