"""Runs: one folder of trainings, finished or not, that studies and processes share.

    runs.json                   the version of this layout
    trainings/NAME/             training.json (what), metrics.jsonl, result.json (when finished)
    studies/NAME/               study.json (what), selection.csv, rows.csv
    aside/NAME.1/               what could not be read, kept for whoever wants to look
    locks/                      one for each training that a process works on

The same name always means the same training: what is in the folder says so, and is checked. So is
whether a result is as it was written.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from foveapool._io import (
    clear_leftovers,
    find_existing_parent,
    hold_lock,
    read_json,
    read_sealed_json,
    to_canonical_json,
    write_sealed_json,
    write_text,
)

FORMAT_VERSION = 1
RUNS, TRAINING, RESULT, STUDY = "runs.json", "training.json", "result.json", "study.json"
# The stage, in a study's note, of a training that others are only fitted on: no line of a table.
STEP = "step"
# What every result has; a training that diverged has no loss.
NUMBERS = ("error", "seconds", "fit_seconds", "parameters", "multiply_adds")
TEXTS = ("commit", "hardware", "torch")
# What a killed process may have been writing in a training's folder.
WRITTEN = (
    TRAINING,
    RESULT,
    "metrics.jsonl",
    "checkpoint.safetensors",
    "weights.safetensors",
    "operator-*.safetensors",
    "operator-*.json",
)


class Finished(NamedTuple):
    """A training that is finished: what was trained, as JSON gives it back, and its result."""

    facts: dict[str, Any]
    result: dict[str, Any]


class Runs:
    """The folder `root`; refused where another version made it, and not written to by looking.

    Args:
        root: The folder, which need not be there yet.
        say: Takes what a user should know, a line at a time.
        known: Trainings by name that were finished elsewhere, as in a file of `known_trainings`.
            They count as finished, except where the folder has a result of its own.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        say: Callable[[str], None] = lambda text: None,
        known: Mapping[str, Finished] | None = None,
    ) -> None:
        self.root, self.say = Path(root), say
        self.known: Mapping[str, Finished] = {} if known is None else known
        self._contradicted: set[str] = set()
        _check_folder(self.root)
        path = self.root / RUNS
        if not path.exists():
            return
        try:
            version = read_json(path).get("format_version")
        except (ValueError, OSError) as error:
            raise ValueError(
                f"{path}: not a results folder of foveapool ({error}); choose another folder"
            ) from error
        if version != FORMAT_VERSION:
            raise ValueError(
                f"{self.root}: a results folder of format version {version}, wanted "
                f"{FORMAT_VERSION}; go on with the version of foveapool that made it, or choose "
                "another folder"
            )

    def make(self) -> None:
        """Makes the folder, where it is not there, and notes the version of its layout in it."""
        self.root.mkdir(parents=True, exist_ok=True)
        if not (self.root / RUNS).exists():
            write_text(self.root / RUNS, json.dumps({"format_version": FORMAT_VERSION}) + "\n")

    def folder(self, name: str) -> Path:
        """Where the training of that name lies."""
        return self.root / "trainings" / name

    def study(self, name: str) -> Path:
        """Where the tables of the study of that name lie."""
        return self.root / "studies" / name

    def result(self, name: str, training: Mapping[str, Any]) -> dict[str, Any] | None:
        """Gives what the training came to: here, or else elsewhere as far as that is known.

        Args:
            name: The name of the training.
            training: Its facts; what has others under this name does not count.

        Returns:
            The result; None where it is not finished, or not as it should be.
        """
        own = self.result_in_folder(name, training)
        known = self._known_result(name, training)
        if own is None or known is None:
            return known if own is None else own
        if name not in self._contradicted and not _are_same(own, known):
            self._contradicted.add(name)
            self.say(
                f"{name}: the known trainings have another result than {self.folder(name)}, which "
                "counts; both are left as they are"
            )
        return own

    def result_in_folder(self, name: str, training: Mapping[str, Any]) -> dict[str, Any] | None:
        """Gives what the training came to here, whatever is known of it from elsewhere.

        Args:
            name: The name of the training.
            training: Its facts.

        Returns:
            The result; None where its folder has none, or none as it should be.
        """
        try:
            if read_json(self.folder(name) / TRAINING) != _plain(training):
                return None
            result = read_sealed_json(self.folder(name) / RESULT)
        except (OSError, ValueError):
            return None
        return None if find_result_fault(name, result) else result

    def _known_result(self, name: str, training: Mapping[str, Any]) -> dict[str, Any] | None:
        known = self.known.get(name)
        if (
            known is None
            or known.facts != _plain(training)
            or find_result_fault(name, known.result)
        ):
            return None
        return known.result

    @contextmanager
    def claimed(self, name: str, training: Mapping[str, Any]) -> Iterator[Path]:
        """The training's folder, held for this process alone and free of what is not its own.

        BlockingIOError where another process holds it.
        """
        with hold_lock(self.root / "locks" / f"{name}.lock"):
            folder = self.folder(name)
            if folder.exists():
                why = self._damage(name, training)
                if why:
                    self.set_aside(name, why)
                elif not (folder / RESULT).exists():
                    for written in WRITTEN:
                        clear_leftovers(folder / written)
            self.begin(name, training)
            yield folder

    def begin(self, name: str, training: Mapping[str, Any]) -> None:
        """Makes the training's folder and says in it what it is of."""
        self.make()
        folder = self.folder(name)
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / TRAINING).exists():
            write_text(folder / TRAINING, json.dumps(training, indent=1) + "\n")

    def _damage(self, name: str, training: Mapping[str, Any]) -> str:
        """Why the folder cannot be the training's, in words; nothing if it can."""
        folder = self.folder(name)
        try:
            if (folder / TRAINING).exists() and read_json(folder / TRAINING) != _plain(training):
                return f"{TRAINING} is not of this training"
            return (
                find_result_fault(name, read_sealed_json(folder / RESULT))
                if (folder / RESULT).exists()
                else ""
            )
        except (OSError, ValueError) as error:
            return str(error)

    def finish(self, name: str, result: Mapping[str, Any]) -> None:
        """Writes the result down: from here on the training is finished."""
        write_sealed_json(self.folder(name) / RESULT, {**result, "training": name})

    def set_aside(self, name: str, why: str) -> None:
        """Moves a training's folder out of the way and says so."""
        aside = self.root / "aside"
        aside.mkdir(exist_ok=True)
        number = 1
        while (aside / f"{name}.{number}").exists():
            number += 1
        os.replace(self.folder(name), aside / f"{name}.{number}")
        self.say(f"{name}: set aside as aside/{name}.{number} and done again: {why}")

    def finished(self) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """What was trained and what it came to, for all that were finished here."""
        for path in sorted((self.root / "trainings").glob(f"*/{RESULT}")):
            try:
                training, result = read_json(path.parent / TRAINING), read_sealed_json(path)
            except (OSError, ValueError):
                continue
            if not find_result_fault(path.parent.name, result):
                yield training, result


