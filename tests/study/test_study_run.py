"""A whole small study: its tables against the folders they come from, its plan, its manners."""

import json
import math
import shutil
import statistics
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from scipy import stats

from foveapool.data.images import Images
from foveapool.data.registry import load_data
from foveapool.records import ERROR, LESS, P_VALUE, VALIDATION, read_rows
from foveapool.runs import Runs
from foveapool.study import fits, spec
from foveapool.study.fits import sum_scatter
from foveapool.study.preflight import check_disk_space, make_plan
from foveapool.study.presets import read_preset
from foveapool.study.rows import make_diverged_result
from foveapool.study.spec import Source, TrainingJob
from foveapool.study.study import make_partial_tables

from .small_studies import CPU, TINY, WHOLE, conduct_study, engine


def study_of(folder, text=WHOLE, changes=None):
    path = folder / "small.toml"
    path.write_text(text)
    return read_preset(str(path), changes)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The study, its folder, its tables, and where scatters were summed up for it."""
    folder = tmp_path_factory.mktemp("whole")
    study, summed = study_of(folder), []

    def counting(network, data, site, *more):
        summed.append((site.module, len(data.train)))
        return sum_scatter(network, data, site, *more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fits, "sum_scatter", counting)
        tables = conduct_study(study, engine(folder / "runs"))
    return SimpleNamespace(study=study, runs=folder / "runs", tables=tables, summed=summed)


def results_in(runs):
    """What the folders say: what was trained and what it came to."""
    return [
        (json.loads((path.parent / "training.json").read_text()), json.loads(path.read_text()))
        for path in sorted(runs.glob("trainings/*/result.json"))
    ]


def errors_of(runs, row, held_out):
    """The errors of a row's trainings, by seed, from the folders alone."""
    found = {}
    for what, result in results_in(runs):
        pools = what["setting"]["pools"]
        same = row.pooling == (pools[-1]["pooling"] if pools else "baseline")
        same &= row.layer == ", ".join(str(pool["layer"]) for pool in pools)
        if same and row.alpha:
            same = (row.alpha, row.norm) == (f"{pools[0]['alpha']:g}", pools[0]["norm"])
        if same and (what["held_out"] is not None) == held_out:
            found[what["seed"]] = result["error"]
    return [found[seed] for seed in sorted(found)]


def test_the_table_is_that_of_the_run_folders(whole):
    rows = {(row.pooling, row.metric): row for row in whole.tables.rows}
    baseline = errors_of(whole.runs, rows["baseline", ERROR], held_out=False)
    for pooling in ("baseline", "closed-form", "closed-form-trained", "average"):
        row = rows[pooling, ERROR]
        errors = errors_of(whole.runs, row, held_out=False)
        assert len(errors) == row.n == 3
        assert row.mean == pytest.approx(statistics.mean(errors))
        assert row.std == pytest.approx(statistics.stdev(errors))
        if pooling != "baseline":
            less = [mine - its for mine, its in zip(errors, baseline, strict=True)]
            assert rows[pooling, LESS].mean == pytest.approx(statistics.mean(less))
            wanted = stats.ttest_rel(errors, baseline).pvalue if len(set(less)) > 1 else None
            assert wanted is None or rows[pooling, P_VALUE].mean == pytest.approx(wanted)
    assert rows["baseline", "parameters"].mean == 6602


def test_the_selection_is_that_of_the_run_folders_and_decides_the_place(whole):
    rows = whole.tables.selection
    assert len(rows) == 2 * 3 * 2 and {row.metric for row in rows} == {VALIDATION}
    for row in rows:
        errors = errors_of(whole.runs, row, held_out=True)
        assert len(errors) == row.n == 3
        assert row.mean == pytest.approx(statistics.mean(errors))
    best = min(rows, key=lambda row: row.mean)
    tried = next(row for row in whole.tables.rows if row.pooling == "closed-form")
    assert (tried.layer, tried.alpha, tried.norm) == (best.layer, best.alpha, best.norm)


def test_every_training_is_in_its_folder_and_in_the_studys_note(whole):
    trials, parts = 4 * 3, 3 + 2 * 3 * 2 * 3
    note = json.loads((whole.runs / "studies" / "small" / "study.json").read_text())
    assert len(results_in(whole.runs)) == len(note["trainings"]) == trials + parts
    stages = {each["name"]: each["stage"] for each in note["trainings"]}
    for what, result in results_in(whole.runs):
        wanted = "trials" if what["held_out"] is None else "search"
        if wanted == "search" and not what["setting"]["pools"]:
            wanted = "step"  # what the settings of the search are fitted on
        assert stages[result["training"]] == wanted
    assert note["facts"] == json.loads(json.dumps(whole.study.facts()))


