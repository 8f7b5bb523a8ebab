"""The form in which each rival was published: where it stands in a network, and who says so.

A rival is judged in the form of its own paper; any other form of it is ours. The forms are built
by `networks`, the rivals themselves are in `rivals`.
"""

from __future__ import annotations

from dataclasses import dataclass

from foveapool.near import did_you_mean


@dataclass(frozen=True)
class Published:
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


PUBLISHED: dict[str, Published] = {
    "average": Published(
        "after-activation",
        "both",
        "Zhang 2019 compares it as the filter Rect-2, behind convolution and ReLU and before the "
        "shortcut's convolution.",
    ),
    "max": Published(
        "after-activation",
        "both",
        "Krizhevsky, Sutskever and Hinton 2012 pool behind convolution and ReLU; they have no "
        "residual blocks.",
    ),
    "blur": Published(
        "after-activation",
        "both",
        "Zhang 2019 blurs behind convolution and ReLU, in a residual block before the second "
        "convolution and before the shortcut's.",
    ),
    "blur-5": Published(
        "after-activation",
        "both",
        "Zhang 2019 has filters of several sizes, Tri-3 (`blur`) and Bin-5 among them, in the same "
        "places.",
    ),
    "max-blur": Published(
        "after-activation",
        "both",
        "Zhang 2019 makes max pooling dense and blurs its result, behind convolution and ReLU.",
    ),
    "mixed": Published(
        "after-activation",
        "both",
        "Lee, Gallagher and Tu 2016 put it in the place of max pooling, behind convolution and "
        "ReLU; they have no residual blocks.",
    ),
    "gated": Published(
        "after-activation",
        "both",
        "Lee, Gallagher and Tu 2016 put it in the place of max pooling, behind convolution and "
        "ReLU; they have no residual blocks.",
    ),
    "soft": Published(
        "after-activation",
        "both",
        "Stergiou, Poppe and Kalliatakis 2021 put it in the place of pooling layers, behind "
        "convolution, norm and ReLU; they leave strided residual blocks as they are.",
    ),
    "lip": Published(
        "after-activation",
        "both",
        "Gao, Wang and Wu 2019 pool activated maps, in a residual block on both paths, before the "
        "next convolution and before the shortcut's.",
    ),
    "spectral": Published(
        "after-activation",
        "both",
        "Rippel, Snoek and Adams 2015 put it in the place of max pooling, behind a convolution "
        "with its ReLU; they have no residual blocks.",
    ),
    "diffstride": Published(
        "after",
        "both",
        "Riad, Teboul, Grangier and Zeghidour 2022 pool between the convolution at stride 1 and "
        "its norm, on both paths.",
    ),
    "aps": Published(
        "after-activation",
        "both",
        "Chaman and Dokmanic 2021 sample behind convolution, norm and ReLU; the shortcut takes "
        "the main path's choice, before its convolution.",
    ),
    "lps": Published(
        "after-activation",
        "both",
        "Rojas-Gomez, Lim, Schwing, Do and Yeh 2022 sample behind convolution, norm and ReLU; the "
        "shortcut takes the main path's choice, before its convolution.",
    ),
    "resnet-d": Published(
        "after",
        "shortcut",
        "He, Zhang, Zhang, Zhang, Xie and Li 2019 pool before the shortcut's convolution; the "
        "main path keeps its stride.",
    ),
    "lrlc": Published(
        "replace",
        "main",
        "Elsayed, Ramachandran, Shlens and Kornblith 2020 put it in the place of convolutions; "
        "they have no residual blocks.",
    ),
    "coordconv": Published(
        "replace",
        "main",
        "Liu, Lehman, Molino, Petroski Such, Frank, Sergeev and Yosinski 2018 put it in the place "
        "of convolutions.",
    ),
    "fconv": Published(
        "replace",
        "main",
        "Kayhan and van Gemert 2020 put it in the place of every convolution.",
    ),
    "sgd": Published(
        "replace",
        "both",
        "Birodkar, Mobahi, Krishnan and Bengio 2019 learn P by gradient descent in the place of "
        "the strided convolution.",
    ),
    "sgd-local": Published(
        "replace",
        "both",
        "Birodkar, Mobahi, Krishnan and Bengio 2019 name it but do not train it: `sgd` with their "
        "locality penalty.",
    ),
}


def published_form(name: str) -> Published:
    """The form in which the rival of that name was published.

    Args:
        name: A name of `RIVALS`.

    Returns:
        Its form, its placement in a residual block, and the source.

    Raises:
        ValueError: If there is no rival of that name.

    >>> published_form("blur").form, published_form("resnet-d").placement
    ('after-activation', 'shortcut')
    """
    if name not in PUBLISHED:
        hint = did_you_mean(name, PUBLISHED, most=3) or "; choose one of these"
        raise ValueError(f"name: got {name!r}, wanted one of {', '.join(PUBLISHED)}{hint}")
    return PUBLISHED[name]
