"""What was trained, in the words of tables, figures and pages: one place for all of them.

Made from the facts of a setting, which are plain JSON, or from the columns of a row, so that a
table and what is told before there is one say the same of the same training.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

from foveapool._stored_names import from_stored
from foveapool.records import Row

Facts = Mapping[str, Any]

BASELINE, CLOSED_FORM, TRAINED, SGD = "baseline", "closed-form", "closed-form-trained", "sgd"
# What readers see for the names that settings, study files and rows have. A name that is not here
# stands for itself.
POOLINGS = {
    BASELINE: "strided convolution",
    CLOSED_FORM: "closed form",
    TRAINED: "closed form, then trained",
    SGD: "P by SGD",
    "sgd-local": "P by SGD, locality penalized",
    "average": "average",
    "max": "max",
    "blur": "BlurPool",
    "blur-5": "BlurPool 5 x 5",
    "max-blur": "max pooling, then BlurPool",
    "mixed": "mixed",
    "gated": "gated",
    "soft": "SoftPool",
    "lip": "LIP",
    "spectral": "spectral",
    "diffstride": "DiffStride",
    "aps": "APS",
    "lps": "LPS",
    "resnet-d": "ResNet-D shortcut",
    "lrlc": "LRLC",
    "coordconv": "CoordConv",
    "fconv": "F-Conv",
}
NETWORKS = {"cnn": "CNN", "resnet18": "ResNet-18"}
DATA = {
    "svhn-reduced": "reduced SVHN",
    "svhn": "SVHN",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "street-digits": "street digits",
}
_COLUMNS = {"pooling": POOLINGS, "network": NETWORKS, "data": DATA}
# Choices of a pooling that go without saying; a place looks at the whole map unless told. How many
# components and which center do so depends on the form.
DEFAULTS = {
    "normalize": True,
    "weighting": "balanced",
    "sign": "neighbor",
    "class_cap": 10_000,
    "window": None,
}
REPLACE = "replace"
_WIDTH = 64  # of a network, which goes without saying too
TRACE = " trace(B)/N"  # behind an alpha in that unit
_AUTO, _NORM = "auto", "l2"  # of a closed form that says nothing of them
_MATRICES = (CLOSED_FORM, TRAINED, SGD, "sgd-local")


def label_cell(column: str, text: str) -> str:
    """A cell of a row, a name with what is unusual behind it, as readers see it.

    >>> label_cell("pooling", "closed-form, window 1, beside blur, after, at 1, 2")
    'closed form, window 1, beside BlurPool, after, at 1, 2'
    >>> label_cell("data", "svhn-reduced, 50 %"), label_cell("layer", "3")
    ('reduced SVHN, 50 %', '3')
    """
    names = _COLUMNS.get(column, {})

    def label(found: re.Match[str]) -> str:
        return names.get(found[0], found[0])

    return re.sub(r"^[^,]+|(?<=, beside )[^,]+?(?=,| at )", label, text) if names else text


def label_columns(setting: Facts, pooling_rate: float | None = None) -> dict[str, str]:
    """Where the poolings of a setting are and how they were fitted.

    The columns are of the pooling that was put in last and others of its name; what else stands in
    the network is told with its name.

    pooling_rate: that of the recipe, where it is not 1 and a matrix is trained.
    """
    pools: Sequence[Facts] = setting["pools"]
    own = [pool for pool in pools if pool["pooling"] == pools[-1]["pooling"]]
    fitted = [pool for pool in own if "alpha" in pool]
    return {
        "network": _network(setting),
        "pooling": _label(setting, own, pooling_rate),
        "layer": _joined(format_number(pool["layer"]) for pool in own),
        "placement": _agreed(get_placement(setting, pool) for pool in own),
        "form": _agreed(pool.get("form", REPLACE) for pool in own),
        "alpha": _joined(format_alpha(pool) for pool in fitted),
        "norm": _joined(str(pool["norm"]) for pool in fitted),
        "components": _joined(format_number(pool["components"]) for pool in own),
        "trainable": str(not pools or pools[-1]["pooling"] != CLOSED_FORM),
    }


def get_placement(setting: Facts, pool: Facts) -> str:
    """Where in a block a pooling of a setting is; a CNN has no placements."""
    default = "" if setting.get("network") == "cnn" else "both"
    return pool.get("placement") or setting.get("placement") or default


def format_alpha(pool: Facts) -> str:
    """A closed form's alpha, with its unit where that is trace(B)/N."""
    return format_number(pool["alpha"]) + (TRACE if pool.get("alpha_unit") == "trace" else "")


def label_data(data: Facts) -> str:
    """The data's name, with the share of it that is trained on."""
    share = data.get("share")
    return data["name"] + ("" if share is None else f", {format_number(100 * share)} %")


def format_number(value: Any) -> str:
    """With digits enough that no two settings are told as one."""
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def default_center(pool: Facts) -> str:
    """The center that goes without saying: behind a convolution, where that has its output."""
    return "first" if pool.get("form", REPLACE).startswith("after") else "paper"


def default_components(pool: Facts) -> int:
    """How many go without saying: a mixed matrix has those of a 3 x 3 convolution."""
    form = pool.get("form") or REPLACE
    mixed = 9 if pool["pooling"] in _MATRICES else 1
    return {REPLACE: 2, "mix": mixed}.get(form, 1)


def list_unusual(pool: Facts) -> dict[str, Any]:
    """Those of a closed form's choices that do not go without saying, beside the columns."""
    pool = from_stored(pool)
    usual = {**DEFAULTS, "center": default_center(pool)}
    return {key: pool[key] for key in usual if pool.get(key, usual[key]) != usual[key]}


