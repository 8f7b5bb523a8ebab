"""ClosedFormPooling: from a trained network and a loader to learned poolings."""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from foveapool.pooling.grid import Centre
from foveapool.pooling.module import LinearPool2d, usual_centre
from foveapool.pooling.operator import PoolingOperator
from foveapool.pooling.precision import Precision
from foveapool.pooling.scatter import Scatter, Weighting
from foveapool.pooling.signs import Sign
from foveapool.pooling.solve import Alpha, AlphaUnit, Norm, solve_pooling
from foveapool.surgery.batches import Unpack
from foveapool.surgery.find import Downsampling, Layers
from foveapool.surgery.geometry import Pair
from foveapool.surgery.kept import Kept, read_folder, write_folder
from foveapool.surgery.passes import Passes, ScatterSettings
from foveapool.surgery.progress import Report, reporter
from foveapool.surgery.reading import Reading
from foveapool.surgery.replace import Replacement, replace
from foveapool.surgery.resume import Shelf
from foveapool.surgery.settings import plain_settings
from foveapool.surgery.standin import Mode, OnResize


class ClosedFormPooling:
    """Fits the pooling of one or more layers of a network.

    Settings are those of `solve_pooling` and `ScatterAccumulator`; `alpha="auto"` takes half of
    trace(B)/N of each layer. `components=None` takes as many as fit the layer: C_out / C_in, or
    one in mode `after`. `centre=None` is the paper's; in mode `after` it is "first", where the
    layer has its own output, so that a large alpha leaves the network as it was. What was found
    has names that end in an underscore: `layers_`, `scatters_`, `operators_` by layer; `scatter_`,
    `operator_` of the only one.

    >>> model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 8, 3, 2, 1))
    >>> loader = [(torch.randn(40, 3, 8, 8), torch.arange(40) % 2)]
    >>> fit = ClosedFormPooling(alpha=25.0).fit(model, loader, layer="2")
    >>> fit.module()(torch.randn(1, 4, 8, 8)).shape
    torch.Size([1, 8, 4, 4])
    """

    layers_: dict[str, Downsampling]
    scatters_: dict[str, Scatter]
    operators_: dict[str, PoolingOperator]
    mode_: Mode
    seconds_: dict[str, float]  # what the passes and the solving took

    def __init__(
        self,
        alpha: Alpha = "auto",
        norm: Norm = "l2",
        components: int | None = None,
        *,
        alpha_unit: AlphaUnit = "absolute",
        centre: Centre | None = None,
        sign: Sign = "neighbour",
        solver: str = "auto",
        window: int | None = None,
        weighting: Weighting = "balanced",
        normalise: bool = True,
        class_cap: int | None = 10_000,
        seed: int = 0,
        precision: Precision = "ieee",
        num_classes: int | None = None,
    ) -> None:
        self.alpha, self.norm, self.components = alpha, norm, components
        self.alpha_unit, self.centre, self.sign, self.solver = alpha_unit, centre, sign, solver
        self.window, self.weighting, self.normalise = window, weighting, normalise
        self.class_cap, self.seed, self.precision = class_cap, seed, precision
        self.num_classes = num_classes

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings, as scikit-learn asks for them."""
        return {name: getattr(self, name) for name in _parameter_names()}

    def set_params(self, **settings: Any) -> ClosedFormPooling:
        """Changes settings; call `solve` to have them take effect on scatter that is there."""
        for name in settings:
            if name not in _parameter_names():
                raise ValueError(f"{name}: no such setting, wanted one of {_parameter_names()}")
        for name, value in settings.items():
            setattr(self, name, value)
        return self

    def _make_plain(self) -> None:
        """Checks the settings; a number of NumPy or torch is a plain one from now on."""
        self.set_params(**plain_settings(self.get_params()))

    def __repr__(self) -> str:
        defaults = inspect.signature(ClosedFormPooling).parameters
        changed = [f"{k}={v!r}" for k, v in self.get_params().items() if v != defaults[k].default]
        return f"ClosedFormPooling({', '.join(changed)})"

    def fit(
        self,
        model: nn.Module,
        loader: Iterable[Any],
        layer: Layers,
        mode: Mode = "replace",
        *,
        unpack: Unpack | None = None,
        autocast: torch.dtype | None = None,
        progress: bool | Report = False,
        resume: str | os.PathLike[str] | None = None,
    ) -> ClosedFormPooling:
        """Reads the loader twice and solves for the pooling of every layer named; returns self.

        `layer` is an exact name, the end of names or a pattern, one of `downsampling_layers`, or
        several; it has to read maps of one size. Mode `replace` fits on its input, mode `after` on
        its output at stride 1. The loader yields (images, labels), dicts, or anything that
        `unpack(batch)` turns into (inputs, labels) or (inputs, labels, ids), the same samples in
        both passes; where a class exceeds `class_cap`, in the same order or with ids. Under
        torch.distributed each process reads its own shard. `progress` is True or a function of
        `Progress`. `resume` names a folder for unfinished sums: a fit that was killed goes on
        there, if the loader keeps its order. A layer that one forward pass uses several times, as
        in a siamese network, is fitted on the maps of its first use, with a warning.
        """
        self._make_plain()
        settings = {name: getattr(self, name) for name in ScatterSettings.__dataclass_fields__}
        shelf = None if resume is None else Shelf(resume)
        reading = Reading(model, loader, layer, mode, unpack, autocast)
        begin = time.perf_counter()
        with ExitStack() as stack:
            report = stack.enter_context(reporter(progress))
            if shelf is not None:
                stack.callback(shelf.release)
            passes = Passes(reading, ScatterSettings(**settings), report, shelf)
            for name, found in passes.prepare().items():
                self._components(name, found, mode)
            scatters = passes.run()
            seconds = time.perf_counter() - begin
            self.layers_, self.scatters_, self.mode_ = passes.targets, scatters, mode
            self.operators_ = {}  # a failure below must not leave those of another fit
            self.solve()
            self.seconds_["passes"] = seconds
            if shelf is not None:
                shelf.clear()
        return self

    def solve(self) -> ClosedFormPooling:
        """Solves again on the scatter that is there, with the settings of now; returns self."""
        self._check_has("scatters_")
        self._make_plain()
        begin = time.perf_counter()
        operators: dict[str, PoolingOperator] = {}
        solved: dict[Any, PoolingOperator] = {}
        for name, found in self.layers_.items():
            scatter = self.scatters_[name]
            wanted = self._components(name, found, self.mode_)
            if self.components is None:
                wanted = min(wanted, scatter.rank_bound, scatter.panels.size)
            # Branches that read one tensor and shrink it alike have one answer.
            key = (id(scatter), found.out_shape, wanted)
            if key not in solved:
                solved[key] = self._solved(scatter, found.out_shape, wanted)
            operators[name] = solved[key]
        self.operators_ = operators
        self.seconds_ = {"solve": time.perf_counter() - begin}
        return self

    def _solved(self, scatter: Scatter, out_shape: Pair, components: int) -> PoolingOperator:
        return solve_pooling(
            scatter,
            out_shape,
            alpha=self.alpha,
            components=components,
            norm=self.norm,
            centre=self.centre or usual_centre(self.mode_),
            sign=self.sign,
            solver=self.solver,
            window=self.window,
            alpha_unit=self.alpha_unit,
        )

    def _components(self, name: str, found: Downsampling, mode: Mode) -> int:
        keeps = mode == "after" or found.out_channels == found.in_channels
        if self.components is None:
            return 1 if keeps else found.components
        if self.components > 1 and (mode == "after" or found.is_pooling):
            raise ValueError(
                f"components: got {self.components} for {name} ({found.kind}, mode {mode!r}), "
                "wanted 1, or None to take as many as fit"
            )
        return self.components

    @property
    def scatter_(self) -> Scatter:
        """The scatter of the only layer."""
        return self._only("scatters_")

    @property
    def operator_(self) -> PoolingOperator:
        """The operator of the only layer."""
        return self._only("operators_")

    def module(self, layer: str | None = None, trainable: bool = False) -> LinearPool2d:
        """The pooling of a layer (of the only one, if there is one only) as a module."""
        self._check_has("operators_")
        if layer is None:
            self._only("operators_")  # raises where there are several
            (layer,) = self.operators_
        if layer not in self.operators_:
            raise ValueError(f"layer: got {layer!r}, wanted one of {list(self.operators_)}")
        return self._made(layer, trainable)

    def _made(self, layer: str, trainable: bool) -> LinearPool2d:
        """The module of a layer, which tells `replace` how it was fitted."""
        module = self.operators_[layer].module(trainable)
        module.fitted_for, module.read_shape = self.mode_, self.layers_[layer].in_shape
        return module

    def modules(self, trainable: bool = False) -> dict[str, LinearPool2d]:
        """The poolings of all layers, as `replace` takes them; each knows the mode of this fit.

        Each layer has its own, also where branches have one operator.
        """
        self._check_has("operators_")
        return {name: self._made(name, trainable) for name in self.operators_}

    def replace(
        self,
        model: nn.Module,
        *,
        trainable: bool = False,
        optimizer: Optimizer | None = None,
        on_resize: OnResize = "error",
    ) -> Replacement:
        """Puts the poolings into `model`, in the mode they were fitted for."""
        return replace(
            model,
            self.modules(trainable),
            optimizer=optimizer,
            on_resize=on_resize,
        )

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes settings, scatter and operators into a folder; `load` reads them."""
        self._check_has("operators_")
        self._make_plain()
        kept = Kept(
            self.get_params(),
            self.mode_,
            self.seconds_,
            self.layers_,
            self.scatters_,
            self.operators_,
        )
        write_folder(Path(folder), kept)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> ClosedFormPooling:
        """Reads what `save` wrote."""
        kept = read_folder(Path(folder))
        fit = cls().set_params(**kept.settings)
        fit.mode_, fit.seconds_ = kept.mode, kept.seconds
        fit.layers_, fit.scatters_, fit.operators_ = kept.layers, kept.scatters, kept.operators
        return fit

    def _only(self, attribute: str) -> Any:
        self._check_has(attribute)
        values = getattr(self, attribute)
        if len(values) > 1:
            raise ValueError(
                f"{attribute[:-2]}_: got {len(values)} layers, {list(values)}; wanted one: look "
                f"into {attribute}"
            )
        return next(iter(values.values()))

    def _check_has(self, attribute: str) -> None:
        if not getattr(self, attribute, None):
            raise ValueError("ClosedFormPooling: not fitted yet; call fit(model, loader, layer)")


def _parameter_names() -> list[str]:
    return list(inspect.signature(ClosedFormPooling).parameters)
