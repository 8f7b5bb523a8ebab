"""Trainings that were finished elsewhere: not done again, but for a network that a fit needs."""

import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest

from foveapool.known_trainings import KnownTrainings
from foveapool.runs import Runs
from foveapool.study import worker
from foveapool.study.engine import Engine, ProcessWorkers, SerialWorkers
from foveapool.study.preflight import make_plan
from foveapool.study.presets import read_preset
from foveapool.study.rows import make_diverged_result
from foveapool.study.spec import TrainingJob
from foveapool.study.study import make_partial_tables
from foveapool.study.worker import find_fault, run_training

from .small_studies import CPU, TINY, conduct_study, results_of, training

BASELINE, FITTED = training(), training(("closed-form", 3))
TWICE = training(("closed-form", 3), ("closed-form", 2))


def result_of(each, **changed):
    """A training's result as others had it: its error is told from that of this machine."""
    found = {"error": 12.5, "loss": 0.5, "alphas": {"3": 2.0, "2": 2.0}, "seconds": 3.0}
    machine = {"commit": "abc", "hardware": "elsewhere", "torch": "2"}
    whole = {**make_diverged_result(""), **machine, **found, "training": each.name}
    del whole["diverged"]
    return {**whole, **changed}


def known_file(path, *trainings, **changed):
    """A file of trainings that others did, with these results."""
    known = KnownTrainings(path, check=find_fault)
    for each in trainings:
        known.add(each.name, each.facts, result_of(each, **changed))
    known.close()
    return KnownTrainings(path, check=find_fault)


def engine_knowing(folder, known, said=None, means=CPU):
    say = (lambda text: None) if said is None else said.append
    return Engine(Runs(folder, say, known), means, SerialWorkers())


@pytest.fixture
def trained(monkeypatch):
    """The settings and folders that were trained, in order."""
    seen, run = [], TrainingJob.run

    def noted(self, *given):
        seen.append((self.setting.pooling, self.folder.name))
        return run(self, *given)

    monkeypatch.setattr(TrainingJob, "run", noted)
    return seen


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """The tiny study, done with a file: the study, its tables and the file."""
    folder = tmp_path_factory.mktemp("tiny")
    (folder / "tiny.toml").write_text(TINY)
    study, known = read_preset(str(folder / "tiny.toml")), KnownTrainings(folder / "all.gz")

    def add(done):
        known.add(done.training.name, done.training.facts, done.result)

    tables = conduct_study(study, engine_knowing(folder / "runs", known), add)
    known.close()
    return SimpleNamespace(study=study, tables=tables, file=folder / "all.gz", folder=folder)


def test_a_study_is_complete_from_the_file_alone(tiny, tmp_path, monkeypatch):
    said = []
    known = KnownTrainings(tiny.file, said.append, find_fault)
    assert len(known) == 7
    monkeypatch.setattr(TrainingJob, "run", None)
    runs = Runs(tmp_path / "runs", said.append, known)
    found = make_plan(tiny.study, runs, CPU)
    assert (found.done, found.left, found.seconds, found.again) == (7, 0, 0.0, 0)
    wanted = [row.values for row in tiny.tables.rows]
    assert [row.values for row in make_partial_tables(tiny.study, runs).rows] == wanted
    assert not runs.root.exists()
    tables = conduct_study(tiny.study, engine_knowing(runs.root, known, said))
    assert str(tables.selection) == str(tiny.tables.selection)
    assert [row.values for row in tables.rows] == wanted
    assert not list(runs.root.glob("trainings/*")) and said == []


def test_a_study_goes_on_from_half_of_the_file(tiny, tmp_path, trained):
    whole = KnownTrainings(tiny.file)
    half = {name: whole[name] for number, name in enumerate(sorted(whole)) if number % 2}
    runs = Runs(tmp_path / "runs", known=half)
    found = make_plan(tiny.study, runs, CPU)
    # Nor does the plan know what the rest of the search will choose.
    assert found.left >= 4 and found.seconds > 0
    tables = conduct_study(tiny.study, engine_knowing(runs.root, half))
    assert [row.values for row in tables.rows if row.metric == "test error %"] == [
        row.values for row in tiny.tables.rows if row.metric == "test error %"
    ]
    assert len([folder for _, folder in trained if folder != "again"]) == 4
    assert len(list(runs.root.glob("trainings/*/result.json"))) == 4


