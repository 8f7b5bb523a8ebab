"""What all layers of this package are to torch's tools."""

from __future__ import annotations

from typing import NoReturn

from torch import nn


class Layer(nn.Module):
    """A module that is compiled, exported and traced, and refuses TorchScript by name.

    `torch.jit.script` reads a module's source, and knows less of Python than ours is written in.
    """

    def __prepare_scriptable__(self) -> NoReturn:
        raise ValueError(
            f"torch.jit.script: got a {type(self).__name__}, which TorchScript cannot read; take "
            "torch.export.export(model, (example,)), or torch.jit.trace(model, example)"
        )
