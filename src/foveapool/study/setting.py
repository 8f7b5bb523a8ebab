"""Setting: a network and the poolings in it, as data.

A pooling that is fitted needs a trained network to be fitted on: the one of the same setting
without it. So a second pooling is fitted on the network that was trained with the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

from foveapool.networks.build import check_options
from foveapool.networks.resnet import PLACEMENTS
from foveapool.networks.sites import check_layer
from foveapool.pooling.grid import Centre
from foveapool.pooling.rivals import RIVALS
from foveapool.pooling.scatter import WEIGHTINGS, Weighting
from foveapool.pooling.signs import Sign
from foveapool.pooling.solve import Alpha, Norm, check_choices

CLOSED_FORM, TRAINED = "closed-form", "closed-form-trained"
BASELINE = "baseline"
FITTED = (CLOSED_FORM, TRAINED)
POOLINGS = (BASELINE, *FITTED, *RIVALS)
AUTO: Literal["auto"] = "auto"
THEN = "then"  # how an arm calls what comes after its first pooling
_UNFITTED = ("pooling", "layer", "components")  # what a pooling that is not fitted is made of
_DECIDED = ("classes", "in_channels", "in_shape", "poolings")  # arguments, but not options


@dataclass(frozen=True)
class Pool:
    """One pooling at one layer, and for a closed form how it is fitted.

    `alpha` may be "auto", and `window` says how far a place may look: see `pooling.solve`.
    """

    pooling: str
    layer: int
    alpha: Alpha = AUTO
    norm: Norm = "l2"
    components: int = 2
    normalise: bool = True
    weighting: Weighting = "balanced"
    centre: Centre = "paper"
    sign: Sign = "neighbour"
    class_cap: int | None = 10_000
    window: int | None = None

    def __post_init__(self) -> None:
        if self.pooling not in POOLINGS[1:]:
            wanted = ", ".join(POOLINGS[1:])
            raise ValueError(f"pooling: got {self.pooling!r}, wanted one of {wanted}")
        check_layer(self.layer)
        if type(self.components) is not int or self.components < 1:
            raise ValueError(
                f"components: got {self.components!r}, wanted 1 or more, a whole number"
            )
        cap = self.class_cap
        if cap is not None and (type(cap) is not int or cap < 2):
            raise ValueError(f"class_cap: got {cap!r}, wanted a whole number, 2 or more")
        if self.window is not None and (type(self.window) is not int or self.window < 1):
            raise ValueError(f"window: got {self.window!r}, wanted a whole number, 1 or more")
        if type(self.normalise) is not bool:
            raise ValueError(f"normalise: got {self.normalise!r}, wanted true or false")
        if self.weighting not in WEIGHTINGS:
            raise ValueError(f"weighting: got {self.weighting!r}, wanted one of {WEIGHTINGS}")
        is_number = isinstance(self.alpha, (int, float)) and not isinstance(self.alpha, bool)
        if not is_number and self.alpha != AUTO:
            raise ValueError(f"alpha: got {self.alpha!r}, wanted a positive number or 'auto'")
        alphas = [] if self.alpha == AUTO else [float(self.alpha)]
        check_choices(self.norm, self.centre, self.sign, "auto", "absolute", alphas)

    @property
    def is_fitted(self) -> bool:
        """Whether it comes from a trained network's maps."""
        return self.pooling in FITTED

    def facts(self) -> dict[str, Any]:
        """What makes it differ from others; settings that it does not use are left out."""
        facts = asdict(self)
        if facts["alpha"] != AUTO:
            facts["alpha"] = float(facts["alpha"])
        if self.window is None:
            # Left out, so that trainings that never asked for it keep their names.
            del facts["window"]
        if self.is_fitted:
            return facts
        return {key: facts[key] for key in _UNFITTED}


def choices_of(pooling: str) -> tuple[str, ...]:
    """What an arm of that pooling may say about it: choices it has no use for are a mistake."""
    if pooling == BASELINE:
        return ()
    known = _UNFITTED if pooling not in FITTED else tuple(each.name for each in fields(Pool))
    return (*known[1:], "placement", THEN)


@dataclass(frozen=True)
class Setting:
    """A network of the package with poolings in the order in which they were put in."""

    pools: tuple[Pool, ...] = ()
    network: str = "cnn"
    width: int = 64
    placement: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)  # more arguments of its class

    def __post_init__(self) -> None:
        check_options(self.network, self.options)
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
                f"placement: got {self.placement!r} for a CNN, wanted none: its poolings always "
                "take the place of the strided convolution"
            )
        if self.placement is None and self.network != "cnn":
            # What the network does by itself, said outright: left out or not, it is one setting.
            object.__setattr__(self, "placement", "both")
        if self.placement not in (None, *PLACEMENTS):
            raise ValueError(
                f"placement: got {self.placement!r}, wanted one of {', '.join(PLACEMENTS)}"
            )
        for pool in self.pools:
            if pool.components != 2 and self.network != "cnn" and self.placement != "before":
                raise ValueError(
                    f"components: got {pool.components} for a {self.network} with placement "
                    f"{self.placement}, wanted 2: only `before` takes another number"
                )
        if self.network == "cnn":
            self._check_channels()

    def _check_channels(self) -> None:
        """A pooling that is fitted takes the channels that it was fitted on."""
        for at, pool in enumerate(self.pools):
            later = [each.layer for each in self.pools[:at] if each.is_fitted]
            if pool.components != 2 and any(layer > pool.layer for layer in later):
                raise ValueError(
                    f"components: got {pool.components} at layer {pool.layer}, wanted 2: layer "
                    f"{max(later)} is fitted before on the channels of a network without it; put "
                    f"layer {pool.layer} first, or give it 2"
                )

    @property
    def pooling(self) -> str:
        """The name of its last pooling, or of having none."""
        return self.pools[-1].pooling if self.pools else BASELINE

    @property
    def fitted_on(self) -> Setting | None:
        """The setting whose trained network the last pooling is fitted on, if it is fitted."""
        if not self.pools or not self.pools[-1].is_fitted:
            return None
        return replace(self, pools=self.pools[:-1])

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
        return cls(**{**known, "pools": tuple(Pool(**pool) for pool in facts["pools"])})
