"""Arrays as short text for the page: weights in 8 bits with a scale a row, deflated, in base64.

`assets/unpack.js` is the other side. A weight loses at most 1/254 of the largest of its row.
"""

from __future__ import annotations

import base64
import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from foveapool.pooling.operator import PoolingOperator
from foveapool.report.examples import Examples

LEVELS = 127
# One weight in a thousand may be stronger than the strongest colour.
CLIPPED = 0.999


def packed(values: npt.NDArray[Any]) -> str:
    """The bytes of an array, little-endian, deflated, in base64."""
    little = values.astype(values.dtype.newbyteorder("<"), copy=False)
    return base64.b64encode(zlib.compress(little.tobytes(), 9)).decode("ascii")


def in_bytes(weight: Tensor) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]]:
    """Weights (k, M, N) as whole numbers from -127 to 127, and the weight (k, M) that 127 is.

    >>> rows, scales = in_bytes(torch.tensor([[[0.5, -1.0, 0.0]]]))
    >>> rows.tolist(), scales.tolist()
    ([[[64, -127, 0]]], [[1.0]])
    """
    values = weight.detach().cpu().double()
    scales = values.abs().amax(-1)
    steps = torch.where(scales > 0, scales, 1.0)[..., None] / LEVELS
    rows = (values / steps).round().to(torch.int8)
    return rows.numpy(), scales.float().numpy()


def packed_operator(operator: PoolingOperator) -> dict[str, Any]:
    """What the page needs of an operator; on a line (N,) the map is one row high."""
    # In half precision squares of weights vanish, and with them the radius.
    operator = replace(operator, weight=operator.weight.detach().double())
    rows, scales = in_bytes(operator.weight)
    strength = operator.weight.abs().flatten().cpu().numpy()
    height, width = flat_shape(operator.in_shape)
    out_height, out_width = flat_shape(operator.out_shape)
    settings = operator.settings
    return {
        "alpha": settings.alpha,
        "unit": settings.alpha_unit,
        "norm": settings.norm,
        "components": operator.components,
        "height": height,
        "width": width,
        "outHeight": out_height,
        "outWidth": out_width,
        "limit": float(np.quantile(strength, CLIPPED)) or 1.0,
        "rows": packed(rows),
        "scales": packed(scales),
        "separability": packed(_floats(operator.separability)),
        "average": packed(_floats(operator.average_separability)),
        "radius": packed(_floats(operator.radius())),
        "gaps": packed(_floats(operator.gaps)),
        "mean": packed(_floats(operator.mean)),
    }


def flat_shape(shape: tuple[int, ...]) -> tuple[int, int]:
    """Rows and columns of a map that can be drawn; ValueError for three axes."""
    if len(shape) > 2:
        raise ValueError(f"shape: got {shape}, wanted one or two axes: a volume cannot be drawn")
    return (1, shape[0]) if len(shape) == 1 else (shape[0], shape[1])


def packed_examples(examples: Examples) -> dict[str, Any]:
    """Images as they are, maps in 8 bits between the least and the largest value of each."""
    maps = examples.maps.double()
    least = maps.amin((2, 3), keepdim=True)
    step = (maps.amax((2, 3), keepdim=True) - least) / 255
    levels = ((maps - least) / torch.where(step > 0, step, 1.0)).round().to(torch.uint8)
    return {
        "count": len(examples.labels),
        "labels": list(examples.labels),
        "channels": list(examples.channels),
        "height": maps.shape[2],
        "width": maps.shape[3],
        "imageChannels": examples.images.shape[1],
        "imageHeight": examples.images.shape[2],
        "imageWidth": examples.images.shape[3],
        "images": packed(examples.images.numpy()),
        "maps": packed(levels.numpy()),
        "least": packed(_floats(least)),
        "step": packed(_floats(step)),
    }


def _floats(values: Tensor) -> npt.NDArray[np.float32]:
    return values.detach().cpu().float().contiguous().numpy()
