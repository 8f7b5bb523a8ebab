"""Setting: a network and the poolings in it, as data.

A pooling that is fitted needs a trained network to be fitted on: the one of the same setting
without it. So a second pooling is fitted on the network that was trained with the first, unless it
says that it is fitted together with the one before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

from foveapool._stored_names import from_stored, to_stored
from foveapool.networks import check_network_options
from foveapool.networks.sites import (
    AFTER,
    MAIN,
    Form,
    check_form,
    check_layer,
    check_placement,
    list_paths,
)
from foveapool.pooling.baselines import BASELINES, published_form
from foveapool.pooling.grid import Center
from foveapool.pooling.module import default_center, default_window
from foveapool.pooling.scatter import WEIGHTINGS, Weighting
from foveapool.pooling.solve import Alpha, AlphaUnit, Norm, Sign, check_choices

CLOSED_FORM, TRAINED = "closed-form", "closed-form-trained"
BASELINE = "baseline"
FITTED = (CLOSED_FORM, TRAINED)
POOLINGS = (BASELINE, *FITTED, *BASELINES)
# Poolings that are a matrix: those that several components can differ in.
MATRICES = (*FITTED, "sgd", "sgd-local")
STRIDE = 2  # of every layer that shrinks the networks' maps
AUTO: Literal["auto"] = "auto"
# How an arm calls several layers, what else stands there, and what comes after its first pooling.
LAYERS, BESIDE, THEN = "layers", "beside", "then"
# What a pooling that is not fitted is made of.
_UNFITTED = ("pooling", "layer", "components", "form", "placement")
# Facts that came later: left out where they are as they were, so that older trainings keep their
# names.
_LATER = {
    "window": None,
    "form": "replace",
    "placement": None,
    "alpha_unit": "absolute",
    "together": False,
}
_DECIDED = ("classes", "in_channels", "in_shape", "poolings")  # arguments, but not options


@dataclass(frozen=True)
class Pool:
    """One pooling at one layer, and for a closed form how it is fitted.

    `alpha` may be "auto", and `window` says how far a place may look: see `pooling.solve`. What is
    left out is as usual: `form` that in which a rival was published, and `replace` for a matrix;
    `components` two in form `replace`, nine of a matrix in form `mix`, otherwise one; `center`
    where the form wants it; `window` 2 where the convolution stays, otherwise None, the whole map.
    `placement` None is the setting's. `together` fits it on the same network as the pooling before
    it.
    """

    pooling: str
    layer: int
    alpha: Alpha = AUTO
    norm: Norm = "l2"
    components: int = None  # type: ignore[assignment]
    normalize: bool = True
    weighting: Weighting = "balanced"
    center: Center = None  # type: ignore[assignment]
    sign: Sign = "neighbor"
    class_cap: int | None = 10_000
    window: int | None = AUTO  # type: ignore[assignment]
    form: Form = None  # type: ignore[assignment]
    placement: str | None = None
    alpha_unit: AlphaUnit = "absolute"
    together: bool = False

    def __post_init__(self) -> None:
        if self.pooling not in POOLINGS[1:]:
            wanted = ", ".join(POOLINGS[1:])
            raise ValueError(f"pooling: got {self.pooling!r}, wanted one of {wanted}")
        check_layer(self.layer)
        self._fill_in()
        if type(self.components) is not int or self.components < 1:
            raise ValueError(
                f"components: got {self.components!r}, wanted 1 or more, a whole number"
            )
        cap = self.class_cap
        if cap is not None and (type(cap) is not int or cap < 2):
            raise ValueError(f"class_cap: got {cap!r}, wanted a whole number, 2 or more")
        if self.window is not None and (type(self.window) is not int or self.window < 1):
            raise ValueError(f"window: got {self.window!r}, wanted a whole number, 1 or more")
        if type(self.normalize) is not bool:
            raise ValueError(f"normalize: got {self.normalize!r}, wanted true or false")
        if self.weighting not in WEIGHTINGS:
            raise ValueError(f"weighting: got {self.weighting!r}, wanted one of {WEIGHTINGS}")
        is_number = isinstance(self.alpha, (int, float)) and not isinstance(self.alpha, bool)
        if not is_number and self.alpha != AUTO:
            raise ValueError(f"alpha: got {self.alpha!r}, wanted a positive number or 'auto'")
        alphas = [] if self.alpha == AUTO else [float(self.alpha)]
        check_choices(self.norm, self.center, self.sign, "auto", self.alpha_unit, alphas)
        if type(self.together) is not bool or (self.together and not self.is_fitted):
            raise ValueError(
                f"together: got {self.together!r} for {self.pooling}, wanted true or false, and "
                "false for what is not fitted"
            )
        if self.form in AFTER and self.components != 1:
            raise ValueError(
                f"components: got {self.components} in form {self.form!r}, wanted 1: the "
                "convolution before it makes the channels"
            )

    def _fill_in(self) -> None:
        """Writes out what was left to the pooling and its form: one setting has one name."""
        if self.form is None:
            known = self.pooling in FITTED
            form = "replace" if known else published_form(self.pooling).form
            object.__setattr__(self, "form", form)
        check_form(self.form)
        if self.components is None:
            mixed = 9 if self.pooling in MATRICES and self.placement != "shortcut" else 1
            usual = {"replace": 2, "mix": mixed}.get(self.form, 1)
            object.__setattr__(self, "components", usual)
        if self.window == AUTO:  # type: ignore[comparison-overlap]
            object.__setattr__(self, "window", default_window(self.form, STRIDE))
        if self.alpha == AUTO and self.alpha_unit == "trace":
            # It is the same penalty in either unit.
            object.__setattr__(self, "alpha_unit", "absolute")
        if self.center is None:
            object.__setattr__(self, "center", default_center(self.form))

    @property
    def is_fitted(self) -> bool:
        """Whether it comes from a trained network's maps."""
        return self.pooling in FITTED

    def facts(self) -> dict[str, Any]:
        """What makes it differ from others; settings that it does not use are left out."""
        facts = {key: value for key, value in asdict(self).items() if value != _LATER.get(key, ...)}
        if facts["alpha"] != AUTO:
            facts["alpha"] = float(facts["alpha"])
        if self.is_fitted:
            return to_stored(facts)
        return {key: facts[key] for key in _UNFITTED if key in facts}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Pool:
        """The pooling that gave these facts."""
        return cls(**from_stored({**_LATER, **facts}))


