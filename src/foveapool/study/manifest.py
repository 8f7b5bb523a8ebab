"""The note of a study in its folder: what it is, and which trainings it has asked for.

Processes that work on one study share its note. Whoever comes with the same name and other choices
is refused while they work, and takes the folder over when they are gone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from foveapool._io import clear_leftovers, hold_lock, lock_file, read_json, write_text
from foveapool.runs import FORMAT_VERSION, STUDY
from foveapool.study.study import Study

TABLES = ("selection.csv", "rows.csv")


@contextmanager
def claim_study(study: Study, folder: Path) -> Iterator[None]:
    """Says that this process works on the study; what is noted and tabled of another goes.

    BlockingIOError where a process works on a study of this name with other choices.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # Shared by all that work on it, and so exclusive to one alone that may change what it is.
    with open(folder / "at-work", "a+") as file:
        with lock_study(folder):
            clear_leftovers(folder / STUDY)
            if _read_manifest(study, folder) is None:
                try:
                    lock_file(file, wait=False)
                except BlockingIOError as error:
                    raise BlockingIOError(
                        f"{folder}: another process works on a study {study.name} with other "
                        "choices; wait for it, or give this one another name with --name"
                    ) from error
                for name in TABLES:
                    (folder / name).unlink(missing_ok=True)
                write_manifest(study, folder, {})
            lock_file(file, shared=True)
        yield


@contextmanager
def lock_study(folder: Path) -> Iterator[None]:
    """The study's folder for a moment, to write to; others wait."""
    with hold_lock(folder / "lock", wait=True):
        yield


def add_to_manifest(study: Study, folder: Path, asked: Mapping[str, str]) -> None:
    """Notes trainings, as name and stage, beside those that this process or another noted."""
    with lock_study(folder):
        write_manifest(study, folder, {**(_read_manifest(study, folder) or {}), **asked})


def write_manifest(study: Study, folder: Path, asked: Mapping[str, str]) -> None:
    """Notes these trainings and no others; for who is `alone_in` the folder."""
    note = {
        "format_version": FORMAT_VERSION,
        "name": study.name,
        "title": study.title,
        "facts": study.facts(),
        "trainings": [{"name": name, "stage": stage} for name, stage in asked.items()],
    }
    write_text(folder / STUDY, json.dumps(note, indent=1) + "\n")


def _read_manifest(study: Study, folder: Path) -> dict[str, str] | None:
    """The trainings of the note, by name; None where it is not there or of other choices."""
    try:
        note = read_json(folder / STUDY)
        if note["facts"] != json.loads(json.dumps(study.facts())):
            return None
        return {each["name"]: each["stage"] for each in note["trainings"]}
    except (OSError, ValueError, KeyError, TypeError):
        return None