def describe_joint_fits(pools: Sequence[Facts]) -> str:
    """Which closed forms were fitted on one network, in words; empty where each had its own."""
    groups: list[list[str]] = []
    for pool in pools:
        if pool.get("together"):
            groups[-1].append(str(pool["layer"]))
        elif "alpha" in pool:
            groups.append([str(pool["layer"])])
    several = [group for group in groups if len(group) > 1]
    if several == groups:
        return "fitted together" if groups else ""
    return " and ".join(f"layers {', '.join(group)} fitted together" for group in several)


def describe_beside(setting: Facts) -> list[str]:
    """The poolings of other names than the last one's, in words: "blur, after, at 1, 2".

    They have no columns, so that all which does not go without saying is said here.
    """
    pools: Sequence[Facts] = setting["pools"]
    main = get_placement(setting, pools[-1]) if pools else ""
    found: dict[str, list[str]] = {}
    for pool in pools:
        if pool["pooling"] != pools[-1]["pooling"]:
            words = _beside(pool, get_placement(setting, pool), main)
            found.setdefault(words, []).append(str(pool["layer"]))
    return [f"{words} at {', '.join(layers)}" for words, layers in found.items()]


def _beside(pool: Facts, placement: str, main: str) -> str:
    words = [pool["form"]] if pool.get("form", REPLACE) != REPLACE else []
    words += [placement] if placement != main else []
    if "alpha" in pool:
        words += [f"alpha {format_alpha(pool)}"] if format_alpha(pool) != _AUTO else []
        words += [str(pool["norm"])] if pool["norm"] != _NORM else []
    if pool["components"] != default_components(pool):
        words.append(f"components {pool['components']}")
    words += [f"{choice} {value}" for choice, value in list_unusual(pool).items()]
    return ", ".join([pool["pooling"], *words]) + ("," if words else "")


def _joined(words: Iterable[str]) -> str:
    return ", ".join(words)


def _agreed(words: Iterable[str]) -> str:
    """Said once where all layers have the same."""
    told = list(words)
    return told[0] if len(set(told)) == 1 else _joined(told)


def _network(setting: Facts) -> str:
    """The network's name, with its width and arguments where they are not the usual ones."""
    width = [] if setting["width"] == _WIDTH else [f"width {setting['width']}"]
    options = [f"{name} {value}" for name, value in (setting.get("options") or {}).items()]
    return ", ".join([setting["network"], *width, *options])


def _label(setting: Facts, own: Sequence[Facts], pooling_rate: float | None) -> str:
    """The pooling's name, with those of its choices that are not the usual ones.

    A choice that not all fitted poolings share is told with its layer.
    """
    pools: Sequence[Facts] = setting["pools"]
    if not pools:
        return BASELINE
    words = []
    fitted = {pool["layer"]: list_unusual(pool) for pool in own if "alpha" in pool}
    for layer, choices in fitted.items():
        for choice, value in choices.items():
            # A choice may be None on purpose, and is missing where it is as usual.
            shared = all(other.get(choice, ...) == value for other in fitted.values())
            words.append(f"{choice} {value}" + ("" if shared else f" at layer {layer}"))
    words += [told] if (told := describe_joint_fits(pools)) else []
    if pooling_rate is not None:
        words.append(f"pooling rate {format_number(pooling_rate)}")
    words += [f"beside {each}" for each in describe_beside(setting)]
    return ", ".join([pools[-1]["pooling"], *dict.fromkeys(words)])


def components(row: Row) -> str:
    """How many components its poolings have, said once where all layers have the same.

    >>> components(Row("s", "", 1.0, 0.1, 3, components="4, 4"))
    'components 4'
    """
    numbers = row.components.split(", ")
    told = numbers[0] if len(set(numbers)) == 1 else row.components
    return told and f"components {told}"


def form(row: Row) -> str:
    """How its poolings stand in the network; nothing where they replace a convolution."""
    return "" if row.form == REPLACE else row.form


def where(row: Row) -> str:
    """The layer; of several those before with alpha and norm, since only the last one's vary.

    >>> where(Row("s", "", 1.0, 0.1, 3, layer="3, 2", alpha="15, 65", norm="l1, l2"))
    '3 at 15, l1 + 2'
    """
    layers, alphas, norms = (each.split(", ") for each in (row.layer, row.alpha, row.norm))
    places = zip(layers, alphas, norms, strict=False)
    before = [f"{layer} at {alpha}, {norm}" for layer, alpha, norm in places][:-1]
    return " + ".join([*before, layers[-1]])


def last_norm(row: Row) -> str:
    """The norm of the pooling that was put in last."""
    return row.norm.split(", ")[-1]


def alpha_unit(row: Row) -> str:
    """What alphas are counted in, where it is trace(B)/N."""
    return f"alpha in{TRACE}" if row.alpha.endswith(TRACE) else ""


def last_alpha(row: Row) -> float | None:
    """The alpha of the pooling that was put in last; None where none was fixed beforehand."""
    try:
        return float(row.alpha.split(", ")[-1].removesuffix(TRACE))
    except ValueError:
        return None


def apart(names: Mapping[Row, str], place: Callable[[Row], Hashable]) -> dict[Row, str]:
    """The names, with the study's own where two studies have rows of one name at one place."""
    studies: dict[tuple[str, Hashable], set[str]] = {}
    for row, name in names.items():
        studies.setdefault((name, place(row)), set()).add(row.study)
    shared = {name for (name, _), own in studies.items() if len(own) > 1}
    return {r: f"{name}, {r.study}" if name in shared else name for r, name in names.items()}