def list_choices(pooling: str) -> tuple[str, ...]:
    """What an arm of that pooling may say about it: choices it has no use for are a mistake."""
    if pooling == BASELINE:
        return ()
    known = _UNFITTED if pooling not in FITTED else tuple(each.name for each in fields(Pool))
    own = [name for name in known[1:] if name != "together"]
    return (*own, LAYERS, BESIDE, THEN)


@dataclass(frozen=True)
class Setting:
    """A network of the package with poolings in the order in which they were put in."""

    pools: tuple[Pool, ...] = ()
    network: str = "cnn"
    width: int = 64
    placement: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)  # more arguments of its class

    def __post_init__(self) -> None:
        check_network_options(self.network, self.options)
        for name in _DECIDED:
            if name in self.options:
                raise ValueError(
                    f"{self.network}: got the option {name!r}, wanted none: the data and the "
                    "poolings decide it"
                )
        if type(self.width) is not int or self.width < 1:
            raise ValueError(f"width: got {self.width!r}, wanted a whole number, 1 or more")
        layers = [pool.layer for pool in self.pools]
        if len(set(layers)) != len(layers):
            raise ValueError(f"pools: got the layers {layers}, wanted each at most once")
        if self.placement is not None and self.network == "cnn":
            raise ValueError(
                f"placement: got {self.placement!r} for a CNN, wanted none: its layers have one "
                "path, and a pooling has one place there"
            )
        if self.placement is None and self.network != "cnn":
            # What the network does by itself, said outright: left out or not, it is one setting.
            object.__setattr__(self, "placement", "both")
        if self.placement is not None:
            check_placement(self.placement)
        for before, pool in zip((None, *self.pools), self.pools, strict=False):
            if pool.together and not (before is not None and before.is_fitted):
                raise ValueError(
                    f"together: got true at layer {pool.layer}, wanted a closed form before it, "
                    "that it is fitted together with"
                )
        pools = (
            replace(pool, placement=None) if pool.placement == self.placement else pool
            for pool in self.pools
        )
        object.__setattr__(self, "pools", tuple(pools))
        for pool in self.pools:
            self._check_pool(pool)
        if self.network == "cnn":
            self._check_channels()

    def _check_pool(self, pool: Pool) -> None:
        """Refuses what the network has no place for."""
        placement = self.placement_of(pool)
        if self.network == "cnn":
            if placement is not None:
                raise ValueError(
                    f"placement: got {placement!r} at layer {pool.layer} of a CNN, wanted none: "
                    "its layers have one path"
                )
            published = None if pool.is_fitted else published_form(pool.pooling)
            if published is not None and published.placement == "shortcut":
                raise ValueError(
                    f"pooling: got {pool.pooling!r} for a CNN, wanted a network with shortcuts"
                )
            return
        assert placement is not None, "a residual network always has one"
        check_placement(placement, pool.form)
        if pool.form == "replace" and pool.components != 2 and placement != "before":
            raise ValueError(
                f"components: got {pool.components} for a {self.network} with placement "
                f"{placement}, wanted 2: only `before` takes another number"
            )

    def _check_channels(self) -> None:
        """A pooling that is fitted takes the channels that it was fitted on."""
        for at, fitted in enumerate(self.pools):
            if not fitted.is_fitted:
                continue
            there = self.pools[: self._group(at)[0]]
            for pool in self.pools:
                changes = pool.form == "replace" and pool.components != 2
                if changes and pool.layer < fitted.layer and pool not in there:
                    raise ValueError(
                        f"components: got {pool.components} at layer {pool.layer}, wanted 2: layer "
                        f"{fitted.layer} is fitted before on the channels of a network without it; "
                        f"put layer {pool.layer} first, or give it 2"
                    )

    def _group(self, at: int) -> tuple[int, int]:
        """From where to where the poolings stand that are fitted together with the one there."""
        first, behind = at, at + 1
        while self.pools[first].together:
            first -= 1
        while behind < len(self.pools) and self.pools[behind].together:
            behind += 1
        return first, behind

    def placement_of(self, pool: Pool) -> str | None:
        """Where in a block the pooling is: its own word, or the setting's for all."""
        return pool.placement or self.placement

    def operator_names(self, pool: Pool) -> dict[str, str]:
        """What the operators of a pooling are called, by the path of the block: "3" is usual.

        >>> Setting(network="resnet18").operator_names(Pool("closed-form", 3, form="after"))
        {'main': '3', 'shortcut': '3-shortcut'}
        """
        first, *others = list_paths(pool.form, self.placement_of(pool))
        return {first: str(pool.layer)} | {path: f"{pool.layer}-{path}" for path in others}

    def components_in(self, pool: Pool, path: str) -> int:
        """How many a pooling has in a path: beside a main path the shortcut's has one."""
        both = len(self.operator_names(pool)) > 1
        return 1 if both and path != MAIN else pool.components

    def until(self, pool: Pool) -> Setting:
        """The setting with the poolings up to this one, and those fitted together with it."""
        return replace(self, pools=self.pools[: self._group(self.pools.index(pool))[1]])

    @property
    def pooling(self) -> str:
        """The name of its last pooling, or of having none."""
        return self.pools[-1].pooling if self.pools else BASELINE

    @property
    def fitted_on(self) -> Setting | None:
        """The setting whose trained network the last pooling is fitted on, if it is fitted."""
        if not self.pools or not self.pools[-1].is_fitted:
            return None
        return replace(self, pools=self.pools[: self._group(len(self.pools) - 1)[0]])

    def facts(self) -> dict[str, Any]:
        """What makes it differ from others; a network without poolings has no placement."""
        facts = {
            "network": self.network,
            "width": self.width,
            "options": dict(self.options),
            "placement": self.placement if self.pools else None,
            "pools": [pool.facts() for pool in self.pools],
        }
        if sum(not pool.is_fitted for pool in self.pools) > 1:
            # They once started from the same numbers; such trainings had this name without it.
            facts["starts"] = "apart"
        return facts

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Setting:
        """The setting that gave these facts."""
        known = {name: value for name, value in facts.items() if name != "starts"}
        pools = tuple(Pool.from_facts(pool) for pool in facts["pools"])
        return cls(**{**known, "pools": pools})