def test_a_scatter_is_summed_up_once_for_each_layer_and_part(whole):
    # 128 images where a part is held out; with all 160, once a seed for both closed forms.
    searched = [module for module, count in whole.summed if count == 128]
    assert sorted(searched) == ["down2"] * 3 + ["down3"] * 3
    assert [count for _, count in whole.summed if count != 128] == [160] * 3


def test_the_tables_are_written_as_they_are_given(whole):
    folder = whole.runs / "studies" / "small"
    assert tuple(read_rows(folder / "rows.csv")) == whole.tables.rows
    assert tuple(read_rows(folder / "selection.csv")) == whole.tables.selection


def test_a_finished_study_is_only_read(whole, monkeypatch):
    written = {path: path.stat().st_mtime_ns for path in whole.runs.glob("trainings/*/*")}
    monkeypatch.setattr(TrainingJob, "run", None)
    assert conduct_study(whole.study, engine(whole.runs)) == whole.tables
    assert written == {path: path.stat().st_mtime_ns for path in whole.runs.glob("trainings/*/*")}


def test_the_plan_of_a_finished_study_has_nothing_left(whole):
    found = make_plan(whole.study, Runs(whole.runs), CPU)
    assert (len(found.trainings), found.done, found.left, found.seconds) == (51, 51, 0, 0.0)


def test_a_plan_knows_the_time_from_trainings_like_it(whole, monkeypatch):
    monkeypatch.setattr(TrainingJob, "run", None)
    more = replace(whole.study, seeds=5, recipe=whole.study.recipe)
    found = make_plan(more, Runs(whole.runs), CPU)
    assert found.left == 4 * 2
    typical = statistics.median(result["seconds"] for _, result in results_in(whole.runs))
    assert found.seconds == pytest.approx(8 * typical)


def test_one_more_seed_trains_that_seed_alone(whole, tmp_path):
    shutil.copytree(whole.runs, tmp_path / "runs")
    before = {result["training"] for _, result in results_in(whole.runs)}
    tables = conduct_study(replace(whole.study, seeds=4), engine(tmp_path / "runs"))
    after = {result["training"]: what for what, result in results_in(tmp_path / "runs")}
    assert before < set(after)
    assert [after[name]["seed"] for name in set(after) - before] == [3] * 4
    assert tables.selection == whole.tables.selection
    assert {row.n for row in tables.rows} == {4}


def test_a_plan_trains_nothing_and_counts_everything(tmp_path):
    study = study_of(tmp_path)
    runs = Runs(tmp_path / "runs")
    found = make_plan(study, runs, CPU)
    assert (len(found.trainings), found.done) == (51, 0)
    assert 0 < found.seconds < 1000
    assert not runs.root.exists()


def test_a_plan_without_the_data_says_why_it_knows_no_time(tmp_path):
    study, runs = read_preset("table1-cnn-svhn"), Runs(tmp_path / "runs")
    found = make_plan(study, runs, replace(CPU, data_root=tmp_path))
    assert found.left == len(found.trainings) > study.seeds
    assert math.isnan(found.seconds) and found.unknown.startswith("svhn: not in ")


def test_a_plan_takes_no_time_from_trainings_that_diverged(whole, tmp_path):
    shutil.copytree(whole.runs, tmp_path / "runs")
    runs = Runs(tmp_path / "runs")
    # More than half of them, so that no time at all would be the middle one.
    for what, result in results_in(runs.root):
        if what["held_out"] is not None or what["setting"]["pools"]:
            runs.finish(result["training"], make_diverged_result("loss: got nan"))
    found = make_plan(replace(whole.study, seeds=5), runs, CPU)
    ended = [r["seconds"] for _, r in results_in(runs.root) if "diverged" not in r]
    assert len(ended) == 3 and found.left >= 4 * 2
    assert found.seconds == pytest.approx(found.left * statistics.median(ended))


def test_a_plan_of_what_diverges_says_why_it_knows_no_time(tmp_path):
    wild = study_of(tmp_path, TINY, {"recipe": {"optimizer": "sgd", "lr": 1e30}})
    found = make_plan(wild, Runs(tmp_path / "runs"), CPU)
    assert math.isnan(found.seconds) and "lower the learning rate" in found.unknown


def test_a_plan_knows_no_alpha_that_auto_will_take(tmp_path):
    changes = {"arm": [{"pooling": "closed-form", "layer": 3}], "search": []}
    assert make_plan(study_of(tmp_path, TINY, changes), Runs(tmp_path / "runs"), CPU).left == 2 * 2


