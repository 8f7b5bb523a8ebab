"""`foveapool study --known`: a file of trainings that others did, and that gets one's own."""

import gzip
import os
import subprocess
from pathlib import Path

import pytest

from foveapool.known_trainings import KnownTrainings
from foveapool.study.spec import TrainingJob

from ..study.small_studies import TINY
from .commands import QUICK, refused, run

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder with the tiny study, the file that it left, and what the command said."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "tiny.toml").write_text(TINY)
    words = (folder / "tiny.toml", "--runs", folder / "runs", "--known", folder / "known.gz")
    return folder, run("study", *words, *QUICK)


def test_a_study_leaves_its_trainings_in_the_file(finished):
    folder, done = finished
    assert done.exit_code == 0, done.output
    known = KnownTrainings(folder / "known.gz")
    assert set(known) == {path.name for path in (folder / "runs" / "trainings").iterdir()}
    assert len(known) == 7 and "7 trainings added, 7 in all" in done.stderr


def test_a_study_is_complete_from_the_file_alone(finished, tmp_path, no_training):
    folder, first = finished
    before = (folder / "known.gz").stat()
    words = (folder / "tiny.toml", "--runs", tmp_path / "runs", "--known", folder / "known.gz")
    dry = run("study", *words, "--dry-run", *QUICK)
    assert "7 trainings, 7 of them done; nothing is left to do" in dry.stdout
    so_far = run("study", *words, "--partial", *QUICK)
    assert so_far.exit_code == 0 and not (tmp_path / "runs").exists()
    done = run("study", *words, *QUICK)
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[:-1] == first.stdout.splitlines()[:-1]
    assert so_far.stdout.splitlines() == first.stdout.splitlines()[:-1]
    assert (folder / "known.gz").stat() == before


def test_the_environment_can_name_the_file(finished, tmp_path, no_training, monkeypatch):
    folder, _ = finished
    words = ("study", folder / "tiny.toml", "--runs", tmp_path / "runs", "--dry-run", *QUICK)
    assert "7 trainings, 0 of them done" in run(*words).stdout
    monkeypatch.setenv("FOVEAPOOL_KNOWN", str(folder / "known.gz"))
    assert "7 trainings, 7 of them done" in run(*words).stdout
    monkeypatch.setenv("FOVEAPOOL_KNOWN", "")
    assert "7 trainings, 0 of them done" in run(*words).stdout


def test_what_the_folder_has_is_added_and_equal_bytes_come_of_it(finished, tmp_path, no_training):
    folder, _ = finished
    words = (folder / "tiny.toml", "--runs", folder / "runs", "--known", tmp_path / "new.gz")
    for looking in ("--dry-run", "--partial"):
        assert run("study", *words, looking, *QUICK).exit_code == 0
        assert list(tmp_path.iterdir()) == []
    assert run("study", *words, *QUICK).exit_code == 0
    assert (tmp_path / "new.gz").read_bytes() == (folder / "known.gz").read_bytes()


@pytest.mark.parametrize("end", [KeyboardInterrupt, RuntimeError, ValueError])
def test_however_it_ends_what_was_finished_is_in_the_file(preset, tmp_path, monkeypatch, end):
    trained = TrainingJob.run

    def two(self, *given):
        if len(list((tmp_path / "runs").glob("trainings/*/result.json"))) == 2:
            raise end("the end")
        return trained(self, *given)

    monkeypatch.setattr(TrainingJob, "run", two)
    words = (preset, "--runs", tmp_path / "runs", "--known", tmp_path / "known.gz")
    assert run("study", *words, *QUICK).exit_code != 0
    assert len(KnownTrainings(tmp_path / "known.gz")) == 2


def test_a_file_that_is_cut_off_is_said_and_stays_as_it_is(finished, tmp_path):
    folder, first = finished
    content = (folder / "known.gz").read_bytes()
    damaged = tmp_path / "known.gz"
    damaged.write_bytes(content[: len(content) * 3 // 4])
    words = (folder / "tiny.toml", "--runs", tmp_path / "runs", "--known", damaged)
    done = run("study", *words, *QUICK)
    assert done.exit_code == 0, done.output
    assert done.stderr.count("is cut off, whole lines before the cut count") == 1
    assert "nothing is written to it" in done.stderr
    assert damaged.read_bytes() == content[: len(content) * 3 // 4]
    # Seconds that are alike in every line are no column.
    told, wanted = ({*text.splitlines()[1].split()} - {"s"} for text in (done.stdout, first.stdout))
    assert told == wanted and "pooling" in told


def test_another_result_in_the_folder_counts(finished, tmp_path, no_training):
    folder, _ = finished
    text = gzip.decompress((folder / "known.gz").read_bytes()).decode()
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if "baseline-seed0" in line)
    lines[at] = lines[at].replace('"commit":"', '"commit":"other-')
    other = gzip.compress("\n".join([*lines, ""]).encode())
    (tmp_path / "known.gz").write_bytes(other)
    words = (folder / "tiny.toml", "--runs", folder / "runs", "--known", tmp_path / "known.gz")
    done = run("study", *words, *QUICK)
    assert done.exit_code == 0, done.output
    assert done.stderr.count("the known trainings have another result than") == 1
    assert (tmp_path / "known.gz").read_bytes() == other


def test_a_place_that_cannot_be_is_refused_before_anything_is_trained(
    preset, tmp_path, no_training, monkeypatch
):
    words = ("study", preset, "--runs", tmp_path / "runs", *QUICK, "--known")
    assert "got no folder" in refused(*words, tmp_path / "none" / "known.gz")
    assert "wanted a file of known trainings" in refused(*words, tmp_path)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert "cannot be written" in refused(*words, tmp_path / "known.gz")
    assert not (tmp_path / "runs").exists()


def test_make_study_alone_knows_the_file_of_this_repository():
    def said(*words):
        environment = {**os.environ, "FOVEAPOOL_KNOWN": "from-the-shell"}
        command = ["make", "-n", "-C", str(ROOT), "READY=", *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return done.stdout

    assert "foveapool study forms-cnn --known results/trainings" in said("study", "STUDY=forms-cnn")
    for other in ("demo", "test"):
        assert "--known" not in said(other)
    assert "\nunexport FOVEAPOOL_KNOWN\n" in (ROOT / "Makefile").read_text()
    assert "FOVEAPOOL_KNOWN" not in os.environ
