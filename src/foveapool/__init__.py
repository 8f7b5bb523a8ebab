"""foveapool learns the pooling of convolutional networks from data, in closed form."""

from foveapool.pooling.accumulate import ScatterAccumulator, compute_scatter
from foveapool.pooling.module import LinearPool2d, linear_pool2d
from foveapool.pooling.moments import ChannelMoments, Moments
from foveapool.pooling.operator import PoolingOperator
from foveapool.pooling.report import PoolingReport, pooling_report
from foveapool.pooling.rivals import RIVALS, rival
from foveapool.pooling.scatter import Scatter
from foveapool.pooling.solve import solve_pooling, sweep_pooling
from foveapool.surgery.find import Downsampling, downsampling_layers

__version__ = "0.1.0"

__all__ = [
    "RIVALS",
    "ChannelMoments",
    "Downsampling",
    "LinearPool2d",
    "Moments",
    "PoolingOperator",
    "PoolingReport",
    "Scatter",
    "ScatterAccumulator",
    "compute_scatter",
    "downsampling_layers",
    "linear_pool2d",
    "pooling_report",
    "rival",
    "solve_pooling",
    "sweep_pooling",
]
