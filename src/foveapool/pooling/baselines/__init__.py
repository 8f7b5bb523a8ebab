"""The poolings that a learned closed-form pooling is compared with, one signature for all.

Each is built from `(channels, in_shape, out_shape, components=1)` and maps (B, C, H, W) to
(B, components * C, H', W'); poolings of other papers keep C channels and give them `components`
times, so that sizes agree. A baseline is judged in the form of its own paper, which
`PUBLISHED_FORMS` has with its source; any other form of it is ours, and `networks` builds them all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from foveapool._suggest import did_you_mean
from foveapool.pooling import grid
from foveapool.pooling.baselines.blocks import (
    AveragePool,
    BlurPool,
    GatedPool,
    LocalImportancePool,
    MaxBlurPool,
    MaxPool,
    MixedPool,
    SoftPool,
    WideBlurPool,
    check_counts,
)
from foveapool.pooling.baselines.filters import (
    CoordConvolution,
    DiffStridePool,
    FullConvolution,
    LowRankConvolution,
    SpectralPool,
)
from foveapool.pooling.baselines.polyphase import AdaptivePolyphasePool, LearnedPolyphasePool
from foveapool.pooling.layer import Layer
from foveapool.pooling.module import LinearPool2d


def sgd_pool(
    channels: int, in_shape: Sequence[int], out_shape: Sequence[int], components: int = 1
) -> LinearPool2d:
    """A full linear pooling that starts at random and is learned by SGD, shared by all channels."""
    check_counts(channels, components)
    pool = LinearPool2d.random(in_shape=in_shape, out_shape=out_shape, components=components)
    pool.channels = channels
    return pool


class LocalSgdPool(Layer):
    """`sgd_pool` with the locality penalty of the closed form, for a training loop to add.

    `penalty()` is `alpha * sum(c * P**2)`, c the squared distance of each input place from the
    center of each output place.
    """

    distance: Tensor

    def __init__(
        self,
        channels: int,
        in_shape: Sequence[int],
        out_shape: Sequence[int],
        components: int = 1,
        *,
        alpha: float = 1e-3,
    ) -> None:
        super().__init__()
        if not alpha >= 0:
            raise ValueError(f"alpha: got {alpha}, wanted 0 or more; 0 is plain SGD")
        self.alpha = alpha
        self.linear = sgd_pool(channels, in_shape, out_shape, components)
        distance = grid.penalty(in_shape, out_shape, center="paper").to(self.linear.weight)
        self.register_buffer("distance", distance, persistent=False)

    def penalty(self) -> Tensor:
        """The number to add to the loss; its gradient is `2 alpha c P`."""
        # C_m is diagonal, so this costs O(M N), not the O(M N^2) that the paper feared.
        return self.alpha * (self.distance * self.linear.weight.square()).sum()

    def forward(self, maps: Tensor) -> Tensor:
        return self.linear(maps)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}"


BASELINES: dict[str, Callable[..., nn.Module]] = {
    "average": AveragePool,
    "max": MaxPool,
    "blur": BlurPool,
    "blur-5": WideBlurPool,
    "max-blur": MaxBlurPool,
    "mixed": MixedPool,
    "gated": GatedPool,
    "soft": SoftPool,
    "lip": LocalImportancePool,
    "spectral": SpectralPool,
    "diffstride": DiffStridePool,
    "aps": AdaptivePolyphasePool,
    "lps": LearnedPolyphasePool,
    "resnet-d": AveragePool,
    "lrlc": LowRankConvolution,
    "coordconv": CoordConvolution,
    "fconv": FullConvolution,
    "sgd": sgd_pool,
    "sgd-local": LocalSgdPool,
}


def baseline_pooling(
    name: str, channels: int, in_shape: Sequence[int], out_shape: Sequence[int], components: int = 1
) -> nn.Module:
    """Builds the pooling of that name for maps (B, channels, *in_shape).

    Args:
        name: One of `BASELINES`.
        channels: The channels of the maps.
        in_shape: Their spatial size.
        out_shape: The spatial size to pool to.
        components: How many output maps each channel gets; poolings that make one only give it as
            many times.

    Returns:
        A module that gives (B, components * channels, *out_shape).

    Raises:
        ValueError: If there is no such pooling, or it cannot have these sizes.

    Example:
        >>> import torch
        >>> baseline_pooling("max", 3, (8, 6), (4, 3), components=2)(torch.zeros(1, 3, 8, 6)).shape
        torch.Size([1, 6, 4, 3])
    """
    if name not in BASELINES:
        hint = did_you_mean(name, BASELINES, most=3) or "; choose one of these"
        raise ValueError(f"name: got {name!r}, wanted one of {', '.join(BASELINES)}{hint}")
    return BASELINES[name](channels, in_shape, out_shape, components)


@dataclass(frozen=True)
class PublishedForm:
    """Where a rival's paper puts it.

    Args:
        form: `replace`, the module instead of the strided convolution; `after`, directly behind
            the convolution at stride 1; `after-activation`, behind its batch-norm and ReLU.
        placement: The path of a residual block in which it stands: `both`, `main` or `shortcut`.
        note: The source, in one sentence.
    """

    form: str
    placement: str
    note: str


PUBLISHED_FORMS: dict[str, PublishedForm] = {
    "average": PublishedForm(
        "after-activation",
        "both",
        "Zhang 2019 compares it as the filter Rect-2, behind convolution and ReLU and before the "
        "shortcut's convolution.",
    ),
    "max": PublishedForm(
        "after-activation",
        "both",
        "Krizhevsky, Sutskever and Hinton 2012 pool behind convolution and ReLU; they have no "
        "residual blocks.",
    ),
    "blur": PublishedForm(
        "after-activation",
        "both",
        "Zhang 2019 blurs behind convolution and ReLU, in a residual block before the second "
        "convolution and before the shortcut's.",
    ),
    "blur-5": PublishedForm(
        "after-activation",
        "both",
        "Zhang 2019 has filters of several sizes, Tri-3 (`blur`) and Bin-5 among them, in the same "
        "places.",
    ),
    "max-blur": PublishedForm(
        "after-activation",
        "both",
        "Zhang 2019 makes max pooling dense and blurs its result, behind convolution and ReLU.",
    ),
    "mixed": PublishedForm(
        "after-activation",
        "both",
        "Lee, Gallagher and Tu 2016 put it in the place of max pooling, behind convolution and "
        "ReLU; they have no residual blocks.",
    ),
    "gated": PublishedForm(
        "after-activation",
        "both",
        "Lee, Gallagher and Tu 2016 put it in the place of max pooling, behind convolution and "
        "ReLU; they have no residual blocks.",
    ),
    "soft": PublishedForm(
        "after-activation",
        "both",
        "Stergiou, Poppe and Kalliatakis 2021 put it in the place of pooling layers, behind "
        "convolution, norm and ReLU; they leave strided residual blocks as they are.",
    ),
    "lip": PublishedForm(
        "after-activation",
        "both",
        "Gao, Wang and Wu 2019 pool activated maps, in a residual block on both paths, before the "
        "next convolution and before the shortcut's.",
    ),
    "spectral": PublishedForm(
        "after-activation",
        "both",
        "Rippel, Snoek and Adams 2015 put it in the place of max pooling, behind a convolution "
        "with its ReLU; they have no residual blocks.",
    ),
    "diffstride": PublishedForm(
        "after",
        "both",
        "Riad, Teboul, Grangier and Zeghidour 2022 pool between the convolution at stride 1 and "
        "its norm, on both paths.",
    ),
    "aps": PublishedForm(
        "after-activation",
        "both",
        "Chaman and Dokmanic 2021 sample behind convolution, norm and ReLU; the shortcut takes "
        "the main path's choice, before its convolution.",
    ),
    "lps": PublishedForm(
        "after-activation",
        "both",
        "Rojas-Gomez, Lim, Schwing, Do and Yeh 2022 sample behind convolution, norm and ReLU; the "
        "shortcut takes the main path's choice, before its convolution.",
    ),
    "resnet-d": PublishedForm(
        "after",
        "shortcut",
        "He, Zhang, Zhang, Zhang, Xie and Li 2019 pool before the shortcut's convolution; the "
        "main path keeps its stride.",
    ),
    "lrlc": PublishedForm(
        "replace",
        "main",
        "Elsayed, Ramachandran, Shlens and Kornblith 2020 put it in the place of convolutions; "
        "they have no residual blocks.",
    ),
    "coordconv": PublishedForm(
        "replace",
        "main",
        "Liu, Lehman, Molino, Petroski Such, Frank, Sergeev and Yosinski 2018 put it in the place "
        "of convolutions.",
    ),
    "fconv": PublishedForm(
        "replace",
        "main",
        "Kayhan and van Gemert 2020 put it in the place of every convolution.",
    ),
    "sgd": PublishedForm(
        "replace",
        "both",
        "Birodkar, Mobahi, Krishnan and Bengio 2019 learn P by gradient descent in the place of "
        "the strided convolution.",
    ),
    "sgd-local": PublishedForm(
        "replace",
        "both",
        "Birodkar, Mobahi, Krishnan and Bengio 2019 name it but do not train it: `sgd` with their "
        "locality penalty.",
    ),
}


def published_form(name: str) -> PublishedForm:
    """The form in which the rival of that name was published.

    Args:
        name: A name of `BASELINES`.

    Returns:
        Its form, its placement in a residual block, and the source.

    Raises:
        ValueError: If there is no rival of that name.

    >>> published_form("blur").form, published_form("resnet-d").placement
    ('after-activation', 'shortcut')
    """
    if name not in PUBLISHED_FORMS:
        hint = did_you_mean(name, PUBLISHED_FORMS, most=3) or "; choose one of these"
        raise ValueError(f"name: got {name!r}, wanted one of {', '.join(PUBLISHED_FORMS)}{hint}")
    return PUBLISHED_FORMS[name]
