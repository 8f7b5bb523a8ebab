"""Study: what is searched, what is compared, on which data; and the stages that it goes through.

A study yields stages of trainings and makes tables of what they come to; who trains is the
engine's business. All trainings of one folder of runs are shared between the studies in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from foveapool._stored_names import to_stored
from foveapool.records import Row
from foveapool.study.layers import add_line, check_line, check_pooling, exchange_pooling
from foveapool.study.robustness import check_robustness
from foveapool.study.rows import SeedTrials, make_selection_rows, make_trial_rows
from foveapool.study.search import Search, Selection, run_search
from foveapool.study.setting import (
    BASELINE,
    BESIDE,
    FITTED,
    LAYERS,
    MATRICES,
    POOLINGS,
    THEN,
    Setting,
)
from foveapool.study.spec import Source, Stage, TrainingSpec
from foveapool.training.recipe import Recipe

# How an arm says whose search it follows.
LIKE = "like"


@dataclass(frozen=True)
class Arm:
    """One line of the table: a pooling in its place, or one whose place the search has to find.

    Choices are those of `Pool`, and these. `layers`: the same pooling at each of them, closed forms
    fitted together. `beside`: tables of poolings at other layers, which are there when a closed
    form is fitted; one that names no pooling has the arm's, and is fitted with it. `then`: tables
    of poolings that follow at other layers, each fitted on the network that was trained with those
    before; what they do not say is as at the first. `like`: the pooling by whose search a matrix
    has its place, where that is another one's: the matrix stands where the search found that one.
    """

    pooling: str
    choices: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        where = f"arm {self.pooling}"
        check_pooling("arm", self.pooling, POOLINGS)
        choices = dict(self.choices)
        if self.pooling in MATRICES:
            check_pooling(f"{where}: {LIKE}", choices.pop(LIKE, self.pooling), MATRICES)
        check_line(
            where,
            self.pooling,
            choices,
            "; give poolings that have the choice an [[arm]] of their own",
        )
        if self.like is not None and not self.is_searched:
            raise ValueError(
                f"{where}: got {LIKE} and a layer, wanted one of them: the search finds the layer"
            )
        for name in ("placement", "form"):
            if self.is_searched and name in self.choices:
                raise ValueError(
                    f"{where}: got a {name} and no layer; the search finds both, or the arm says "
                    "both"
                )
        for name in (THEN, BESIDE):
            if self.choices.get(name) and self.is_searched:
                raise ValueError(f"{where}: got {name} and no layer, wanted one")

    @property
    def is_searched(self) -> bool:
        """Whether a search has to say where it goes."""
        return self.pooling != BASELINE and not {"layer", LAYERS} & set(self.choices)

    @property
    def like(self) -> str | None:
        """The pooling whose search it follows, if it says so."""
        return self.choices.get(LIKE)

    def setting(self, start: Setting, selection: Selection | None = None) -> Setting:
        """The network with this arm's pooling in it."""
        if self.pooling == BASELINE:
            return start
        if not self.is_searched:
            return add_line(start, self.pooling, self.choices)
        assert selection is not None, "a study is checked before it is run"
        own = {k: v for k, v in self.choices.items() if k not in (LIKE, BESIDE, THEN)}
        return exchange_pooling(selection.best, selection.beside, self.pooling, own)


