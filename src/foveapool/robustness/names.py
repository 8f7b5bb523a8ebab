"""The names of the corruptions and perturbations, and the groups that papers average over.

Plain tuples, so that metrics need no image code. What each name does to an image is told in
`corruptions.py` and `perturbations.py`.
"""

from __future__ import annotations

from collections.abc import Iterable

from foveapool._suggest import did_you_mean

STANDARD_CORRUPTIONS = (
    "gaussian_noise",
    "shot_noise",
    "impulse_noise",
    "defocus_blur",
    "glass_blur",
    "motion_blur",
    "zoom_blur",
    "snow",
    "frost",
    "fog",
    "brightness",
    "contrast",
    "elastic_transform",
    "pixelate",
    "jpeg_compression",
)
EXTRA_CORRUPTIONS = ("speckle_noise", "gaussian_blur", "spatter", "saturate")
ALL_CORRUPTIONS = STANDARD_CORRUPTIONS + EXTRA_CORRUPTIONS
# Those that move pixels, as Table 2 of the paper groups them.
GEOMETRIC_CORRUPTIONS = (
    "defocus_blur",
    "glass_blur",
    "motion_blur",
    "zoom_blur",
    "elastic_transform",
)

# The generator of CIFAR-10-P and its evaluation script disagree about one name: snow or spatter.
GENERATOR_TEN = (
    "gaussian_noise",
    "shot_noise",
    "motion_blur",
    "zoom_blur",
    "snow",
    "brightness",
    "translate",
    "rotate",
    "tilt",
    "scale",
)
EVALUATION_TEN = tuple("spatter" if name == "snow" else name for name in GENERATOR_TEN)
ALL_PERTURBATIONS = (*GENERATOR_TEN, "speckle_noise", "gaussian_blur", "spatter", "shear")
# As Table 3 of the paper groups them.
GEOMETRIC_PERTURBATIONS = (
    "scale",
    "rotate",
    "tilt",
    "translate",
    "shear",
    "motion_blur",
    "zoom_blur",
    "gaussian_blur",
)
NOISE_LEVELS = (1, 2, 3)


def is_noise(name: str) -> bool:
    """Whether frames are compared with the first one (noise) or with the one before."""
    return "noise" in name


def name_at_level(name: str, level: int) -> str:
    """The name of a noise's file of that level, "shot_noise_2"; other names stay as they are."""
    return f"{name}_{level}" if is_noise(name) and level > 1 else name


def list_files(name: str) -> list[str]:
    """The files of a perturbation: one for each level of a noise, else one."""
    return [name_at_level(name, level) for level in (NOISE_LEVELS if is_noise(name) else (1,))]


# The 20 files of CIFAR-10-P: 14 sequences, the three noises at three levels.
PERTURBATION_FILES = tuple(file for name in ALL_PERTURBATIONS for file in list_files(name))


def check_name(kind: str, name: str, known: Iterable[str]) -> None:
    """ValueError with the nearest known names if `name` is none of them."""
    known = list(known)
    if name not in known:
        hint = did_you_mean(name, known, most=3) or "; choose one of these"
        raise ValueError(f"{kind}: got {name!r}, wanted one of {', '.join(known)}{hint}")


SEVERITIES = (1, 2, 3, 4, 5)


STANDARD, ALL = "standard", "all"


def corruption_names(asked: str | Iterable[str]) -> tuple[str, ...]:
    """The names of "standard" (15), "all" (19), one name or several, each once.

    >>> corruption_names(["fog", "snow", "fog"])
    ('fog', 'snow')
    """
    return _expand_names(
        "corruption", asked, {STANDARD: STANDARD_CORRUPTIONS, ALL: ALL_CORRUPTIONS}
    )


def perturbation_names(asked: str | Iterable[str]) -> tuple[str, ...]:
    """The names of "all" (14, the noises at three levels: 20 files), one name or several."""
    return _expand_names("perturbation", asked, {ALL: PERTURBATION_FILES})


def _expand_names(
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


def check_severities(asked: Iterable[int]) -> tuple[int, ...]:
    """The severities in ascending order, each once; ValueError unless all are from 1 to 5.

    >>> check_severities([5, 1])
    (1, 5)
    """
    severities = sorted(set(asked))
    if not severities or not set(severities) <= set(SEVERITIES):
        raise ValueError(f"severities: got {severities}, wanted one or more of 1, 2, 3, 4, 5")
    return tuple(severities)
