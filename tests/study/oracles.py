"""The fit of a study in other words: two passes by hand, without `ClosedFormPooling`."""

from __future__ import annotations

from torch import nn

from foveapool.data.batches import iterate_batches, load_resident
from foveapool.data.images import DataSet
from foveapool.pooling.accumulate import ScatterAccumulator
from foveapool.pooling.moments import ChannelMoments
from foveapool.pooling.operator import PoolingOperator
from foveapool.pooling.scatter import Scatter
from foveapool.pooling.solve import solve_pooling
from foveapool.study.setting import Pool
from foveapool.surgery.capture import read_inputs


def solved(
    scatter: Scatter, out_shape: tuple[int, int], pool: Pool, components: int | None = None
) -> PoolingOperator:
    """The operator that a pool's choices give on its scatter; `components` may be fewer."""
    return solve_pooling(
        scatter,
        out_shape,
        alpha=pool.alpha,
        alpha_unit=pool.alpha_unit,
        norm=pool.norm,
        components=components or pool.components,
        center=pool.center,
        sign=pool.sign,
        window=pool.window,
    )


def scatter_at(
    network: nn.Module,
    data: DataSet,
    module: str,
    batch: int = 500,
    pool: Pool | None = None,
) -> Scatter:
    """The scatter of what reaches a module, over the training images as they are.

    Not augmented, in evaluation mode, at most the pool's `class_cap` images a class.
    """
    images, _ = load_resident(data, "cpu")
    choice = pool or Pool("closed-form", 3)

    def through(taker: ChannelMoments | ScatterAccumulator) -> None:
        for inputs, labels in iterate_batches(images, batch):
            taker.update(read_inputs(network, inputs, [module])[module], labels)

    classes = len(data.train.classes)
    moments = ChannelMoments(classes, choice.class_cap, dead_channels="ignore")
    through(moments)
    sums = ScatterAccumulator(moments.compute(), choice.weighting, choice.normalize)
    through(sums)
    return sums.compute()
