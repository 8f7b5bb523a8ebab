"""One training in a folder of runs: train, fit, replace, train again; once, and come what may."""

import json
from dataclasses import replace

import pytest
import torch

from foveapool._io import hold_lock
from foveapool.pooling.storage import load_tensors, save_tensors
from foveapool.runs import RESULT, Runs
from foveapool.study import spec
from foveapool.study.spec import build_job
from foveapool.study.worker import run_training
from foveapool.training.checkpoint import CHECKPOINT

from .small_studies import CPU, fit_in_memory, training

BASELINE, FITTED = training(), training(("closed-form", 3, 25))


class Interrupted(Exception):
    pass


def after(steps):
    def progress(progress):
        if progress.done == steps:
            raise Interrupted

    return progress


def outcome(result):
    return {key: result[key] for key in ("error", "loss", "parameters", "multiply_adds", "alphas")}


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """The outcomes of the baseline and of the closed form, undisturbed."""
    runs = Runs(tmp_path_factory.mktemp("calm"))
    return [outcome(run_training(each, runs, CPU)) for each in (BASELINE, FITTED)]


def test_the_folder_gives_what_training_in_memory_gives(calm):
    network, result = build_job(BASELINE, CPU).run()
    assert (result.test_error, result.train_loss) == (calm[0]["error"], calm[0]["loss"])
    own = build_job(FITTED, CPU)
    _, result = own.run({"3": fit_in_memory(own, network)})
    assert (result.test_error, result.train_loss) == (calm[1]["error"], calm[1]["loss"])
    assert calm[1]["alphas"] == {"3": 25.0}


def test_a_finished_training_is_only_read(runs, calm, monkeypatch):
    first = run_training(BASELINE, runs, CPU)
    monkeypatch.setattr(spec.TrainingJob, "run", None)
    assert run_training(BASELINE, runs, CPU) == first
    assert runs.result(BASELINE.name, BASELINE.facts) == first
    assert outcome(first) == calm[0]


def test_a_folder_holds_what_was_trained_and_what_came_of_it(runs):
    for each in (BASELINE, FITTED):
        run_training(each, runs, CPU)
    kept = {"training.json", "metrics.jsonl", "result.json", "lock"}
    names = {path.name for path in runs.folder(BASELINE.name).iterdir()}
    assert names >= kept | {"weights.safetensors"} and CHECKPOINT not in names
    names = {path.name for path in runs.folder(FITTED.name).iterdir()}
    assert names == kept | {"operator-3.safetensors", "operator-3.json"}
    lines = (runs.folder(FITTED.name) / "metrics.jsonl").read_text().splitlines()
    result = json.loads((runs.folder(FITTED.name) / RESULT).read_text())
    assert len(lines) == 2
    assert json.loads(lines[-1])["test_error"] == result["error"]
    assert result["training"] == FITTED.name and result["hardware"] and result["commit"]


def test_weights_are_kept_on_request(runs):
    run_training(BASELINE, runs, CPU)
    run_training(FITTED, runs, replace(CPU, keep=True))
    weights, _ = load_tensors(runs.folder(FITTED.name) / "weights.safetensors", "weights")
    operator, _ = load_tensors(runs.folder(FITTED.name) / "operator-3.safetensors", "operator")
    assert torch.equal(weights["down3.weight"], operator["weight"].float())


@pytest.mark.parametrize("steps", [3, 6, 9])
def test_an_interrupted_training_goes_on(runs, calm, monkeypatch, steps):
    monkeypatch.setattr(spec, "CHECKPOINT_SECONDS", 0.0)
    run_training(BASELINE, runs, CPU)
    with pytest.raises(Interrupted):
        run_training(FITTED, runs, CPU, after(steps))
    folder = runs.folder(FITTED.name)
    assert (folder / CHECKPOINT).exists() == (steps > 5)
    assert runs.result(FITTED.name, FITTED.facts) is None
    seen = []
    assert outcome(run_training(FITTED, runs, CPU, seen.append)) == calm[1]
    assert seen[0].done == (5 if steps > 5 else 0)
    assert runs.said == []


@pytest.mark.parametrize("kind", ["truncated", "of another seed", "of another kind"])
def test_a_checkpoint_that_is_not_its_own_is_set_aside(runs, calm, monkeypatch, kind):
    monkeypatch.setattr(spec, "CHECKPOINT_SECONDS", 0.0)
    path = runs.folder(BASELINE.name) / CHECKPOINT
    source = training(seed=1) if kind == "of another seed" else BASELINE
    with pytest.raises(Interrupted):
        run_training(source, runs, CPU, after(7))
    content = (runs.folder(source.name) / CHECKPOINT).read_bytes()
    path.parent.mkdir(exist_ok=True)
    path.write_bytes({"truncated": content[:500], "of another kind": b"foreign"}.get(kind, content))
    assert outcome(run_training(BASELINE, runs, CPU)) == calm[0]
    (said,) = runs.said
    assert said.startswith(f"{BASELINE.name}: set aside as aside/{BASELINE.name}.1")
    assert (runs.root / "aside" / f"{BASELINE.name}.1" / CHECKPOINT).exists()


