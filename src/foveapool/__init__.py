"""foveapool learns the pooling of convolutional networks from data, in closed form."""

from foveapool.pooling.accumulate import ScatterAccumulator, compute_scatter
from foveapool.pooling.baselines import BASELINES, baseline_pooling
from foveapool.pooling.functional import linear_pool
from foveapool.pooling.least_squares import Mixing
from foveapool.pooling.mixing import ChannelMixing, MixingPool
from foveapool.pooling.module import LinearPool, LinearPool1d, LinearPool2d, LinearPool3d
from foveapool.pooling.moments import ChannelMoments, Moments
from foveapool.pooling.operator import PoolingOperator
from foveapool.pooling.scatter import Scatter
from foveapool.pooling.solve import PoolingReport, pooling_report, solve_pooling, sweep_pooling
from foveapool.surgery.adapter import load, push, save
from foveapool.surgery.capture import capture
from foveapool.surgery.estimator import ClosedFormPooling
from foveapool.surgery.find import Downsampling, downsampling_layers
from foveapool.surgery.move_stride import move_stride, restore_stride
from foveapool.surgery.progress import Progress
from foveapool.surgery.replace import Replacement, replace, restore

__version__ = "0.1.0"

__all__ = [
    "BASELINES",
    "ChannelMixing",
    "ChannelMoments",
    "ClosedFormPooling",
    "Downsampling",
    "LinearPool",
    "LinearPool1d",
    "LinearPool2d",
    "LinearPool3d",
    "Mixing",
    "MixingPool",
    "Moments",
    "PoolingOperator",
    "PoolingReport",
    "Progress",
    "Replacement",
    "Scatter",
    "ScatterAccumulator",
    "baseline_pooling",
    "capture",
    "compute_scatter",
    "downsampling_layers",
    "linear_pool",
    "load",
    "move_stride",
    "pooling_report",
    "push",
    "replace",
    "restore",
    "restore_stride",
    "save",
    "solve_pooling",
    "sweep_pooling",
]
