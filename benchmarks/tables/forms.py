"""Which form is best: a pooling behind the convolution, mixed, or instead of it?"""

from __future__ import annotations

import re
from collections.abc import Callable

from foveapool.labels import BASELINE, CLOSED_FORM, POOLINGS
from foveapool.records import ERROR, VALIDATION, Row
from foveapool.report.tables import choice_key, format_spread, get_paper_error
from foveapool.statistics import adjust_by_holm, compare_pairs
from foveapool.tabular import format_markdown
from tables.rows import format_pair, read_trainings

# How a pooling stands in the network, in words.
STANDS = {
    "replace": "instead of the convolution",
    "mix": "and a 1x1 convolution",
    "after": "behind the convolution",
    "after-activation": "behind convolution, norm and ReLU",
}

CNN, RESNET = "forms-cnn.csv", "forms-resnet18.csv"
EVERYWHERE = "closed form behind every convolution"
PUBLISHED_BLUR = "BlurPool behind every convolution, as published"
AS_IN_THE_PAPER = "closed form instead of the last convolution, as in the paper"
AS_IT_IS = "strided convolutions, the network as it is"
# The lines of the first table and picture by how they are called there: the CNN's, the ResNet's.
FIRST = {
    EVERYWHERE: ("closed form behind convolution, norm and ReLU, layers 1, 2, 3",),
    "closed form behind the last convolution, BlurPool before": (
        "closed form behind convolution, norm and ReLU, layer 3; BlurPool as published, "
        "layers 1, 2",
    ),
    "closed form and 1x1 convolution last, BlurPool before": (
        "closed form, 9 components, and a 1x1 convolution, layer 3; BlurPool as published, "
        "layers 1, 2",
    ),
    "closed form and 1x1 convolution last": (
        "closed form, 9 components, and a 1x1 convolution, layer 3",
    ),
    PUBLISHED_BLUR: ("BlurPool as published, layers 1, 2, 3",),
    AS_IN_THE_PAPER: (
        "closed form, 2 components, instead of the convolution, layer 3",
        "closed form, 2 components, instead of the convolution, layer 3, in the shortcut",
    ),
    AS_IT_IS: ("strided convolution",),
}


def tabulate_forms_cnn() -> str:
    """The CNN on reduced SVHN, the lowest error first, each in pairs with BlurPool as published."""
    header, lines = _forms(CNN)
    return format_markdown(header, lines)


def tabulate_forms_resnet18() -> str:
    """The ResNet-18 on the same images, in the same way."""
    header, lines = _forms(RESNET)
    return format_markdown(header, lines)


def tabulate_forms_street_digits() -> str:
    """The same on generated digits, with a narrow CNN."""
    header, lines = _forms("forms-street-digits.csv")
    return format_markdown(header, lines)


def tabulate_forms_first() -> str:
    """The most telling of these lines: both networks' errors, and what they cost the CNN."""
    found = [{line[0]: line for line in _forms(file)[1]} for file in (CNN, RESNET)]
    lines = []
    for name, own in FIRST.items():
        cnn, resnet = found[0][own[0]], found[1][own[-1]]
        lines.append((name, cnn[1], resnet[1], *cnn[-2:]))
    header = ("what stands there", "CNN, error %", "ResNet-18, error %")
    return format_markdown((*header, "CNN, 10^6 parameters", "10^6 mult-adds"), lines)


def tabulate_forms_readme() -> str:
    """README's lines: the best form, the best rival, the paper's form and the network as it is."""
    found = [{line[0]: line for line in _forms(file)[1]} for file in (CNN, RESNET)]
    papers = {AS_IN_THE_PAPER: CLOSED_FORM, AS_IT_IS: BASELINE}
    lines = []
    for name in (EVERYWHERE, PUBLISHED_BLUR, AS_IN_THE_PAPER, AS_IT_IS):
        cells = []
        for network, own, lines_of in zip(("cnn", "resnet18"), (0, -1), found, strict=True):
            theirs = get_paper_error(network, "svhn-reduced", papers.get(name, ""))
            cells += [lines_of[FIRST[name][own]][1], f"{theirs[0]:.1f}" if theirs else "-"]
        lines.append((name, *cells, found[0][FIRST[name][0]][-1]))
    header = ("pooling", "CNN, error %", "paper", "ResNet-18, error %", "paper")
    return format_markdown((*header, "CNN, 10^6 mult-adds"), lines)


