"""Where a network can pool, what stands there, and whether a given pooling fits.

Both networks of the paper halve their maps three times and double their channels as they do.
Forms of a layer that had a 3 x 3 convolution with stride 2, C -> 2 C channels:

replace           the pooling instead of the convolution; it gives k C channels
mix               the pooling with k components, then a 1 x 1 convolution k C -> 2 C
after             the convolution at stride 1, then the pooling
after-activation  the convolution at stride 1, batch-norm and ReLU, then the pooling
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import nn

from foveapool._suggest import did_you_mean

LAYERS = (1, 2, 3)


@dataclass(frozen=True)
class PoolingSite:
    """One of a network's three pooling layers, as the maker of a pooling needs to know it.

    module: the name of the module whose input a pooling there is fitted on. A pooling turns
    (B, channels, *in_shape) into (B, components * channels, *out_shape); `components` are as many
    as the form wants by itself.
    """

    layer: int
    module: str
    channels: int
    in_shape: tuple[int, int]
    out_shape: tuple[int, int]
    components: int = 2


def halve_shape(shape: Sequence[int], times: int = 1) -> tuple[int, int]:
    """The size of a map after that many 3 x 3 convolutions with stride 2 and padding 1."""
    height, width = shape
    for _ in range(times):
        height, width = (height + 1) // 2, (width + 1) // 2
    return height, width


def make_site(layer: int, module: str, width: int, in_shape: Sequence[int]) -> PoolingSite:
    """The site of that layer in a network of `width` first channels for images of `in_shape`."""
    check_layer(layer)
    maps = halve_shape(in_shape, layer - 1)
    return PoolingSite(layer, module, width * 2 ** (layer - 1), maps, halve_shape(maps))


def check_layer(layer: int) -> None:
    """Refuses a pooling layer that the networks do not have."""
    # By type too: Python takes true for 1 and 2.0 for 2.
    if type(layer) is not int or layer not in LAYERS:
        raise ValueError(
            f"layer: got {layer!r}, wanted 1, 2 or 3: the first, second or third pooling layer"
        )


def check_sizes(classes: int, width: int, in_channels: int, in_shape: Sequence[int]) -> None:
    """Refuses sizes of which no network can be made."""
    for name, count in (("classes", classes), ("width", width), ("in_channels", in_channels)):
        if count < 1:
            raise ValueError(f"{name}: got {count}, wanted 1 or more")
    if len(in_shape) != 2 or min(in_shape) < 8:
        raise ValueError(
            f"in_shape: got {tuple(in_shape)}, wanted (H, W) of at least 8 pixels each, "
            "enough to be halved three times"
        )


def count_components(pooling: nn.Module, site: PoolingSite, any_number: bool) -> int:
    """How many maps a pooling makes of each channel at a site; refuses one that does not fit.

    A dry run tells, so that a pooling of any make can be asked. `any_number` lets it give as many
    as it likes, where a convolution behind it takes them all.
    """
    given = (1, site.channels, *site.in_shape)
    wanted = (1, site.components * site.channels, *site.out_shape)
    got = _probe_shape(pooling, site.layer, given)
    whole = len(got) == 4 and got[1] % site.channels == 0
    if got[2:] != wanted[2:] or not whole or (got[1] != wanted[1] and not any_number):
        raise ValueError(
            f"poolings[{site.layer}]: got maps of shape {got[1:]} from {given[1:]}, wanted "
            f"{wanted[1:]}; give it {site.components} components, and the shapes of "
            "`network.site(layer)`"
        )
    return got[1] // site.channels


def _probe_shape(pooling: nn.Module, layer: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    if not isinstance(pooling, nn.Module):
        raise ValueError(f"poolings[{layer}]: got {type(pooling).__name__}, wanted an nn.Module")
    # A copy, since a forward pass may change what a module remembers.
    probe = copy.deepcopy(pooling).eval()
    # Buffers may be places of numbers, which maps are not.
    numbers = (t for t in (*probe.parameters(), *probe.buffers()) if t.is_floating_point())
    own = next(numbers, torch.zeros(()))
    try:
        with torch.no_grad():
            return tuple(probe(torch.zeros(shape, device=own.device, dtype=own.dtype)).shape)
    except (ValueError, RuntimeError) as error:
        raise ValueError(
            f"poolings[{layer}]: does not take maps of shape {shape[1:]}, wanted one that does; "
            f"it says: {error}"
        ) from error


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


def list_paths(form: str, placement: str | None) -> tuple[str, ...]:
    """Which paths have a pooling of their own; a CNN, of placement None, has the main one only.

    >>> list_paths("after", "both"), list_paths("replace", "both"), list_paths("mix", "shortcut")
    (('main', 'shortcut'), ('main',), ('shortcut',))
    """
    if form == "replace" or placement in (None, MAIN):
        return (MAIN,)
    return (SHORTCUT,) if placement == SHORTCUT else (MAIN, SHORTCUT)


def index_choices(poolings: Poolings | None) -> dict[int, PoolingChoice]:
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