def test_a_closed_form_on_a_known_baseline_trains_its_network_once(tmp_path, trained):
    known = known_file(tmp_path / "known.gz", BASELINE)
    said = []
    alphas = [training(("closed-form", layer, alpha)) for layer in (2, 3) for alpha in (5, 400)]
    found = results_of(engine_knowing(tmp_path / "runs", known, said), alphas)
    assert trained.count(("baseline", "again")) == 1 and len(trained) == 1 + len(alphas)
    assert [text for text in said if "trained again for its maps" in text] == said and len(
        said
    ) == 1
    # The result stays the known one, and the folder claims none.
    runs = Runs(tmp_path / "runs")
    folder = runs.folder(BASELINE.name)
    assert found[BASELINE.name]["error"] == 12.5
    assert (folder / "weights.safetensors").exists() and not (folder / "again").exists()
    assert not (folder / "result.json").exists()
    assert runs.result(BASELINE.name, BASELINE.facts) is None
    assert json.loads((folder / "training.json").read_text())["seed"] == 0
    # It is what an undisturbed study has.
    calm = Runs(tmp_path / "calm")
    for each in (BASELINE, alphas[0]):
        run_training(each, calm, CPU)
    wanted = calm.result(alphas[0].name, alphas[0].facts)
    assert found[alphas[0].name]["error"] == wanted["error"]
    assert found[alphas[0].name]["loss"] == wanted["loss"]
    # Who does not know the file does the baseline, in the same folder.
    trained.clear()
    own = run_training(BASELINE, runs, CPU)
    assert trained == [("baseline", BASELINE.name)] and own["error"] != 12.5


def test_a_second_layer_on_a_known_first_one(tmp_path, trained):
    known = known_file(tmp_path / "known.gz", BASELINE, FITTED)
    found = results_of(engine_knowing(tmp_path / "runs", known), [TWICE])
    assert trained == [
        ("baseline", "again"),
        ("closed-form", "again"),
        ("closed-form", TWICE.name),
    ]
    assert found[FITTED.name]["error"] == 12.5 and 0 <= found[TWICE.name]["error"] <= 100
    finished = list((tmp_path / "runs").glob("trainings/*/result.json"))
    assert [path.parent.name for path in finished] == [TWICE.name]


def test_processes_that_know_the_folder_alone_need_no_file(tmp_path):
    known = known_file(tmp_path / "known.gz", BASELINE)
    workers = ProcessWorkers(1)
    try:
        found = results_of(Engine(Runs(tmp_path / "runs", known=known), CPU, workers), [FITTED])
    finally:
        workers.close()
    assert found[BASELINE.name]["error"] == 12.5 and "diverged" not in found[FITTED.name]


def test_on_a_network_that_is_known_to_have_diverged_nothing_is_trained(tmp_path, monkeypatch):
    done = {"error": 100.0, "loss": None, "alphas": {}, "diverged": "loss: got nan"}
    known = known_file(tmp_path / "known.gz", BASELINE, **done)
    monkeypatch.setattr(TrainingJob, "run", None)

    class NoWorkers(SerialWorkers):
        def submit(self, training, *given):
            # A worker does not know of the baseline, but finds the other in the folder.
            assert training.name == TWICE.name
            return super().submit(training, *given)

    engine = Engine(Runs(tmp_path / "runs", known=known), CPU, NoWorkers())
    found = results_of(engine, [TWICE])
    assert found[BASELINE.name]["diverged"] == "loss: got nan"
    assert found[FITTED.name]["diverged"].startswith(f"{BASELINE.name}: diverged, so that")
    assert found[TWICE.name]["diverged"].startswith(f"{FITTED.name}: diverged, so that")
    assert not Runs(tmp_path / "runs").folder(BASELINE.name).exists()


