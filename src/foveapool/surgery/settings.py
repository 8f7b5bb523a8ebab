"""The settings of `ClosedFormPooling`, checked and made plain before any data is read.

Each setting for itself: what depends on the network or the data is noticed where that is known.
Below them, what a setting comes to for one layer, once that layer is known, and solving with it.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, Literal, Self

from foveapool.pooling.gram import PRECISIONS
from foveapool.pooling.grid import Center, get_largest_step, windows
from foveapool.pooling.least_squares import Mixing
from foveapool.pooling.module import default_center, default_window
from foveapool.pooling.operator import PoolingOperator
from foveapool.pooling.scatter import WEIGHTINGS, Scatter
from foveapool.pooling.solve import Alpha, AlphaUnit, check_choices, solve_pooling
from foveapool.surgery.cost import choose_window, tell_of_window
from foveapool.surgery.find import Downsampling
from foveapool.surgery.progress import Clock, Report
from foveapool.surgery.wrapper import Mode

# How far a position may look: a number of pixels, None for the whole map, or what the mode wants.
Window = int | Literal["auto"] | None
# How the mixing of mode `mix` starts.
MixingStart = Literal["least-squares", "random"]
MIXING_STARTS: tuple[MixingStart, ...] = ("least-squares", "random")

# The least that each may be, where it is not None.
_LEAST = {"components": 1, "window": 0, "class_cap": 2, "num_classes": 2}


class HasSettings:
    """The arguments of a class as its settings, which scikit-learn's tools ask for and change."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Gives the settings, as scikit-learn asks for them.

        Args:
            deep: Not used; scikit-learn passes it.

        Returns:
            The settings by name.
        """
        return {name: getattr(self, name) for name in self._names()}

    def set_params(self, **settings: Any) -> Self:
        """Changes settings; call `solve` to have them take effect on scatter that is there.

        Args:
            **settings: The new ones, by name.

        Returns:
            This object.

        Raises:
            ValueError: If there is no such setting.
        """
        for name in settings:
            if name not in self._names():
                raise ValueError(f"{name}: no such setting, wanted one of {self._names()}")
        for name, value in settings.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self)).parameters
        changed = [f"{k}={v!r}" for k, v in self.get_params().items() if v != defaults[k].default]
        return f"{type(self).__name__}({', '.join(changed)})"

    def _names(self) -> list[str]:
        return list(inspect.signature(type(self)).parameters)


def check_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with plain Python numbers, which files can hold, for those of NumPy and torch.

    Raises a ValueError for the first setting that a fit could not work with.
    """
    plain = {name: _as_plain(value) for name, value in settings.items()}
    if type(plain["alpha"]) not in (str, int, float):
        raise ValueError(f"alpha: got {plain['alpha']!r}, wanted a positive number or 'auto'")
    names = ("norm", "sign", "solver", "alpha_unit")
    chosen = {name: plain[name] for name in names}
    center = "paper" if plain["center"] is None else plain["center"]
    check_choices(**chosen, center=center, alphas=[plain["alpha"]])
    for name, wanted in (("weighting", WEIGHTINGS), ("precision", PRECISIONS)):
        if plain[name] not in wanted:
            raise ValueError(f"{name}: got {plain[name]!r}, wanted one of {wanted}")
    # Any text is true, and so would "no" be.
    if not isinstance(plain["normalize"], bool):
        raise ValueError(f"normalize: got {plain['normalize']!r}, wanted True or False")
    if not _is_whole(plain["seed"]):
        raise ValueError(f"seed: got {plain['seed']!r}, wanted a whole number")
    for name, least in _LEAST.items():
        if plain[name] is None or (name == "window" and plain[name] == "auto"):
            continue
        if not _is_whole(plain[name]):
            raise ValueError(
                f"{name}: got {plain[name]!r}, wanted a whole number or None"
                + (", or 'auto'" if name == "window" else "")
            )
        if plain[name] < least:
            raise ValueError(f"{name}: got {plain[name]}, wanted {least} or more, or None")
    return plain


def check_mixing_start(mixing: str, mode: str) -> None:
    """Raises a ValueError unless a fit in that mode can have its mixing start so."""
    if mixing not in MIXING_STARTS:
        raise ValueError(f"mixing: got {mixing!r}, wanted one of {MIXING_STARTS}")
    if mixing == "random" and mode != "mix":
        raise ValueError(
            f"mixing: got {mixing!r} in mode {mode!r}, wanted it left out: only mode 'mix' mixes"
        )


def check_mixed(mixings: Mapping[str, Mixing], mode: str, start: str) -> None:
    """Raises a ValueError unless a fit has a mixing for each of its poolings."""
    if mode == "mix" and start == "least-squares" and mixings:
        return
    why = "the poolings were solved anew, and no pass for their mixings was finished since"
    if mode != "mix":
        why = f"it was fitted in mode {mode!r}"
    elif start == "random":
        why = "it was fitted with mixing='random'"
    raise ValueError(
        f"mixings_: got none, since {why}, wanted those of mode 'mix'; call fit_mixing(model, "
        "loader)" + ("" if mode == "mix" else " after fit(..., mode='mix')")
    )


