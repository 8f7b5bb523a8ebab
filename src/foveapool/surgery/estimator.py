"""ClosedFormPooling: from a trained network and a loader to learned poolings."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from foveapool.pooling.gram import Precision
from foveapool.pooling.grid import Center
from foveapool.pooling.least_squares import Mixing
from foveapool.pooling.mixing import ChannelMixing, MixingPool
from foveapool.pooling.module import LinearPool
from foveapool.pooling.operator import PoolingOperator
from foveapool.pooling.scatter import Scatter, Weighting
from foveapool.pooling.solve import Alpha, AlphaUnit, Norm, Sign
from foveapool.pooling.storage import FIT_NOTE, explain_damage
from foveapool.surgery.find import Downsampling, Layers, check_same_layer
from foveapool.surgery.fit_files import FitState, read_fit, write_fit
from foveapool.surgery.loader import FitSource, Unpack
from foveapool.surgery.passes import (
    FitPasses,
    ScatterSettings,
    check_mixings_fit,
    make_mixing_sizes,
    open_passes,
)
from foveapool.surgery.progress import (
    Report,
    check_same_settings,
    open_reporter,
    telling_failures,
)
from foveapool.surgery.replace import RANDOM, Replacement, replace
from foveapool.surgery.settings import (
    HasSettings,
    MixingStart,
    Window,
    check_mixed,
    check_mixing_start,
    check_settings,
    describe_fit,
    solve_layers,
)
from foveapool.surgery.wrapper import Mode, OnResize, check_mode, mark_fitted


class ClosedFormPooling(HasSettings):
    """Fits the pooling of one or more layers of a network.

    What was found has names that end in an underscore: `layers_`, `scatters_`, `operators_` and
    `mixings_` by layer; `scatter_`, `operator_` and `mixing_` of the only one.

    Args:
        alpha: As for `solve_pooling`; "auto" takes half of trace(B)/N of each layer, and where the
            network is to go on as it was trained more: 3 times in mode `mix`, 10 times in `after`.
        norm: As for `solve_pooling`, and so `alpha_unit`, `sign` and `solver`.
        components: None takes as many as fit the layer: C_out / C_in, one in mode `after`, and in
            mode `mix` as many as the kernel has weights, if the scatter has so many.
        alpha_unit: "absolute" or "trace".
        center: None is the paper's; in mode `after` it is "first", where the layer has its own
            output, so that a large alpha leaves the network as it was.
        sign: "neighbor" or "sum".
        solver: "auto", "dense", "krylov" or "arpack".
        window: None is the whole map, r the (2r + 1)-wide neighborhood. "auto" is the whole map, or
            the widest window that takes less than 2 GB and two minutes where that does not (`fit`
            says which); in mode `after` r is the layer's stride: 5 x 5 at stride 2.
        weighting: As for `ScatterAccumulator`, and so `normalize` and `precision`.
        normalize: Whether channels are brought to variance one.
        class_cap: At most so many samples of each class count; None for all.
        seed: Draws the samples that count.
        precision: "ieee", "tf32" or "bf16".
        num_classes: Unless given, one more than the largest label.

    Example:
        >>> import tempfile
        >>> model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 8, 3, 2, 1))
        >>> loader = [(torch.randn(40, 3, 8, 8), torch.arange(40) % 2)]
        >>> fit = ClosedFormPooling(alpha=25.0).fit(model, loader, layer="1")
        >>> fit.module()(torch.randn(1, 4, 8, 8)).shape
        torch.Size([1, 8, 4, 4])
        >>> fit.set_params(norm="l1").solve().get_params()["norm"]
        'l1'
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     fit.save(folder)
        ...     fit = ClosedFormPooling.load(folder)
        >>> fit.operator_, fit.scatter_.in_shape
        (PoolingOperator((8, 8) -> (4, 4), components=2, alpha=25, l1), (8, 8))
        >>> list(fit.modules()), fit.replace(model).parameters
        (['1'], (408, 112))
    """

    layers_: dict[str, Downsampling]
    scatters_: dict[str, Scatter]
    operators_: dict[str, PoolingOperator]
    mixings_: dict[str, Mixing]  # of mode `mix` with mixing="least-squares"
    mode_: Mode
    mixing_start_: MixingStart
    seconds_: dict[str, float]  # what the passes and the solving took

    def __init__(
        self,
        alpha: Alpha = "auto",
        norm: Norm = "l2",
        components: int | None = None,
        *,
        alpha_unit: AlphaUnit = "absolute",
        center: Center | None = None,
        sign: Sign = "neighbor",
        solver: str = "auto",
        window: Window = "auto",
        weighting: Weighting = "balanced",
        normalize: bool = True,
        class_cap: int | None = 10_000,
        seed: int = 0,
        precision: Precision = "ieee",
        num_classes: int | None = None,
    ) -> None:
        self.alpha, self.norm, self.components = alpha, norm, components
        self.alpha_unit, self.center, self.sign, self.solver = alpha_unit, center, sign, solver
        self.window, self.weighting, self.normalize = window, weighting, normalize
        self.class_cap, self.seed, self.precision = class_cap, seed, precision
        self.num_classes = num_classes

    def fit(
        self,
        model: nn.Module,
        loader: Iterable[Any],
        layer: Layers,
        mode: Mode = "replace",
        *,
        mixing: MixingStart = "least-squares",
        unpack: Unpack | None = None,
        autocast: torch.dtype | None = None,
        progress: bool | Report = False,
        resume: str | os.PathLike[str] | None = None,
    ) -> ClosedFormPooling:
        """Reads the loader twice and solves for the pooling of every layer named.

        Under torch.distributed each process reads its own shard. A layer that one forward pass
        uses several times, as in a siamese network, is fitted on the maps of its first use, with a
        warning.

        Args:
            model: The trained network.
            loader: Yields (images, labels), dicts, or what `unpack` understands, the same samples
                in all passes; where a class exceeds `class_cap`, in the same order or with ids.
            layer: An exact name, the end of names or a pattern, one of `downsampling_layers`, or
                several; each has to read maps of one size.
            mode: `replace` and `mix` fit on the layer's input, `after` on its output at stride 1.
            mixing: How the 1x1 convolutions of mode `mix` start: "least-squares" reads the loader
                once more, see `fit_mixing`; "random" does not.
            unpack: Turns a batch into (inputs, labels) or (inputs, labels, ids).
            autocast: The type in which the network runs, such as torch.bfloat16.
            progress: True shows how far it is; or a function of `Progress`.
            resume: A folder for unfinished sums: a fit that was killed goes on there, if the loader
                keeps its order.

        Returns:
            This object.
        """
        settings = self._check_settings(mode, mixing)
        mixes = mode == "mix" and mixing == "least-squares"
        source = FitSource(model, loader, layer, mode, unpack, autocast)
        begin = time.perf_counter()
        with open_passes(source, settings, progress, resume, 2 + mixes) as passes:
            self.use_scatter(passes.run(self.components), passes.targets.values(), mode)
            self.mixing_start_, seconds = mixing, time.perf_counter() - begin
            with telling_failures():
                self._solve(passes.report, passes.count)
            self.seconds_["passes"] = seconds
            if mixes:
                self._run_mixing(passes)
        return self

    def sum_scatter(
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
        """Reads the loader twice, as `fit` does, for the scatter alone; `solve` does the rest.

        Args:
            model: As for `fit`, and so all that follows.
            loader: Batches of images and labels.
            layer: What is to be pooled otherwise.
            mode: "replace", "mix" or "after".
            unpack: Turns a batch into (inputs, labels) or (inputs, labels, ids).
            autocast: The type in which the network runs.
            progress: Whether to show how far it is.
            resume: A folder for unfinished sums.

        Returns:
            This object, with `scatters_` and `layers_`.

        Example:
            >>> model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 8, 3, 2, 1))
            >>> loader = [(torch.randn(40, 3, 8, 8), torch.arange(40) % 2)]
            >>> fit = ClosedFormPooling().sum_scatter(model, loader, layer="1")
            >>> fit.set_params(norm="l1").solve().operator_.settings.norm
            'l1'
        """
        source = FitSource(model, loader, layer, mode, unpack, autocast)
        settings = self._check_settings(mode, "least-squares")
        with open_passes(source, settings, progress, resume) as passes:
            scatters = passes.run(self.components)
        return self.use_scatter(scatters, passes.targets.values(), mode)

    def use_scatter(
        self,
        scatters: Mapping[str, Scatter],
        layers: Iterable[Downsampling],
        mode: Mode = "replace",
    ) -> ClosedFormPooling:
        """Takes scatter that was kept instead of reading a loader; `solve` does the rest.

        Args:
            scatters: The scatter of each layer, by its name.
            layers: The layers, as `downsampling_layers` lists them.
            mode: The mode that the scatter was summed up for.

        Returns:
            This object.

        Raises:
            ValueError: If a layer has no scatter, or one of maps of another size.

        Example:
            >>> from foveapool import compute_scatter, downsampling_layers
            >>> model = nn.Sequential(nn.Conv2d(4, 8, 3, 2, 1))
            >>> maps, labels = torch.randn(40, 4, 8, 8), torch.arange(40) % 2
            >>> layers = downsampling_layers(model, maps)
            >>> fit = ClosedFormPooling().use_scatter({"0": compute_scatter(maps, labels)}, layers)
            >>> fit.solve().operator_.components
            2
        """
        check_mode(mode)
        found = {each.name: each for each in layers}
        for name, each in found.items():
            # At stride 1 a layer may give other maps than it reads.
            if name not in scatters or (
                mode != "after" and scatters[name].in_shape != each.in_shape
            ):
                there = {name: scatter.in_shape for name, scatter in scatters.items()}
                raise ValueError(f"scatters: got {there}, wanted one of {each.in_shape} for {name}")
        self.layers_, self.mode_ = found, mode
        self.scatters_ = {name: scatters[name] for name in found}
        # A failure later on must not leave those of another fit.
        self.operators_, self.mixings_, self.seconds_ = {}, {}, {}
        self.mixing_start_ = "least-squares"
        return self

    def _check_settings(self, mode: Mode, mixing: MixingStart) -> ScatterSettings:
        """How scatter is summed up, once all processes have the same settings, and good ones."""
        with telling_failures():
            self.set_params(**check_settings(self.get_params()))
            check_mode(mode)
            check_mixing_start(mixing, mode)
        check_same_settings(self.get_params())
        names = ScatterSettings.__dataclass_fields__
        return ScatterSettings(**{name: getattr(self, name) for name in names})

    def fit_mixing(
        self,
        model: nn.Module,
        loader: Iterable[Any],
        *,
        unpack: Unpack | None = None,
        autocast: torch.dtype | None = None,
        progress: bool | Report = False,
    ) -> ClosedFormPooling:
        """Reads the loader once for the mixings of mode `mix`.

        They are the least-squares answer to "give what the convolution gave": from the pooled maps
        of all samples (`class_cap` does not matter here) at all places to its output there, with a
        bias if the convolution has one. `fit` does this by itself; call it when `solve` changed
        the poolings. Nothing is kept for a killed one to go on.

        Args:
            model: The network of the fit, with the convolutions still in it.
            loader: As for `fit`; it may be another one, with other images.
            unpack: As for `fit`.
            autocast: As for `fit`.
            progress: As for `fit`.

        Returns:
            This object.

        Raises:
            ValueError: If the fit was in another mode, the network is another one, or the sums do
                not fit into the memory.

        Example:
            >>> model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 8, 3, 2, 1))
            >>> loader = [(torch.randn(40, 3, 8, 8), torch.arange(40) % 4)]
            >>> fit = ClosedFormPooling().fit(model, loader, layer="1", mode="mix")
            >>> fit.set_params(alpha=25.0).solve().fit_mixing(model, loader).mixing_.weight.shape
            torch.Size([8, 9, 4])
        """
        self._check_has("operators_")
        if self.mode_ != "mix":
            raise ValueError(
                f"fit_mixing: got a fit in mode {self.mode_!r}, wanted mode 'mix'; fit again with "
                "mode='mix'"
            )
        components = {name: each.components for name, each in self.operators_.items()}
        check_mixings_fit(model, self.layers_, components)
        reading = FitSource(model, loader, list(self.layers_), "mix", unpack, autocast)
        with open_passes(reading, ScatterSettings(class_cap=None), progress, count=3) as passes:
            for name, found in passes.prepare().items():
                check_same_layer(found, self.layers_[name])
            self._run_mixing(passes)
        return self

    def _run_mixing(self, passes: FitPasses) -> None:
        begin = time.perf_counter()
        self.mixings_ = passes.fit_mixings(self.operators_)
        self.mixing_start_ = "least-squares"
        self.seconds_["mixing"] = time.perf_counter() - begin

    def solve(self, *, progress: bool | Report = False) -> ClosedFormPooling:
        """Solves again on the scatter that is there, with the settings of now.

        The mixings of mode `mix` belong to the poolings before: call `fit_mixing` afterwards.

        Args:
            progress: As for `fit`.

        Returns:
            This object.
        """
        self._check_has("scatters_")
        self.set_params(**check_settings(self.get_params()))
        with open_reporter(progress) as report:
            self._solve(report)
        return self

    def _solve(self, report: Report, passes: int = 2) -> None:
        begin, settings = time.perf_counter(), self.get_params()
        self.operators_ = solve_layers(
            settings, self.layers_, self.scatters_, self.mode_, report, passes
        )
        self.mixings_, self.seconds_ = {}, {"solve": time.perf_counter() - begin}

    @property
    def scatter_(self) -> Scatter:
        """The scatter of the only layer."""
        return self._only("scatters_")

    @property
    def operator_(self) -> PoolingOperator:
        """The operator of the only layer."""
        return self._only("operators_")

    @property
    def mixing_(self) -> Mixing:
        """The mixing of the only layer, in mode `mix`; `fit_mixing` has an example."""
        self._check_has("operators_")
        check_mixed(self.mixings_, self.mode_, self.mixing_start_)
        return self._only("mixings_")

    def module(self, layer: str | None = None, trainable: bool = False) -> LinearPool | MixingPool:
        """Makes a module of a layer's pooling, in mode `mix` with its mixing, which always trains.

        Args:
            layer: Its name; not needed if there is one only.
            trainable: Whether the pooling's matrix is a parameter.

        Returns:
            The module, which knows the mode of this fit.

        Raises:
            ValueError: If there is no such layer, or nothing is fitted yet.
        """
        self._check_has("operators_")
        if layer is None:
            self._only("operators_")  # raises where there are several
            (layer,) = self.operators_
        if layer not in self.operators_:
            raise ValueError(f"layer: got {layer!r}, wanted one of {list(self.operators_)}")
        return self._build_module(layer, trainable)

    def _build_module(self, layer: str, trainable: bool) -> LinearPool | MixingPool:
        """The module of a layer, which tells `replace` how it was fitted."""
        found, operator, mixing, origin = self.layers_[layer], self.operators_[layer], None, RANDOM
        if self.mode_ == "mix" and self.mixing_start_ == "random":
            mixing = ChannelMixing(**asdict(make_mixing_sizes(found, operator.components)))
        elif self.mode_ == "mix":
            check_mixed(self.mixings_, self.mode_, self.mixing_start_)
            mixing, origin = self.mixings_[layer].module(), self.mixings_[layer].in_words()
        pool = operator.module(trainable)
        told = describe_fit(self.scatters_[layer], operator, is_auto=self.alpha == "auto")
        pool.fitted_on = f"{layer}: {told}"
        return mark_fitted(pool, self.mode_, found.in_shape, mixing, origin)

    def modules(self, trainable: bool = False) -> dict[str, LinearPool | MixingPool]:
        """Makes modules of all layers' poolings, as `replace` takes them.

        Args:
            trainable: Whether the poolings' matrices are parameters.

        Returns:
            A module of its own for each layer, also where branches have one operator.
        """
        self._check_has("operators_")
        return {name: self._build_module(name, trainable) for name in self.operators_}

    def replace(
        self,
        model: nn.Module,
        *,
        trainable: bool = False,
        optimizer: Optimizer | None = None,
        on_resize: OnResize = "error",
        check: Iterable[Any] | None = None,
        unpack: Unpack | None = None,
    ) -> Replacement:
        """Puts the poolings into a network, in the mode they were fitted for.

        Args:
            model: The network.
            trainable: Whether the poolings' matrices are parameters.
            optimizer: As for `foveapool.replace`, and so all that follows.
            on_resize: "error" or "interpolate".
            check: A loader, over which the network is compared with what it was.
            unpack: Turns a batch of `check` into (inputs, labels).

        Returns:
            What was changed.
        """
        pools = self.modules(trainable)
        return replace(
            model, pools, optimizer=optimizer, on_resize=on_resize, check=check, unpack=unpack
        )

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes settings and all that was found into a folder.

        Args:
            folder: Where to; a fit that is there is overwritten.
        """
        self._check_has("operators_")
        self.set_params(**check_settings(self.get_params()))
        state = (self.get_params(), self.mode_, self.seconds_, self.layers_, self.scatters_)
        mixings = (self.mixing_start_, self.mixings_)
        write_fit(Path(folder), FitState(*state, self.operators_, *mixings))

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> ClosedFormPooling:
        """Reads what `save` wrote.

        Args:
            folder: The folder.

        Returns:
            The fit, as it was saved.
        """
        kept = read_fit(Path(folder))
        with explain_damage(Path(folder) / FIT_NOTE, "read it with the version that wrote it"):
            fit = cls().set_params(**kept.settings)
        fit.mode_, fit.seconds_ = kept.mode, kept.seconds
        fit.layers_, fit.scatters_, fit.operators_ = kept.layers, kept.scatters, kept.operators
        fit.mixing_start_, fit.mixings_ = kept.mixing, kept.mixings
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
