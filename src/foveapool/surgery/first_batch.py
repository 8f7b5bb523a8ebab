"""A loader's first batch, when the network does not take it: what it is, and what to do, in words.

That is where most mistakes with a stranger's data show, as errors from deep inside of torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from foveapool.surgery.batches import leaves
from foveapool.surgery.visit import first_line, is_of_forward, unwrapped


@contextmanager
def taking(model: nn.Module, inputs: Any, autocast: torch.dtype | None) -> Iterator[None]:
    """Turns what the network raises when it is called within into a ValueError with advice."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise  # of which the batch is innocent
    except Exception as error:
        if not is_of_forward(error):
            raise
        raise ValueError(
            f"loader: the network does not take the first batch, {_described(inputs)} "
            f"({type(error).__name__}: {first_line(error)}); "
            f"{_advice(unwrapped(model), inputs, autocast)}"
        ) from error


def _described(inputs: Any) -> str:
    if isinstance(inputs, (Tensor, np.ndarray)):
        kind = "a tensor" if isinstance(inputs, Tensor) else "a NumPy array"
        return f"{kind} of shape {tuple(inputs.shape)} and {inputs.dtype}"
    if isinstance(inputs, Mapping):
        return f"a dict with keys {list(inputs)}"
    many = f" of {len(inputs)}" if isinstance(inputs, (tuple, list)) else ""
    return f"a {type(inputs).__name__}{many}"


def _advice(model: nn.Module, inputs: Any, autocast: torch.dtype | None) -> str:
    own = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    for leaf in leaves(inputs):
        if isinstance(leaf, np.ndarray):
            as_bytes, images = leaf.dtype == np.uint8, f"torch.as_tensor(batch[0]).to({own})"
        elif isinstance(leaf, Tensor) and leaf.dtype != own and autocast is None:
            as_bytes, images = leaf.dtype == torch.uint8, f"batch[0].to({own})"
            if not as_bytes and not leaf.is_floating_point():
                continue  # numbers of words, say
        else:
            continue
        scaled = " / 255" if as_bytes else ""
        also = ", scaled as for its training" if as_bytes else ""
        if isinstance(leaf, Tensor) and own != torch.float32:
            also += f", or autocast={own}"
        return (
            f"it wants tensors of {own}: pass unpack=lambda batch: ({images}{scaled}, batch[1])"
            f"{also}"
        )
    return (
        "give it what it was trained on, or pass unpack=lambda batch: (inputs, labels), with "
        "inputs a tensor, a tuple of arguments or a dict of them"
    )
