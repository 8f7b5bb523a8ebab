"""What was trained, as columns of a row: network, pooling, where it is and how it was fitted.

Made from the facts of a setting, which are plain JSON, so that a table and what is told before
there is one say the same of the same training.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Facts = Mapping[str, Any]

BASELINE = "baseline"
# Choices of a pooling that go without saying; a place looks at the whole map unless told.
USUAL = {
    "components": 2,
    "normalise": True,
    "weighting": "balanced",
    "centre": "paper",
    "sign": "neighbour",
    "class_cap": 10_000,
    "window": None,
}
_CLOSED_FORM = "closed-form"  # the one pooling that does not train
_WIDTH = 64  # of a network, which goes without saying too
_COLUMNS = ("components",)  # choices that are columns of their own


def place(setting: Facts, pooling_rate: float | None = None) -> dict[str, str]:
    """Where the poolings of a setting are and how they were fitted.

    pooling_rate: that of the recipe, where it is not 1 and a matrix is trained.
    """
    pools: Sequence[Facts] = setting["pools"]
    fitted = _fitted(pools)
    own = "" if setting["network"] == "cnn" else "both"  # a CNN has no placements
    return {
        "network": _network(setting),
        "pooling": _label(pools, pooling_rate),
        "layer": _joined(pools, "layer"),
        "placement": (setting.get("placement") or own) if pools else "",
        "alpha": _joined(fitted, "alpha"),
        "norm": _joined(fitted, "norm"),
        "components": _joined(pools, "components"),
        "trainable": str(not pools or pools[-1]["pooling"] != _CLOSED_FORM),
    }


def data_label(data: Facts) -> str:
    """The data's name, with the share of it that is trained on."""
    share = data.get("share")
    return data["name"] + ("" if share is None else f", {number(100 * share)} %")


def number(value: Any) -> str:
    """With digits enough that no two settings are told as one."""
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def _joined(pools: Iterable[Facts], choice: str) -> str:
    return ", ".join(number(pool[choice]) for pool in pools)


def _fitted(pools: Sequence[Facts]) -> list[Facts]:
    return [pool for pool in pools if "alpha" in pool]


def _network(setting: Facts) -> str:
    """The network's name, with its width and arguments where they are not the usual ones."""
    width = [] if setting["width"] == _WIDTH else [f"width {setting['width']}"]
    options = [f"{name} {value}" for name, value in (setting.get("options") or {}).items()]
    return ", ".join([setting["network"], *width, *options])


def _label(pools: Sequence[Facts], pooling_rate: float | None) -> str:
    """The pooling's name, with those of its choices that are not the usual ones.

    A choice that not all fitted poolings share is told with its layer.
    """
    if not pools:
        return BASELINE
    fitted = _fitted(pools)
    words = []
    for pool in fitted:
        for choice, usual in USUAL.items():
            value = pool.get(choice, usual)
            if value == usual or choice in _COLUMNS:
                continue
            shared = all(other.get(choice, usual) == value for other in fitted)
            words.append(f"{choice} {value}" + ("" if shared else f" at layer {pool['layer']}"))
    if pooling_rate is not None:
        words.append(f"pooling rate {number(pooling_rate)}")
    return ", ".join([pools[-1]["pooling"], *dict.fromkeys(words)])