def test_a_plan_with_more_in_a_batch_than_there_is_says_so(tmp_path):
    study = study_of(tmp_path, changes={"recipe": {"batch_size": 500}})
    with pytest.raises(ValueError, match="batch_size: got 500"):
        make_plan(study, Runs(tmp_path / "runs"), CPU)


def test_a_plan_is_not_misled_by_a_damaged_result(whole, tmp_path):
    shutil.copytree(whole.runs, tmp_path / "runs")
    damaged = sorted((tmp_path / "runs").glob("trainings/*average*/result.json"))
    for path, text in zip(damaged, ("", "{}", '{"training": 3}'), strict=True):
        path.write_text(text)
    assert make_plan(whole.study, Runs(tmp_path / "runs"), CPU).left == 3


SEARCH = TINY.replace("[5, 25]", "[5, 400]").replace("seeds = 2", "seeds = 1")


def test_the_search_never_sees_the_test_images(tmp_path, monkeypatch):
    def spoilt(*given, **options):
        data = load_data(*given, **options)
        noise = torch.randint(0, 256, data.test.images.shape).to(torch.uint8)
        labels = (data.test.labels + 1) % 10
        return replace(data, test=Images(noise, labels, data.test.classes))

    def tables(name):
        spec._load_source.cache_clear()
        found = conduct_study(study_of(tmp_path, SEARCH), engine(tmp_path / name))
        return found, dict(
            (result["training"], result["error"] + result["loss"])
            for what, result in results_in(tmp_path / name)
            if what["held_out"] is not None
        )

    try:
        own, own_parts = tables("own")
        monkeypatch.setattr(spec, "load_data", spoilt)
        other, other_parts = tables("spoilt")
    finally:
        spec._load_source.cache_clear()
    assert own.selection == other.selection and len(own.selection) == 2
    assert own_parts == other_parts and len(own_parts) == 1 + 2
    # Others they are: the trials see them.
    assert own.rows[0].metric == ERROR and own.rows[0].mean != other.rows[0].mean


def test_no_room_is_known_before_anything_is_trained(tmp_path, monkeypatch):
    study, runs = study_of(tmp_path), Runs(tmp_path / "runs")
    check_disk_space(study, runs, 2)
    usage = shutil.disk_usage(tmp_path)._replace(free=1_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(OSError, match=r"runs: 0.0 GB are free, wanted 0.5 GB for small"):
        check_disk_space(study, runs, 2)


def test_room_is_reckoned_without_the_data(tmp_path):
    check_disk_space(read_preset("table1-cnn-svhn"), Runs(tmp_path / "runs"), 1)


def without(whole, tmp_path, pattern):
    """A copy of the study's runs in which some trainings are not finished."""
    shutil.copytree(whole.runs, tmp_path / "runs")
    removed = list((tmp_path / "runs/trainings").glob(f"{pattern}/result.json"))
    for path in removed:
        path.unlink()
    assert removed
    return Runs(tmp_path / "runs")


def test_so_far_a_study_that_is_done_has_its_own_tables(whole):
    tables = make_partial_tables(whole.study, Runs(whole.runs))
    assert [row.values for row in tables.rows] == [row.values for row in whole.tables.rows]
    assert len(tables.selection) == len(whole.tables.selection) and not tables.unfinished


def test_so_far_lines_that_are_not_whole_are_left_out_and_named(whole, tmp_path):
    runs = without(whole, tmp_path, "*average*seed2*")
    before = sorted(path for path in runs.root.rglob("*"))
    tables = make_partial_tables(whole.study, runs)
    wanted = [row.values for row in whole.tables.rows if row.pooling != "average"]
    assert [row.values for row in tables.rows] == wanted
    assert [each.setting.pooling for each in tables.unfinished] == ["average"]
    assert sorted(path for path in runs.root.rglob("*")) == before
    fewer = make_partial_tables(replace(whole.study, seeds=2), runs)
    assert {row.n for row in fewer.rows} == {2} and not fewer.unfinished


def test_so_far_a_search_that_is_not_done_decides_nothing(whole, tmp_path):
    runs = without(whole, tmp_path, "*closed-form*part0*")
    with pytest.raises(ValueError, match="of its search are finished, wanted all of them"):
        make_partial_tables(whole.study, runs)


def test_so_far_where_no_line_is_finished_says_so(whole):
    with pytest.raises(ValueError, match=r"no line of small with all its 9 seeds .* fewer seeds"):
        make_partial_tables(replace(whole.study, seeds=9), Runs(whole.runs))


def test_so_far_images_of_ones_own_that_are_gone_are_named(whole):
    gone = replace(whole.study, source=Source("npz:gone.npz"))
    with pytest.raises(FileNotFoundError, match=r"npz:gone.npz: not there, wanted the images of"):
        make_partial_tables(gone, Runs(whole.runs))