def test_what_another_process_adds_meanwhile_is_not_trained(tmp_path, trained):
    path = tmp_path / "known.gz"
    known = KnownTrainings(path)

    def add(done):
        # Another machine finished the next one, and this one looks before it begins.
        known_file(path, training(seed=1))
        known.add(done.training.name, done.training.facts, done.result)
        known.write()

    found = {}
    for done in engine_knowing(tmp_path / "runs", known).run([BASELINE, training(seed=1)]):
        add(done)
        found[done.training.name] = done.result
    assert found[training(seed=1).name]["error"] == 12.5
    assert trained == [("baseline", BASELINE.name)]


def test_what_is_finished_is_told_before_the_rest_is_trained(tmp_path, monkeypatch):
    known = known_file(tmp_path / "known.gz", training(seed=2))
    seen = []
    monkeypatch.setattr(worker, "run_training", None)
    engine = engine_knowing(tmp_path / "runs", known)
    with pytest.raises(TypeError):
        for done in engine.run([training(seed=seed) for seed in range(3)]):
            seen.append(done.training.seed)
    assert seen == [2]


def test_a_checkpoint_of_who_is_at_a_known_training_is_left_alone(tmp_path):
    known = known_file(tmp_path / "known.gz", BASELINE)
    folder = Runs(tmp_path / "runs").folder(BASELINE.name)
    folder.mkdir(parents=True)
    (folder / "checkpoint.safetensors").write_text("another's")
    results_of(engine_knowing(tmp_path / "runs", known), [BASELINE])
    assert (folder / "checkpoint.safetensors").exists()


def test_weights_of_known_trainings_are_told_to_be_missing(tmp_path):
    known = known_file(tmp_path / "known.gz", BASELINE)
    said = []
    keeping = replace(CPU, keep=True)
    results_of(engine_knowing(tmp_path / "runs", known, said, means=keeping), [BASELINE])
    (text,) = said
    assert "without the known trainings to keep all" in text


def test_the_time_of_a_plan_counts_networks_that_are_trained_again(tiny, tmp_path):
    whole = KnownTrainings(tiny.file)
    baselines = {name: each for name, each in whole.items() if not each.facts["setting"]["pools"]}
    assert len(baselines) == 3
    here = make_plan(tiny.study, Runs(tmp_path / "runs", known=baselines), CPU)
    assert (here.left, here.again) == (4, 3)
    # As long as they took on this machine, a training of one epoch each.
    epoch = sorted(each.result["seconds"] for each in baselines.values())[1]
    assert here.seconds == pytest.approx(7 * epoch)
    shutil.copytree(tiny.folder / "runs", tmp_path / "copy")
    for path in (tmp_path / "copy" / "trainings").glob("*closed-form*/result.json"):
        path.unlink()
    assert make_plan(tiny.study, Runs(tmp_path / "copy"), CPU).again == 0


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"alphas": {}}, "got None for the alpha at layer 3"),
        ({"alphas": {"3": float("nan")}}, "got nan for the alpha at layer 3"),
        ({"diverged": 3}, "diverged is no text"),
    ],
)
def test_a_result_that_no_table_could_be_made_of_does_not_count(changed, why):
    facts = json.loads(json.dumps(FITTED.facts))
    assert why in find_fault(FITTED.name, facts, result_of(FITTED, **changed))


def test_facts_of_no_training_do_not_count():
    facts = json.loads(json.dumps(FITTED.facts))
    result = result_of(FITTED)
    assert find_fault(FITTED.name, facts, result) == ""
    assert find_fault(FITTED.name, facts, {**result, "diverged": "so"}) == ""
    assert "wanted" in find_fault("other", facts, result)
    assert "facts of no training" in find_fault("a", {"setting": 3}, result)
    foreign = {**facts, "setting": {**facts["setting"], "network": "vgg"}}
    assert "facts of no training" in find_fault("a", foreign, result)
    more = {**facts, "robustness": []}
    assert "as another version" in find_fault(FITTED.name, more, result)
    robust = replace(FITTED, robustness=("corruptions",))
    assert "robustness: " in find_fault(robust.name, json.loads(json.dumps(robust.facts)), result)
