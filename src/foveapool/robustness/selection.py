"""Which corruptions, severities and perturbations are meant: words and names, checked early."""

from __future__ import annotations

from collections.abc import Iterable

from foveapool.robustness.corruption_metrics import SEVERITIES
from foveapool.robustness.groups import (
    ALL_CORRUPTIONS,
    PERTURBATION_FILES,
    STANDARD_CORRUPTIONS,
    check_name,
)

STANDARD, ALL = "standard", "all"


def corruption_names(asked: str | Iterable[str]) -> tuple[str, ...]:
    """The names of "standard" (15), "all" (19), one name or several, each once.

    >>> corruption_names(["fog", "snow", "fog"])
    ('fog', 'snow')
    """
    return _names("corruption", asked, {STANDARD: STANDARD_CORRUPTIONS, ALL: ALL_CORRUPTIONS})


def perturbation_names(asked: str | Iterable[str]) -> tuple[str, ...]:
    """The names of "all" (14, the noises at three levels: 20 files), one name or several."""
    return _names("perturbation", asked, {ALL: PERTURBATION_FILES})


def _names(
    kind: str, asked: str | Iterable[str], words: dict[str, tuple[str, ...]]
) -> tuple[str, ...]:
    found: list[str] = []
    for name in [asked] if isinstance(asked, str) else asked:
        if name in words:
            found += words[name]
        else:
            check_name(kind, name, (*words, *words[ALL]))
            found.append(name)
    return tuple(dict.fromkeys(found))


def checked_severities(asked: Iterable[int]) -> tuple[int, ...]:
    """The severities in ascending order, each once; ValueError unless all are from 1 to 5.

    >>> checked_severities([5, 1])
    (1, 5)
    """
    severities = sorted(set(asked))
    if not severities or not set(severities) <= set(SEVERITIES):
        raise ValueError(f"severities: got {severities}, wanted one or more of 1, 2, 3, 4, 5")
    return tuple(severities)
