"""Choosing layer, form, placement, alpha and norm by cross-validation, as the paper does.

Each setting is trained on all images but a held-out part and measured on that part, for several
parts. Test images play no role here: no training of this file has them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import product
from typing import Any, Literal

from foveapool.networks.sites import Form
from foveapool.pooling.solve import AlphaUnit, Norm
from foveapool.records import collect_origin
from foveapool.study.layers import (
    add_line,
    add_poolings,
    check_beside,
    check_line,
    check_pooling,
    list_named_layers,
    split_by_layer,
)
from foveapool.study.setting import BASELINE, BESIDE, CLOSED_FORM, FITTED, LAYERS, Setting
from foveapool.study.spec import Source, Stage, TrainingSpec
from foveapool.training.recipe import Recipe


def _is_share(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value <= 1


@dataclass(frozen=True)
class Halving:
    """A first look at all settings, on few `parts` or for a share of the epochs; `keep` go on.

    The share is of the epochs that the search trains for.
    """

    parts: int
    keep: int
    epochs: float = 1.0

    def __post_init__(self) -> None:
        whole = type(self.parts) is int and type(self.keep) is int
        if not (whole and self.parts >= 1 and self.keep >= 1 and _is_share(self.epochs)):
            raise ValueError(
                f"halving: got parts {self.parts!r}, keep {self.keep!r}, epochs {self.epochs!r}; "
                "wanted 1 or more, 1 or more, and a share above 0 and at most 1"
            )


@dataclass(frozen=True)
class Alternative:
    """A setting that a search looks at; `beside` are the layers that it does not search for."""

    setting: Setting
    beside: tuple[int, ...] = ()


@dataclass(frozen=True)
class Search:
    """The settings for one pooling, a grid and single ones, and on what they are judged.

    A layer of the grid may be several, (1, 2, 3), that have the pooling at once. `beside` are
    tables of poolings at other layers, as an arm has them. `also` are tables of one setting each,
    with the choices of an arm of that pooling, which stand beside the grid; with them the grid may
    have no layers. `epochs` is the share of all epochs that its trainings take.
    """

    pooling: str = CLOSED_FORM
    layers: tuple[int | tuple[int, ...], ...] = (1, 2, 3)
    placements: tuple[str | None, ...] = (None,)
    forms: tuple[Form | None, ...] = (None,)
    alphas: tuple[float | Literal["auto"], ...] = (5, 15, 25, 45, 65)
    alpha_unit: AlphaUnit = "absolute"
    norms: tuple[Norm, ...] = ("l1", "l2")
    components: tuple[int | None, ...] = (None,)
    windows: tuple[int | Literal["auto"] | None, ...] = ("auto",)
    beside: tuple[Mapping[str, Any], ...] = ()
    parts: int = 5
    held_out: float = 0.1
    halving: Halving | None = None
    second_layer: bool = False
    also: tuple[Mapping[str, Any], ...] = ()
    epochs: float = 1.0

    def __post_init__(self) -> None:
        if self.pooling == BASELINE:
            raise ValueError("search: got the baseline, which has nothing to choose")
        check_pooling("search", self.pooling)
        check_beside("search", self.beside, self.pooling)
        self._check_also()
        for name in ("layers", "placements", "forms", "alphas", "norms", "components", "windows"):
            values = getattr(self, name)
            may_be_empty = name == "layers" and self.also
            if not isinstance(values, tuple) or not (values or may_be_empty):
                raise ValueError(f"search: {name}: got {values!r}, wanted a list of one or more")
            # 25 is 25.0 here, as in the name of a training.
            if twice := [each for at, each in enumerate(values) if each in values[:at]]:
                raise ValueError(f"search: {name}: got {twice[0]!r} twice, wanted each value once")
        if type(self.parts) is not int or self.parts < 1:
            raise ValueError(f"search: parts: got {self.parts!r}, wanted a whole number, 1 or more")
        if not _is_share(self.held_out) or self.held_out == 1:
            raise ValueError(
                f"search: held_out: got {self.held_out!r}, wanted a share between 0 and 1"
            )
        if not _is_share(self.epochs):
            raise ValueError(
                f"search: epochs: got {self.epochs!r}, wanted a share above 0 and at most 1"
            )
        if type(self.second_layer) is not bool:
            raise ValueError(
                f"search: second_layer: got {self.second_layer!r}, wanted true or false"
            )
        if self.halving is not None and self.halving.parts > self.parts:
            raise ValueError(
                f"search: halving looks at {self.halving.parts} parts, wanted at most the "
                f"{self.parts} there are"
            )

    def _check_also(self) -> None:
        if not isinstance(self.also, tuple) or not all(isinstance(t, Mapping) for t in self.also):
            raise ValueError(
                f"search: also: got {self.also!r}, wanted a list of tables such as "
                '[{ layer = 3, form = "mix" }]'
            )
        for table in self.also:
            check_line("search: also", self.pooling, table)
            if not {"layer", LAYERS} & set(table):
                raise ValueError(
                    f"search: also: got {dict(table)}, wanted a layer, or layers, in it"
                )
        if self.also and self.second_layer:
            raise ValueError(
                "search: got second_layer and also, wanted one of them; a table of also says by "
                "`then` what follows at a second layer"
            )

    def facts(self) -> dict[str, Any]:
        """All of it as JSON can hold it; what came later is left out where nobody asks for it."""
        facts = asdict(self)
        if not self.also:
            del facts["also"]
        if self.epochs == 1:
            del facts["epochs"]
        return facts

    def training(
        self, setting: Setting, source: Source, recipe: Recipe, part: int, epochs: float = 1.0
    ) -> TrainingSpec:
        """A setting's training for cross-validation, over a share of the recipe's epochs.

        The part that is held out is the seed as well.
        """
        shorter = recipe.over(max(1, round(epochs * recipe.epochs)))
        return TrainingSpec(setting, source, shorter, part, part, self.held_out)

    def settings(self, start: Setting) -> list[Setting]:
        """All that it looks at on top of the poolings that `start` has: the grid, then `also`."""
        return [each.setting for each in self.alternatives(start)]

    def alternatives(self, start: Setting) -> list[Alternative]:
        """The settings, with the layers of each that are not searched for.

        A ValueError where a table of `also` is a setting that is there already.
        """
        beside = list_named_layers(self.beside)
        found = [Alternative(setting, beside) for setting in self._list_grid(start)]
        known = [each.setting.facts() for each in found]
        for table in self.also:
            setting = add_line(start, self.pooling, table)
            if setting.facts() in known:
                raise ValueError(
                    f"search: also: got {dict(table)}, which is a setting of the grid or of "
                    "another table, wanted each once; leave one out"
                )
            known.append(setting.facts())
            found.append(Alternative(setting, list_named_layers(table.get(BESIDE, ()))))
        return found

    def _list_grid(self, start: Setting) -> list[Setting]:
        taken = {pool.layer for pool in start.pools}
        layers = [each if isinstance(each, tuple) else (each,) for each in self.layers]
        placements = (start.placement,) if start.pools else self.placements
        beside = [] if start.pools else split_by_layer(self.beside, self.pooling)
        fits: list[dict[str, Any]] = [{}]
        if self.pooling in FITTED:
            grid = product(self.windows, self.alphas, self.norms)
            unit = self.alpha_unit
            fits = [{"window": w, "alpha": a, "alpha_unit": unit, "norm": n} for w, a, n in grid]
        found = []
        for placement, own, form, components, fit in product(
            placements, layers, self.forms, self.components, fits
        ):
            if taken & set(own):
                continue
            choice = {"placement": placement, "form": form, "components": components, **fit}
            tables = [{"pooling": self.pooling, "layer": layer, **choice} for layer in own]
            found.append(add_poolings(start, [*beside, *tables]))
        return found


@dataclass(frozen=True)
class Candidate:
    """A setting, trained for some held-out parts, and its errors on them.

    `training` is that of the first part, `origin` says on what they were trained.
    """

    training: TrainingSpec
    errors: tuple[float, ...]
    origin: Mapping[str, str] = field(default_factory=dict)

    @property
    def setting(self) -> Setting:
        """What was trained, the same for every part."""
        return self.training.setting

    @property
    def mean(self) -> float:
        """Over the parts."""
        return statistics.mean(self.errors)

    @property
    def judged(self) -> float:
        """The mean to choose by: as many wrong answers are as good, however their shares add up."""
        return round(self.mean, 9)

    @property
    def deviation(self) -> float:
        """Over the parts; no number where there is one part only."""
        return statistics.stdev(self.errors) if len(self.errors) > 1 else math.nan


@dataclass(frozen=True)
class Selection:
    """The setting with the lowest mean error, and everything it was chosen from, in stages.

    Of settings that are as good, the first that the search has. `beside` are the layers of its
    poolings that were not searched for.
    """

    best: Setting
    candidates: tuple[Candidate, ...]
    beside: tuple[int, ...] = ()


# Judges settings on so many parts, over a share of the epochs.
Judge = Callable[[Sequence[Setting], int, float], Generator[Stage, None, list[Candidate]]]


def run_search(
    search: Search, start: Setting, source: Source, recipe: Recipe
) -> Generator[Stage, None, Selection]:
    """Judges the settings; with `second_layer` once more on the networks trained with the best.

    The second layer stays only if cross-validation improves.

    Args:
        search: What is looked at.
        start: The network without the poolings that are searched for.
        source: The images, of which it holds some out.
        recipe: How is trained.

    Yields:
        A stage wherever it has to know the results of trainings.

    Returns:
        The best setting, and all that were looked at.
    """
    judge = partial(_judge, search, source, recipe)
    found, candidates = yield from _run_round(search, start, judge)
    if search.second_layer and len(search.layers) > 1:
        second, more = yield from _run_round(search, found.setting, judge)
        candidates += more
        if second.judged < found.judged:
            found = second
    # That of a second layer is none of them: it has what the grid has beside it.
    beside = {str(each.setting.facts()): each.beside for each in search.alternatives(start)}
    own = beside.get(str(found.setting.facts()), list_named_layers(search.beside))
    return Selection(found.setting, tuple(candidates), own)


def _run_round(
    search: Search, start: Setting, judge: Judge
) -> Generator[Stage, None, tuple[Candidate, list[Candidate]]]:
    """The best setting, judged on all parts, and all that were looked at."""
    settings, looked_at = search.settings(start), []
    if search.halving is not None and len(settings) > search.halving.keep:
        share = search.epochs * search.halving.epochs
        first = yield from judge(settings, search.halving.parts, share)
        looked_at += first
        best = sorted(first, key=lambda each: each.judged)[: search.halving.keep]
        settings = [each.setting for each in best]
    final = yield from judge(settings, search.parts, search.epochs)
    return min(final, key=lambda each: each.judged), [*looked_at, *final]


def _judge(
    search: Search,
    source: Source,
    recipe: Recipe,
    settings: Sequence[Setting],
    parts: int,
    epochs: float,
) -> Generator[Stage, None, list[Candidate]]:
    trainings = [
        [search.training(setting, source, recipe, part, epochs) for part in range(parts)]
        for setting in settings
    ]
    stage = Stage("search", [training for own in trainings for training in own])
    yield stage
    found = []
    for own in trainings:
        done = [stage.results[each.name] for each in own]
        errors = tuple(result["error"] for result in done)
        found.append(Candidate(own[0], errors, collect_origin(done)))
    return found