def first_errors() -> list[tuple[str, Row, Row]]:
    """The same lines by name, the CNN's highest error first, with both networks' test errors."""
    cnn, resnet = (
        {describe(row): row for row in read_trainings(file) if row.metric == ERROR}
        for file in (CNN, RESNET)
    )
    found = [(name, cnn[own[0]], resnet[own[-1]]) for name, own in FIRST.items()]
    return sorted(found, key=lambda each: -each[1].mean)


def _forms(file: str) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """The header and the lines of the whole table of a study."""
    rows = read_trainings(file)
    errors = sorted((row for row in rows if row.metric == ERROR), key=lambda row: row.mean)
    (rival,) = (row for row in errors if _is_published_blur(row))
    pairs = {describe(row): compare_pairs(row, rival) for row in errors if row is not rival}
    adjusted = dict(zip(pairs, adjust_by_holm([pair.p for pair in pairs.values()]), strict=True))
    found = {(choice_key(row), row.metric): row for row in rows}
    lines = []
    for row in errors:
        name, less, p = describe(row), "-", "-"
        if row is not rival:
            less, p = format_pair(pairs[name])[0], f"{adjusted[name]:.2g}"
        costs = [
            found[(choice_key(row), name)].mean / 1e6
            for name in ("parameters", "multiply-adds an image")
        ]
        error = format_spread(row.mean, row.std)
        lines.append((name, error, less, p, f"{costs[0]:.2f}", f"{costs[1]:.0f}"))
    header = (
        "what stands there",
        "error %",
        "less BlurPool as published, in pairs",
        "p (Holm)",
        "10^6 parameters",
        "10^6 mult-adds",
    )
    return header, tuple(lines)


def _is_published_blur(row: Row) -> bool:
    return (row.pooling, row.layer, row.form) == ("blur", "1, 2, 3", "after-activation")


def describe(row: Row) -> str:
    """What stands at which layers, in words; layers with the same are named together."""
    name, *more = row.pooling.split(", ", 1)
    if name == BASELINE:
        return POOLINGS[BASELINE]
    layers, counts = row.layer.split(", "), row.components.split(", ")
    forms = row.form.split(", ")
    forms = forms if len(forms) == len(layers) else forms * len(layers)
    groups: dict[tuple[str, str], list[str]] = {}
    for layer, form, count in zip(layers, forms, counts, strict=True):
        groups.setdefault((form, count), []).append(layer)
    side = ", in the shortcut" if row.placement == "shortcut" else ""
    told = [
        f"{_stands(name, form, count)}, {_layers(', '.join(own))}{side}"
        for (form, count), own in groups.items()
    ]
    beside = re.search(r"beside blur, after-activation, at ([\d, ]+)", *more) if more else None
    told += [f"{_stands('blur', 'after-activation', '1')}, {_layers(beside[1])}"] if beside else []
    return "; ".join(told)


def _stands(name: str, form: str, components: str) -> str:
    """A pooling and how it stands in the network; nothing of one component, or of none."""
    words = POOLINGS[name]
    if name.startswith("blur") and form == "after-activation":
        return f"{words} as published"
    many = "" if components in ("", "1") else f", {components} components"
    comma = "," if many or "," in words else ""
    return f"{words}{many}{comma} {STANDS[form]}"


def _layers(text: str) -> str:
    return f"layer{'s' if ',' in text else ''} {text}"


def tabulate_locality() -> str:
    """Validation error by window and alpha, a column each pair of layers and alpha."""
    rows = [row for row in read_trainings("locality-street-digits.csv") if row.metric == VALIDATION]
    rows = [row for row in rows if row.pooling != BASELINE]
    found = {(_window(row), row.layer, row.alpha.split(",")[0]): row for row in rows}
    columns = list(dict.fromkeys((layer, alpha) for _, layer, alpha in found))
    lines = []
    for window in dict.fromkeys(key[0] for key in found):
        cells = [found.get((window, *column)) for column in columns]
        lines.append((window, *(f"{row.mean:.1f}" if row else "-" for row in cells)))
    header = ("a position sees", *(f"{_layers(layer)}: {alpha}" for layer, alpha in columns))
    return format_markdown(header, lines)


def _window(row: Row) -> str:
    """How far a position sees, in words."""
    found = re.search(r"window (\d+)", row.pooling)
    if not found:
        return "the whole map"
    side = 2 * int(found[1]) + 1
    return f"{side} x {side}"


TABLES: dict[str, Callable[[], str]] = {
    "forms_cnn": tabulate_forms_cnn,
    "forms_first": tabulate_forms_first,
    "forms_readme": tabulate_forms_readme,
    "forms_resnet18": tabulate_forms_resnet18,
    "forms_street_digits": tabulate_forms_street_digits,
    "locality": tabulate_locality,
}
