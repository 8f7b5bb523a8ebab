"""What stands at a network's pooling layers: which pooling, in which form, where in a block.

Forms of a layer that had a 3 x 3 convolution with stride 2, C -> 2 C channels:

replace           the pooling instead of the convolution; it gives k C channels
mix               the pooling with k components, then a 1 x 1 convolution k C -> 2 C
after             the convolution at stride 1, then the pooling
after-activation  the convolution at stride 1, batch-norm and ReLU, then the pooling
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from torch import nn

from foveapool.near import did_you_mean
from foveapool.networks.sites import check_layer

Form = Literal["replace", "mix", "after", "after-activation"]
FORMS: tuple[Form, ...] = get_args(Form)
AFTER: tuple[Form, ...] = ("after", "after-activation")

# Where in a residual block; `before` is a whole form of its own and goes with `replace` only.
PLACEMENTS = ("both", "before", "main", "shortcut")
# The paths of a block that have a pooling of their own, beside the placements of `replace`, where
# one pooled map serves whatever the placement says.
MAIN, SHORTCUT = "main", "shortcut"


@dataclass(frozen=True, eq=False)
class PoolingChoice:
    """A pooling at one layer.

    Args:
        layer: 1, 2 or 3.
        pooling: The module, (B, C, H, W) -> (B, k C, H', W').
        form: How it stands there, see above.
        placement: Where in a residual block; None is the network's own placement. A CNN has none.
        shortcut: The pooling before the shortcut's 1 x 1 convolution, where `pooling` stands in
            the main path and the placement is `both`, in the forms other than `replace`.
    """

    layer: int
    pooling: nn.Module
    form: Form = "replace"
    placement: str | None = None
    shortcut: nn.Module | None = None

    def __post_init__(self) -> None:
        check_layer(self.layer)
        check_form(self.form)


Poolings = Mapping[int, nn.Module] | Sequence[PoolingChoice]


def check_form(form: str) -> None:
    """Raises a ValueError unless there is a form of that name."""
    if form not in FORMS:
        hint = did_you_mean(str(form), FORMS)
        raise ValueError(f"form: got {form!r}, wanted one of {', '.join(FORMS)}{hint}")


def check_placement(placement: str, form: str = "replace") -> None:
    """Raises a ValueError unless a residual block has that place for a pooling of that form."""
    if placement not in PLACEMENTS:
        raise ValueError(f"placement: got {placement!r}, wanted one of {', '.join(PLACEMENTS)}")
    if placement == "before" and form != "replace":
        raise ValueError(
            f"placement: got 'before' in form {form!r}, wanted both, main or shortcut: before a "
            "block the pooling stands by itself; give it the form 'replace'"
        )


def paths(form: str, placement: str | None) -> tuple[str, ...]:
    """Which paths have a pooling of their own; a CNN, of placement None, has the main one only.

    >>> paths("after", "both"), paths("replace", "both"), paths("mix", "shortcut")
    (('main', 'shortcut'), ('main',), ('shortcut',))
    """
    if form == "replace" or placement in (None, MAIN):
        return (MAIN,)
    return (SHORTCUT,) if placement == SHORTCUT else (MAIN, SHORTCUT)


def as_choices(poolings: Poolings | None) -> dict[int, PoolingChoice]:
    """The choice of each layer; a mapping of layers to modules is short for form `replace`."""
    if isinstance(poolings, Mapping):
        poolings = [PoolingChoice(layer, pooling) for layer, pooling in poolings.items()]
    found: dict[int, PoolingChoice] = {}
    for choice in poolings or ():
        if choice.layer in found:
            raise ValueError(
                f"poolings: got two choices for layer {choice.layer}, wanted one a layer at most"
            )
        found[choice.layer] = choice
    return found