def resolve_window(
    window: Window,
    mode: str,
    in_shape: tuple[int, ...],
    out_shape: tuple[int, ...],
    components: int,
    name: str | None = None,
) -> int | None:
    """How far a position of a layer may look; None is the whole map.

    "auto" is the layer's stride in mode `after`, elsewhere the whole map where that is affordable.
    Users are told of a window that is chosen for its cost, where they know the layer by a `name`.
    """
    if window != "auto":
        return window
    if (step := default_window(mode, get_largest_step(in_shape, out_shape))) is not None:
        return step
    chosen = choose_window(in_shape, out_shape, components)
    if chosen is not None and name is not None:
        tell_of_window(name, (in_shape, out_shape), components, chosen)
    return chosen


# How much locality suits a network that keeps its weights, in trace(B)/N: with less it loses more
# of its answers, with much more the pooling is plain subsampling (docs/alpha.md has the evidence).
# In the layer's place the network has to be trained anyway.
_AUTO = {"mix": 3.0, "after": 10.0}


def resolve_alpha(alpha: Alpha, unit: AlphaUnit, mode: str, scatter: Scatter) -> Alpha:
    """The weight of locality; "auto" follows the mode, and in mode `replace` stays what it is."""
    if alpha != "auto" or mode not in _AUTO:
        return alpha
    return _AUTO[mode] * (1.0 if unit == "trace" else float(scatter.within_diagonal().mean()))


def resolve_components(components: int | None, name: str, found: Downsampling, mode: Mode) -> int:
    """How many components the pooling of a layer is to have; None takes as many as fit."""
    if mode == "mix":
        kernel = math.prod(found.kernel_size or (1, 1))
        return components or min(kernel, math.prod(found.in_shape))
    keeps = mode == "after" or found.out_channels == found.in_channels
    if components is None:
        return 1 if keeps else found.components
    if components > 1 and (mode == "after" or found.is_pooling):
        raise ValueError(
            f"components: got {components} for {name} ({found.kind}, mode {mode!r}), "
            "wanted 1, or None to take as many as fit"
        )
    return components


def resolve_each(
    components: int | None, layers: Mapping[str, Downsampling], mode: Mode
) -> dict[str, int]:
    """How many components the pooling of each layer is to have."""
    return {
        name: resolve_components(components, name, found, mode) for name, found in layers.items()
    }


def describe_fit(scatter: Scatter, operator: PoolingOperator, is_auto: bool) -> str:
    """What a layer was fitted on and how, in words: `save` tells it on."""
    counts, found = scatter.counts, operator.settings
    alpha = f"alpha {found.alpha:.4g}" + (" (auto)" if is_auto else "")
    seen = "" if found.window is None else f", a position sees {2 * found.window + 1} wide"
    samples = f"{int(counts.sum()):,} images of {len(counts)} classes"
    return f"{samples}, {alpha}, {found.norm}{seen}"


def _as_plain(value: Any) -> Any:
    """A number without its library: an int, a float or a bool; anything else as it came."""
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, Real):
        return value
    return int(value) if isinstance(value, Integral) else float(value)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def solve_layers(
    settings: Mapping[str, Any],
    layers: Mapping[str, Downsampling],
    scatters: Mapping[str, Scatter],
    mode: Mode,
    report: Report,
    passes: int = 2,
) -> dict[str, PoolingOperator]:
    """The operator of each layer that the settings of a fit give on its scatter."""
    names = ("norm", "sign", "solver", "alpha_unit")
    chosen: dict[str, Any] = {name: settings[name] for name in names}
    center: Center = settings["center"] or default_center(mode)
    operators: dict[str, PoolingOperator] = {}
    solved: dict[Any, PoolingOperator] = {}
    for name, wanted in resolve_each(settings["components"], layers, mode).items():
        scatter, found = scatters[name], layers[name]
        # The passes have told of a window that they summed for.
        told = name if scatter.window is None else None
        window = resolve_window(
            settings["window"], mode, found.in_shape, found.out_shape, wanted, told
        )
        if settings["window"] == "auto" and scatter.window is not None:
            # Summed up for other components, or for a layer that reads the same.
            window = scatter.window if window is None else min(window, scatter.window)
        _check_window(name, scatter, window)
        if settings["components"] is None:
            seen = count_weights(scatter, found.out_shape, window, center)
            wanted = min(wanted, scatter.rank_bound, seen)
        # Branches that read one tensor and shrink it alike have one answer.
        key = (id(scatter), found.out_shape, wanted, window)
        if key not in solved:
            alpha = resolve_alpha(settings["alpha"], settings["alpha_unit"], mode, scatter)
            chosen |= {"alpha": alpha, "components": wanted, "window": window, "center": center}
            clock = Clock(2, math.prod(found.out_shape), passes=passes, layer=name)

            def tell(done: int, _: int, clock: Clock = clock) -> None:
                report(clock.after(done))

            solved[key] = solve_pooling(scatter, found.out_shape, **chosen, progress=tell)
        operators[name] = solved[key]
    return operators


def _check_window(name: str, scatter: Scatter, window: int | None) -> None:
    """Raises a ValueError unless the scatter has all pairs that solving looks at."""
    if scatter.window is None or (window is not None and window <= scatter.window):
        return
    raise ValueError(
        f"window: got {window} for {name}, whose scatter was summed up for {scatter.window}, "
        f"wanted {scatter.window} or less; a wider one takes the passes again: call fit with "
        f"window={window}"
    )


def count_weights(
    scatter: Scatter, out_shape: tuple[int, ...], window: int | None, center: Center
) -> int:
    """How many weights a row of the operator has."""
    if window is None:
        return scatter.panels.size
    return windows(scatter.in_shape, out_shape, window, center).shape[1]