def _check_folder(root: Path) -> None:
    """Refuses a place where no folder can be: before the hours of what is to go there."""
    there = find_existing_parent(root)
    if not there.is_dir():
        raise NotADirectoryError(
            f"{root}: got {there}, which is a file, wanted a folder of runs, there or to be made; "
            "name another one"
        )


def _plain(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts as JSON gives them back: lists for tuples."""
    return json.loads(json.dumps(facts))


def _are_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return to_canonical_json(one) == to_canonical_json(other)


def digest_facts(facts: Mapping[str, Any]) -> str:
    """Gives the digest of a training's facts, with which its name ends."""
    text = json.dumps(facts, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=5).hexdigest()


def find_result_fault(name: str, result: Mapping[str, Any]) -> str:
    """Says why this cannot be the result of a training.

    Args:
        name: The name of the training.
        result: What may be its result.

    Returns:
        The reason in words; nothing if it can be.
    """
    if result.get("training") != name:
        return f"{RESULT} is not of this training"
    numbers = NUMBERS if "diverged" in result else (*NUMBERS, "loss")
    for keys, kind in ((numbers, (int, float)), (TEXTS, str), (("alphas",), dict)):
        for key in keys:
            if not isinstance(result.get(key), kind) or isinstance(result[key], bool):
                return f"{RESULT}: got {result.get(key)!r} for {key}"
    # A whole number may be larger than any float, and compares well with infinity.
    wrong = [key for key in numbers if not abs(result[key]) <= sys.float_info.max]
    if not wrong and not 0 <= result["error"] <= 100:
        wrong = ["error"]
    return f"{RESULT}: got {result[wrong[0]]!r} for {wrong[0]}" if wrong else ""
