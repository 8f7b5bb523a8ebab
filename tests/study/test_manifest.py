"""The note of a study: never emptied by whoever comes again, and of one study at a time."""

import json
from dataclasses import replace

import pytest

from foveapool.records import read_rows
from foveapool.runs import Runs
from foveapool.study.engine import Engine, SerialWorkers
from foveapool.study.study import Arm, Study, add_to_manifest, claim_study

from .small_studies import CPU, RECIPE, SOURCE, conduct_study, engine, training

STUDY = Study(
    "s",
    SOURCE,
    replace(RECIPE, epochs=1),
    training().setting,
    arms=(Arm("baseline"), Arm("max", {"layer": 3})),
    seeds=2,
)
OTHER = replace(STUDY, seeds=1)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "runs" / "studies" / "s"


def note(folder):
    return json.loads((folder / "study.json").read_text())


def names(folder):
    return [each["name"] for each in note(folder)["trainings"]]


class Killed(BaseException):
    """As if by SIGKILL."""


class Dying(Engine):
    """An engine whose process dies before it has done anything."""

    def run(self, trainings):
        raise Killed


def test_a_study_that_is_killed_again_keeps_the_note_of_what_it_asked_for(tmp_path, folder):
    conduct_study(STUDY, engine(tmp_path / "runs"))
    wanted = note(folder)
    assert len(wanted["trainings"]) == 4
    with pytest.raises(Killed), claim_study(STUDY, folder):
        raise Killed
    assert note(folder) == wanted
    with pytest.raises(Killed):
        conduct_study(STUDY, Dying(Runs(tmp_path / "runs"), CPU, SerialWorkers()))
    assert note(folder) == wanted and (folder / "rows.csv").exists()


def test_two_that_work_on_one_study_note_for_each_other(folder):
    with claim_study(STUDY, folder), claim_study(STUDY, folder):
        add_to_manifest(STUDY, folder, {"one": "search"})
        add_to_manifest(STUDY, folder, {"two": "trials"})
    assert names(folder) == ["one", "two"]


def test_in_the_end_the_note_is_of_what_the_tables_are_made_from(tmp_path, folder):
    with claim_study(STUDY, folder):
        add_to_manifest(STUDY, folder, {"what-another-rounding-chose": "trials"})
    conduct_study(STUDY, engine(tmp_path / "runs"))
    assert len(names(folder)) == 4 and "what-another-rounding-chose" not in names(folder)


def test_other_choices_under_a_name_that_is_at_work_are_refused(tmp_path, folder):
    said = []

    def meanwhile(done):
        if done.number == 2:
            with pytest.raises(BlockingIOError, match=r"study s with other choices; .* --name"):
                conduct_study(OTHER, engine(tmp_path / "runs"))
            said.append(done)

    conduct_study(STUDY, engine(tmp_path / "runs"), meanwhile)
    assert said and note(folder)["facts"]["seeds"] == 2
    assert {row.n for row in read_rows(folder / "rows.csv")} == {2}


def test_other_choices_take_the_folder_over_when_nobody_is_at_work(tmp_path, folder):
    conduct_study(STUDY, engine(tmp_path / "runs"))
    (folder / ".study.json.k9").mkdir()
    with claim_study(OTHER, folder):
        assert names(folder) == [] and note(folder)["facts"]["seeds"] == 1
        assert not list(folder.glob("*.csv")) and not list(folder.glob(".*"))
        # And now it is theirs.
        with pytest.raises(BlockingIOError), claim_study(STUDY, folder):
            pass


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"facts": 1, "trainings": 2}'])
def test_a_note_that_cannot_be_read_is_written_anew(folder, content):
    folder.mkdir(parents=True)
    (folder / "study.json").write_text(content)
    with claim_study(STUDY, folder):
        assert note(folder)["trainings"] == [] and note(folder)["facts"]["seeds"] == 2


def test_a_study_that_is_gone_on_with_is_guarded_too(folder):
    with claim_study(STUDY, folder):
        pass
    refused = pytest.raises(BlockingIOError, match="with other choices")
    with (
        claim_study(STUDY, folder),
        claim_study(STUDY, folder),
        refused,
        claim_study(OTHER, folder),
    ):
        pass
    with claim_study(OTHER, folder):
        pass