@dataclass(frozen=True)
class Study:
    """The paper's procedure with its choices; `presets.py` reads one from a file."""

    name: str
    source: Source
    recipe: Recipe
    network: Setting = field(default_factory=Setting)
    searches: tuple[Search, ...] = ()
    arms: tuple[Arm, ...] = (Arm(BASELINE),)
    seeds: int = 5
    robustness: tuple[str, ...] = ()
    title: str = ""

    def __post_init__(self) -> None:
        if not self.name.strip("."):
            raise ValueError(
                f"name: got {self.name!r}, wanted one with a letter or a digit in it: it becomes "
                "the name of a folder"
            )
        if type(self.seeds) is not int or self.seeds < 1:
            raise ValueError(f"seeds: got {self.seeds!r}, wanted a whole number, 1 or more")
        check_robustness(self.robustness)
        searched = [search.pooling for search in self.searches]
        if len(set(searched)) != len(searched):
            raise ValueError(f"search: got {searched}, wanted each pooling once")
        for arm in self.arms:
            if arm.is_searched and self.search_for(arm) is None:
                if arm.like is not None:
                    raise ValueError(
                        f"arm {arm.pooling}: got {LIKE} {arm.like!r}, and no search of that "
                        f"pooling; add a [[search]] of {arm.like}, or give the arm a layer"
                    )
                raise ValueError(
                    f"arm {arm.pooling}: got no layer, and no search for it; give it a layer or "
                    "add a [[search]]"
                )
        # An impossible one is to be known before the hours.
        self.settings()
        lines = [[each.facts() for each in self._settings_of(arm)] for arm in self.arms]
        for number, arm in enumerate(self.arms):
            if lines[number] in lines[:number]:
                told = ", ".join(f"{name} {value}" for name, value in arm.choices.items())
                raise ValueError(
                    f"arm {arm.pooling}: got the same line twice ({told or 'no choices'}), wanted "
                    "each once; leave one out"
                )

    def settings(self) -> list[Setting]:
        """Every setting that its searches may look at or its arms become."""
        found = [each for search in self.searches for each in search.settings(self.network)]
        return found + [each for arm in self.arms for each in self._settings_of(arm)]

    def _settings_of(self, arm: Arm) -> list[Setting]:
        """What an arm may become: one setting, or one for each that its search may find."""
        search = self.search_for(arm) if arm.is_searched else None
        if search is None:
            return [arm.setting(self.network)]
        return [
            arm.setting(self.network, Selection(each.setting, (), each.beside))
            for each in search.alternatives(self.network)
        ]

    def facts(self) -> dict[str, Any]:
        """All of it as JSON can hold it, to be kept beside its tables."""
        return {
            "data": self.source.facts(),
            "network": self.network.facts(),
            "recipe": self.recipe.facts(),
            "searches": [search.facts() for search in self.searches],
            "arms": [{"pooling": arm.pooling, **to_stored(arm.choices)} for arm in self.arms],
            "seeds": self.seeds,
            "robustness": list(self.robustness),
        }

    def search_for(self, arm: Arm) -> Search | None:
        """The search that finds this arm's place: its own, or for a closed form that of another.

        One that is to be like another pooling has that pooling's.
        """
        if arm.like is not None:
            return next((each for each in self.searches if each.pooling == arm.like), None)
        own = [each for each in self.searches if each.pooling == arm.pooling]
        if arm.pooling in FITTED:
            own += [each for each in self.searches if each.pooling in FITTED]
        return own[0] if own else None

    def training(self, setting: Setting, seed: int) -> TrainingSpec:
        """A training on all training images, measured on the test images."""
        return TrainingSpec(setting, self.source, self.recipe, seed, robustness=self.robustness)


@dataclass(frozen=True)
class Tables:
    """What a study came to, and those of its trials that are not all finished."""

    selection: tuple[Row, ...]
    rows: tuple[Row, ...]
    unfinished: tuple[SeedTrials, ...] = ()


class StudyStages:
    """The stages of a study: its searches, then every arm with every seed.

    Each stage comes when the results of those before are filled in. That of the trials may lack
    some: an arm is in the table when all its seeds are there.

    Args:
        study: The study.
        provenance: Columns that all rows have.

    Example:
        >>> from foveapool.training.recipe import Recipe
        >>> stages = StudyStages(Study("s", Source("svhn"), Recipe("adam", 1e-3, 1), seeds=2))
        >>> [(each.name, len(each.trainings)) for each in stages], len(stages.tables.unfinished)
        ([('trials', 2)], 1)
    """

    tables: Tables  # once all stages are through

    def __init__(self, study: Study, provenance: Mapping[str, str] | None = None) -> None:
        self.study, self.provenance = study, provenance or {}

    def __iter__(self) -> Iterator[Stage]:
        study = self.study
        selections: dict[str, Selection] = {}
        chosen: list[Row] = []
        for search in study.searches:
            selection = yield from run_search(search, study.network, study.source, study.recipe)
            selections[search.pooling] = selection
            chosen += make_selection_rows(study.name, selection, self.provenance)
        trials = _make_trials(study, selections)
        stage = Stage("trials", [training for each in trials for training in each.trainings])
        yield stage
        whole = [each for each in trials if all(t.name in stage.results for t in each.trainings)]
        rows = make_trial_rows(study.name, whole, stage.results, self.provenance)
        unfinished = tuple(each for each in trials if each not in whole)
        self.tables = Tables(tuple(chosen), tuple(rows), unfinished)


def _make_trials(study: Study, selections: dict[str, Selection]) -> list[SeedTrials]:
    found: list[SeedTrials] = []
    for arm in study.arms:
        search = study.search_for(arm) if arm.is_searched else None
        setting = arm.setting(study.network, selections[search.pooling] if search else None)
        # A search may find what another arm says: one setting is one line.
        if all(setting.facts() != each.setting.facts() for each in found):
            trainings = tuple(study.training(setting, seed) for seed in range(study.seeds))
            found.append(SeedTrials(setting, trainings))
    return found