def test_another_mistake_leaves_a_checkpoint_where_it_is(runs, calm, monkeypatch):
    monkeypatch.setattr(spec, "CHECKPOINT_SECONDS", 0.0)
    with pytest.raises(Interrupted):
        run_training(BASELINE, runs, CPU, after(7))
    with pytest.raises(ValueError, match="compile: got the device cpu"):
        run_training(BASELINE, runs, replace(CPU, compile=True))
    seen = []
    assert outcome(run_training(BASELINE, runs, CPU, seen.append)) == calm[0]
    assert seen[0].done == 5 and runs.said == []


def test_what_was_begun_on_a_gpu_is_not_put_aside_for_a_cpu(runs, monkeypatch):
    monkeypatch.setattr(spec, "CHECKPOINT_SECONDS", 0.0)
    with pytest.raises(Interrupted):
        run_training(BASELINE, runs, CPU, after(7))
    path = runs.folder(BASELINE.name) / CHECKPOINT
    tensors, facts = load_tensors(path, "checkpoint")
    save_tensors(path, "checkpoint", {**tensors, "noise/cuda": torch.zeros(16)}, facts)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="got cpu to go on with, wanted cuda, where it was begun"):
        run_training(BASELINE, runs, CPU)
    assert path.read_bytes() == before and runs.said == []


@pytest.mark.parametrize("file", ["result.json", "training.json"])
@pytest.mark.parametrize("content", ["", '{"training": "another"}'])
def test_a_damaged_or_foreign_note_is_set_aside_and_the_training_redone(runs, calm, file, content):
    for each in (BASELINE, FITTED):
        run_training(each, runs, CPU)
    (runs.folder(BASELINE.name) / file).write_text(content)
    assert outcome(run_training(BASELINE, runs, CPU)) == calm[0]
    (runs.folder(FITTED.name) / file).write_text(content)
    assert outcome(run_training(FITTED, runs, CPU)) == calm[1]
    assert [text.partition(":")[0] for text in runs.said] == [BASELINE.name, FITTED.name]


def test_what_another_holds_is_left_to_it(runs):
    with (
        Runs(runs.root).claimed(BASELINE.name, BASELINE.facts),
        pytest.raises(BlockingIOError, match="works in this folder"),
    ):
        run_training(BASELINE, runs, CPU)


def test_our_own_mistake_is_not_taken_for_a_damaged_folder(runs):
    wrong = replace(BASELINE, recipe=replace(BASELINE.recipe, batch_size=161))
    with pytest.raises(ValueError, match="batch_size: got 161"):
        run_training(wrong, runs, CPU)
    assert runs.said == [] and not (runs.root / "aside").exists()


def test_parameters_and_time_are_of_the_network_that_was_trained(runs):
    baseline, fitted = (run_training(each, runs, CPU) for each in (BASELINE, FITTED))
    # The third strided convolution, 16 -> 32 channels of 3 x 3, is gone.
    assert baseline["parameters"] - fitted["parameters"] == 16 * 32 * 9
    assert fitted["seconds"] > 0 and fitted["fit_seconds"] > 0


def test_a_training_that_diverges_is_finished_and_gets_everything_wrong(runs, monkeypatch):
    wild = training()
    wild = replace(wild, recipe=replace(wild.recipe, optimizer="sgd", lr=1e30))
    found = run_training(wild, runs, CPU)
    assert found["error"] == 100 and "lower the learning rate" in found["diverged"]
    assert "checkpoint" not in found["diverged"]
    monkeypatch.setattr(spec.TrainingJob, "run", None)
    assert run_training(wild, runs, CPU) == found


def test_the_machine_is_the_one_that_trained_and_not_the_best_there_is(runs, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *given: "a GPU")
    assert run_training(BASELINE, runs, CPU)["hardware"] != "a GPU"


@pytest.mark.parametrize("weights", [True, False])
def test_what_a_finished_training_had_no_time_to_remove_is_removed(runs, weights):
    first = run_training(BASELINE, runs, CPU)
    folder = runs.folder(BASELINE.name)
    (folder / CHECKPOINT).write_text("large")
    (folder / "again").mkdir()
    (folder / "again" / CHECKPOINT).write_text("large")
    (folder / ".own").write_text("a user's")
    if not weights:
        (folder / "weights.safetensors").unlink()
    assert run_training(BASELINE, runs, CPU) == first
    assert not (folder / CHECKPOINT).exists()
    # Without weights it is half of them, to be gone on with.
    assert (folder / "again").exists() == (not weights)
    assert (folder / ".own").exists()


def test_a_network_that_is_being_trained_again_is_left_to_who_is_at_it(runs):
    run_training(BASELINE, runs, CPU)
    folder = runs.folder(BASELINE.name)
    (folder / "again").mkdir()
    with hold_lock(folder / "fit.lock"):
        run_training(BASELINE, runs, CPU)
        assert (folder / "again").exists()
    run_training(BASELINE, runs, CPU)
    assert not (folder / "again").exists()
